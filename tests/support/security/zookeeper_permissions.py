"""The permission that each request of ZooKeeper needs, and the node that must grant it, as a table."""

from __future__ import annotations

import struct
from typing import NamedTuple

from support.zookeeper import bytes as wire

READ, WRITE, MAY_CREATE, MAY_DELETE, ADMIN = 1, 2, 4, 8, 16
ALL = 31
NODE = "/node"
CHILD = f"{NODE}/child"
NO_AUTH = -102
ANYONE = ((ALL, "world", "anyone"),)


class Guarded(NamedTuple):
    """A request whose sender needs one of these permissions on NODE. CHILD exists, and lets everybody do everything."""

    opcode: int
    record: bytes
    permissions: int
    in_parts: bool = False
    """True if the error is in the reply's body, one per operation."""


def _create(path: str, flags: int = 0) -> bytes:
    return wire.text(path) + wire.data(b"x") + wire.acl(ANYONE) + wire.integer(flags)


def _versioned(path: str, *between: bytes) -> bytes:
    return wire.text(path) + b"".join(between) + wire.integer(-1)


def _multi(opcode: int, record: bytes) -> bytes:
    return wire.multi([(opcode, record)])


_SET = _versioned(NODE, wire.data(b"new"))
_SET_ACL = _versioned(NODE, wire.acl(ANYONE))
_READ = wire.text(NODE) + b"\0"
GUARDED: dict[str, Guarded] = {
    "create": Guarded(wire.CREATE, _create(f"{NODE}/new"), MAY_CREATE),
    "create sequential": Guarded(wire.CREATE, _create(f"{NODE}/new", 2), MAY_CREATE),
    "create ephemeral": Guarded(wire.CREATE2, _create(f"{NODE}/new", 1), MAY_CREATE),
    "create2": Guarded(wire.CREATE2, _create(f"{NODE}/new"), MAY_CREATE),
    "createContainer": Guarded(wire.CREATE_CONTAINER, _create(f"{NODE}/new", 4), MAY_CREATE),
    "delete": Guarded(wire.DELETE, _versioned(CHILD), MAY_DELETE),
    "setData": Guarded(wire.SET, _SET, WRITE),
    "setACL": Guarded(wire.SET_ACL, _SET_ACL, ADMIN),
    "exists": Guarded(wire.EXISTS, _READ, READ),
    "getData": Guarded(wire.GET, _READ, READ),
    "getChildren": Guarded(wire.CHILDREN, _READ, READ),
    "getChildren2": Guarded(wire.CHILDREN2, _READ, READ),
    "getACL": Guarded(wire.GET_ACL, wire.text(NODE), READ | ADMIN),
    "getAllChildrenNumber": Guarded(wire.COUNT_CHILDREN, wire.text(NODE), READ),
    "multi: create": Guarded(
        wire.MULTI, _multi(wire.CREATE, _create(f"{NODE}/new")), MAY_CREATE, True
    ),
    "multi: delete": Guarded(wire.MULTI, _multi(wire.DELETE, _versioned(CHILD)), MAY_DELETE, True),
    "multi: setData": Guarded(wire.MULTI, _multi(wire.SET, _SET), WRITE, True),
    "multi: check": Guarded(wire.MULTI, _multi(wire.CHECK, _versioned(NODE)), READ, True),
    "multiRead: getData": Guarded(wire.MULTI_READ, _multi(wire.GET, _READ), READ, True),
    "multiRead: getChildren": Guarded(wire.MULTI_READ, _multi(wire.CHILDREN, _READ), READ, True),
}


def error_of(guarded: Guarded, error: int, body: bytes) -> int:
    """Return the error code of a reply, from its header and its body."""
    if error or not guarded.in_parts:
        return error
    kind, _, part_error = struct.unpack_from("!i?i", body)
    return part_error if kind == -1 else 0
