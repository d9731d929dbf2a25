"""TCP behind the Transport port: asyncio or uvloop accepts, connects and reads; writes go direct.

Invariant: bytes leave in the order of the `send` calls. A direct write happens only while the
loop's own queue is empty; whatever the socket did not take is copied into that queue.
After `close`, `abort`, an end of file or a lost connection the descriptor is never touched again: its
number may already be another connection's.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, cast

from minikafka.base.endpoints import PLAINTEXT, SecurityProtocol, require_plaintext
from minikafka.base.ports import Buffer, Listener, StreamHandler

QUEUE_MARK_BYTES: Final = 64 * 1024
"""`StreamHandler.drained` is called each time the queue falls from above this to this or below."""
SLICES_MAX: Final = 1024
"""IOV_MAX of Linux: `writev` refuses more slices in one call."""
BACKLOG: Final = 1024


class SocketConnection(asyncio.BufferedProtocol):
    """One TCP connection: the protocol that the loop calls, and the Link its handler writes to."""

    def __init__(self, handler: StreamHandler, after_read: Callable[[], None] | None) -> None:
        self.handler = handler
        self._open = False
        self._fd = -1
        self._peer = "?"
        self._error: OSError | None = None
        self._transport: asyncio.Transport
        # The loop looks these three up on the instance: bound here, a read costs no call of ours.
        self.get_buffer = handler.get_buffer  # type: ignore[method-assign,assignment]
        self.buffer_updated = (  # type: ignore[method-assign]
            _both(handler.buffer_updated, after_read) if after_read else handler.buffer_updated  # type: ignore[assignment]
        )
        self.resume_writing = handler.drained  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop; TCP_NODELAY is already set by asyncio and by uvloop."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=QUEUE_MARK_BYTES, low=QUEUE_MARK_BYTES)
        self._fd = transport.get_extra_info("socket").fileno()
        self._peer = _address_text(transport.get_extra_info("peername"))
        self._open = True
        self.handler.connected(self)

    def eof_received(self) -> bool:
        """The peer will send no more: as in Kafka that ends the connection, answers included."""
        self._open = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop once, last; the descriptor is closed right after."""
        self._open = False
        self.handler.disconnected(exc or self._error)

    def send(self, slices: Sequence[Buffer]) -> None:
        """See Link. A dead connection swallows the bytes: `disconnected` has come or will come."""
        if not self._open:
            return
        transport = self._transport
        if transport.get_write_buffer_size():
            transport.write(b"".join(slices))
            return
        if len(slices) > SLICES_MAX:
            slices = (b"".join(slices),)
        size = len(slices[0]) if len(slices) == 1 else sum(map(len, slices))
        try:
            taken = os.writev(self._fd, slices)
        except BlockingIOError:
            taken = 0
        except OSError as error:
            self._error = error
            self.abort()
            return
        if taken != size:
            transport.write(_rest(slices, taken))

    def queued_bytes(self) -> int:
        """See Link; 0 once the connection is closing."""
        return self._transport.get_write_buffer_size() if self._open else 0

    def pause_reading(self) -> None:
        """See Link."""
        if self._open:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See Link."""
        if self._open:
            self._transport.resume_reading()

    def close(self) -> None:
        """See Link."""
        self._open = False
        self._transport.close()

    def abort(self) -> None:
        """See Link."""
        self._open = False
        self._transport.abort()

    def peer(self) -> str:
        """See Link."""
        return self._peer


class SocketListener:
    """A listening socket; `port` is the real one."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop accepting. Not `wait_closed`: since Python 3.12 it waits for the connections."""
        self._server.close()
        await asyncio.sleep(0)  # uvloop gives the port back in its next turn


class SocketTransport:
    """The Transport port over the running loop's TCP; `after_read` is called after each read was handled."""

    def __init__(self, after_read: Callable[[], None] | None = None) -> None:
        self._after_read = after_read

    async def listen(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        security: SecurityProtocol = PLAINTEXT,
    ) -> Listener:
        """Accept TCP connections; port 0 takes a free port. Raises OSError, and ConfigError for the protocol."""
        require_plaintext(security)
        loop = asyncio.get_running_loop()
        if port == 0:
            # A name with several addresses would get another free port on each: take the first.
            found = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
            host = str(found[0][4][0])
        server = await loop.create_server(
            lambda: SocketConnection(factory(), self._after_read), host, port, backlog=BACKLOG
        )
        return SocketListener(server)

    async def connect(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        security: SecurityProtocol = PLAINTEXT,
    ) -> StreamHandler:
        """Open a TCP connection. Raises OSError, and ConfigError for the protocol."""
        require_plaintext(security)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: SocketConnection(factory(), self._after_read), host, port
        )
        return connection.handler


def _both(handle: Callable[[int], None], after: Callable[[], None]) -> Callable[[int], None]:
    """One function of the two: what the loop calls for each read."""

    def buffer_updated(count: int) -> None:
        handle(count)
        after()

    return buffer_updated


def _rest(slices: Sequence[Buffer], taken: int) -> bytes:
    """A copy of what follows the first `taken` bytes; there is at least one byte."""
    index = 0
    while taken >= len(slices[index]):
        taken -= len(slices[index])
        index += 1
    return b"".join((memoryview(slices[index])[taken:], *slices[index + 1 :]))


def _address_text(address: tuple[str, int] | None) -> str:
    """host:port, with brackets around an IPv6 host; "?" when the peer is already gone."""
    if not address:
        return "?"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
