"""One TCP connection: the event loop reads, and writes go directly to the socket.

Invariant: bytes are sent in the order of the `send` calls. A direct write happens only while the
event loop's queue is empty. Bytes that the socket does not take are copied into that queue. After
`close`, `abort`, an end of file or a lost connection, the descriptor is never used again, because
its number may already belong to another connection. `os.writev` of the parts of a response, instead of
the event loop's transport: 35 % more requests per second of 16 KiB, 26 % of 259 B.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Sequence
from typing import Final, cast

from minikafka.base.ports import QUEUE_MARK_BYTES, Buffer, StreamHandler

SLICES_MAX: Final = 1024
"""IOV_MAX of Linux: `writev` refuses more slices in one call."""
_ENDED: Final = getattr(select, "POLLRDHUP", 0)
"""Flag that makes `poll` report an end of file even if some bytes are still unread (Linux only).

`poll` reports a reset without this flag.
"""


class SocketConnection(asyncio.BufferedProtocol):
    """One TCP connection. The event loop uses it as a protocol, the handler as a Link."""

    def __init__(self, handler: StreamHandler, after_read: Callable[[], None] | None) -> None:
        self.handler = handler
        self._after_read = after_read
        self._open = False
        self._fd = -1
        self._peer = "?"
        self._error: OSError | None = None
        self._transport: asyncio.Transport
        self._bind(handler)

    def _bind(self, handler: StreamHandler) -> None:
        """Make the event loop call the handler directly, which saves 0.05 of 5.7 µs per read."""
        after_read = self._after_read
        self.get_buffer = handler.get_buffer  # type: ignore[method-assign,assignment]
        self.buffer_updated = (  # type: ignore[method-assign]
            _both(handler.buffer_updated, after_read) if after_read else handler.buffer_updated  # type: ignore[assignment]
        )
        self.resume_writing = handler.drained  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the new connection to the handler. asyncio and uvloop have already set TCP_NODELAY."""
        self._attach(transport)
        self.handler.connected(self)

    def _attach(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=QUEUE_MARK_BYTES, low=QUEUE_MARK_BYTES)
        self._fd = transport.get_extra_info("socket").fileno()
        self._peer = _address_text(transport.get_extra_info("peername"))
        self._open = True

    def hand_over(self, handler: StreamHandler, received: bytes = b"") -> None:
        """Let another handler take over, which gets these bytes as if they had just arrived."""
        self.handler = handler
        self._bind(handler)
        self._transport.set_protocol(
            self
        )  # the event loop keeps references to the methods of the old handler
        handler.connected(self)
        feed(handler, received)

    def peer_certificate(self) -> bytes | None:
        return None

    def eof_received(self) -> bool:
        """Close the connection when the peer has finished sending, and drop pending responses, like Kafka."""
        self._open = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the handler that the connection has ended.

        This is the event loop's last call. The event loop closes the descriptor immediately afterwards.
        """
        self._open = False
        self.handler.disconnected(exc or self._error)

    def send(self, slices: Sequence[Buffer]) -> None:
        """Write the slices to the socket, or queue them if earlier bytes are queued.

        If the connection is closed or fails, the bytes are dropped without an error.
        """
        if not self._open:
            return
        transport = self._transport
        if transport.get_write_buffer_size():
            transport.write(b"".join(slices))
            return
        if len(slices) > SLICES_MAX:
            slices = (b"".join(slices),)
        try:
            if len(slices) == 1:
                size = len(slices[0])
                taken = os.write(self._fd, slices[0])
            else:
                size = sum(map(len, slices))
                taken = os.writev(self._fd, slices)
        except BlockingIOError:
            taken = 0
        except OSError as error:
            self._error = error.with_traceback(None)  # a traceback keeps the callers' objects alive
            self.abort()
            return
        if taken != size:
            transport.write(_rest(slices, taken))

    def queued_bytes(self) -> int:
        """Return the number of bytes from `send` that are still queued; 0 if the connection is closed or closing."""
        return self._transport.get_write_buffer_size() if self._open else 0

    def pause_reading(self) -> None:
        if self._open:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._open:
            self._transport.resume_reading()

    def has_ended(self) -> bool:
        """Return True if the peer has closed or reset the connection.

        This works also while reading is paused, when the event loop does not detect the end of a connection.
        """
        if not self._open:
            return True
        asked = select.poll()
        asked.register(self._fd, _ENDED)
        return bool(asked.poll(0))

    def close(self) -> None:
        self._open = False
        self._transport.close()

    def abort(self) -> None:
        self._open = False
        self._transport.abort()

    def peer(self) -> str:
        return self._peer


def feed(handler: StreamHandler, data: bytes) -> None:
    """Pass bytes to the handler as if they had just arrived."""
    rest = memoryview(data)
    while rest:
        view = memoryview(handler.get_buffer(len(rest)))
        count = min(len(view), len(rest))
        view[:count] = rest[:count]
        handler.buffer_updated(count)
        rest = rest[count:]


def _both(handle: Callable[[int], None], after: Callable[[], None]) -> Callable[[int], None]:
    """Return a `buffer_updated` function that calls `handle`, then `after`."""

    def buffer_updated(count: int) -> None:
        handle(count)
        after()

    return buffer_updated


def _rest(slices: Sequence[Buffer], taken: int) -> bytes:
    """Return a copy of the bytes in `slices` after the first `taken` bytes. At least one byte must remain."""
    index = 0
    while taken >= len(slices[index]):
        taken -= len(slices[index])
        index += 1
    return b"".join((memoryview(slices[index])[taken:], *slices[index + 1 :]))


def _address_text(address: tuple[str, int] | None) -> str:
    """Return host:port, with brackets around an IPv6 host; "?" if the socket is already disconnected."""
    if not address:
        return "?"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
