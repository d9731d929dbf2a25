"""One connection to a broker: requests are sent in order, responses are matched by correlation id.

Invariant: every future that `request` returns is completed exactly once: by its response, by an OSError when the
connection is lost or a response is overdue, or by TlsFailed when the broker refuses the client's certificate. An
overdue response closes the connection, as in every Kafka client: responses arrive in order, so all later responses
are overdue too.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from struct import Struct
from typing import Any, Final

from minikafka.base.ports import Buffer, Clock, Link, Timer
from minikafka.client.login import SESSION_SHARE, TlsFailed
from minikafka.kafka.wire import codec

BUFFER_BYTES: Final = 64 * 1024
RESPONSE_MAX_BYTES: Final = 256 * 1024 * 1024
_INT32: Final = Struct(">i")


class BrokerConnection:
    """A connection to a broker: a StreamHandler that the transport creates for `network.Network`.

    `session_ms`: the time for which the broker serves a client that has logged in; 0: without end. Before its end,
    the connection takes no new request, and closes when it has all responses.
    """

    def __init__(self, client_id: str, clock: Clock, session_ms: int = 0) -> None:
        self._client_id = client_id
        self._clock = clock
        self._link: Link | None = None
        self._error: OSError | TlsFailed | None = None
        self._correlation = 0
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._is_ending = False
        self._session_end = (
            clock.call_later(session_ms * SESSION_SHARE, self._end_session) if session_ms else None
        )

    @property
    def is_open(self) -> bool:
        """True if requests can be sent."""
        return self._link is not None and not self._is_ending

    @property
    def in_flight(self) -> int:
        """Number of requests whose response has not arrived."""
        return len(self._pending)

    def request(
        self, api: int, version: int, body: bytes, timeout_ms: int
    ) -> asyncio.Future[bytes]:
        """Send a request; return a future with the bytes of the response from the correlation id on.

        Raises OSError.
        """
        correlation = self._send(api, version, body)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[correlation] = future
        timer = self._clock.call_later(timeout_ms, self._overdue)
        future.add_done_callback(partial(_stop_timer, timer))
        return future

    def send_unanswered(self, api: int, version: int, body: bytes) -> None:
        """Send a request that has no response (Produce with acks=0). Raises OSError."""
        self._send(api, version, body)

    def close(self) -> None:
        """Close the connection; its pending requests fail."""
        self._fail(ConnectionError("closed"))

    def connected(self, link: Link) -> None:
        """Store `link`, through which this connection sends its requests (StreamHandler)."""
        self._link = link

    def get_buffer(self, hint: int) -> Buffer:
        """Return the free part of the receive buffer (StreamHandler)."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """Complete the futures of all whole responses in the receive buffer (StreamHandler)."""
        self._filled += count
        start = 0
        size = 0
        while self._filled - start >= 4:
            size = _INT32.unpack_from(self._buffer, start)[0]
            if not 4 <= size <= RESPONSE_MAX_BYTES:
                self._fail(
                    ConnectionError(f"not a Kafka broker: it sent a response of {size} bytes")
                )
                return
            if start + 4 + size > self._filled:
                break
            self._complete(bytes(memoryview(self._buffer)[start + 4 : start + 4 + size]))
            start += 4 + size
            size = 0
        self._make_room(start, 4 + size)

    def disconnected(self, error: Exception | None) -> None:
        """Fail the pending requests after the connection was lost (StreamHandler)."""
        if isinstance(error, ssl.SSLError):  # under TLS 1.3 this follows the handshake
            self._fail(TlsFailed(error))
        else:
            self._fail(ConnectionError(f"connection lost: {error or 'closed by the broker'}"))

    def drained(self) -> None:
        """Do nothing: no caller waits for the send queue to become shorter (StreamHandler)."""

    def _send(self, api: int, version: int, body: bytes) -> int:
        if self._link is None:
            raise self._error or ConnectionError("not connected")
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        frame = codec.encode_request(api, version, self._correlation, self._client_id, body)
        self._link.send((frame,))
        return self._correlation

    def _complete(self, response: bytes) -> None:
        future = self._pending.pop(_INT32.unpack_from(response)[0], None)
        if future is not None and not future.done():
            future.set_result(response)
        if self._is_ending:
            self._end_session()

    def _make_room(self, start: int, frame_bytes: int) -> None:
        """Move the unread bytes to the start of a buffer that can hold the whole next frame."""
        left = self._filled - start
        capacity = max(BUFFER_BYTES, frame_bytes)
        if start or capacity > len(self._buffer):
            # Allocate a new buffer: the event loop may still hold views of the old buffer.
            buffer = bytearray(capacity)
            buffer[:left] = memoryview(self._buffer)[start : self._filled]
            self._buffer = buffer
            self._filled = left

    def _end_session(self) -> None:
        """Take no new request, and close the connection when no response is missing."""
        self._is_ending = True
        if not self._pending:
            self.close()

    def _overdue(self) -> None:
        self._fail(TimeoutError("no response in time"))

    def _fail(self, error: OSError | TlsFailed) -> None:
        if self._link is None:
            return
        link, self._link = self._link, None
        if self._session_end is not None:
            self._session_end.cancel()
        self._error = error
        link.abort()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(error)


def _stop_timer(timer: Timer, future: asyncio.Future[Any]) -> None:
    timer.cancel()
