"""The requests of a broker to ZooKeeper, each with the function that decodes its reply. Only this module imports aiozk.

aiozk encodes the requests that start and end a session and read single nodes. Writes, multis and multiReads, and all
replies with nodes, are in `messages`: a controller sends up to a hundred thousand of these in a row. Invariant: each
reply becomes a value of `base.ports` or an exception of `base.errors`. Malformed bytes raise ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from aiozk import protocol

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
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, Stat, Znode
from minikafka.zookeeper.messages import codes, replies, requests
from minikafka.zookeeper.messages.jute import ANYONE, Acl, JuteReader, buffer

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)

LENGTH: Final = struct.Struct("!i")
"""Format of the length that precedes every frame, and of the xid at the start of every request."""
REPLY: Final = struct.Struct("!iqi")
"""Header of every reply: xid, zxid of the server, error code."""
PING: Final[bytes] = protocol.PingRequest().serialize(codes.PING_XID)
NEW_PASSWORD: Final = bytes(replies.PASSWORD_BYTES)

_UNDECIDED: Final = frozenset(
    {
        codes.SYSTEM_ERROR,
        codes.CONNECTION_LOSS,
        codes.OPERATION_TIMEOUT,
        codes.REQUEST_TIMEOUT,
        codes.THROTTLED,
    }
)
"""Error codes after which the request may still have been applied."""
_NOT_AT_FAULT: Final = frozenset({0, codes.RUNTIME_INCONSISTENCY})
"""Error codes of operations that are not at fault, in the reply to a refused multi."""
_VERDICTS: Final[Mapping[int, type[ServerVerdict]]] = {
    codes.BAD_ARGUMENTS: BadArguments,
    codes.NO_NODE: NoNode,
    codes.NO_AUTH: NoAuth,
    codes.BAD_VERSION: BadVersion,
    codes.NO_CHILDREN_FOR_EPHEMERALS: NoChildrenForEphemerals,
    codes.NODE_EXISTS: NodeExists,
    codes.NOT_EMPTY: NotEmpty,
    codes.INVALID_ACL: InvalidAcl,
}


class ZooKeeperCall(NamedTuple, Generic[Answer_co]):
    """A request to ZooKeeper. `body`: the bytes after the xid. `path`: the node's path, for error messages.

    `decode`: the function that decodes the body of the reply.
    """

    body: bytes
    decode: Callable[[bytes], Answer_co]
    path: str


class Attached(NamedTuple):
    """A server's response to a connect request. `session_id` 0: the requested session has expired."""

    session_id: int
    password: bytes
    timeout_ms: int


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


def _parsed(kind: Any, payload: bytes) -> Any:
    try:
        return kind.parse(payload, 0)[0]
    except (struct.error, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a response of ZooKeeper: {error}") from error


def error_of(code: int, path: str) -> CoordinationError:
    """Return the exception for the error code in a reply."""
    if verdict := _VERDICTS.get(code):
        return verdict(path)
    if code == codes.SESSION_EXPIRED:
        return StaleSession("ZooKeeper reports that the session has expired")
    if code in _UNDECIDED:
        return OutcomeUnknown(f"ZooKeeper error {code} for {path}")
    return ServerError(code)


# ---- reads


def get_data(path: str, *, watch: bool) -> ZooKeeperCall[Znode]:
    """Return a request for a node's data and Stat. The data of a node without data is b""."""
    body = protocol.GetDataRequest(path=path, watch=watch).serialize()
    return ZooKeeperCall(body, lambda reply: replies.decode_whole(replies.decode_data, reply), path)


def exists(path: str, *, watch: bool) -> ZooKeeperCall[Stat]:
    """Return a request for a node's Stat. If the node is absent, the request fails with NoNode.

    `watch`: if true, the request sets a watch in both cases.
    """
    return ZooKeeperCall(protocol.ExistsRequest(path=path, watch=watch).serialize(), _stat, path)


def get_children(path: str, *, watch: bool) -> ZooKeeperCall[tuple[list[str], Stat]]:
    """Return a request whose result is the sorted names of a node's children, and the node's Stat."""
    body = protocol.GetChildren2Request(path=path, watch=watch).serialize()
    return ZooKeeperCall(
        body, lambda reply: replies.decode_whole(replies.decode_children, reply), path
    )


def get_data_of_many(paths: Sequence[str]) -> ZooKeeperCall[list[Znode | None]]:
    """Return a MultiRead request (ZooKeeper 3.6) for the data and Stat of many nodes.

    The result has None for each missing node. The request sets no watches.
    """
    return _multi_read(codes.GET_DATA, paths)


def get_children_of_many(paths: Sequence[str]) -> ZooKeeperCall[list[list[str] | None]]:
    """Return a MultiRead request (ZooKeeper 3.6) for the sorted names of the children of many nodes.

    The result has None for each missing node. The request sets no watches.
    """
    return _multi_read(codes.GET_CHILDREN, paths)


def _multi_read(kind: int, paths: Sequence[str]) -> ZooKeeperCall[list[Any]]:
    def decode(reply: bytes) -> list[Any]:
        results: list[Any] = replies.decode_multi_read(reply, len(paths))
        for index, result in enumerate(results):
            if type(result) is int:
                error = error_of(result, paths[index])
                if not isinstance(error, NoNode):
                    raise error
                results[index] = None
        return results

    return ZooKeeperCall(requests.encode_multi_read(kind, paths), decode, paths[0] if paths else "")


# ---- writes


def create(op: Create, acl: Acl = ANYONE) -> ZooKeeperCall[tuple[str, Stat]]:
    """Return a request that creates a node. The result of the request is the created path and the Stat."""
    body = requests.encode_write(op, acl)
    return ZooKeeperCall(
        body, lambda reply: replies.decode_whole(replies.decode_created, reply), op.path
    )


def set_data(op: Set) -> ZooKeeperCall[Stat]:
    """Return a request that sets a node's data. The result of the request is the new Stat."""
    return ZooKeeperCall(requests.encode_write(op), _stat, op.path)


def delete(op: Delete) -> ZooKeeperCall[None]:
    """Return a request that deletes a node."""
    return ZooKeeperCall(requests.encode_write(op), _nothing, op.path)


def multi(ops: Sequence[MultiOp], acls: Sequence[Acl] = ()) -> ZooKeeperCall[list[Stat | None]]:
    """Return a multi request. Its result has a Stat for each create and set, None for each other operation.

    `acls`: for each operation the list of the node, if it creates one; empty: everybody may do everything.

    The decoder of the reply raises MultiFailed if ZooKeeper has refused the multi.
    """

    def decode(reply: bytes) -> list[Stat | None]:
        results: list[Any] = replies.decode_multi(reply, len(ops))
        for index, result in enumerate(results):
            if type(result) is int and result not in _NOT_AT_FAULT:
                raise _multi_failed(index, result, ops[index].path)
        if any(type(result) is int for result in results):
            raise _multi_failed(0, codes.RUNTIME_INCONSISTENCY, ops[0].path)
        return results

    return ZooKeeperCall(requests.encode_multi(ops, acls), decode, ops[0].path if ops else "")


def _multi_failed(index: int, code: int, path: str) -> CoordinationError:
    error = error_of(code, path)
    return MultiFailed(index, error) if isinstance(error, ServerVerdict) else error


# ---- watches and the session


def remove_watch(path: str, which: int) -> ZooKeeperCall[None]:
    """Return a request that removes a watch. `which`: CHILD_WATCH or DATA_WATCH.

    The request fails with ServerError(NO_WATCHER) if the session has no watch of this kind on the path.
    """
    return ZooKeeperCall(
        protocol.RemoveWatchesRequest(path=path, type=which).serialize(), _nothing, path
    )


def sync(path: str) -> ZooKeeperCall[Any]:
    """Return a multi that only checks that a node exists: a write without effect."""
    return multi([Check(path, codes.ANY_VERSION)])


def sasl(token: bytes) -> ZooKeeperCall[bytes]:
    """Return a request with a token of SASL. The result of the request is the server's token."""

    def decode(reply: bytes) -> bytes:
        reader = JuteReader(reply)
        return reader.buffer() or b""

    return ZooKeeperCall(LENGTH.pack(codes.SASL) + buffer(token), decode, "the login")


def close() -> ZooKeeperCall[None]:
    """Return a request that ends the session."""
    return ZooKeeperCall(protocol.CloseRequest().serialize(), _nothing, "")


def _stat(reply: bytes) -> Stat:
    return replies.decode_whole(replies.decode_stat, reply)


def _nothing(reply: bytes) -> None:
    """Decode a reply that has no body."""
