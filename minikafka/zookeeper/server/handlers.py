"""The requests that a server knows, in one table, and what it answers to each.

A decoder may fail in any way, for which the client gets MARSHALLING_ERROR. `answer` raises Refused, and for reads also
AnswerTooLong; any other exception is a bug, and ends the process before anything is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from minikafka.zookeeper.messages import codes, jute, replies, requests
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import JuteReader
from minikafka.zookeeper.messages.requests import (
    CreateNode,
    DeleteNode,
    GetData,
    MalformedMulti,
    MultiWrite,
    ReadRequest,
    Reconfig,
    Request,
    SetAcl,
    SetData,
    WatchRequest,
)
from minikafka.zookeeper.server.core import acl
from minikafka.zookeeper.server.core.attempt import Written
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.core.tree import DataNode
from minikafka.zookeeper.server.core.watches import Watcher

_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Apache ZooKeeper strips from the prefix of getEphemerals: what Java's `trim` strips."""


class Handler(NamedTuple):
    """One opcode. `name`: as the four-letter word `cons` shows it.

    `is_scan`: it may go through all nodes for a short answer, so that other clients get their turn before the next.
    """

    name: str
    decode: Callable[[JuteReader], Request]
    is_scan: bool = False


HANDLERS: Final[dict[int, Handler]] = {
    codes.SET_DATA: Handler("SETD", requests.decode_set_data),
    codes.GET_DATA: Handler("GETD", requests.decode_read(requests.GetData)),
    codes.EXISTS: Handler("EXIS", requests.decode_read(requests.Exists)),
    codes.MULTI: Handler("MULT", requests.decode_multi),
    codes.CREATE: Handler("CREA", requests.decode_create(codes.CREATE)),
    codes.CREATE2: Handler("CREA", requests.decode_create(codes.CREATE2)),
    codes.CREATE_CONTAINER: Handler("CREC", requests.decode_create(codes.CREATE_CONTAINER)),
    codes.CREATE_TTL: Handler("CRET", requests.decode_create_ttl),
    codes.DELETE: Handler("DELE", requests.decode_delete),
    codes.GET_CHILDREN: Handler("GETC", requests.decode_read(requests.GetChildren)),
    codes.GET_CHILDREN2: Handler("GETC", requests.decode_read(requests.GetChildren2)),
    codes.GET_ACL: Handler("GETA", requests.decode_path(requests.GetAcl)),
    codes.SET_ACL: Handler("SETA", requests.decode_set_acl),
    codes.SYNC: Handler("SYNC", requests.decode_path(requests.Sync)),
    codes.RECONFIG: Handler("RECO", requests.decode_reconfig),
    codes.MULTI_READ: Handler("MLTR", requests.decode_multi_read),
    codes.SET_WATCHES: Handler("SETW", requests.decode_set_watches),
    codes.SET_WATCHES2: Handler("STW2", requests.decode_set_watches2),
    codes.ADD_WATCH: Handler("ADDW", requests.decode_watch(requests.AddWatch)),
    codes.CHECK_WATCHES: Handler("CHKW", requests.decode_watch(requests.CheckWatch)),
    codes.REMOVE_WATCHES: Handler("REMW", requests.decode_watch(requests.RemoveWatch)),
    codes.GET_EPHEMERALS: Handler(
        "GETE", requests.decode_path(requests.GetEphemerals), is_scan=True
    ),
    codes.GET_ALL_CHILDREN_NUMBER: Handler(
        "GACN", requests.decode_path(requests.CountChildren), is_scan=True
    ),
    codes.WHO_AM_I: Handler("WHOA", requests.decode_who_am_i),
}
"""All requests but ping, closeSession and auth, which concern the connection itself."""


def answer(state: ServerState, client: Watcher, xid: int, request: Request, time_ms: int) -> bytes:
    """Carry out a request; return the body of the reply. The most frequent requests come first."""
    # Types are compared, because a match of classes would make a read of a node an eighth slower.
    if type(request) is GetData:
        return replies.encode_data(state.data(client, request.path, watch=request.watch))
    if type(request) is SetData or type(request) is SetAcl:
        return replies.encode_stat(_node_of(state.write(client, xid, request, time_ms)))
    if type(request) is CreateNode:
        written = state.write(client, xid, request, time_ms)
        return replies.encode_created(request.kind, written.path, _node_of(written).stat())
    if type(request) is DeleteNode or type(request) is Reconfig:
        state.write(client, xid, request, time_ms)
        return b""
    if type(request) is MultiWrite:
        results = state.multi(client, xid, request.operations, time_ms)
        return replies.encode_multi(request.operations, results)
    if type(request) is MalformedMulti:
        state.fail(client, xid, codes.MARSHALLING_ERROR, time_ms)
        raise Refused(codes.MARSHALLING_ERROR)
    return _answer_read(state, client, request)


def _answer_read(state: ServerState, client: Watcher, request: ReadRequest | WatchRequest) -> bytes:
    """Carry out a request that writes nothing."""
    match request:
        case requests.Exists():
            return replies.encode_stat(state.exists(client, request.path, watch=request.watch))
        case requests.MultiRead():
            nodes = state.read_many(client, [path for _, path in request.reads])
            return replies.encode_multi_read(request.reads, nodes)
        case requests.GetChildren():
            return replies.encode_children(
                state.children(client, request.path, watch=request.watch)
            )
        case requests.GetChildren2():
            node = state.children(client, request.path, watch=request.watch)
            return replies.encode_children(node) + replies.encode_stat(node)
        case requests.GetAcl():
            node = state.readable(client, request.path, acl.READ | acl.ADMIN)
            return replies.encode_acl(acl.hidden(node.acl, client.identities), node)
        case requests.Sync():
            state.check_session(client)
            return jute.string(request.path)
        case requests.GetEphemerals():
            return _ephemerals(state, client, request.path)
        case requests.CountChildren():
            state.readable(client, request.path)
            return jute.INT.pack(state.tree.count_below(request.path or ""))
        case requests.WhoAmI():
            return replies.encode_identities(client.identities)
        case _:
            return _answer_about_watches(state, client, request)


def _answer_about_watches(state: ServerState, client: Watcher, request: WatchRequest) -> bytes:
    match request:
        case requests.SetWatches():
            state.set_watches(client, *request)
            return b""
        case requests.AddWatch():
            state.add_watch(client, request.path, request.mode)
            return jute.INT.pack(0)
        case requests.CheckWatch():
            state.check_watch(client, request.path, request.kind)
            return b""
        case requests.RemoveWatch():
            state.remove_watch(client, request.path, request.kind)
            return b""


def _node_of(written: Written) -> DataNode:
    assert written.node is not None
    return written.node


def _ephemerals(state: ServerState, client: Watcher, prefix: str | None) -> bytes:
    state.check_session(client)
    own = state.tree.ephemerals.get(client.session_id, ())
    if prefix is None or prefix.strip(_TRIMMED) in ("", "/"):
        return replies.encode_names(own)
    return replies.encode_names(path for path in own if path.startswith(prefix))
