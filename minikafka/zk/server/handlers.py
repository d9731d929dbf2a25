"""What each request does: its decoder, and the function that carries it out and returns the body of the reply.

A decoder may fail in any way, for which the client gets MARSHALLING_ERROR. A function that carries out a request
raises Refused, and one that reads also AnswerTooLong; any other exception is a bug, and ends the process before
anything is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.zk.core import acl, codes
from minikafka.zk.core.codes import Refused
from minikafka.zk.core.operations import Create, Delete, Reconfig, SetAcl, SetData
from minikafka.zk.core.state import Connection, ServerState
from minikafka.zk.records import jute, opcodes, replies, requests
from minikafka.zk.records.jute import Reader
from minikafka.zk.records.requests import (
    MalformedMulti,
    Multi,
    Read,
    SetWatches,
    WatchRequest,
)

Run: TypeAlias = Callable[[ServerState, Connection, int, Any, int], bytes]
"""(state, connection, xid, decoded request, Unix ms) → body of the reply. Raises Refused."""

_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Apache ZooKeeper strips from the prefix of getEphemerals: what Java's `trim` strips."""


class Handler(NamedTuple):
    """One opcode. `name`: as the four-letter word `cons` shows it.

    `is_scan`: it may go through all nodes for a short answer, so that other clients get their turn before the next.
    """

    name: str
    decode: Callable[[Reader], Any]
    run: Run
    is_scan: bool = False


def _set(
    state: ServerState, who: Connection, xid: int, op: SetData | SetAcl, time_ms: int
) -> bytes:
    node = state.write(who, xid, op, time_ms).node
    assert node is not None
    return replies.stat(node)


def _get_data(state: ServerState, who: Connection, xid: int, op: Read, time_ms: int) -> bytes:
    return replies.data(state.data(who, op.path, watch=op.watch))


def _create(state: ServerState, who: Connection, xid: int, op: Create, time_ms: int) -> bytes:
    written = state.write(who, xid, op, time_ms)
    assert written.node is not None
    return replies.created(op.kind, written.path, written.node.stat())


def _write_without_result(
    state: ServerState, who: Connection, xid: int, op: Delete | Reconfig, time_ms: int
) -> bytes:
    state.write(who, xid, op, time_ms)
    return b""


def _multi(state: ServerState, who: Connection, xid: int, ops: Multi, time_ms: int) -> bytes:
    if isinstance(ops, MalformedMulti):
        state.fail(who, xid, codes.MARSHALLING_ERROR, time_ms)
        raise Refused(codes.MARSHALLING_ERROR)
    return replies.multi(ops, state.multi(who, xid, ops, time_ms))


def _exists(state: ServerState, who: Connection, xid: int, op: Read, time_ms: int) -> bytes:
    return replies.stat(state.exists(who, op.path, watch=op.watch))


def _get_children(state: ServerState, who: Connection, xid: int, op: Read, time_ms: int) -> bytes:
    return replies.children(state.children(who, op.path, watch=op.watch))


def _get_children2(state: ServerState, who: Connection, xid: int, op: Read, time_ms: int) -> bytes:
    node = state.children(who, op.path, watch=op.watch)
    return replies.children(node) + replies.stat(node)


def _get_acl(
    state: ServerState, who: Connection, xid: int, path: str | None, time_ms: int
) -> bytes:
    node = state.readable(who, path, acl.READ | acl.ADMIN)
    return replies.acl(acl.hidden(node.acl, who.identities), node)


def _multi_read(
    state: ServerState, who: Connection, xid: int, ops: list[tuple[int, str]], time_ms: int
) -> bytes:
    return replies.multi_read(ops, state.read_many(who, [path for _, path in ops]))


def _sync(state: ServerState, who: Connection, xid: int, path: str | None, time_ms: int) -> bytes:
    state.check_session(who)
    return jute.string(path)


def _set_watches(
    state: ServerState, who: Connection, xid: int, op: SetWatches, time_ms: int
) -> bytes:
    state.set_watches(who, *op)
    return b""


def _add_watch(
    state: ServerState, who: Connection, xid: int, op: WatchRequest, time_ms: int
) -> bytes:
    state.add_watch(who, op.path, op.mode)
    return jute.INT.pack(0)


def _check_watches(
    state: ServerState, who: Connection, xid: int, op: WatchRequest, time_ms: int
) -> bytes:
    state.check_watch(who, op.path, op.mode)
    return b""


def _remove_watches(
    state: ServerState, who: Connection, xid: int, op: WatchRequest, time_ms: int
) -> bytes:
    state.remove_watch(who, op.path, op.mode)
    return b""


def _get_ephemerals(
    state: ServerState, who: Connection, xid: int, prefix: str | None, time_ms: int
) -> bytes:
    state.check_session(who)
    own = state.tree.ephemerals.get(who.session_id, ())
    if prefix is None or prefix.strip(_TRIMMED) in ("", "/"):
        return replies.names(own)
    return replies.names(path for path in own if path.startswith(prefix))


def _count_children(
    state: ServerState, who: Connection, xid: int, path: str | None, time_ms: int
) -> bytes:
    state.readable(who, path)
    return jute.INT.pack(state.tree.count_below(path or ""))


def _who_am_i(state: ServerState, who: Connection, xid: int, op: None, time_ms: int) -> bytes:
    return replies.identities(who.identities)


HANDLERS: Final[dict[int, Handler]] = {
    opcodes.SET_DATA: Handler("SETD", requests.set_data, _set),
    opcodes.GET_DATA: Handler("GETD", requests.read, _get_data),
    opcodes.EXISTS: Handler("EXIS", requests.read, _exists),
    opcodes.MULTI: Handler("MULT", requests.multi, _multi),
    codes.CREATE: Handler("CREA", requests.create(codes.CREATE), _create),
    codes.CREATE2: Handler("CREA", requests.create(codes.CREATE2), _create),
    codes.CREATE_CONTAINER: Handler("CREC", requests.create(codes.CREATE_CONTAINER), _create),
    codes.CREATE_TTL: Handler("CRET", requests.create_ttl, _create),
    opcodes.DELETE: Handler("DELE", requests.delete, _write_without_result),
    opcodes.GET_CHILDREN: Handler("GETC", requests.read, _get_children),
    opcodes.GET_CHILDREN2: Handler("GETC", requests.read, _get_children2),
    opcodes.GET_ACL: Handler("GETA", requests.path, _get_acl),
    opcodes.SET_ACL: Handler("SETA", requests.set_acl, _set),
    opcodes.SYNC: Handler("SYNC", requests.path, _sync),
    opcodes.RECONFIG: Handler("RECO", requests.reconfig, _write_without_result),
    opcodes.MULTI_READ: Handler("MLTR", requests.multi_read, _multi_read),
    opcodes.SET_WATCHES: Handler("SETW", requests.set_watches, _set_watches),
    opcodes.SET_WATCHES2: Handler("STW2", requests.set_watches2, _set_watches),
    opcodes.ADD_WATCH: Handler("ADDW", requests.watch, _add_watch),
    opcodes.CHECK_WATCHES: Handler("CHKW", requests.watch, _check_watches),
    opcodes.REMOVE_WATCHES: Handler("REMW", requests.watch, _remove_watches),
    opcodes.GET_EPHEMERALS: Handler("GETE", requests.path, _get_ephemerals, is_scan=True),
    opcodes.GET_ALL_CHILDREN_NUMBER: Handler("GACN", requests.path, _count_children, is_scan=True),
    opcodes.WHO_AM_I: Handler("WHOA", requests.nothing, _who_am_i),
}
"""All requests but ping, closeSession and auth, which concern the connection itself."""
