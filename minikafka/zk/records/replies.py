"""Encoding of what a server sends: frames with replies, events, and the reply to the first request."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from minikafka.base.ports import Stat
from minikafka.zk.core import codes
from minikafka.zk.core.acl import Acl, Identity
from minikafka.zk.core.operations import Create, Delete, Operation, SetData
from minikafka.zk.core.state import Result
from minikafka.zk.core.tree import Node
from minikafka.zk.records import jute, opcodes
from minikafka.zk.records.jute import INT, NULL

ANSWER_BYTES_MAX: Final = 8 << 20
"""The longest answer to one request: a request of some KB may ask for thousands of nodes of 1 MB."""
PASSWORD_BYTES: Final = 16
EVENT_XID: Final = -1
_HEADER: Final = struct.Struct("!iiqi")
"""Length of the rest, xid, zxid, error."""
_HEADER_BYTES: Final = _HEADER.size - INT.size
_CONNECT: Final = struct.Struct("!iiq")
_EVENT: Final = struct.Struct("!ii")
_OPERATION: Final = struct.Struct("!i?i")
"""In front of each result of a multi: type, whether this is the end, error."""
_END: Final = _OPERATION.pack(-1, True, -1)
_DATA_READ: Final = _OPERATION.pack(opcodes.GET_DATA, False, 0)
_CHILDREN_READ: Final = _OPERATION.pack(opcodes.GET_CHILDREN, False, 0)
_CONNECTED: Final = 3
"""The state of the session in an event: connected."""
_pack_header = _HEADER.pack
_pack_stat = jute.STAT.pack
_pack_int = INT.pack


class AnswerTooLong(Exception):
    """The answer to a request would be longer than ANSWER_BYTES_MAX."""


def reply(xid: int, zxid: int, body: bytes = b"") -> bytes:
    """Encode the reply to a successful request."""
    return _pack_header(_HEADER_BYTES + len(body), xid, zxid, 0) + body


def error(xid: int, zxid: int, code: int) -> bytes:
    """Encode the reply to a refused request, which has no body."""
    return _pack_header(_HEADER_BYTES, xid, zxid, code)


@lru_cache(maxsize=1)  # thousands of connections may watch a node with a path of 1 MB
def event(change: int, path: str, zxid: int) -> bytes:
    """Encode a watch event."""
    body = _EVENT.pack(change, _CONNECTED) + jute.string(path)
    return _pack_header(_HEADER_BYTES + len(body), EVENT_XID, zxid, 0) + body


def connected(session_id: int, timeout_ms: int, password: bytes, *, has_read_only: bool) -> bytes:
    """Encode the reply to the first request. `has_read_only`: with the byte `readOnly`, which is false."""
    body = _CONNECT.pack(0, timeout_ms, session_id) + jute.buffer(password)
    return jute.buffer(body + b"\0" if has_read_only else body)


def refused_connection(*, has_read_only: bool) -> bytes:
    """Encode the reply to a client whose session is over, or whose password is wrong."""
    return connected(0, 0, bytes(PASSWORD_BYTES), has_read_only=has_read_only)


def stat(node: Node) -> bytes:
    """Encode a node's Stat."""
    return _pack_stat(*node.stat_fields())


def data(node: Node) -> bytes:
    """Encode a node's data and Stat."""
    found = node.data
    encoded = NULL if found is None else INT.pack(len(found)) + found
    return encoded + _pack_stat(*node.stat_fields())


def children(node: Node) -> bytes:
    """Encode the names of a node's children, in the order of their creation."""
    return names(node.children or ())


def names(texts: Iterable[str]) -> bytes:
    """Encode a list of names or paths. Raises AnswerTooLong."""
    encoded, size = [], 0
    for text in texts:
        piece = jute.string(text)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise AnswerTooLong
        encoded.append(piece)
    return _pack_int(len(encoded)) + b"".join(encoded)


def acl(entries: Acl, node: Node) -> bytes:
    """Encode an access control list and the node's Stat."""
    return jute.acl(entries) + stat(node)


def identities(entries: Iterable[Identity]) -> bytes:
    """Encode the identities of a connection; of a digest, only the user."""
    found = [
        jute.string(scheme) + jute.string(name.partition(":")[0] if scheme == "digest" else name)
        for scheme, name in entries
    ]
    return INT.pack(len(found)) + b"".join(found)


def created(kind: int, path: str, stat: Stat) -> bytes:
    """Encode the result of a create: the path, with the Stat unless the request is the old one without a Stat."""
    encoded = jute.string(path)
    return encoded if kind == codes.CREATE else encoded + _pack_stat(*stat)


def multi(operations: Sequence[Operation], results: Sequence[Result | int]) -> bytes:
    """Encode the results of a multi: one per operation, or error codes (int) if it was refused."""
    return b"".join(map(_operation, operations, results)) + _END


def _operation(operation: Operation, result: Result | int) -> bytes:
    if isinstance(result, int):
        return failed_operation(result)
    if isinstance(operation, Create):
        assert result.stat is not None
        # The result of a container has the type of a create2 [measured].
        kind = codes.CREATE if operation.kind == codes.CREATE else codes.CREATE2
        return succeeded_operation(kind, created(kind, result.path, result.stat))
    if isinstance(operation, SetData):
        assert result.stat is not None
        return succeeded_operation(opcodes.SET_DATA, jute.stat(result.stat))
    kind = opcodes.DELETE if isinstance(operation, Delete) else opcodes.CHECK
    return succeeded_operation(kind)


def succeeded_operation(kind: int, body: bytes = b"") -> bytes:
    """Encode one result of a multi."""
    return _OPERATION.pack(kind, False, 0) + body


def failed_operation(code: int) -> bytes:
    """Encode the error of one operation of a multi or a multiRead."""
    return _OPERATION.pack(opcodes.ERROR, False, code) + INT.pack(code)


def multi_read(operations: Iterable[tuple[int, str]], nodes: Iterable[Node | int]) -> bytes:
    """Encode the results of a multiRead: for each operation a node, or an error code (int). Raises AnswerTooLong."""
    pieces = []
    room = ANSWER_BYTES_MAX
    for (kind, _), node in zip(operations, nodes, strict=True):
        if isinstance(node, int):
            pieces.append(failed_operation(node))
        elif kind == opcodes.GET_DATA:
            found = node.data
            if found is not None:
                room -= len(found)
            pieces += (
                _DATA_READ,
                NULL if found is None else _pack_int(len(found)) + found,
                _pack_stat(*node.stat_fields()),
            )
        else:
            pieces += (_CHILDREN_READ, found := children(node))
            room -= len(found)
        if room < 0:
            raise AnswerTooLong
    pieces.append(_END)
    return b"".join(pieces)
