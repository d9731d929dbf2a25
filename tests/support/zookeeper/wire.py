"""A ZooKeeper client that sends raw frames over any Transport, and returns raw replies. For tests of the server."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, NamedTuple

from minikafka.base.ports import Buffer, Link, Stat, Transport
from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.ports import SeededRng
from minikafka.zookeeper.messages import jute
from minikafka.zookeeper.messages.jute import ANYONE_BYTES, INT, JuteReader
from minikafka.zookeeper.server.server import ZooKeeperServer

EVENT_XID = -1
PING_XID = -2


def server(transport: Transport, failures: list[str], **options: Any) -> ZooKeeperServer:
    """Return a server without files. It adds the reason to `failures` if it fails."""
    return ZooKeeperServer(
        None,
        LoopClock(),
        SeededRng(1),
        transport,
        TaskRegistry(),
        ThreadExecutor(),
        on_failure=failures.append,
        **options,
    )


class Reply(NamedTuple):
    """One frame from the server."""

    xid: int
    zxid: int
    error: int
    body: bytes

    def reader(self) -> JuteReader:
        return JuteReader(self.body)

    def stat(self) -> Stat:
        """Return the Stat at the end of the body."""
        return Stat(*jute.STAT.unpack(self.body[-jute.STAT.size :]))

    def event(self) -> tuple[int, str | None]:
        """Return kind and path of an event."""
        reader = self.reader()
        kind, _ = reader.int32(), reader.int32()
        return kind, reader.string()


class Greeting(NamedTuple):
    """The server's reply to the first request."""

    timeout_ms: int
    session_id: int
    password: bytes
    size: int


class WireClient:
    """One connection (StreamHandler). `received`: bytes that are not read yet. `is_ended`: the server has closed it."""

    def __init__(self) -> None:
        self.link: Link
        self.received = bytearray()
        self.is_ended = False
        self._buffer = bytearray(1 << 16)
        self._waiting: deque[asyncio.Event] = deque()
        self._xid = 0

    # StreamHandler.

    def connected(self, link: Link) -> None:
        self.link = link

    def get_buffer(self, hint: int) -> Buffer:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]
        self._wake()

    def disconnected(self, error: Exception | None) -> None:
        self.is_ended = True
        self._wake()

    def drained(self) -> None:
        pass

    def _wake(self) -> None:
        while self._waiting:
            self._waiting.popleft().set()

    async def _more(self) -> None:
        """Wait for bytes or the end. Raises ConnectionError after the end."""
        if self.is_ended:
            raise ConnectionError
        event = asyncio.Event()
        self._waiting.append(event)
        await event.wait()

    # Frames.

    def send(self, frame: bytes) -> None:
        self.link.send([INT.pack(len(frame)) + frame])

    async def frame(self) -> bytes:
        """Return the next frame. Raises ConnectionError if the server closes the connection first."""
        while len(self.received) < 4 or len(self.received) < 4 + INT.unpack_from(self.received)[0]:
            await self._more()
        end = 4 + INT.unpack_from(self.received)[0]
        found = bytes(self.received[4:end])
        del self.received[:end]
        return found

    async def reply(self) -> Reply:
        frame = await self.frame()
        return Reply(*struct.unpack_from("!iqi", frame), frame[16:])

    async def end(self) -> bytes:
        """Wait until the server has closed the connection; return the bytes that were not read."""
        while not self.is_ended:
            await self._more()
        return bytes(self.received)

    # Requests.

    async def greet(
        self,
        timeout_ms: int = 6_000,
        session_id: int = 0,
        password: bytes = bytes(16),
        *,
        seen_zxid: int = 0,
        read_only: bytes = b"",
    ) -> Greeting:
        """Open a session, or attach to one."""
        head = struct.pack("!iqiq", 0, seen_zxid, timeout_ms, session_id)
        self.send(head + jute.buffer(password) + read_only)
        frame = await self.frame()
        _, granted, id_ = struct.unpack_from("!iiq", frame)
        return Greeting(granted, id_, frame[20:36], len(frame))

    def request(self, opcode: int, body: bytes = b"", xid: int | None = None) -> int:
        """Send a request; return its xid."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.send(struct.pack("!ii", xid, opcode) + body)
        return xid

    async def call(self, opcode: int, body: bytes = b"", xid: int | None = None) -> Reply:
        """Send a request and return the next frame."""
        self.request(opcode, body, xid)
        return await self.reply()


async def wire(transport: Transport, port: int = 2181) -> WireClient:
    """Return a new connection without a session."""
    client = await transport.connect(WireClient, "127.0.0.1", port)
    assert isinstance(client, WireClient)
    return client


async def client(transport: Transport, port: int = 2181, timeout_ms: int = 6_000) -> WireClient:
    """Return a new connection with a new session."""
    found = await wire(transport, port)
    await found.greet(timeout_ms)
    return found


def create(
    path: str | None, data: bytes | None = b"", flags: int = 0, acl: bytes = ANYONE_BYTES
) -> bytes:
    return jute.string(path) + jute.buffer(data) + acl + INT.pack(flags)


def set_data(path: str | None, data: bytes | None = b"", version: int = -1) -> bytes:
    return jute.string(path) + jute.buffer(data) + INT.pack(version)


def versioned(path: str | None, version: int = -1) -> bytes:
    """The body of delete and check; with a mode, also of addWatch, checkWatches and removeWatches."""
    return jute.string(path) + INT.pack(version)


def read(path: str | None, *, watch: bool = False) -> bytes:
    return jute.string(path) + (b"\x01" if watch else b"\0")


def multi(*operations: tuple[int, bytes]) -> bytes:
    parts = (struct.pack("!i?i", kind, False, -1) + body for kind, body in operations)
    return b"".join(parts) + struct.pack("!i?i", -1, True, -1)
