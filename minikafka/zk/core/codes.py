"""The numbers of ZooKeeper's protocol that the state of a server needs: errors, events, kinds of create, flags."""

from __future__ import annotations

from typing import Final

RUNTIME_INCONSISTENCY: Final = -2
"""The code of an operation in a refused multi that was not tried because an earlier one was at fault."""
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
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
RECONFIG_DISABLED: Final = -123

# Kinds of watch event.
NODE_CREATED: Final = 1
NODE_DELETED: Final = 2
DATA_CHANGED: Final = 3
CHILDREN_CHANGED: Final = 4

# Operations that create a node. The numbers are those of the protocol and of the log.
CREATE: Final = 1
CREATE2: Final = 15
CREATE_CONTAINER: Final = 19
CREATE_TTL: Final = 21

# Flags of a create request: 0 to 3 are bits, 4 to 6 are numbers.
EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
CONTAINER_FLAG: Final = 4
TTL_FLAG: Final = 5
FLAGS_MAX: Final = 6


class Refused(Exception):
    """The server's refusal of a request. `code`: the error code of the reply."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
