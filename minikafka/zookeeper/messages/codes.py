"""The numbers of ZooKeeper's protocol: opcodes, error codes, kinds of events and watches, flags, reserved xids."""

from __future__ import annotations

from typing import Final

# Opcodes of requests. Those of writes are also the types of operations and results of a multi, and of log records.
CREATE: Final = 1
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
CREATE2: Final = 15
RECONFIG: Final = 16
CHECK_WATCHES: Final = 17
REMOVE_WATCHES: Final = 18
CREATE_CONTAINER: Final = 19
DELETE_CONTAINER: Final = 20
"""The server removes an empty container; only in the log."""
CREATE_TTL: Final = 21
MULTI_READ: Final = 22
AUTH: Final = 100
SET_WATCHES: Final = 101
SASL: Final = 102
GET_EPHEMERALS: Final = 103
GET_ALL_CHILDREN_NUMBER: Final = 104
SET_WATCHES2: Final = 105
ADD_WATCH: Final = 106
WHO_AM_I: Final = 107
OPEN_SESSION: Final = -10
"""A new session; only in the log."""
CLOSE_SESSION: Final = -11
ERROR: Final = -1
"""The type of a failed operation in the reply to a multi, and of a refused write in the log."""

# Error codes of replies.
SYSTEM_ERROR: Final = -1
RUNTIME_INCONSISTENCY: Final = -2
"""In a refused multi: the operation was not tried, because an earlier one was at fault."""
CONNECTION_LOSS: Final = -4
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
OPERATION_TIMEOUT: Final = -7
BAD_ARGUMENTS: Final = -8
NO_NODE: Final = -101
NO_AUTH: Final = -102
BAD_VERSION: Final = -103
NO_CHILDREN_FOR_EPHEMERALS: Final = -108
NODE_EXISTS: Final = -110
NOT_EMPTY: Final = -111
SESSION_EXPIRED: Final = -112
INVALID_ACL: Final = -114
AUTH_FAILED: Final = -115
NO_WATCHER: Final = -121
REQUEST_TIMEOUT: Final = -122
RECONFIG_DISABLED: Final = -123
AUTHENTICATION_REQUIRED: Final = -124
"""The server answers only clients that have authenticated."""
THROTTLED: Final = -127

# Kinds of watch event.
NODE_CREATED: Final = 1
NODE_DELETED: Final = 2
DATA_CHANGED: Final = 3
CHILDREN_CHANGED: Final = 4

# Types of watches in a request that checks or removes watches. A data watch is also the one that exists sets.
CHILD_WATCH: Final = 1
DATA_WATCH: Final = 2
ANY_WATCH: Final = 3
PERSISTENT_WATCH: Final = 4
RECURSIVE_WATCH: Final = 5

# Flags of a create request: 0 to 3 are bits, 4 to 6 are numbers.
EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
CONTAINER_FLAG: Final = 4
TTL_FLAG: Final = 5
FLAGS_MAX: Final = 6

# Xids of frames that are not the reply to a numbered request.
EVENT_XID: Final = -1
PING_XID: Final = -2

ANY_VERSION: Final = -1
"""As the version of a write: the node may have any version."""
UNKNOWN_ZXID: Final = -1
"""As the zxid of an event: the server does not know when the change happened."""


class Refused(Exception):
    """The server's refusal of a request. `code`: the error code of the reply."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
