"""One table of all requests: the decoder, and the function that carries out the request and returns the reply's body.

A decoder may fail in any way, for which the client gets MARSHALLING_ERROR. A function that carries out a request
raises Refused, and one that reads also AnswerTooLong; any other exception is a bug, and ends the process before
anything is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.zk.core import acl
from minikafka.zk.core.state import ServerState
from minikafka.zk.core.watches import Client
from minikafka.zk.messages import codes, jute, replies, requests
from minikafka.zk.messages.codes import Refused
from minikafka.zk.messages.jute import JuteReader
from minikafka.zk.messages.requests import (
    Create,
    Delete,
    MalformedMulti,
    Multi,
    Read,
    Reconfig,
    SetAcl,
    SetData,
    SetWatches,
    WatchRequest,
)

Run: TypeAlias = Callable[[ServerState, Client, int, Any, int], bytes]
"""(state, client, xid, decoded request, Unix ms) → body of the reply. Raises Refused."""

_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Apache ZooKeeper strips from the prefix of getEphemerals: what Java's `trim` strips."""


class Handler(NamedTuple):
    """One opcode. `name`: as the four-letter word `cons` shows it.

    `is_scan`: it may go through all nodes for a short answer, so that other clients get their turn before the next.
    """

    name: str
    decode: Callable[[JuteReader], Any]
    run: Run
    is_scan: bool = False


def _set(state: ServerState, client: Client, xid: int, op: SetData | SetAcl, time_ms: int) -> bytes:
    node = state.write(client, xid, op, time_ms).node
    assert node is not None
    return replies.encode_stat(node)


def _get_data(state: ServerState, client: Client, xid: int, op: Read, time_ms: int) -> bytes:
    return replies.encode_data(state.data(client, op.path, watch=op.watch))


def _create(state: ServerState, client: Client, xid: int, op: Create, time_ms: int) -> bytes:
    written = state.write(client, xid, op, time_ms)
    assert written.node is not None
    return replies.encode_created(op.kind, written.path, written.node.stat())


def _write_without_result(
    state: ServerState, client: Client, xid: int, op: Delete | Reconfig, time_ms: int
) -> bytes:
    state.write(client, xid, op, time_ms)
    return b""


def _multi(state: ServerState, client: Client, xid: int, ops: Multi, time_ms: int) -> bytes:
    if isinstance(ops, MalformedMulti):
        state.fail(client, xid, codes.MARSHALLING_ERROR, time_ms)
        raise Refused(codes.MARSHALLING_ERROR)
    return replies.encode_multi(ops, state.multi(client, xid, ops, time_ms))


def _exists(state: ServerState, client: Client, xid: int, op: Read, time_ms: int) -> bytes:
    return replies.encode_stat(state.exists(client, op.path, watch=op.watch))


def _get_children(state: ServerState, client: Client, xid: int, op: Read, time_ms: int) -> bytes:
    return replies.encode_children(state.children(client, op.path, watch=op.watch))


def _get_children2(state: ServerState, client: Client, xid: int, op: Read, time_ms: int) -> bytes:
    node = state.children(client, op.path, watch=op.watch)
    return replies.encode_children(node) + replies.encode_stat(node)


def _get_acl(state: ServerState, client: Client, xid: int, path: str | None, time_ms: int) -> bytes:
    node = state.readable(client, path, acl.READ | acl.ADMIN)
    return replies.encode_acl(acl.hidden(node.acl, client.identities), node)


def _multi_read(
    state: ServerState, client: Client, xid: int, ops: list[tuple[int, str]], time_ms: int
) -> bytes:
    return replies.encode_multi_read(ops, state.read_many(client, [path for _, path in ops]))


def _sync(state: ServerState, client: Client, xid: int, path: str | None, time_ms: int) -> bytes:
    state.check_session(client)
    return jute.string(path)


def _set_watches(
    state: ServerState, client: Client, xid: int, op: SetWatches, time_ms: int
) -> bytes:
    state.set_watches(client, *op)
    return b""


def _add_watch(
    state: ServerState, client: Client, xid: int, op: WatchRequest, time_ms: int
) -> bytes:
    state.add_watch(client, op.path, op.mode)
    return jute.INT.pack(0)


def _check_watches(
    state: ServerState, client: Client, xid: int, op: WatchRequest, time_ms: int
) -> bytes:
    state.check_watch(client, op.path, op.mode)
    return b""


def _remove_watches(
    state: ServerState, client: Client, xid: int, op: WatchRequest, time_ms: int
) -> bytes:
    state.remove_watch(client, op.path, op.mode)
    return b""


def _get_ephemerals(
    state: ServerState, client: Client, xid: int, prefix: str | None, time_ms: int
) -> bytes:
    state.check_session(client)
    own = state.tree.ephemerals.get(client.session_id, ())
    if prefix is None or prefix.strip(_TRIMMED) in ("", "/"):
        return replies.encode_names(own)
    return replies.encode_names(path for path in own if path.startswith(prefix))


def _count_children(
    state: ServerState, client: Client, xid: int, path: str | None, time_ms: int
) -> bytes:
    state.readable(client, path)
    return jute.INT.pack(state.tree.count_below(path or ""))


def _who_am_i(state: ServerState, client: Client, xid: int, op: None, time_ms: int) -> bytes:
    return replies.encode_identities(client.identities)


HANDLERS: Final[dict[int, Handler]] = {
    codes.SET_DATA: Handler("SETD", requests.decode_set_data, _set),
    codes.GET_DATA: Handler("GETD", requests.decode_read, _get_data),
    codes.EXISTS: Handler("EXIS", requests.decode_read, _exists),
    codes.MULTI: Handler("MULT", requests.decode_multi, _multi),
    codes.CREATE: Handler("CREA", requests.decode_create(codes.CREATE), _create),
    codes.CREATE2: Handler("CREA", requests.decode_create(codes.CREATE2), _create),
    codes.CREATE_CONTAINER: Handler(
        "CREC", requests.decode_create(codes.CREATE_CONTAINER), _create
    ),
    codes.CREATE_TTL: Handler("CRET", requests.decode_create_ttl, _create),
    codes.DELETE: Handler("DELE", requests.decode_delete, _write_without_result),
    codes.GET_CHILDREN: Handler("GETC", requests.decode_read, _get_children),
    codes.GET_CHILDREN2: Handler("GETC", requests.decode_read, _get_children2),
    codes.GET_ACL: Handler("GETA", requests.decode_path, _get_acl),
    codes.SET_ACL: Handler("SETA", requests.decode_set_acl, _set),
    codes.SYNC: Handler("SYNC", requests.decode_path, _sync),
    codes.RECONFIG: Handler("RECO", requests.decode_reconfig, _write_without_result),
    codes.MULTI_READ: Handler("MLTR", requests.decode_multi_read, _multi_read),
    codes.SET_WATCHES: Handler("SETW", requests.decode_set_watches, _set_watches),
    codes.SET_WATCHES2: Handler("STW2", requests.decode_set_watches2, _set_watches),
    codes.ADD_WATCH: Handler("ADDW", requests.decode_watch, _add_watch),
    codes.CHECK_WATCHES: Handler("CHKW", requests.decode_watch, _check_watches),
    codes.REMOVE_WATCHES: Handler("REMW", requests.decode_watch, _remove_watches),
    codes.GET_EPHEMERALS: Handler("GETE", requests.decode_path, _get_ephemerals, is_scan=True),
    codes.GET_ALL_CHILDREN_NUMBER: Handler(
        "GACN", requests.decode_path, _count_children, is_scan=True
    ),
    codes.WHO_AM_I: Handler("WHOA", requests.decode_nothing, _who_am_i),
}
"""All requests but ping, closeSession and auth, which concern the connection itself."""
