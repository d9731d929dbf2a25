"""A client of ZooKeeper at the level of bytes, for comparisons of two servers.

It shares no code with the product: an error that client and server have in common would not be seen.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

CREATE, DELETE, EXISTS, GET, SET, GET_ACL, SET_ACL, CHILDREN = range(1, 9)
SYNC, PING, CHILDREN2, CHECK, MULTI, CREATE2, RECONFIG = 9, 11, 12, 13, 14, 15, 16
CHECK_WATCHES, REMOVE_WATCHES, CREATE_CONTAINER, CREATE_TTL, MULTI_READ = 17, 18, 19, 21, 22
AUTH, SET_WATCHES, EPHEMERALS, COUNT_CHILDREN, SET_WATCHES2 = 100, 101, 103, 104, 105
ADD_WATCH, WHO_AM_I, CLOSE = 106, 107, -11
XIDS = {PING: -2, AUTH: -4, SET_WATCHES: -8, SET_WATCHES2: -8}
"""The numbers that clients give to requests of these kinds."""
EVENT_XID = -1
NO_PASSWORD = bytes(16)
REPLY_SECONDS = 20.0
_CREATED = "!qqqqiiiqiiq"


class Session(NamedTuple):
    """What a client needs to return to its session."""

    id: int
    password: bytes


NEW = Session(0, NO_PASSWORD)


class Event(NamedTuple):
    """A watch event."""

    kind: int
    path: str
    zxid: int
    state: int


class Reply(NamedTuple):
    """A reply. `body`: the decoded record; undecoded bytes that should not be there are in it too."""

    xid: int
    zxid: int
    error: int
    body: tuple[Any, ...]


class Closed(Exception):
    """The server has closed the connection."""


# ---- encoding


def integer(value: int) -> bytes:
    return struct.pack("!i", value)


def long(value: int) -> bytes:
    return struct.pack("!q", value)


def boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def data(value: bytes | None) -> bytes:
    return integer(-1) if value is None else integer(len(value)) + value


def text(value: str | None) -> bytes:
    return data(None if value is None else value.encode())


def texts(values: list[str]) -> bytes:
    return integer(len(values)) + b"".join(map(text, values))


def acl(entries: Any) -> bytes:
    if entries is None:
        return integer(-1)
    return integer(len(entries)) + b"".join(
        integer(bits) + text(scheme) + text(name) for bits, scheme, name in entries
    )


def multi(operations: list[tuple[int, bytes]]) -> bytes:
    """Encode the operations of a multi or multiRead: (opcode, record) each."""
    parts = [struct.pack("!i?i", code, False, -1) + record for code, record in operations]
    return b"".join(parts) + struct.pack("!i?i", -1, True, -1)


def connect_request(
    timeout_ms: int, session: Session = NEW, *, zxid: int = 0, tail: bytes = b"\0"
) -> bytes:
    return struct.pack("!iqiq", 0, zxid, timeout_ms, session.id) + data(session.password) + tail


def framed(body: bytes) -> bytes:
    return integer(len(body)) + body


# ---- decoding


class Cursor:
    """Reads values from a record."""

    def __init__(self, record: bytes) -> None:
        self.record = record
        self.position = 0

    def unpack(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.record, self.position)
        self.position += struct.calcsize(form)
        return values

    def integer(self) -> int:
        return int(self.unpack("!i")[0])

    def data(self) -> bytes | None:
        size = self.integer()
        if size < 0:
            return None
        self.position += size
        return self.record[self.position - size : self.position]

    def text(self) -> str | None:
        value = self.data()
        return None if value is None else value.decode("utf-8", "surrogatepass")

    def texts(self) -> list[Any]:
        """Read a list of texts, sorted: the servers give no order to it."""
        return sorted(str(self.text()) for _ in range(self.integer()))

    def acl(self) -> list[Any]:
        """Read an access control list. Neighbours that differ only in their ids are sorted.

        Apache ZooKeeper has no order for the digests that `auth` stands for.
        """
        found = [(self.integer(), self.text(), self.text()) for _ in range(self.integer())]
        runs = itertools.groupby(found, lambda entry: entry[:2])
        return [entry for _, run in runs for entry in sorted(run, key=str)]

    def ids(self) -> list[Any]:
        return sorted((str(self.text()), str(self.text())) for _ in range(self.integer()))

    def stat(self) -> tuple[int, ...]:
        """Read a Stat; ctime and mtime become 0."""
        czxid, mzxid, _, _, *rest = self.unpack(_CREATED)
        return ("stat", czxid, mzxid, *rest)  # type: ignore[return-value]

    def results(self) -> list[Any]:
        """Read the results of a multi or multiRead."""
        found = []
        while True:
            code, done, error = self.unpack("!i?i")
            if done:
                return found
            parts = _RESULT_FIELDS.get(code, ())
            found.append((code, error, *(read(self) for read in parts)))

    def rest(self) -> bytes:
        return self.record[self.position :]


_Read = Callable[[Cursor], Any]
_FIELDS: dict[int, tuple[_Read, ...]] = {
    CREATE: (Cursor.text,),
    CREATE2: (Cursor.text, Cursor.stat),
    CREATE_CONTAINER: (Cursor.text, Cursor.stat),
    CREATE_TTL: (Cursor.text, Cursor.stat),
    EXISTS: (Cursor.stat,),
    GET: (Cursor.data, Cursor.stat),
    SET: (Cursor.stat,),
    GET_ACL: (Cursor.acl, Cursor.stat),
    SET_ACL: (Cursor.stat,),
    CHILDREN: (Cursor.texts,),
    CHILDREN2: (Cursor.texts, Cursor.stat),
    SYNC: (Cursor.text,),
    MULTI: (Cursor.results,),
    MULTI_READ: (Cursor.results,),
    EPHEMERALS: (Cursor.texts,),
    COUNT_CHILDREN: (Cursor.integer,),
    ADD_WATCH: (Cursor.integer,),
    WHO_AM_I: (Cursor.ids,),
}
_RESULT_FIELDS: dict[int, tuple[_Read, ...]] = {
    -1: (Cursor.integer,),
    **{code: _FIELDS[code] for code in (CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL)},
    **{code: _FIELDS[code] for code in (SET, GET, CHILDREN)},
}


def decoded(code: int, frame: bytes) -> Reply:
    """Decode the reply to a request of this opcode."""
    cursor = Cursor(frame)
    xid, zxid, error = cursor.unpack("!iqi")
    if error and code == MULTI_READ:
        return Reply(xid, zxid, error, ())  # Apache leaves the results behind the error
    body = tuple(read(cursor) for read in _FIELDS.get(code, ())) if not error else ()
    return Reply(xid, zxid, error, (*body, rest) if (rest := cursor.rest()) else body)


def event(frame: bytes) -> Event:
    cursor = Cursor(frame)
    _, zxid, _, kind, state = cursor.unpack("!iqiii")
    return Event(kind, str(cursor.text()), zxid, state)


# ---- the connection


class Wire:
    """One connection. `events`: the watch events received while waiting for replies."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), REPLY_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.events: list[Event] = []
        self._received = b""

    def send(self, raw: bytes) -> None:
        """Send bytes as they are. A server that has closed the connection shows at the next `frame`."""
        try:
            self.socket.sendall(raw)
        except (BrokenPipeError, ConnectionResetError):
            return

    def frame(self) -> bytes:
        """Return the next frame without its length. Raises Closed."""
        while True:
            if len(self._received) >= 4:
                end = 4 + struct.unpack_from("!i", self._received)[0]
                if len(self._received) >= end:
                    frame, self._received = self._received[4:end], self._received[end:]
                    return frame
            self._receive()

    def _receive(self) -> None:
        try:
            more = self.socket.recv(1 << 16)
        except ConnectionResetError:
            more = b""
        if not more:
            raise Closed
        self._received += more

    def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        while True:
            try:
                self._receive()
            except Closed:
                return self._received

    def connect(self, timeout_ms: int, session: Session = NEW, *, zxid: int = 0) -> Session:
        """Open a session, or return to one."""
        self.send(framed(connect_request(timeout_ms, session, zxid=zxid)))
        cursor = Cursor(self.frame())
        _, _, session_id = cursor.unpack("!iiq")
        return Session(session_id, cursor.data() or b"")

    def send_request(self, xid: int, code: int, record: bytes = b"") -> None:
        self.send(framed(struct.pack("!ii", XIDS.get(code, xid), code) + record))

    def reply(self, code: int) -> Reply:
        """Return the next reply; events that arrive before it go to `events`. Raises Closed."""
        while True:
            frame = self.frame()
            if struct.unpack_from("!i", frame)[0] != EVENT_XID:
                return decoded(code, frame)
            self.events.append(event(frame))

    def request(self, xid: int, code: int, record: bytes = b"") -> Reply:
        self.send_request(xid, code, record)
        return self.reply(code)

    def close(self) -> None:
        self.socket.close()
