"""ZooKeeper's protocol: the encoding of requests and the decoding of responses. Only this module imports aiozk.

The module uses aiozk's classes for requests and responses, but not aiozk's client. It has its own faster code
for Stats, writes, multis and MultiReads, because a controller sends up to a hundred thousand of these in a row.
Invariant: each response becomes a value of `base.ports` or an exception of `base.errors`. Malformed bytes raise
ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from aiozk import protocol
from aiozk.protocol.part import Part
from aiozk.protocol.primitives import Buffer, UString
from aiozk.protocol.response import Response

from minikafka.base.errors import (
    BadArguments,
    BadVersion,
    CoordinationError,
    InvalidAcl,
    MultiFailed,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    OutcomeUnknown,
    ServerError,
    ServerVerdict,
    StaleSession,
)
from minikafka.base.ports import Check, Create, Delete, MultiOp, Node, Set, Stat

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)

EVENT_XID: Final = protocol.WATCH_XID
PING_XID: Final = protocol.PING_XID
LENGTH: Final = struct.Struct("!i")
"""Format of the length that precedes every frame, and of the xid at the start of every request."""
REPLY: Final = struct.Struct("!iqi")
"""Header of every response: xid, zxid of the server, error code."""
PING: Final[bytes] = protocol.PingRequest().serialize(PING_XID)
NEW_PASSWORD: Final = bytes(16)

NODE_CREATED: Final = protocol.WatchEvent.CREATED
NODE_DELETED: Final = protocol.WatchEvent.DELETED
DATA_CHANGED: Final = protocol.WatchEvent.DATA_CHANGED
CHILDREN_CHANGED: Final = protocol.WatchEvent.CHILDREN_CHANGED

REMOVE_CHILDREN: Final = 1
REMOVE_DATA: Final = 2
"""Kinds of watch for `remove_watch`. The server treats an exists watch as a data watch."""

UNIMPLEMENTED: Final = -6
NO_WATCHER: Final = -121
_SESSION_EXPIRED: Final = -112
_UNDECIDED: Final = frozenset({-1, -4, -7, -122, -127})
"""Error codes after which the request may still have been applied."""
_RUNTIME_INCONSISTENCY: Final = -2
_ROLLED_BACK: Final = frozenset({0, _RUNTIME_INCONSISTENCY})
"""Error codes of operations that are not at fault, in the response to a refused multi."""
_VERDICTS: Final[Mapping[int, type[ServerVerdict]]] = {
    -8: BadArguments,
    -101: NoNode,
    -102: NoAuth,
    -103: BadVersion,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
    -114: InvalidAcl,
}
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_MULTI_HEADER: Final = struct.Struct("!i?i")
_NULL: Final = -1
"""Value of the length field of a null buffer."""
_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_OPEN_TO_ALL: Final = struct.pack("!iii5si6s", 1, 31, 5, b"world", 6, b"anyone")

# Opcodes, of requests and of the operations in a multi.
_DELETE: Final = 2
_GET_DATA: Final = 4
_SET_DATA: Final = 5
_GET_CHILDREN: Final = 8
_CHECK: Final = 13
_MULTI: Final = 14
_CREATE2: Final = 15
_MULTI_READ: Final = 22
_ERROR: Final = -1
_HEADERS: Final = {
    opcode: _MULTI_HEADER.pack(opcode, False, -1)
    for opcode in (_DELETE, _GET_DATA, _SET_DATA, _GET_CHILDREN, _CHECK, _CREATE2)
}
_LAST: Final = _MULTI_HEADER.pack(-1, True, -1)

_ParseResult: TypeAlias = Callable[[bytes, int], tuple[Any, int]]


class Call(NamedTuple, Generic[Answer_co]):
    """A request to ZooKeeper. `body`: the bytes after the xid. `path`: the node's path, for error messages.

    `decode`: the function that decodes the response.
    """

    body: bytes
    decode: Callable[[bytes], Answer_co]
    path: str


class Attached(NamedTuple):
    """A server's response to a connect request. `session_id` 0: the requested session has expired."""

    session_id: int
    password: bytes
    timeout_ms: int


class _StatPart(Part):  # type: ignore[misc]
    """A decoder of Stats that is faster than aiozk's, which decodes field by field."""

    @classmethod
    def parse(cls, buff: bytes, offset: int) -> tuple[Stat, int]:
        return Stat(*_STAT.unpack_from(buff, offset)), offset + _STAT.size


# aiozk finds response classes by opcode. These classes replace aiozk's classes.


class _GetData(Response):  # type: ignore[misc]
    opcode = protocol.GetDataResponse.opcode
    parts = (("data", Buffer), ("stat", _StatPart))


class _SetData(Response):  # type: ignore[misc]
    opcode = protocol.SetDataResponse.opcode
    parts = (("stat", _StatPart),)


class _Exists(Response):  # type: ignore[misc]
    opcode = protocol.ExistsResponse.opcode
    parts = (("stat", _StatPart),)


class _GetChildren2(Response):  # type: ignore[misc]
    opcode = protocol.GetChildren2Response.opcode
    parts = (protocol.GetChildren2Response.parts[0], ("stat", _StatPart))


class _Create2(Response):  # type: ignore[misc]
    opcode = protocol.Create2Response.opcode
    parts = (("path", UString), ("stat", _StatPart))


def connect(session_id: int, password: bytes, timeout_ms: int, last_zxid: int) -> bytes:
    """Return a connect request, the first frame on a connection. Session id 0 requests a new session."""
    request = protocol.ConnectRequest(
        protocol_version=0,
        last_seen_zxid=last_zxid,
        timeout=timeout_ms,
        session_id=session_id,
        password=password or NEW_PASSWORD,
        read_only=False,
    )
    return bytes(request.serialize())


def decode_connect(payload: bytes) -> Attached:
    """Decode the response to a connect request. Raises ValueError."""
    answer = _parsed(protocol.ConnectResponse, payload)
    if answer.timeout <= 0:
        return Attached(0, b"", 0)
    return Attached(answer.session_id, answer.password or b"", answer.timeout)


def decode_event(payload: bytes) -> tuple[int, str]:
    """Decode a watch event: return the kind of change (for example NODE_CREATED) and the node's path."""
    event = _parsed(protocol.WatchEvent, payload)
    return event.type, event.path or ""


def error_of(code: int, path: str) -> CoordinationError:
    """Return the exception for the error code in a response."""
    if verdict := _VERDICTS.get(code):
        return verdict(path)
    if code == _SESSION_EXPIRED:
        return StaleSession("ZooKeeper reports that the session has expired")
    if code in _UNDECIDED:
        return OutcomeUnknown(f"ZooKeeper error {code} for {path}")
    return ServerError(code)


def get_data(path: str, *, watch: bool) -> Call[Node]:
    """Return a request for a node's data and Stat. The data of a node without data is b""."""

    def decode(payload: bytes) -> Node:
        answer = _parsed(_GetData, payload)
        return Node(answer.data or b"", answer.stat)

    return Call(protocol.GetDataRequest(path=path, watch=watch).serialize(), decode, path)


def exists(path: str, *, watch: bool) -> Call[Stat]:
    """Return a request for a node's Stat. If the node is absent, the request fails with NoNode.

    `watch`: if true, the request sets a watch in both cases.
    """
    return Call(protocol.ExistsRequest(path=path, watch=watch).serialize(), _stat, path)


def get_children(path: str, *, watch: bool) -> Call[tuple[list[str], Stat]]:
    """Return a request whose result is the sorted names of a node's children, and the node's Stat."""

    def decode(payload: bytes) -> tuple[list[str], Stat]:
        answer = _parsed(_GetChildren2, payload)
        return sorted(answer.children), answer.stat

    return Call(protocol.GetChildren2Request(path=path, watch=watch).serialize(), decode, path)


def create(op: Create) -> Call[tuple[str, Stat]]:
    """Return a request that creates a node. The result of the request is the created path and the Stat."""

    def decode(payload: bytes) -> tuple[str, Stat]:
        answer = _parsed(_Create2, payload)
        return answer.path, answer.stat

    return Call(_write(op), decode, op.path)


def set_data(op: Set) -> Call[Stat]:
    """Return a request that sets a node's data. The result of the request is the new Stat."""
    return Call(_write(op), _stat_of_set, op.path)


def delete(op: Delete) -> Call[None]:
    """Return a request that deletes a node."""
    return Call(_write(op), _no_payload, op.path)


def multi(ops: Sequence[MultiOp]) -> Call[list[Stat | None]]:
    """Return a multi request. Its result has a Stat for each create and set, None for each other operation.

    The decoder of the response raises MultiFailed if ZooKeeper has refused the multi.
    """

    def decode(payload: bytes) -> list[Stat | None]:
        results = _results(payload, len(ops), _WRITE_RESULTS)
        for index, result in enumerate(results):
            if type(result) is int and result not in _ROLLED_BACK:
                raise _multi_failed(index, result, ops[index].path)
        if any(type(result) is int for result in results):
            raise _multi_failed(0, _RUNTIME_INCONSISTENCY, ops[0].path)
        return results

    body = _batch(_MULTI, map(_operation, ops))
    return Call(body, decode, ops[0].path if ops else "")


def get_data_of_many(paths: Sequence[str]) -> Call[list[Node | None]]:
    """Return a MultiRead request (ZooKeeper 3.6) for the data and Stat of many nodes.

    The result has None for each missing node. The request sets no watches.
    """
    return _multi_read(_GET_DATA, paths)


def get_children_of_many(paths: Sequence[str]) -> Call[list[list[str] | None]]:
    """Return a MultiRead request (ZooKeeper 3.6) for the sorted names of the children of many nodes.

    The result has None for each missing node. The request sets no watches.
    """
    return _multi_read(_GET_CHILDREN, paths)


def remove_watch(path: str, which: int) -> Call[None]:
    """Return a request that removes a watch. `which`: REMOVE_CHILDREN or REMOVE_DATA.

    The request fails with ServerError(NO_WATCHER) if the session has no watch of this kind on the path.
    """
    return Call(protocol.RemoveWatchesRequest(path=path, type=which).serialize(), _no_payload, path)


def close() -> Call[None]:
    """Return a request that ends the session."""
    return Call(protocol.CloseRequest().serialize(), _no_payload, "")


def _write(op: MultiOp) -> bytes:
    """Return the body of a write request that is not part of a multi."""
    opcode, fields = _operation(op)
    return LENGTH.pack(opcode) + fields


def _operation(op: MultiOp) -> tuple[int, bytes]:
    """Return the opcode and the encoded fields of an operation."""
    path = _buffer(op.path.encode())
    if isinstance(op, Set):
        return _SET_DATA, path + _buffer(op.data) + LENGTH.pack(op.version)
    if isinstance(op, Check):
        return _CHECK, path + LENGTH.pack(op.version)
    if isinstance(op, Delete):
        return _DELETE, path + LENGTH.pack(op.version)
    flags = _EPHEMERAL * op.ephemeral | _SEQUENTIAL * op.sequential
    return _CREATE2, path + _buffer(op.data) + _OPEN_TO_ALL + LENGTH.pack(flags)


def _batch(opcode: int, operations: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the body of a multi or MultiRead request. `operations`: pairs of opcode and encoded fields."""
    pieces = [LENGTH.pack(opcode)]
    for kind, fields in operations:
        pieces += (_HEADERS[kind], fields)
    pieces.append(_LAST)
    return b"".join(pieces)


def _multi_read(kind: int, paths: Sequence[str]) -> Call[list[Any]]:
    def decode(payload: bytes) -> list[Any]:
        results = _results(payload, len(paths), _READ_RESULTS)
        for index, result in enumerate(results):
            if type(result) is int:
                error = error_of(result, paths[index])
                if not isinstance(error, NoNode):
                    raise error
                results[index] = None
        return results

    # The zero byte means: set no watch.
    reads = ((kind, _buffer(path.encode()) + b"\x00") for path in paths)
    return Call(_batch(_MULTI_READ, reads), decode, paths[0] if paths else "")


def _buffer(data: bytes | None) -> bytes:
    """Encode a buffer as its length and bytes; None becomes a null buffer."""
    return LENGTH.pack(_NULL) if data is None else LENGTH.pack(len(data)) + data


def _multi_failed(index: int, code: int, path: str) -> CoordinationError:
    error = error_of(code, path)
    return MultiFailed(index, error) if isinstance(error, ServerVerdict) else error


def _results(payload: bytes, count: int, kinds: Mapping[int, _ParseResult]) -> list[Any]:
    """Decode the response to a multi or MultiRead: return a result or an error code (int) per operation.

    Raises ValueError if the response is malformed, or does not have `count` results.
    """
    results: list[Any] = []
    offset = 0
    try:
        while True:
            opcode, is_last, _ = _MULTI_HEADER.unpack_from(payload, offset)
            offset += _MULTI_HEADER.size
            if is_last:
                break
            result, offset = kinds[opcode](payload, offset)
            results.append(result)
    except (struct.error, KeyError) as error:
        raise ValueError(f"not a response of ZooKeeper: {error!r}") from error
    if len(results) != count:
        raise ValueError(
            f"not a response of ZooKeeper: {len(results)} results for {count} operations"
        )
    return results


# Parsers of one operation's result in a multi or MultiRead. Each returns the result and the next offset.


def _error_result(payload: bytes, offset: int) -> tuple[int, int]:
    return LENGTH.unpack_from(payload, offset)[0], offset + LENGTH.size


def _no_result(payload: bytes, offset: int) -> tuple[None, int]:
    return None, offset


def _stat_result(payload: bytes, offset: int) -> tuple[Stat, int]:
    return Stat._make(_STAT.unpack_from(payload, offset)), offset + _STAT.size


def _created_result(payload: bytes, offset: int) -> tuple[Stat, int]:
    return _stat_result(payload, _buffer_at(payload, offset)[1])


def _data_result(payload: bytes, offset: int) -> tuple[Node, int]:
    data, offset = _buffer_at(payload, offset)
    stat, offset = _stat_result(payload, offset)
    return Node(data, stat), offset


def _children_result(payload: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = LENGTH.unpack_from(payload, offset)
    offset += LENGTH.size
    names = []
    for _ in range(count):
        name, offset = _buffer_at(payload, offset)
        names.append(name.decode())
    return sorted(names), offset


def _buffer_at(payload: bytes, offset: int) -> tuple[bytes, int]:
    """Return the bytes of the buffer at `offset` (b"" for null), and the offset after the buffer.

    Raises ValueError.
    """
    (size,) = LENGTH.unpack_from(payload, offset)
    start = offset + LENGTH.size
    end = start + max(size, 0)
    if size < _NULL or end > len(payload):
        raise ValueError(f"not a response of ZooKeeper: a buffer of {size} bytes at byte {offset}")
    return payload[start:end], end


_WRITE_RESULTS: Final[Mapping[int, _ParseResult]] = {
    _ERROR: _error_result,
    _CHECK: _no_result,
    _DELETE: _no_result,
    _SET_DATA: _stat_result,
    _CREATE2: _created_result,
}
_READ_RESULTS: Final[Mapping[int, _ParseResult]] = {
    _ERROR: _error_result,
    _GET_DATA: _data_result,
    _GET_CHILDREN: _children_result,
}


def _stat(payload: bytes) -> Stat:
    stat: Stat = _parsed(_Exists, payload).stat
    return stat


def _stat_of_set(payload: bytes) -> Stat:
    stat: Stat = _parsed(_SetData, payload).stat
    return stat


def _no_payload(payload: bytes) -> None:
    """Decode a response that has no result."""


def _parsed(kind: Any, payload: bytes) -> Any:
    try:
        return kind.parse(payload, 0)[0]
    except (struct.error, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a response of ZooKeeper: {error}") from error
