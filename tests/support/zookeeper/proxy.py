"""A TCP proxy in front of a ZooKeeper server. It parses the frames, and drops or changes them on request."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

PING: Final = 11
SET_DATA: Final = 5
GET_DATA: Final = 4
CREATE: Final = 15
MULTI: Final = 14
MULTI_READ: Final = 22
EVENT_XID: Final = -1
UNKNOWN_OPCODE: Final = 9999


@dataclass
class Frame:
    """One frame. A response has the opcode of its request. Opcode 0 is the handshake, -1 a watch event."""

    opcode: int
    xid: int
    data: bytes


@dataclass
class Proxy:
    """A proxy whose callbacks `requests` and `answers` get every frame.

    A callback returns None to pass the frame on, False to drop it, or bytes to replace it. While `accepting` is False,
    connections are refused. While `flowing` is not set, all frames are held back, also on new connections.
    """

    upstream_port: int
    port: int = 0
    accepting: bool = True
    connections: int = 0
    seen: list[int] = field(default_factory=list)
    events: int = 0
    requests: Callable[[Frame], bytes | bool | None] = lambda frame: None
    answers: Callable[[Frame], bytes | bool | None] = lambda frame: None
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    answers_flowing: asyncio.Event = field(default_factory=asyncio.Event)
    _pairs: set[_Pair] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def fin(self) -> None:
        """Close every client's connection with a FIN."""
        for pair in list(self._pairs):
            pair.close(reset=False)

    def rst(self) -> None:
        """Close every connection with a TCP reset."""
        for pair in list(self._pairs):
            pair.close(reset=True)

    def heal(self) -> None:
        """Reset all connections, as after a long network fault, and let frames pass again."""
        self.rst()
        self.flowing.set()
        self.answers_flowing.set()

    def lose_answer(self, opcode: int, cut: Callable[[], None] | None) -> None:
        """Drop the next response to a request with this opcode. Also call `cut`, if given, to end the connection."""

        def answers(frame: Frame) -> bool | None:
            if frame.opcode != opcode:
                return None
            self.answers = lambda frame: None
            if cut is not None:
                cut()
            return False

        self.answers = answers

    def cut_answer_in_the_middle(self, opcode: int) -> None:
        """Pass only half of the next response to a request with this opcode, then end the connection."""

        def answers(frame: Frame) -> bytes | None:
            if frame.opcode != opcode:
                return None
            self.answers = lambda frame: None
            asyncio.get_running_loop().call_later(0.02, self.fin)
            return (struct.pack("!i", len(frame.data)) + frame.data)[: len(frame.data) // 2]

        self.answers = answers

    def rewrite(self, *opcodes: int) -> None:
        """Replace these opcodes in requests with an opcode that no server knows."""

        def requests(frame: Frame) -> bytes | None:
            if frame.opcode not in opcodes:
                return None
            data = frame.data[:4] + struct.pack("!i", UNKNOWN_OPCODE) + frame.data[8:]
            return struct.pack("!i", len(data)) + data

        self.requests = requests

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if not self.accepting:
            _end(writer, reset=True)
            return
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:
            _end(writer, reset=True)
            return
        pair = _Pair(self, reader, writer, *upstream)
        self._pairs.add(pair)
        for direction in (pair.forward_requests(), pair.forward_answers()):
            task = asyncio.create_task(direction)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def forget(self, pair: _Pair) -> None:
        self._pairs.discard(pair)


class _Pair:
    """A client's connection to the proxy, and the proxy's connection to the server for this client."""

    def __init__(
        self,
        proxy: Proxy,
        client_reader: asyncio.StreamReader,
        client_writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self.proxy = proxy
        self.client_reader, self.client_writer = client_reader, client_writer
        self.server_reader, self.server_writer = server_reader, server_writer
        self.opcodes: dict[int, int] = {}
        self.closed = asyncio.Event()

    def close(self, *, reset: bool) -> None:
        if not self.closed.is_set():
            self.closed.set()
            _end(self.client_writer, reset=reset)
            _end(self.server_writer, reset=True)
            self.proxy.forget(self)

    async def forward_requests(self) -> None:
        is_first = True
        async for data in self._frames(self.client_reader):
            xid, opcode = (0, 0) if is_first else struct.unpack_from("!ii", data)
            is_first = False
            self.opcodes[xid] = opcode
            if opcode != PING:
                self.proxy.seen.append(opcode)
            if not await self._flows(self.proxy.flowing):
                return
            self._pass(self.server_writer, data, self.proxy.requests(Frame(opcode, xid, data)))

    async def forward_answers(self) -> None:
        is_first = True
        async for data in self._frames(self.server_reader):
            xid = 0 if is_first else struct.unpack_from("!i", data)[0]
            is_first = False
            self.proxy.events += xid == EVENT_XID
            if not (
                await self._flows(self.proxy.flowing)
                and await self._flows(self.proxy.answers_flowing)
            ):
                return
            verdict = self.proxy.answers(Frame(self.opcodes.get(xid, -1), xid, data))
            self._pass(self.client_writer, data, verdict)

    async def _flows(self, gate: asyncio.Event) -> bool:
        """Wait until `gate` is set or the connection ends; return False if the connection has ended."""
        if not gate.is_set():
            waits = [asyncio.create_task(event.wait()) for event in (gate, self.closed)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.wait(waits)
        return not self.closed.is_set()

    def _pass(
        self, writer: asyncio.StreamWriter, data: bytes, verdict: bytes | bool | None
    ) -> None:
        if self.closed.is_set() or verdict is False:
            return
        writer.write(verdict if isinstance(verdict, bytes) else struct.pack("!i", len(data)) + data)

    async def _frames(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        with suppress(asyncio.IncompleteReadError, OSError):
            while not self.closed.is_set():
                (length,) = struct.unpack("!i", await reader.readexactly(4))
                yield await reader.readexactly(length)
        self.close(reset=False)


def _end(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        linger = struct.pack("ii", 1, 0)
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    else:
        writer.close()


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """Yield a proxy in front of the server on that port; close all its connections at the end of the block."""
    proxy = Proxy(port)
    proxy.flowing.set()
    proxy.answers_flowing.set()
    listener = await asyncio.start_server(proxy._accepted, "127.0.0.1", 0, limit=8 * 1024 * 1024)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        proxy.rst()
        tasks = list(proxy._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)
