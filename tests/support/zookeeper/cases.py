"""What a client can do to its connection, as a table of cases. Each case runs on two servers and must end equally.

A case returns what the client saw: replies with zxids from the start of the case, "closed" where the server closed
the connection, and "open" where it still answered. Ids and passwords of sessions are shown by their kind.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from support.zookeeper import bytes as wire
from support.zookeeper.bytes import NEW, Closed, Cursor, Reply, Session, Wire, framed

TIMEOUT_MS = 30_000
SHORT_MS = 1
"""Less than the minimum of all servers."""
FRAME_MAX = 0xFFFFF
QUIET = "/zookeeper/quota"
"""A node that no case changes."""
ANYONE = ((31, "world", "anyone"),)
Outcome: TypeAlias = list[Any]
Case: TypeAlias = Callable[["Client"], Outcome]


def request(code: int, record: bytes = b"", xid: int = 1) -> bytes:
    return framed(struct.pack("!ii", xid, code) + record)


def create(
    path: str | None, *, flags: int = 0, data: bytes | None = b"", acl: Any = ANYONE
) -> bytes:
    return wire.text(path) + wire.data(data) + wire.acl(acl) + wire.integer(flags)


GET_QUIET = request(wire.GET, wire.text(QUIET) + b"\0", 5)
PING = request(wire.PING, xid=-2)


class Client:
    """One client of one server, for one case. `base`: the zxid at the start of the case."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.opened: list[Wire] = []
        self._sessions: list[Session] = []
        first = self.attach()
        self.base = first.request(0, wire.CLOSE).zxid

    def raw(self) -> Wire:
        """Return a new connection without a session."""
        connection = Wire(self.port)
        self.opened.append(connection)
        return connection

    def attach(self, session: Session = NEW, *, timeout_ms: int = TIMEOUT_MS) -> Wire:
        """Return a new connection with a session, which `session_of` returns."""
        connection = self.raw()
        found = connection.connect(timeout_ms, session)
        self._sessions.append(found)
        connection.session = found  # type: ignore[attr-defined]
        return connection

    def answers(self, connection: Wire, *parts: bytes, codes: tuple[int, ...] = ()) -> Outcome:
        """Send bytes and a ping; return the replies until that to the ping, or until the end."""
        for part in parts:
            connection.send(part)
        connection.send(PING)
        found: Outcome = []
        expected = iter(codes)
        try:
            while True:
                frame = connection.frame()
                xid = struct.unpack_from("!i", frame)[0]
                if xid == -2:
                    return [*found, "open"]
                found.append(self._shown(frame, expected))
        except Closed:
            return [*found, "closed"]

    def ending(self, connection: Wire, *parts: bytes, codes: tuple[int, ...] = ()) -> Outcome:
        """Send bytes; return the replies until the server closes the connection."""
        for part in parts:
            connection.send(part)
        found: Outcome = []
        expected = iter(codes)
        try:
            while True:
                found.append(self._shown(connection.frame(), expected))
        except Closed:
            return [*found, "closed"]

    def _shown(self, frame: bytes, codes: Iterator[int]) -> Any:
        if struct.unpack_from("!i", frame)[0] == wire.EVENT_XID:
            event = wire.event(frame)
            return event._replace(zxid=self.from_start(event.zxid))
        return self.plain(wire.decoded(next(codes, 0), frame))

    def plain(self, reply: Reply) -> Reply:
        body = tuple(
            (*map(self.from_start, (value[1], value[2], value[9])), value[3:6], bool(value[6]))
            if type(value) is tuple
            else value
            for value in reply.body
        )
        return reply._replace(zxid=self.from_start(reply.zxid), body=body)

    def from_start(self, zxid: int) -> int:
        return max(zxid - self.base, 0) if zxid > 0 else zxid

    def zxid(self) -> int:
        """Return the server's zxid, from the start of the case and without the session that this takes."""
        connection = self.attach()
        zxid = connection.request(0, wire.CLOSE).zxid
        self.base += 2
        return zxid - self.base

    def connected(self, connection: Wire, body: bytes) -> Outcome:
        """Send the body of a connect request; return what kind of reply came."""
        connection.send(framed(body))
        try:
            frame = connection.frame()
        except Closed:
            return ["closed"]
        cursor = Cursor(frame)
        version, timeout_ms, session_id = cursor.unpack("!iiq")
        password = cursor.data() or b""
        self._sessions.append(Session(session_id, password))
        return [
            version,
            timeout_ms,
            "session" if session_id else "no session",
            len(password),
            "a password" if any(password) else "zeros",
            cursor.rest(),
        ]

    def end(self) -> None:
        """End the sessions of the case, and close its connections."""
        for connection in self.opened:
            connection.close()
        for session in dict.fromkeys(self._sessions):
            if session.id:
                connection = Wire(self.port)
                if connection.connect(TIMEOUT_MS, session).id:
                    connection.request(0, wire.CLOSE)
                connection.close()


def run(case: Case, port: int) -> Outcome:
    """Run a case on the server of a port."""
    client = Client(port)
    try:
        return case(client)
    finally:
        client.end()


CASES: dict[str, Case] = {}
"""Name → case."""


def case(name: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        assert name not in CASES
        CASES[name] = function
        return function

    return add


def _session_of(connection: Wire) -> Session:
    return connection.session  # type: ignore[attr-defined,no-any-return]


# ---- the first frame


def _add_first_frames() -> None:
    full = wire.connect_request(TIMEOUT_MS)
    for length in (-1, -(2**31), FRAME_MAX + 1, 2**31 - 1):
        add_raw(f"first frame: length {length}", wire.integer(length))
    add_raw("first frame: no bytes", framed(b""))
    for size in (1, 4, 12, 16, 24, 28, 43):
        add_raw(f"first frame: cut after {size} bytes", framed(full[:size]))
    add_raw("first frame: a read", GET_QUIET)
    bodies = {
        "without the byte readOnly": wire.connect_request(TIMEOUT_MS, tail=b""),
        "with readOnly true": wire.connect_request(TIMEOUT_MS, tail=b"\1"),
        "with bytes after the record": wire.connect_request(TIMEOUT_MS, tail=b"\0more"),
        "with the byte readOnly": full,
        "of another version": wire.integer(7) + full[4:],
        "with a null password": full[:24] + wire.data(None) + b"\0",
        "with an empty password": full[:24] + wire.data(b"") + b"\0",
        "with a long password": full[:24] + wire.data(bytes(99)) + b"\0",
        "with a password for a new session": full[:24] + wire.data(b"x" * 16) + b"\0",
        "with the length of the password -2": full[:24] + wire.integer(-2) + b"\0",
        "with a cut password": full[:24] + wire.integer(99) + b"\0",
        "that has seen the zxid -1": wire.connect_request(TIMEOUT_MS, zxid=-1),
        "of an unknown session": wire.connect_request(TIMEOUT_MS, Session(12345, bytes(16))),
        "of an unknown session below 0": wire.connect_request(TIMEOUT_MS, Session(-9, bytes(16))),
        "of an unknown session without readOnly": wire.connect_request(
            TIMEOUT_MS, Session(12345, bytes(16)), tail=b""
        ),
    }
    for name, body in bodies.items():
        CASES[f"connect: {name}"] = _connecting(body)
    for timeout in (-(2**31), -1, 0, 1, 999, 1000, 1001, 60_000, 60_001, 2**31 - 1):
        CASES[f"connect: timeout {timeout}"] = _connecting(wire.connect_request(timeout))


def add_raw(name: str, raw: bytes) -> None:
    CASES[name] = lambda client: client.ending(client.raw(), raw)


def _connecting(body: bytes) -> Case:
    return lambda client: client.connected(client.raw(), body)


_add_first_frames()


@case("connect: has seen the last zxid")
def _(client: Client) -> Outcome:
    return client.connected(client.raw(), wire.connect_request(TIMEOUT_MS, zxid=client.base))


@case("connect: has seen a later zxid")
def _(client: Client) -> Outcome:
    return client.connected(client.raw(), wire.connect_request(TIMEOUT_MS, zxid=client.base + 1))


@case("connect: uses up a zxid")
def _(client: Client) -> Outcome:
    client.attach()
    return [client.zxid()]


@case("connect: byte by byte")
def _(client: Client) -> Outcome:
    connection = client.raw()
    for byte in framed(wire.connect_request(TIMEOUT_MS)):
        connection.send(bytes([byte]))
    Cursor(connection.frame())
    return client.answers(connection)


@case("connect: with a request in the same segment")
def _(client: Client) -> Outcome:
    connection = client.raw()
    connection.send(framed(wire.connect_request(TIMEOUT_MS)) + GET_QUIET)
    connection.frame()
    return client.answers(connection, codes=(wire.GET,))


@case("connect: twice on a connection")
def _(client: Client) -> Outcome:
    return client.ending(client.attach(), framed(wire.connect_request(TIMEOUT_MS)))


# ---- return to a session


def _return(client: Client, session: Session, timeout_ms: int = TIMEOUT_MS) -> Outcome:
    return client.connected(client.raw(), wire.connect_request(timeout_ms, session))


@case("return: with the password")
def _(client: Client) -> Outcome:
    first = client.attach()
    return [_return(client, _session_of(first)), client.ending(first)]


@case("return: uses up no zxid")
def _(client: Client) -> Outcome:
    first = client.attach()
    client.attach(_session_of(first))
    return [client.zxid()]


@case("return: with other timeouts")
def _(client: Client) -> Outcome:
    session = _session_of(client.attach())
    return [_return(client, session, timeout) for timeout in (-5, 1500, 10**6)]


@case("return: with a wrong password, after the connection has ended")
def _(client: Client) -> Outcome:
    first = client.attach()
    first.close()
    outcome = _return(client, Session(_session_of(first).id, b"wrong" * 4))
    return [outcome, _return(client, _session_of(first))]


@case("return: without a password")
def _(client: Client) -> Outcome:
    first = client.attach()
    first.close()
    return _return(client, Session(_session_of(first).id, b""))


@case("return: with a password that is too long")
def _(client: Client) -> Outcome:
    first = client.attach()
    first.close()
    session = _session_of(first)
    return _return(client, Session(session.id, session.password + b"x"))


@case("return: to a session that was closed")
def _(client: Client) -> Outcome:
    first = client.attach()
    first.request(1, wire.CLOSE)
    return _return(client, _session_of(first))


@case("return: the server closes the connection of a refused return")
def _(client: Client) -> Outcome:
    connection = client.raw()
    connection.send(framed(wire.connect_request(TIMEOUT_MS, Session(12345, bytes(16)))))
    connection.frame()
    return client.ending(connection)


@case("return: ephemeral nodes stay, watches and credentials go")
def _(client: Client) -> Outcome:
    first = client.attach()
    first.request(1, wire.AUTH, wire.integer(0) + wire.text("digest") + wire.data(b"u:p"))
    first.request(2, wire.CREATE, create("/case-return", flags=1))
    first.request(3, wire.GET, wire.text("/case-return") + b"\1")
    second = client.attach(_session_of(first))
    return client.answers(
        second,
        request(wire.WHO_AM_I),
        request(wire.SET, wire.text("/case-return") + wire.data(b"x") + wire.integer(-1)),
        request(wire.CHECK_WATCHES, wire.text("/case-return") + wire.integer(3)),
        codes=(wire.WHO_AM_I, wire.SET, 0),
    )


# ---- frames of requests


def _add_requests() -> None:
    frames = {
        "length -1": wire.integer(-1),
        f"length {FRAME_MAX + 1}": wire.integer(FRAME_MAX + 1),
        "length of the word ruok": b"ruok",
        "no bytes": framed(b""),
        "1 byte": framed(b"\0"),
        "only an xid": framed(wire.integer(1)),
        "7 bytes": framed(struct.pack("!ii", 1, wire.GET)[:7]),
    }
    for name, raw in frames.items():
        CASES[f"request: {name}"] = _ending(raw)
    for code in (99, 0, 10, 23, 108, -1, -2, 2**31 - 1, wire.CHECK):
        CASES[f"request: opcode {code}"] = _ending(request(code, wire.text("/") + bytes(16)))
    for name, (code, record) in _odd_records().items():
        CASES[f"request: {name}"] = _answering(code, record)


def _ending(raw: bytes) -> Case:
    return lambda client: [client.ending(client.attach(), raw), client.zxid()]


def _answering(code: int, record: bytes) -> Case:
    return lambda client: [
        client.answers(client.attach(), request(code, record), codes=(code,)),
        client.zxid(),
    ]


def _odd_records() -> dict[str, tuple[int, bytes]]:
    path, negative = wire.text("/missing"), wire.integer(-2)
    null_entry = wire.integer(1) + wire.integer(31) + wire.integer(-1) * 2
    end = struct.pack("!i?i", -1, True, -1)
    part = struct.pack("!i?i", wire.SET, False, -1)
    return {
        "get without a record": (wire.GET, b""),
        "get with a cut path": (wire.GET, path[:6]),
        "get without the byte watch": (wire.GET, path),
        "get with 2 as the byte watch": (wire.GET, wire.text(QUIET) + b"\2"),
        "get with bytes after the record": (wire.GET, wire.text(QUIET) + b"\0more"),
        "get of a path of length -2": (wire.GET, negative + b"\0"),
        "get of a path that is not UTF-8": (wire.GET, wire.data(b"/\xff") + b"\0"),
        "get of a path with half a character": (wire.GET, wire.data(b"/\xed\xa0\xbd") + b"\0"),
        "create without a record": (wire.CREATE, b""),
        "create without flags": (wire.CREATE, create("/case")[:-4]),
        "create of a path that is not UTF-8": (
            wire.CREATE,
            wire.data(b"/\xff") + create("")[4:],
        ),
        "create with data of length -2": (
            wire.CREATE,
            wire.text("/case") + negative + wire.acl(ANYONE) + wire.integer(0),
        ),
        "create with an ACL of length -2": (
            wire.CREATE,
            wire.text("/case") + wire.data(b"") + negative + wire.integer(0),
        ),
        "create with an ACL of nulls": (
            wire.CREATE,
            wire.text("/case") + wire.data(b"") + null_entry + wire.integer(0),
        ),
        "create with an ACL of a billion entries": (
            wire.CREATE,
            wire.text("/case") + wire.data(b"") + wire.integer(10**9) + wire.integer(0),
        ),
        "create with flags 99": (wire.CREATE, create("/case", flags=99)),
        **{
            f"createTTL with flags {flags} and a time to live of {ttl}": (
                wire.CREATE_TTL,
                create("/case-ttl", flags=flags) + wire.long(ttl),
            )
            for flags, ttl in ((0, 5_000), (5, -1), (5, 0), (5, 5_000), (6, 0), (6, 5_000), (7, 0))
        },
        "createTTL without a time to live": (wire.CREATE_TTL, create("/case-ttl", flags=5)),
        "createTTL without a time to live, flags 0": (wire.CREATE_TTL, create("/case-ttl")),
        "createTTL of a null path": (wire.CREATE_TTL, create(None, flags=5) + wire.long(5_000)),
        "multi of a createTTL with flags 0": (
            wire.MULTI,
            wire.multi([(wire.CREATE_TTL, create("/missing/x") + wire.long(-1))]),
        ),
        "multi of a createTTL with flags 5": (
            wire.MULTI,
            wire.multi([(wire.CREATE_TTL, create("/case-ttl", flags=5) + wire.long(5_000))]),
        ),
        "multi of a create with flags 5": (
            wire.MULTI,
            wire.multi([(wire.CREATE, create("/case-ttl", flags=5))]),
        ),
        "multi of a createTTL with flags 99": (
            wire.MULTI,
            wire.multi([(wire.CREATE_TTL, create("/case-ttl", flags=99) + wire.long(5_000))]),
        ),
        "set without a version": (wire.SET, path + wire.data(b"")),
        "delete with a cut version": (wire.DELETE, path + b"\0\0"),
        "setACL without a version": (wire.SET_ACL, path + wire.acl(ANYONE)),
        "reconfig without a record": (wire.RECONFIG, b""),
        "sync without a path": (wire.SYNC, b""),
        "sync of a null path": (wire.SYNC, wire.text(None)),
        "sync of a path above U+FFFF": (wire.SYNC, wire.text("/😀")),
        "getEphemerals of a null path": (wire.EPHEMERALS, wire.text(None)),
        "getAllChildrenNumber of a null path": (wire.COUNT_CHILDREN, wire.text(None)),
        "whoAmI": (wire.WHO_AM_I, b""),
        "multi without a record": (wire.MULTI, b""),
        "multi without an end": (wire.MULTI, part + path + wire.data(b"") + wire.integer(-1)),
        "multi with a cut operation": (wire.MULTI, part + path[:5]),
        "multi of an unknown operation": (wire.MULTI, struct.pack("!i?i", 99, False, -1) + end),
        "multi of a read": (wire.MULTI, wire.multi([(wire.GET, wire.text("/") + b"\0")])),
        "multi of a read and then a null ACL": (
            wire.MULTI,
            wire.multi(
                [(wire.GET, wire.text("/") + b"\0"), (wire.CREATE, create("/case", acl=None))]
            ),
        ),
        "multi of a write, a read and then a null ACL": (
            wire.MULTI,
            wire.multi(
                [
                    (wire.DELETE, path + wire.integer(-1)),
                    (wire.GET, wire.text("/") + b"\0"),
                    (wire.CREATE, create("/case", acl=None)),
                ]
            ),
        ),
        "multi of a null path and then a null ACL": (
            wire.MULTI,
            wire.multi([(wire.CREATE, create(None)), (wire.CREATE, create("/case", acl=None))]),
        ),
        "multi of a setACL": (
            wire.MULTI,
            wire.multi([(wire.SET_ACL, wire.text("/") + wire.acl(ANYONE) + wire.integer(-1))]),
        ),
        "multi with a null ACL": (
            wire.MULTI,
            wire.multi([(wire.CREATE, create("/case", acl=None))]),
        ),
        "multi with flags 99": (wire.MULTI, wire.multi([(wire.CREATE, create("/case", flags=99))])),
        "multi of nothing": (wire.MULTI, end),
        "multi with bytes after the end": (wire.MULTI, end + b"more"),
        "multiRead of nothing": (wire.MULTI_READ, end),
        "multiRead of a write": (
            wire.MULTI_READ,
            wire.multi([(wire.DELETE, path + wire.integer(-1))]),
        ),
        "multiRead without an end": (
            wire.MULTI_READ,
            struct.pack("!i?i", wire.GET, False, -1) + wire.text("/") + b"\0",
        ),
        "setWatches without a record": (wire.SET_WATCHES, b""),
        "setWatches of null lists": (wire.SET_WATCHES, wire.long(0) + wire.integer(-1) * 3),
        "setWatches of lists of length -2": (wire.SET_WATCHES, wire.long(0) + negative * 3),
        "setWatches with a cut list": (wire.SET_WATCHES, wire.long(0) + wire.integer(2) + path),
        "setWatches2 with the lists of setWatches": (
            wire.SET_WATCHES2,
            wire.long(0) + wire.texts([]) * 3,
        ),
        "addWatch without a mode": (wire.ADD_WATCH, path),
        "addWatch of mode -1": (wire.ADD_WATCH, path + wire.integer(-1)),
        "removeWatches of type 0": (wire.REMOVE_WATCHES, path + wire.integer(0)),
        "checkWatches without a type": (wire.CHECK_WATCHES, path),
    }


_add_requests()


@case("request: a frame of the greatest length")
def _(client: Client) -> Outcome:
    connection = client.attach()
    frame = GET_QUIET[4:]
    padded = framed(frame + bytes(FRAME_MAX - len(frame)))
    return client.answers(connection, padded, codes=(wire.GET,))


@case("request: data of the greatest length")
def _(client: Client) -> Outcome:
    connection = client.attach()
    path, tail = wire.text("/case-large"), wire.acl(ANYONE) + wire.integer(1)
    room = FRAME_MAX - 8 - len(path) - 4 - len(tail)
    answers = [
        client.answers(
            connection,
            request(wire.CREATE, path + wire.data(bytes(room)) + tail),
            request(wire.GET, path + b"\0"),
            codes=(wire.CREATE, wire.GET),
        )
    ]
    read = answers[0][1]
    return [answers[0][0], len(read.body[0]), read.body[1:]]


@case("request: xids are returned as they are")
def _(client: Client) -> Outcome:
    connection = client.attach()
    reads = [GET_QUIET.replace(wire.integer(5), wire.integer(xid)) for xid in (7, 7, 0, -7)]
    return client.answers(connection, *reads, codes=(wire.GET,) * 4)


@case("request: a ping with another xid and with a body")
def _(client: Client) -> Outcome:
    return client.answers(client.attach(), request(wire.PING, b"body", 9))


@case("request: 200 in one segment")
def _(client: Client) -> Outcome:
    return client.answers(client.attach(), GET_QUIET * 200, codes=(wire.GET,) * 200)


@case("request: byte by byte")
def _(client: Client) -> Outcome:
    parts = [bytes([byte]) for byte in GET_QUIET]
    return client.answers(client.attach(), *parts, codes=(wire.GET,))


@case("request: an event comes before the reply to its cause")
def _(client: Client) -> Outcome:
    connection = client.attach()
    return client.answers(
        connection,
        request(wire.EXISTS, wire.text("/case-event") + b"\1", 1),
        request(wire.CREATE, create("/case-event", flags=1), 2),
        codes=(wire.EXISTS, wire.CREATE),
    )


ODD_BLANKS = ("\0", "\1/\x1f", "\x0b/\x1c", "\x7f", "\x85/", "\xa0", "\u2003/")


@case("request: getEphemerals of a prefix with spaces")
def _(client: Client) -> Outcome:
    connection = client.attach()
    connection.request(1, wire.CREATE, create("/case-own", flags=1))
    prefixes = ("/case", "/case ", " /case", " / ", "/other", "/case-own", "", *ODD_BLANKS)
    return client.answers(
        connection,
        *(request(wire.EPHEMERALS, wire.text(prefix)) for prefix in prefixes),
        codes=(wire.EPHEMERALS,) * len(prefixes),
    )


# ---- the end of a connection


@case("end: closeSession is answered, then the server closes")
def _(client: Client) -> Outcome:
    return [client.ending(client.attach(), request(wire.CLOSE)), client.zxid()]


@case("end: requests after closeSession have no effect")
def _(client: Client) -> Outcome:
    """Apache ZooKeeper answers them with −112 (session expired) if they arrive before it closes the connection."""
    parts = request(wire.CLOSE) + GET_QUIET + request(wire.CREATE, create("/case-late"))
    first, *others, last = client.ending(client.attach(), parts)
    late = request(wire.EXISTS, wire.text("/case-late") + b"\0")
    found = client.answers(client.attach(), late, codes=(wire.EXISTS,))
    return [first, [reply for reply in others if reply.error != -112], last, found[0].error]


@case("end: closeSession deletes the ephemeral nodes")
def _(client: Client) -> Outcome:
    first, watcher = client.attach(), client.attach()
    first.request(1, wire.CREATE, create("/case-gone", flags=1))
    watcher.request(1, wire.GET, wire.text("/case-gone") + b"\1")
    first.request(2, wire.CLOSE)
    return client.answers(watcher)


@case("end: half-close before the connect request")
def _(client: Client) -> Outcome:
    connection = client.raw()
    connection.socket.shutdown(socket.SHUT_WR)
    return client.ending(connection)


@case("end: half-close ends the connection and not the session")
def _(client: Client) -> Outcome:
    connection = client.attach()
    connection.socket.shutdown(socket.SHUT_WR)
    return [client.ending(connection), _return(client, _session_of(connection))]


@case("end: half-close in the middle of a request")
def _(client: Client) -> Outcome:
    connection = client.attach()
    connection.send(GET_QUIET[:-1])
    connection.socket.shutdown(socket.SHUT_WR)
    return [client.ending(connection), _return(client, _session_of(connection))]


@case("end: a session outlives its connection")
def _(client: Client) -> Outcome:
    first = client.attach()
    first.request(1, wire.CREATE, create("/case-kept", flags=1))
    first.close()
    other = client.attach()
    outcome = client.answers(
        other, request(wire.EXISTS, wire.text("/case-kept") + b"\0"), codes=(wire.EXISTS,)
    )
    return [outcome, _return(client, _session_of(first))]


@case("end: an expired session's connection is closed without a notice")
def _(client: Client) -> Outcome:
    connection = client.attach(timeout_ms=SHORT_MS)
    connection.request(1, wire.CREATE, create("/case-expired", flags=1))
    outcome = client.ending(connection)
    other = client.attach()
    read = request(wire.EXISTS, wire.text("/case-expired") + b"\0")
    return [
        outcome,
        client.answers(other, read, codes=(wire.EXISTS,)),
        _return(client, _session_of(connection)),
    ]


# ---- containers


@case("multi: a container with the ephemeral flag takes no child in its own multi")
def _(client: Client) -> Outcome:
    connection = client.attach()
    container = (wire.CREATE_CONTAINER, create("/case-container", flags=1))
    child = (wire.CREATE, create("/case-container/child"))
    delete = (wire.DELETE, wire.text("/case-container") + wire.integer(-1))
    delete_child = (wire.DELETE, wire.text("/case-container/child") + wire.integer(-1))
    plain = (wire.CREATE, create("/case-container"))
    multis = [
        [container, child],
        [(wire.CREATE_CONTAINER, create("/case-container")), child, delete_child, delete],
        [container, delete, plain, child, delete_child, delete],
        [container],
        [child],
        [delete_child, delete],
    ]
    outcome: Outcome = []
    for multi in multis:
        frame = request(wire.MULTI, wire.multi(multi))
        reply, _ = client.answers(connection, frame, codes=(wire.MULTI,))
        outcome.append([error for _, error, *_ in reply.body[0]])
    return outcome


# ---- credentials


def _add_credentials() -> None:
    records = {
        "digest": wire.integer(0) + wire.text("digest") + wire.data(b"u:p"),
        "digest without a colon": wire.integer(0) + wire.text("digest") + wire.data(b"u"),
        "digest of no bytes": wire.integer(0) + wire.text("digest") + wire.data(b""),
        "digest that is not UTF-8": wire.integer(0) + wire.text("digest") + wire.data(b"\xff:p"),
        "of another type": wire.integer(7) + wire.text("digest") + wire.data(b"u:p"),
        "ip": wire.integer(0) + wire.text("ip") + wire.data(b""),
        "unknown scheme": wire.integer(0) + wire.text("unknown") + wire.data(b"x"),
        "world": wire.integer(0) + wire.text("world") + wire.data(b"anyone"),
        "null scheme": wire.integer(0) + wire.text(None) + wire.data(b"x"),
    }
    for name, record in records.items():
        CASES[f"auth: {name}"] = _authenticating(request(wire.AUTH, record, -4))
    cut = records["digest"][:9]
    CASES["auth: a cut record"] = _authenticating(request(wire.AUTH, cut, -4))
    CASES["auth: another xid"] = _authenticating(request(wire.AUTH, records["digest"], 9))
    CASES["auth: the same twice"] = _authenticating(request(wire.AUTH, records["digest"], -4) * 2)


def _authenticating(raw: bytes) -> Case:
    def run_case(client: Client) -> Outcome:
        connection = client.attach()
        outcome = client.answers(connection, raw)
        if outcome[-1] == "open":
            who = request(wire.WHO_AM_I)
            outcome.append(client.answers(connection, who, codes=(wire.WHO_AM_I,)))
        return [outcome, _return(client, _session_of(connection)), client.zxid()]

    return run_case


_add_credentials()


# ---- four-letter words


def _add_words() -> None:
    for sent in (b"ruok", b"isro", b"ruok\n", b"ruok more", b"RUOK", b"abcd"):
        CASES[f"word: {sent!r}"] = _saying(sent)
    CASES["word: in two segments"] = _saying(b"ru", b"ok")


def _saying(*parts: bytes) -> Case:
    def run_case(client: Client) -> Outcome:
        connection = client.raw()
        for part in parts:
            connection.send(part)
        return [connection.rest()]

    return run_case


def _keys(word: bytes) -> Case:
    """Return a case that returns the names in front of the values of a word's answer."""

    def run_case(client: Client) -> Outcome:
        connection = client.raw()
        connection.send(word)
        lines = connection.rest().decode().splitlines()
        return [line.split(":")[0].split("\t")[0].split("=")[0] for line in lines]

    return run_case


_add_words()
CASES["word: srvr has the keys"] = _keys(b"srvr")


@case("word: srvr has the zxid")
def _(client: Client) -> Outcome:
    connection = client.raw()
    connection.send(b"srvr")
    lines = connection.rest().decode().splitlines()
    [zxid] = [int(line.split()[1], 16) for line in lines if line.startswith("Zxid:")]
    return [client.from_start(zxid), [line for line in lines if line.startswith("Mode")]]


@case("word: wchs counts the watches")
def _(client: Client) -> Outcome:
    watcher = client.attach()
    watcher.request(1, wire.GET, wire.text("/") + b"\1")
    watcher.request(1, wire.CHILDREN, wire.text("/") + b"\1")
    connection = client.raw()
    connection.send(b"wchs")
    return [connection.rest()]


@case("word: wchp shows the watched paths")
def _(client: Client) -> Outcome:
    watcher = client.attach()
    watcher.request(1, wire.EXISTS, wire.text("/case-watched") + b"\1")
    connection = client.raw()
    connection.send(b"wchp")
    shown = connection.rest().decode()
    return [shown.replace(f"{_session_of(watcher).id:x}", "ID")]


@case("word: dump shows the ephemeral nodes of a session")
def _(client: Client) -> Outcome:
    owner = client.attach()
    owner.request(1, wire.CREATE, create("/case-dumped", flags=1))
    connection = client.raw()
    connection.send(b"dump")
    lines = connection.rest().decode().splitlines()
    start = lines.index(f"0x{_session_of(owner).id:x}:")
    return [line.strip() for line in lines[start + 1 : start + 2]]


@case("a token of SASL gets none from a server without SASL")
def _(client: Client) -> Outcome:
    connection = client.attach()
    answered = client.answers(connection, request(102, wire.data(b"")))
    return answered + client.answers(connection, request(102, b""))


# ---- deliberate differences


def _wrong_password(client: Client) -> Outcome:
    first = client.attach()
    client.connected(
        client.raw(), wire.connect_request(TIMEOUT_MS, Session(_session_of(first).id, bytes(16)))
    )
    return client.answers(first)


def _refused_opcode(code: int, record: bytes = b"") -> Case:
    return lambda client: client.ending(client.attach(), request(code, record))


REFUSED = Reply(1, -1, -6, ())
SILENT = (
    "createSession is not a client's request",
    "deleteContainer is not a client's request",
    "createTTL with the flags of a plain node and no time to live is refused",
)
"""Of `DIFFERENT`, the cases in which Apache ZooKeeper gives no answer for a long time, or ends (createTTL)."""
DIFFERENT: dict[str, tuple[Case, Outcome]] = {
    "a wrong password for a session leaves the session's connection": (_wrong_password, ["open"]),
    "deleteContainer is not a client's request": (
        _refused_opcode(20, wire.text(QUIET)),
        [REFUSED, "closed"],
    ),
    "createSession is not a client's request": (
        _refused_opcode(-10, wire.integer(5_000)),
        [REFUSED, "closed"],
    ),
    "createTTL with the flags of a plain node and no time to live is refused": (
        lambda client: client.answers(
            client.attach(), request(wire.CREATE_TTL, create("/case-ttl") + wire.long(-1))
        ),
        [Reply(1, 2, -8, ()), "open"],
    ),
}
"""What minikafka's server does on purpose unlike Apache ZooKeeper: name → case, and its outcome."""
