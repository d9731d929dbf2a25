"""The numbers of ZooKeeper's requests. CREATE, CREATE2, CREATE_CONTAINER and CREATE_TTL are in `core.codes`."""

from __future__ import annotations

from typing import Final

ERROR: Final = -1
"""The type of a failed operation in the reply to a multi."""
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_ACL: Final = 6
SET_ACL: Final = 7
GET_CHILDREN: Final = 8
SYNC: Final = 9
PING: Final = 11
GET_CHILDREN2: Final = 12
CHECK: Final = 13
MULTI: Final = 14
RECONFIG: Final = 16
CHECK_WATCHES: Final = 17
REMOVE_WATCHES: Final = 18
MULTI_READ: Final = 22
AUTH: Final = 100
SET_WATCHES: Final = 101
GET_EPHEMERALS: Final = 103
GET_ALL_CHILDREN_NUMBER: Final = 104
SET_WATCHES2: Final = 105
ADD_WATCH: Final = 106
WHO_AM_I: Final = 107
CLOSE_SESSION: Final = -11
