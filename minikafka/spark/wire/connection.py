"""A blocking connection to one broker.

Invariant: responses arrive in the order of the requests. The connection cannot be used after a response out
of order or a socket error. All failures are OSError or `ProtocolViolation`.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import Final

import numpy as np

from minikafka.base.errors import ProtocolViolation
from minikafka.spark.wire import protocol

_RESPONSE: Final = Struct(">ii")
_RESPONSE_MAX: Final = 1 << 30


class BlockingConnection:
    """A connection for one thread. `timeout_s`: time limit for connecting and for every read from the socket."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self._client_id = client_id
        self._correlation = 0
        self._waiting: deque[tuple[int, bool]] = deque()
        """Correlation id of each outstanding request, and whether the request's version is flexible."""
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_busy(self) -> bool:
        """True if a response is outstanding."""
        return bool(self._waiting)

    @property
    def is_reusable(self) -> bool:
        """True if no response is outstanding, and the broker has not closed the connection."""
        if self._waiting:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def limit(self, timeout_s: float) -> None:
        """Change the time limit for every read from the socket."""
        self._socket.settimeout(timeout_s)

    def call(self, api: tuple[int, int], body: bytes) -> memoryview:
        """Send one request, wait for the response, and return the body of the response."""
        self.send(api, body)
        return self.receive()

    def send(self, api: tuple[int, int], body: bytes) -> None:
        """Send one request without waiting. `receive` returns the response later."""
        self._correlation += 1
        self._waiting.append((self._correlation, protocol.is_flexible(api)))
        self._socket.sendall(protocol.request(api, self._correlation, self._client_id, body))

    def receive(self) -> memoryview:
        """Return the body of the response to the oldest outstanding request."""
        head = bytearray(_RESPONSE.size)
        self._fill(memoryview(head))
        size, correlation = _RESPONSE.unpack(head)
        expected, is_flexible = self._waiting.popleft()
        if correlation != expected or not 4 <= size <= _RESPONSE_MAX:
            raise ProtocolViolation(f"a response of {size} bytes does not match the request")
        body = np.empty(size - 4, np.uint8).data
        self._fill(body)
        return protocol.without_header_tags(body) if is_flexible else body

    def _fill(self, room: memoryview) -> None:
        while room:
            count = self._socket.recv_into(room)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            room = room[count:]

    def fileno(self) -> int:
        """Return the file descriptor of the socket, for `selectors`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket. A second call has no effect."""
        self._socket.close()


def readable(
    connections: Iterable[BlockingConnection], timeout_s: float
) -> list[BlockingConnection]:
    """Wait until a response or the end of a connection arrives, at most `timeout_s`. Return these connections."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(timeout_s)]  # type: ignore[misc]
