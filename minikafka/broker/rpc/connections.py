"""The open connections of one control-plane listener.

Invariant: at most `CONNECTIONS_MAX` connections are open, and at most an eighth of the file descriptors. From
its acceptance on, each connection has a deadline for its next whole request. A new connection above the limit
closes the oldest connection without a valid signature, so that unauthenticated clients cannot lock out the
controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from aiohttp.web_protocol import RequestHandler

from minikafka.base.ports import Clock, Timer

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 256
_SHARE: Final = 8
"""At most one in `_SHARE` file descriptors may be a connection of the control plane."""
READ_TIMEOUT_MS: Final = 30_000
"""A connection is closed if no whole request arrives for this long, even if some bytes arrive."""
_WARNING_MS: Final = 60_000


class ServedConnection(asyncio.Protocol):
    """One accepted connection: an asyncio protocol that forwards every call to aiohttp's protocol."""

    def __init__(self, owner: Connections, handler: RequestHandler) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._is_ended = False
        self.handler = handler
        self.deadline: Timer | None = None
        # With these attributes, the event loop calls aiohttp's methods directly.
        self.data_received = handler.data_received  # type: ignore[method-assign]
        self.eof_received = handler.eof_received  # type: ignore[method-assign]
        self.pause_writing = handler.pause_writing  # type: ignore[method-assign]
        self.resume_writing = handler.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the new connection to aiohttp, or abort it if `end` was called before.

        The event loop calls this method shortly after it has accepted the connection.
        """
        self._transport = cast("asyncio.Transport", transport)
        if self._is_ended:
            self._transport.abort()
        else:
            self.handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the open connections and tell aiohttp. The event loop calls this method last."""
        self._owner.forget(self)
        self.handler.connection_lost(exc)

    def end(self) -> None:
        """Close the connection.

        If the event loop has not called `connection_made` yet, that call closes the connection.
        """
        self._is_ended = True
        self._owner.forget(self)
        if self._transport is not None:
            self._transport.abort()


class Connections:
    """The connections of one listener, the oldest first."""

    def __init__(self, clock: Clock, descriptors: Callable[[], int]) -> None:
        """`descriptors()` returns the maximum number of open file descriptors of this process."""
        self._clock = clock
        self._descriptors = descriptors
        self._open: dict[RequestHandler, ServedConnection] = {}
        self._unsigned: dict[ServedConnection, None] = {}
        self._warned = -_WARNING_MS

    def accept(self, handler: RequestHandler) -> ServedConnection:
        """Return the protocol of a new connection.

        Above the maximum, close the oldest connection without a valid signature. This may be the new connection.
        """
        connection = ServedConnection(self, handler)
        self._open[handler] = connection
        self._unsigned[connection] = None
        self.expect_request(handler)
        most = min(CONNECTIONS_MAX, self._descriptors() // _SHARE)
        if len(self._open) > most:
            self._warn(most)
            next(iter(self._unsigned)).end()
        return connection

    def expect_request(self, handler: RequestHandler) -> None:
        """Start the timer for the next whole request, if the connection has no such timer."""
        connection = self._open.get(handler)
        if connection is not None and connection.deadline is None:
            connection.deadline = self._clock.call_later(READ_TIMEOUT_MS, connection.end)

    def request_received(self, handler: RequestHandler) -> None:
        """Stop the timer of the connection: a whole request was received."""
        connection = self._open.get(handler)
        if connection is not None and connection.deadline is not None:
            connection.deadline.cancel()
            connection.deadline = None

    def mark_signed(self, handler: RequestHandler) -> None:
        """Record that the connection has carried a request with a valid signature."""
        connection = self._open.get(handler)
        if connection is not None:
            self._unsigned.pop(connection, None)

    def forget(self, connection: ServedConnection) -> None:
        """Remove a connection that has ended, or is about to end, from the open connections."""
        self._open.pop(connection.handler, None)
        self._unsigned.pop(connection, None)
        if connection.deadline is not None:
            connection.deadline.cancel()
            connection.deadline = None

    def close(self) -> None:
        """Close all connections."""
        for connection in tuple(self._open.values()):
            connection.end()

    def _warn(self, most: int) -> None:
        now = self._clock.now()
        if now - self._warned >= _WARNING_MS:
            self._warned = now
            logger.warning(
                "%d control-plane connections are open, the maximum: closing the oldest one without a valid signature "
                "for each new one",
                most,
            )
