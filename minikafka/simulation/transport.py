"""The Transport port without sockets: byte streams between handlers in one event loop.

Bytes arrive in the order sent, in pieces of any size. Only callbacks of the running loop deliver them, so
streams also work in virtual time. Between its two ends a stream holds at most `window_bytes`, as socket buffers do;
further bytes wait in the sender's queue. Each end belongs to the simulated process that listened or connected
(`SeededLoop`).
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections.abc import Callable, Sequence

from minikafka.base.config.security import SecurityKeys
from minikafka.base.encryption import ListenerTls, Tls
from minikafka.base.errors import ConfigError
from minikafka.base.ports import (
    QUEUE_MARK_BYTES,
    Buffer,
    Link,
    Listener,
    StreamHandler,
    Transport,
)
from minikafka.runtime.connection import feed
from minikafka.simulation.cuts import Cuts, name_of
from minikafka.simulation.loop import PROCESS, Process


class MemoryTransport:
    """The network of one simulated machine. `piece_bytes`: maximum number of bytes per read."""

    def __init__(self, *, window_bytes: int = 256 * 1024, piece_bytes: int = 64 * 1024) -> None:
        self._window_bytes = window_bytes
        self._piece_bytes = piece_bytes
        self._listeners: dict[int, MemoryListener] = {}
        self._links: set[MemoryLink] = set()
        self._free_port = 20_000
        self.cuts = Cuts()

    def tls(self, keys: SecurityKeys, *, server: bool, between: bool = False) -> ListenerTls:
        raise ConfigError("the network in memory has no TLS: use PLAINTEXT or SASL_PLAINTEXT")

    async def listen(
        self,
        factory: Callable[[], StreamHandler | None],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> Listener:
        if port in self._listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} is in use")
        listener = MemoryListener(self, factory, host, port or self._next_port())
        self._listeners[listener.port] = listener
        self.cuts.own(listener.port)
        return listener

    async def connect(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> StreamHandler:
        await asyncio.sleep(0)
        here, there = name_of(), self.cuts.owner(port)
        await self.cuts.wait_until_open(here, there)
        await self.cuts.wait_until_open(there, here)
        listener = self._listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {port}")
        handler = factory()
        accepted = listener.context.run(listener.factory) or _Refused()
        sizes = self._window_bytes, self._piece_bytes
        near = MemoryLink(self, handler, f"{host}:{port}", *sizes, contextvars.copy_context())
        peer = f"{host}:{self._next_port()}"
        far = MemoryLink(self, accepted, peer, *sizes, listener.context.copy())
        near.other, far.other = far, near
        self._links |= {near, far}
        far.start()
        near.start()
        return handler

    def heal(self, source: str, target: str) -> None:
        """End a cut. What waits passes first, as TCP sends lost segments again."""
        self.cuts.remove(source, target)
        for link in list(self._links):
            if {link.host, link.other.host} == {source, target}:
                link.healed()

    def forget(self, port: int) -> None:
        """Stop listening on the port."""
        self._listeners.pop(port, None)

    def remove(self, link: MemoryLink) -> None:
        """Forget a closed end of a connection."""
        self._links.discard(link)

    def kill(self, process: Process) -> None:
        """Close all listeners and stream ends of a killed process, as the kernel does."""
        for port, listener in list(self._listeners.items()):
            if listener.context.get(PROCESS) is process:
                self.forget(port)
        for link in list(self._links):
            if link.process is process:
                link.cut()

    def _next_port(self) -> int:
        self._free_port += 1
        return self._free_port


class _Refused:
    """The handler of a connection that is closed as soon as it is accepted."""

    def connected(self, link: Link) -> None:
        link.abort()

    def disconnected(self, error: Exception | None) -> None:
        pass

    def get_buffer(self, hint: int) -> Buffer:
        return bytearray(1)

    def buffer_updated(self, count: int) -> None:
        pass

    def drained(self) -> None:
        pass


class MemoryListener:
    """A listening port, with a copy of the `contextvars` context of the simulated process that listens."""

    def __init__(
        self,
        transport: MemoryTransport,
        factory: Callable[[], StreamHandler | None],
        host: str,
        port: int,
    ) -> None:
        self._transport = transport
        self.factory = factory
        self.host = host
        self.port = port
        self.context = contextvars.copy_context()

    async def close(self) -> None:
        self._transport.forget(self.port)


class MemoryLink:
    """One end of a stream."""

    other: MemoryLink

    def __init__(
        self,
        transport: MemoryTransport,
        handler: StreamHandler,
        peer: str,
        window_bytes: int,
        piece: int,
        context: contextvars.Context,
    ) -> None:
        self._transport = transport
        self._context = context
        self._handler = handler
        self._peer = peer
        self._window_bytes = window_bytes
        self._piece = piece
        self._loop = asyncio.get_running_loop()
        self._queue = bytearray()
        self._inbox = bytearray()
        self._above_mark = False
        self._paused = False
        self._reading = False
        self._closing = False
        self._gone = False

    @property
    def process(self) -> Process | None:
        """The process that owns this end."""
        return self._context.get(PROCESS)

    @property
    def host(self) -> str:
        """The name of the process that owns this end."""
        return name_of(self._context)

    def start(self) -> None:
        """Call the handler's `connected`, in the handler's context."""
        if self._context.get(PROCESS) is PROCESS.get():
            self._handler.connected(self)
        else:
            self._context.run(self._handler.connected, self)

    def cut(self) -> None:
        """Close this end without calling its handler. The other end reads the delivered bytes and then end of file."""
        self._closing = self._gone = True
        self._queue.clear()
        self._transport.remove(self)
        self.other._read_soon()

    def healed(self) -> None:
        """Let the bytes and the end of the stream pass that have waited for the end of a cut."""
        self._pump()
        self._read_soon()

    def send(self, slices: Sequence[Buffer]) -> None:
        if self._closing:
            return
        self._queue += b"".join(slices)
        self._pump()
        self._above_mark = self._above_mark or len(self._queue) > QUEUE_MARK_BYTES

    def queued_bytes(self) -> int:
        return 0 if self._closing else len(self._queue)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._read_soon()

    def has_ended(self) -> bool:
        return self._gone or self.other._gone

    def close(self) -> None:
        self._closing = True
        if not self._queue:
            self._call_soon(self._leave)

    def abort(self) -> None:
        self._closing = True
        self._queue.clear()
        self._call_soon(self._leave)

    def peer(self) -> str:
        return self._peer

    def peer_certificate(self) -> bytes | None:
        return None

    def hand_over(self, handler: StreamHandler, received: bytes = b"") -> None:
        self._handler = handler
        handler.connected(self)
        feed(handler, received)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback, context=self._context)

    def _pump(self) -> None:
        """Move as many queued bytes to the other end as fit into its window."""
        if self._transport.cuts.has(self.host, self.other.host):
            return
        room = self._window_bytes - len(self.other._inbox)
        if room > 0 and self._queue:
            self.other._inbox += self._queue[:room]
            del self._queue[:room]
            self.other._read_soon()
        if self._above_mark and len(self._queue) <= QUEUE_MARK_BYTES:
            self._above_mark = False
            self._call_soon(self._drained)
        if self._closing and not self._queue:
            self._call_soon(self._leave)

    def _drained(self) -> None:
        if not self._gone:
            self._handler.drained()

    def _read_soon(self) -> None:
        if not self._reading:
            self._reading = True
            self._call_soon(self._read)

    def _read(self) -> None:
        """Pass one piece of received bytes to the handler. If none remain and the other end is gone, close this end."""
        self._reading = False
        if self._paused or self._closing:
            return
        if not self._inbox:
            if self.other._gone and not self._transport.cuts.has(self.other.host, self.host):
                self.abort()
            return
        buffer = memoryview(self._handler.get_buffer(-1))
        count = min(len(buffer), len(self._inbox), self._piece)
        buffer[:count] = self._inbox[:count]
        del self._inbox[:count]
        if self._inbox or self.other._gone:
            self._read_soon()
        self.other._pump()
        self._handler.buffer_updated(count)

    def _leave(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._transport.remove(self)
        self._handler.disconnected(None)
        if self.other._closing:
            self.other.abort()
        else:
            self.other._read_soon()


def _conforms(transport: MemoryTransport, link: MemoryLink) -> tuple[Transport, Link]:
    """Let the type checker verify that the classes implement the protocols `Transport` and `Link`."""
    return transport, link
