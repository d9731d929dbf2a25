"""The frames that a server sends (replies, events, the reply to the first request), and the client's decoders of them.

The client's decoders return values of `base.ports`. They raise ValueError for bytes that no server sends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from minikafka.base.ports import Stat, Znode
from minikafka.zookeeper.messages import codes, jute
from minikafka.zookeeper.messages.jute import END_OF_PARTS, INT, NULL, PART, STAT, Acl, Identity
from minikafka.zookeeper.messages.requests import (
    CreateNode,
    DeleteNode,
    Operation,
    OpResult,
    SetData,
)

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 8 << 20
"""The longest answer to one request: a request of some KB may ask for thousands of nodes of 1 MB."""
PASSWORD_BYTES: Final = 16
_HEADER: Final = struct.Struct("!iiqi")
"""Length of the rest, xid, zxid, error."""
_HEADER_BYTES: Final = _HEADER.size - INT.size
_STAT_BYTES: Final = STAT.size
_CONNECT: Final = struct.Struct("!iiq")
_EVENT: Final = struct.Struct("!ii")
_DATA_READ: Final = PART.pack(codes.GET_DATA, False, 0)
_CHILDREN_READ: Final = PART.pack(codes.GET_CHILDREN, False, 0)
_CONNECTED: Final = 3
"""The state of the session in an event: connected."""
_pack_header = _HEADER.pack
_pack_stat = STAT.pack
_pack_int = INT.pack
_unpack_stat = STAT.unpack_from


# ---- encoding, for the server


class TreeNode(Protocol):
    """A node of the server's tree, as far as replies show it."""

    data: bytes | None
    children: dict[str, None] | None

    def stat_fields(self) -> tuple[int, ...]:
        """Return the fields of the node's Stat."""


class AnswerTooLong(Exception):
    """The answer to a request would be longer than ANSWER_BYTES_MAX."""


def encode_reply(xid: int, zxid: int, body: bytes = b"") -> bytes:
    """Encode the reply to a successful request."""
    return _pack_header(_HEADER_BYTES + len(body), xid, zxid, 0) + body


def encode_error(xid: int, zxid: int, code: int) -> bytes:
    """Encode the reply to a refused request, which has no body."""
    return _pack_header(_HEADER_BYTES, xid, zxid, code)


@lru_cache(maxsize=1)  # thousands of connections may watch a node with a path of 1 MB
def encode_event(change: int, path: str, zxid: int) -> bytes:
    """Encode a watch event."""
    body = _EVENT.pack(change, _CONNECTED) + jute.string(path)
    return _pack_header(_HEADER_BYTES + len(body), codes.EVENT_XID, zxid, 0) + body


def encode_connected(
    session_id: int, timeout_ms: int, password: bytes, *, has_read_only: bool
) -> bytes:
    """Encode the reply to the first request. `has_read_only`: with the byte `readOnly`, which is false."""
    body = _CONNECT.pack(0, timeout_ms, session_id) + jute.buffer(password)
    return jute.buffer(body + b"\0" if has_read_only else body)


def encode_refused_connection(*, has_read_only: bool) -> bytes:
    """Encode the reply to a client whose session is over, or whose password is wrong."""
    return encode_connected(0, 0, bytes(PASSWORD_BYTES), has_read_only=has_read_only)


def encode_stat(node: TreeNode) -> bytes:
    """Encode a node's Stat."""
    return _pack_stat(*node.stat_fields())


def encode_data(node: TreeNode) -> bytes:
    """Encode a node's data and Stat."""
    found = node.data
    encoded = NULL if found is None else INT.pack(len(found)) + found
    return encoded + _pack_stat(*node.stat_fields())


def encode_children(node: TreeNode) -> bytes:
    """Encode the names of a node's children, in the order of their creation."""
    return encode_names(node.children or ())


def encode_names(texts: Iterable[str]) -> bytes:
    """Encode a list of names or paths. Raises AnswerTooLong."""
    encoded, size = [], 0
    for text in texts:
        piece = jute.string(text)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise AnswerTooLong
        encoded.append(piece)
    return _pack_int(len(encoded)) + b"".join(encoded)


def encode_acl(entries: Acl, node: TreeNode) -> bytes:
    """Encode an access control list and the node's Stat."""
    return jute.acl(entries) + encode_stat(node)


def encode_identities(entries: Iterable[Identity]) -> bytes:
    """Encode the identities of a connection; of a digest, only the user."""
    found = [
        jute.string(scheme) + jute.string(name.partition(":")[0] if scheme == "digest" else name)
        for scheme, name in entries
    ]
    return INT.pack(len(found)) + b"".join(found)


def encode_created(kind: int, path: str, stat: Stat) -> bytes:
    """Encode the result of a create: the path, with the Stat unless the request is the old one without a Stat."""
    encoded = jute.string(path)
    return encoded if kind == codes.CREATE else encoded + _pack_stat(*stat)


def encode_multi(operations: Sequence[Operation], results: Sequence[OpResult | int]) -> bytes:
    """Encode the results of a multi: one per operation, or error codes (int) if it was refused."""
    return b"".join(map(_encode_result, operations, results)) + END_OF_PARTS


def _encode_result(operation: Operation, result: OpResult | int) -> bytes:
    if isinstance(result, int):
        return _encode_failure(result)
    if isinstance(operation, CreateNode):
        assert result.stat is not None
        # The result of a container has the type of a create2 [measured].
        kind = codes.CREATE if operation.kind == codes.CREATE else codes.CREATE2
        return _encode_success(kind, encode_created(kind, result.path, result.stat))
    if isinstance(operation, SetData):
        assert result.stat is not None
        return _encode_success(codes.SET_DATA, jute.stat(result.stat))
    kind = codes.DELETE if isinstance(operation, DeleteNode) else codes.CHECK
    return _encode_success(kind)


def _encode_success(kind: int, body: bytes = b"") -> bytes:
    """Encode one result of a multi."""
    return PART.pack(kind, False, 0) + body


def _encode_failure(code: int) -> bytes:
    """Encode the error of one operation of a multi or a multiRead."""
    return PART.pack(codes.ERROR, False, code) + INT.pack(code)


def encode_multi_read(
    operations: Iterable[tuple[int, str]], nodes: Iterable[TreeNode | int]
) -> bytes:
    """Encode the results of a multiRead: for each operation a node, or an error code (int). Raises AnswerTooLong."""
    pieces = []
    room = ANSWER_BYTES_MAX
    for (kind, _), node in zip(operations, nodes, strict=True):
        if isinstance(node, int):
            pieces.append(_encode_failure(node))
        elif kind == codes.GET_DATA:
            found = node.data
            if found is not None:
                room -= len(found)
            pieces += (
                _DATA_READ,
                NULL if found is None else _pack_int(len(found)) + found,
                _pack_stat(*node.stat_fields()),
            )
        else:
            pieces += (_CHILDREN_READ, found := encode_children(node))
            room -= len(found)
        if room < 0:
            raise AnswerTooLong
    pieces.append(END_OF_PARTS)
    return b"".join(pieces)


# ---- decoding, for the client

_Decode: TypeAlias = Callable[[bytes, int], tuple[T, int]]
"""Function (bytes of a reply, offset) -> value at the offset, and the offset after it."""


def decode_whole(decode: _Decode[T], body: bytes) -> T:
    """Return the value at the start of a reply. Raises ValueError."""
    try:
        return decode(body, 0)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not a response of ZooKeeper: {error}") from error


def decode_stat(body: bytes, offset: int) -> tuple[Stat, int]:
    """Return the Stat at `offset`."""
    return Stat._make(_unpack_stat(body, offset)), offset + _STAT_BYTES


def decode_data(body: bytes, offset: int) -> tuple[Znode, int]:
    """Return the data and the Stat of a node. The data of a node without data is b""."""
    data, offset = _decode_buffer(body, offset)
    stat, offset = decode_stat(body, offset)
    return Znode(data, stat), offset


def decode_names(body: bytes, offset: int) -> tuple[list[str], int]:
    """Return the names of children, sorted."""
    (count,) = INT.unpack_from(body, offset)
    offset += INT.size
    names = []
    for _ in range(count):
        name, offset = _decode_buffer(body, offset)
        names.append(name.decode())
    return sorted(names), offset


def decode_children(body: bytes, offset: int) -> tuple[tuple[list[str], Stat], int]:
    """Return the names of a node's children, sorted, and the node's Stat."""
    names, offset = decode_names(body, offset)
    stat, offset = decode_stat(body, offset)
    return (names, stat), offset


def decode_created(body: bytes, offset: int) -> tuple[tuple[str, Stat], int]:
    """Return the path and the Stat of a new node."""
    path, offset = _decode_buffer(body, offset)
    stat, offset = decode_stat(body, offset)
    return (path.decode(), stat), offset


def decode_multi(body: bytes, count: int) -> list[Stat | int | None]:
    """Return the results of the `count` operations of a multi: a Stat, None, or an error code (int).

    Raises ValueError if the reply is malformed, or has another number of results.
    """
    return _decode_parts(body, count, _WRITE_RESULTS)


def decode_multi_read(body: bytes, count: int) -> list[Znode | list[str] | int]:
    """Return the results of the `count` reads of a multiRead: a node, names, or an error code (int).

    Raises ValueError if the reply is malformed, or has another number of results.
    """
    return _decode_parts(body, count, _READ_RESULTS)


def _decode_parts(body: bytes, count: int, kinds: Mapping[int, _Decode[Any]]) -> list[Any]:
    results: list[Any] = []
    offset = 0
    unpack, size = PART.unpack_from, PART.size
    try:
        while True:
            opcode, is_last, _ = unpack(body, offset)
            offset += size
            if is_last:
                break
            result, offset = kinds[opcode](body, offset)
            results.append(result)
    except (struct.error, KeyError) as error:
        raise ValueError(f"not a response of ZooKeeper: {error!r}") from error
    if len(results) != count:
        raise ValueError(
            f"not a response of ZooKeeper: {len(results)} results for {count} operations"
        )
    return results


def _decode_error(body: bytes, offset: int) -> tuple[int, int]:
    return INT.unpack_from(body, offset)[0], offset + INT.size


def _decode_nothing(body: bytes, offset: int) -> tuple[None, int]:
    return None, offset


def _decode_stat_of_created(body: bytes, offset: int) -> tuple[Stat, int]:
    return decode_stat(body, _decode_buffer(body, offset)[1])


def _decode_buffer(body: bytes, offset: int) -> tuple[bytes, int]:
    """Return the bytes of the buffer at `offset`, b"" for null. Raises ValueError."""
    (size,) = INT.unpack_from(body, offset)
    start = offset + INT.size
    end = start + max(size, 0)
    if size < -1 or end > len(body):
        raise ValueError(f"not a response of ZooKeeper: a buffer of {size} bytes at byte {offset}")
    return body[start:end], end


_WRITE_RESULTS: Final[Mapping[int, _Decode[Any]]] = {
    codes.ERROR: _decode_error,
    codes.CHECK: _decode_nothing,
    codes.DELETE: _decode_nothing,
    codes.SET_DATA: decode_stat,
    codes.CREATE2: _decode_stat_of_created,
}
_READ_RESULTS: Final[Mapping[int, _Decode[Any]]] = {
    codes.ERROR: _decode_error,
    codes.GET_DATA: decode_data,
    codes.GET_CHILDREN: decode_names,
}
