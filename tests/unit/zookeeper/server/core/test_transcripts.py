"""Scenarios of a ZooKeeper server's state: requests of clients in; events, replies and logged transactions out.

Clients have names. `null` stands for a path, data or a list that a request does not have. Requests take `at` (Unix
time in ms) and `cxid`, and writes the word `stat`, with which their reply shows the whole Stat. An access control list
is written `permissions:scheme:id`, with the letters r, w, c, d and a; several entries have a comma between them. The
operations of a multi are told one by one before it, as `part`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest
from support.deciders.transcripts import Input, play, scenarios
from support.zookeeper.state import TICK_MS, TIMEOUT_MS, assert_consistent

from minikafka.base.ports import Stat
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE, Acl, Identity
from minikafka.zookeeper.messages.requests import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    OpResult,
    Reconfig,
    SetAcl,
    SetData,
)
from minikafka.zookeeper.server.core.attempt import Written
from minikafka.zookeeper.server.core.changes import (
    AclSet,
    Change,
    Checked,
    Created,
    DataSet,
    Deleted,
    Failed,
    LoggedTransaction,
    Multi,
    SessionClosed,
    SessionOpened,
)
from minikafka.zookeeper.server.core.sessions import Session
from minikafka.zookeeper.server.core.state import ServerState

NO_SESSION: Final = 99
TIME_MS: Final = 7
"""The time of a request that has no `at`. The log shows it only where it is another one."""
PERMISSIONS: Final = "rwcda"
EVENTS: Final = {
    codes.NODE_CREATED: "created",
    codes.NODE_DELETED: "deleted",
    codes.DATA_CHANGED: "data changed",
    codes.CHILDREN_CHANGED: "children changed",
}
KINDS: Final = {
    "create": codes.CREATE,
    "create2": codes.CREATE2,
    "create-container": codes.CREATE_CONTAINER,
    "create-ttl": codes.CREATE_TTL,
}
KIND_NAMES: Final = {kind: name for name, kind in KINDS.items()}
WRITES: Final = (*KINDS, "delete", "set", "set-acl", "check", "reconfig")
ADD_MODES: Final = {"persistent": 0, "recursive": 1}
WATCH_TYPES: Final = {"children": 1, "data": 2, "any": 3, "persistent": 4, "recursive": 5}
CODE_NAMES: Final = {
    value: name
    for name, value in reversed(vars(codes).items())
    if name.isupper() and isinstance(value, int) and value < 0
}
"""Error code → name: of two names for a number, the one that `codes` defines first."""


def acl_of(text: str) -> Acl | None:
    """Return the list that a scenario writes as `rw:world:anyone,a:digest:bob:hash`."""
    if text == "null":
        return None
    entries = []
    for entry in filter(None, text.split(",")):
        letters, scheme, name = entry.split(":", 2)
        bits = 31 if letters == "all" else sum(1 << PERMISSIONS.index(one) for one in letters)
        entries.append((bits, scheme, name))
    return ANYONE if tuple(entries) == ANYONE else tuple(entries)


def acl_text(acl: Acl) -> str:
    return ",".join(
        f"{''.join(letter for at, letter in enumerate(PERMISSIONS) if bits >> at & 1)}:{scheme}:{name}"
        for bits, scheme, name in acl
    )


def data_text(data: bytes | None) -> str:
    return "null" if data is None else data.decode() or '""'


def or_null(text: str) -> str | None:
    return None if text == "null" else text


def listed(text: str) -> list[str]:
    return text.split(",") if text else []


class Client:
    """A connection. It tells the events that it receives as lines of the scenario."""

    def __init__(self, name: str, session_id: int, lines: list[str]) -> None:
        self.name = name
        self.session_id = session_id
        self.identities: list[Identity] = [("ip", "127.0.0.1")]
        self._lines = lines

    def on_event(self, change: int, path: str, zxid: int) -> None:
        self._lines.append(f"event to {self.name}: {EVENTS[change]} {path} zxid={zxid}")


class Player:
    """Turns the requests of a scenario into events, replies and logged transactions."""

    def __init__(self) -> None:
        self.state = ServerState(tick_ms=TICK_MS)
        self.clients: dict[str, Client] = {}
        self.parts: list[Operation] = []
        """The operations of the next multi."""
        self.lines: list[str] = []

    def __call__(self, heard: Input) -> Iterable[str]:
        self.lines.clear()
        verb = heard.verb
        if verb in WRITES:
            self._write(heard)
        elif verb == "part":
            self.parts.append(operation(heard.words.pop(0), heard))
        elif verb == "multi":
            self._multi(heard)
        elif verb in ("get", "exists", "children"):
            self._read(heard)
        elif verb in ("add-watch", "check-watch", "remove-watch", "set-watches"):
            self._watch(heard)
        elif verb in ("nodes", "stat", "watches", "given", "sessions"):
            self._inspect(heard)
        else:
            self._session(heard)
        assert_consistent(self.state)
        return [*self.lines, *self._logged()]

    def _client(self, heard: Input) -> Client:
        """Return the client that the first word names. One that never connected has no session."""
        name = heard.words.pop(0)
        return self.clients.get(name) or Client(name, NO_SESSION, self.lines)

    def _reply(self, client: Client, text: str) -> None:
        self.lines.append(f"reply to {client.name}: {text}")

    # ---- requests

    def _write(self, heard: Input) -> None:
        client, shows_stat = self._client(heard), heard.flag("stat")
        cxid, time_ms = heard.number("cxid"), heard.number("at", TIME_MS)
        try:
            written = self.state.write(client, cxid, operation(heard.verb, heard), time_ms)
        except Refused as refused:
            self._reply(client, CODE_NAMES[refused.code])
        else:
            self._reply(client, written_text(written, shows_stat=shows_stat))

    def _multi(self, heard: Input) -> None:
        client, shows_stat = self._client(heard), heard.flag("stat")
        cxid, time_ms = heard.number("cxid"), heard.number("at", TIME_MS)
        operations, self.parts = self.parts, []
        try:
            results = self.state.multi(client, cxid, operations, time_ms)
        except Refused as refused:
            self._reply(client, CODE_NAMES[refused.code])
            return
        texts = [result_text(result, shows_stat=shows_stat) for result in results]
        self._reply(client, "; ".join(texts) or "no results")

    def _read(self, heard: Input) -> None:
        client, watch = self._client(heard), heard.flag("watch")
        path = or_null(heard.words[0])
        try:
            if heard.verb == "get":
                node = self.state.data(client, path, watch=watch)
            elif heard.verb == "exists":
                node = self.state.exists(client, path, watch=watch)
            else:
                node = self.state.children(client, path, watch=watch)
        except Refused as refused:
            self._reply(client, CODE_NAMES[refused.code])
        else:
            names = " ".join(node.children or ()) or "no children"
            self._reply(client, names if heard.verb == "children" else data_text(node.data))

    def _watch(self, heard: Input) -> None:
        client = self._client(heard)
        try:
            if heard.verb == "set-watches":
                self.state.set_watches(
                    client,
                    heard.number("seen"),
                    *(listed(heard.option(kind)) for kind in ("data", "exists", "children")),
                    *(listed(heard.option(kind)) for kind in ("persistent", "recursive")),
                )
            else:
                path, kind = heard.words
                if heard.verb == "add-watch":
                    self.state.add_watch(client, path, ADD_MODES.get(kind, 9))
                elif heard.verb == "check-watch":
                    self.state.check_watch(client, path, WATCH_TYPES.get(kind, 9))
                else:
                    self.state.remove_watch(client, path, WATCH_TYPES.get(kind, 9))
        except Refused as refused:
            self._reply(client, CODE_NAMES[refused.code])
        else:
            self._reply(client, "ok")

    # ---- sessions

    def _session(self, heard: Input) -> None:
        now, time_ms = heard.number("now"), heard.number("at", TIME_MS)
        if heard.verb == "expire":
            ended = [self._name(session.id) for session in self.state.expire(now, time_ms)]
            self.lines.append(f"expired: {' '.join(ended) or 'none'}")
        elif heard.verb == "remove-empty-containers":
            self.state.remove_empty_containers(time_ms)
        elif heard.verb == "connect":
            session = self._session_to_join(heard, now, time_ms)
            name = heard.words[0]
            session.connection = self.clients[name] = Client(name, session.id, self.lines)
        else:
            client = self._client(heard)
            session = self.state.sessions.open.get(client.session_id)
            if heard.verb == "close":
                self.state.close_session(client.session_id, heard.number("cxid"), time_ms)
            elif heard.verb == "disconnect":
                self.state.drop(client)
            elif heard.verb == "fail":
                self._fail(client, heard.number("cxid"), time_ms)
            else:
                assert heard.verb == "touch", heard.verb
                assert session is not None
                self.state.sessions.touch(session, now)

    def _session_to_join(self, heard: Input, now: int, time_ms: int) -> Session:
        """Return a new session, or the one of the client that the option `session-of` names."""
        if name := heard.option("session-of"):
            return self.state.sessions.open[self.clients[name].session_id]
        return self.state.open_session(heard.number("timeout", TIMEOUT_MS), now, time_ms)

    def _fail(self, client: Client, cxid: int, time_ms: int) -> None:
        try:
            self.state.fail(client, cxid, codes.MARSHALLING_ERROR, time_ms)
        except Refused as refused:
            self._reply(client, CODE_NAMES[refused.code])

    def _name(self, session_id: int) -> str:
        names = [client.name for client in self.clients.values() if client.session_id == session_id]
        return names[0] if names else "nobody"

    # ---- the state

    def _inspect(self, heard: Input) -> None:
        tree = self.state.tree
        if heard.verb == "nodes":
            self.lines.append(" ".join(tree.nodes))
            for session_id, paths in tree.ephemerals.items():
                self.lines.append(f"ephemeral of {self._name(session_id)}: {' '.join(paths)}")
            if tree.containers:
                self.lines.append(f"containers: {' '.join(tree.containers)}")
        elif heard.verb == "sessions":
            for session in self.state.sessions.open.values():
                client = session.connection
                holder = client.name if isinstance(client, Client) else "none"
                who = self._name(session.id)
                self.lines.append(f"{who}: connection={holder} expires={session.expires}")
        elif heard.verb == "watches":
            counts = len(self.state.data_watches), len(self.state.child_watches)
            self.lines.append("data={} children={}".format(*counts))
        else:
            node = tree.nodes[heard.words[0]]
            if heard.verb == "given":
                node.created = heard.number("created", node.created)
                node.version = heard.number("version", node.version)
            self.lines.append(stat_text(node.stat(), self._name))

    # ---- the log

    def _logged(self) -> Iterator[str]:
        """Yield a line for each transaction since the last input."""
        for transaction in self.state.journal:
            yield f"log {transaction.zxid} for {self._header(transaction)}: {change_text(transaction.change)}"
        self.state.journal.clear()

    def _header(self, transaction: LoggedTransaction) -> str:
        who = self._name(transaction.session_id)
        cxid = f" cxid={transaction.cxid}" if transaction.cxid else ""
        time = f" at={transaction.time_ms}" if transaction.time_ms != TIME_MS else ""
        return f"{who}{cxid}{time}"


def operation(verb: str, heard: Input) -> Operation:
    """Return the write that an input describes."""
    if verb == "reconfig":
        return Reconfig()
    path, version = or_null(heard.words[0]), heard.number("version", -1)
    data = None if (text := heard.option("data")) == "null" else text.encode()
    if verb == "set":
        return SetData(path, data, version)
    if verb == "delete":
        return DeleteNode(path, version)
    if verb == "check":
        return CheckVersion(path, version)
    acl = acl_of(heard.option("acl", "all:world:anyone"))
    if verb == "set-acl":
        return SetAcl(path, acl, version)
    flags = heard.number("flags")
    flags |= codes.EPHEMERAL * heard.flag("ephemeral") | codes.SEQUENTIAL * heard.flag("sequential")
    return CreateNode(KINDS[verb], path, data, acl, flags)


def written_text(written: Written, *, shows_stat: bool) -> str:
    return done_text(written.path, written.stat if shows_stat else None)


def result_text(result: OpResult | int, *, shows_stat: bool) -> str:
    if isinstance(result, int):
        return CODE_NAMES[result] if result else "not at fault"
    return done_text(result.path, result.stat if shows_stat else None)


def done_text(path: str, stat: Stat | None) -> str:
    return path if stat is None else f"{path} {stat_text(stat)}"


def stat_text(stat: Stat, name_of: Callable[[int], str] = str) -> str:
    fields = stat._asdict()
    owner = fields.pop("ephemeral_owner")
    shown = {**fields, **({"ephemeral_owner": name_of(owner)} if owner else {})}
    return " ".join(f"{name}={value}" for name, value in shown.items())


def change_text(change: Change) -> str:
    """Return what a transaction changes, as a scenario writes it."""
    if isinstance(change, Multi):
        return f"multi ({'; '.join(map(change_text, change.changes))})"
    if isinstance(change, Created):
        acl = "" if change.acl is ANYONE else f" acl={acl_text(change.acl)}"
        ephemeral = " ephemeral" if change.is_ephemeral else ""
        kind, data = KIND_NAMES[change.kind], data_text(change.data)
        return f"{kind} {change.path} data={data}{acl}{ephemeral} created={change.created}"
    if isinstance(change, Deleted):
        return f"delete {change.path}{' container' if change.is_container else ''}"
    if isinstance(change, DataSet):
        return f"set {change.path} data={data_text(change.data)} version={change.version}"
    if isinstance(change, AclSet):
        return f"set-acl {change.path} acl={acl_text(change.acl)} version={change.version}"
    if isinstance(change, Checked):
        return f"check {change.path} version={change.version}"
    if isinstance(change, SessionOpened):
        return f"session opened timeout={change.timeout_ms}"
    if isinstance(change, SessionClosed):
        return f"session closed deletes={','.join(change.paths) or 'nothing'}"
    assert isinstance(change, Failed)
    return f"failed {CODE_NAMES[change.code]}"


@pytest.mark.parametrize("file", scenarios(__file__))
def test_state_of_a_server_answers_as_the_scenario_tells(file: Path, *, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)
