"""One blocking socket to one broker: requests out, answers in, in order.

Invariant: answers come back in the order of the requests; anything else, and any failure of the
socket, ends the connection. All failures are OSError or `ProtocolViolation`.
"""

from __future__ import annotations

import socket
from collections import deque
from struct import Struct
from typing import Final

from minikafka.base.errors import ProtocolViolation
from minikafka.spark import protocol

_ANSWER: Final = Struct(">ii")
_ANSWER_MAX: Final = 1 << 30


class Connection:
    """Not for use by two threads. `timeout_s` bounds connecting and every wait for bytes."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self._client_id = client_id
        self._correlation = 0
        self._waiting: deque[int] = deque()
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, api: tuple[int, int], body: bytes) -> memoryview:
        """Send one request and wait for its answer's body."""
        self.send(api, body)
        return self.receive()

    def send(self, api: tuple[int, int], body: bytes) -> None:
        """Send one request; `receive` gives its answer later."""
        self._correlation += 1
        self._waiting.append(self._correlation)
        self._socket.sendall(protocol.request(api, self._correlation, self._client_id, body))

    def receive(self) -> memoryview:
        """The body of the answer to the oldest request that has none yet."""
        head = bytearray(_ANSWER.size)
        self._fill(memoryview(head))
        size, correlation = _ANSWER.unpack(head)
        if correlation != self._waiting.popleft() or not 4 <= size <= _ANSWER_MAX:
            raise ProtocolViolation(
                f"an answer of {size} bytes that does not belong to the request"
            )
        body = memoryview(bytearray(size - 4))
        self._fill(body)
        return body

    def _fill(self, room: memoryview) -> None:
        while room:
            count = self._socket.recv_into(room)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            room = room[count:]

    def close(self) -> None:
        """Harmless twice."""
        self._socket.close()
