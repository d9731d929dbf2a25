"""A blocking connection to one broker.

Invariant: responses arrive in the order of the requests. The connection cannot be used after a response out
of order or a socket error. All failures are OSError, `ProtocolViolation`, or `ConnectionNotAllowed` if another attempt
would fail too.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import Final

import numpy as np

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ProtocolViolation
from minikafka.base.known_cluster import Address
from minikafka.spark.wire import protocol
from minikafka.spark.wire.deadline import now_ms
from minikafka.spark.wire.diagnosis import wrong_protocol
from minikafka.spark.wire.security import PLAIN, encrypted, log_in, refused

_RESPONSE: Final = Struct(">ii")
_RESPONSE_MAX: Final = 1 << 30
_TLS_ALERT: Final = 0x15
"""The first byte of the answer of a listener with TLS to something else than TLS."""
_SESSION_SHARE: Final = 0.85
"""Share of a session after which the client logs in again. Kafka's clients take 0.85 to 0.95."""
_LOGIN_EVERY_MS: Final = 1_100
"""Least time between two logins. Brokers refuse a login that begins less than a second after the last one."""
_answering: Final[set[tuple[Address, str]]] = set()
"""The listeners that have answered a request of this process, each with the security protocol that it has."""


class BlockingConnection:
    """A connection for one thread. `timeout_s`: time limit for connecting and for every read from the socket.

    `security`: how the connection is encrypted, and with what the client logs in. If the broker limits the session
    (`connections.max.reauth.ms`), the client logs in again before its end (KIP-368).
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        security: ClientConfig = PLAIN,
    ) -> None:
        self._address: Address = host, port
        self._security = security
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._correlation = 0
        self._waiting: deque[tuple[int, bool]] = deque()
        """Correlation id of each outstanding request, and whether the request's version is flexible."""
        self._early: deque[memoryview] = deque()
        """Responses that were received before a login, in order."""
        self._session_end_ms = 0
        """The time of the next login on this connection; 0 for none."""
        self._socket = socket.create_connection((host, port), timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._secure()
        except BaseException:
            self._socket.close()
            raise

    def _secure(self) -> None:
        """Encrypt the connection and log in, as far as the options say so."""
        protocol_in_use = self._security.protocol
        if protocol_in_use.is_encrypted:
            try:
                self._socket = encrypted(self._security, self._socket, self._address)
            except ConnectionError:
                self._diagnose()
                raise
        if protocol_in_use.is_sasl:
            self._log_in()

    def _log_in(self) -> None:
        lifetime_ms = log_in(self._security, self._call, self._address)
        left_ms = max(int(_SESSION_SHARE * lifetime_ms), _LOGIN_EVERY_MS)
        self._session_end_ms = lifetime_ms and now_ms() + left_ms

    def _diagnose(self) -> None:
        """Raise ConnectionNotAllowed if the broker closed the connection because the listener has another protocol."""
        if (self._address, self._security.security_protocol) not in _answering:
            wrong_protocol(self._address, self._security, self._timeout_s)

    @property
    def is_busy(self) -> bool:
        """True if a response is outstanding."""
        return bool(self._waiting or self._early)

    @property
    def has_received(self) -> bool:
        """True if bytes of a response have been read from the socket already."""
        return bool(self._early) or (
            isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        )

    @property
    def is_reusable(self) -> bool:
        """True if no response is outstanding, and the broker has not closed the connection."""
        if self.is_busy:
            return False
        if isinstance(self._socket, ssl.SSLSocket):
            return _is_silent(self._socket)
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def limit(self, timeout_s: float) -> None:
        """Change the time limit for every read from the socket."""
        self._timeout_s = timeout_s
        self._socket.settimeout(timeout_s)

    def call(self, api: tuple[int, int], body: bytes) -> memoryview:
        """Send one request, wait for the response, and return the body of the response."""
        self.send(api, body)
        return self.receive()

    def send(self, api: tuple[int, int], body: bytes) -> None:
        """Send one request without waiting. `receive` returns the response later."""
        if self._session_end_ms and now_ms() >= self._session_end_ms:
            while self._waiting:
                self._early.append(self._receive())
            self._log_in()
        self._send(api, body)

    def _call(self, api: tuple[int, int], body: bytes) -> memoryview:
        self._send(api, body)
        return self._receive()

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        self._correlation += 1
        self._waiting.append((self._correlation, protocol.is_flexible(api)))
        self._socket.sendall(protocol.request(api, self._correlation, self._client_id, body))

    def receive(self) -> memoryview:
        """Return the body of the response to the oldest outstanding request."""
        return self._early.popleft() if self._early else self._receive()

    def _receive(self) -> memoryview:
        try:
            found = self._read_response()
        except ssl.SSLEOFError as error:
            raise ConnectionResetError("the broker closed the connection") from error
        except ssl.SSLError as error:  # with TLS 1.3, a refused certificate follows the handshake
            raise refused(self._address, error) from error
        except ConnectionError:
            self._diagnose()
            raise
        _answering.add((self._address, self._security.security_protocol))
        return found

    def _read_response(self) -> memoryview:
        head = bytearray(_RESPONSE.size)
        self._fill(memoryview(head))
        size, correlation = _RESPONSE.unpack(head)
        expected, is_flexible = self._waiting.popleft()
        if size >> 24 == _TLS_ALERT:
            self._diagnose()
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
    connections = list(connections)
    if received := [connection for connection in connections if connection.has_received]:
        return received
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(timeout_s)]  # type: ignore[misc]


def _is_silent(connection: ssl.SSLSocket) -> bool:
    """True if the broker has sent no data and has not closed the connection. It may have sent tickets of TLS 1.3."""
    timeout_s = connection.gettimeout()
    connection.setblocking(False)
    try:
        connection.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(timeout_s)
    return False
