"""A connection whose client is not authenticated yet.

It answers ApiVersions, SaslHandshake and SaslAuthenticate, one after the other, and nothing else. When the client
is authenticated, an `AcceptedConnection` takes over the link, so the path of records has no check for it. On a
listener without SASL, the first bytes do so, because the TLS handshake is complete then.

A newcomer without bytes takes little memory: it has no buffer of its own before a request has begun. Requests of more
than `SMALL_MAX` bytes share a budget (`FrameRoom`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from minikafka.base.encryption import ListenerTls
from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer, Clock, Link, StreamHandler, Timer
from minikafka.broker.apis import versions
from minikafka.broker.clients.authentication import (
    Authentication,
    LoginRefused,
    ServedMechanism,
    State,
)
from minikafka.broker.network.frame_room import FrameRoom
from minikafka.broker.services import ClientConnection
from minikafka.kafka.wire.codec import decode_request, encode_response
from minikafka.kafka.wire.framing import SIZE, frames
from minikafka.kafka.wire.versions import (
    API_VERSIONS,
    NAMES,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    is_served,
)

logger = logging.getLogger(__name__)

SMALL_MAX: Final = 4 << 10
LARGE_BYTES: Final = 8 << 20
"""Memory for requests of more than `SMALL_MAX` bytes, of all newcomers together."""
_READ_MS: Final = 50
"""Time for a client to read why it is refused. Some clients forget a response that comes with the end."""
_received: Final = memoryview(bytearray(16 << 10))
"""The receive buffer of all newcomers: it is empty again when `buffer_updated` returns."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a listener demands of its clients.

    `mechanisms`: the SASL mechanisms by name; empty without SASL. `principal_of` returns the principal of a client's
    certificate in DER, None without one.
    """

    tls: ListenerTls | None
    mechanisms: Mapping[str, ServedMechanism]
    principal_of: Callable[[bytes | None], str]
    receive_max_bytes: int
    failure_delay_ms: int


class Failures(Protocol):
    """Where failed authentications are counted and logged."""

    def failed(self, client: ClientConnection, reason: str) -> None:
        """Count and log one failure."""

    def succeeded(self) -> None:
        """Count one success."""


class Newcomer:
    """The stream handler of a connection until its client is authenticated."""

    __slots__ = (
        "_accept",
        "_admission",
        "_clock",
        "_closed",
        "_data",
        "_failures",
        "_room",
        "_timer",
        "authentication",
        "client",
        "link",
        "opened_at",
    )

    def __init__(
        self,
        client: ClientConnection,
        admission: Admission,
        clock: Clock,
        room: FrameRoom,
        failures: Failures,
        accept: Callable[[Newcomer], StreamHandler],
        closed: Callable[[Newcomer], None],
    ) -> None:
        self.client = client
        self._admission = admission
        self._clock = clock
        self._room = room
        self._failures = failures
        self._accept = accept
        self._closed = closed
        self._data = bytearray()
        """The bytes of an incomplete request."""
        self._timer: Timer | None = None
        self.opened_at = clock.now()
        mechanisms = admission.mechanisms
        self.authentication = Authentication(mechanisms, clock) if mechanisms else None

    link: Link

    def connected(self, link: Link) -> None:
        self.link = link
        self.client.opened(link)

    def disconnected(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._room.release(self)
        self._closed(self)
        if error is not None:
            self._failures.failed(self.client, str(error))

    def drained(self) -> None:
        """Do nothing. The responses are small."""

    def get_buffer(self, hint: int) -> Buffer:
        return _received

    def buffer_updated(self, count: int) -> None:
        if self._timer is not None:  # the client has failed
            return
        if self.authentication is None:
            self._admit_by_certificate(bytes(_received[:count]))
            return
        self._data += _received[:count]
        try:
            self._parse()
        except ProtocolViolation as violation:
            self._refuse(LoginRefused(str(violation)), None)

    def _parse(self) -> None:
        """Answer the complete requests, and ask for memory for a large incomplete one."""
        assert self.authentication is not None
        most = self._admission.receive_max_bytes
        while self._data and self._timer is None:
            if self.authentication.state is State.DONE:
                break
            if self.authentication.state is State.BARE_TOKENS:
                used = self._take_bare_token(most)
            else:
                data = self._data
                used = frames(data, memoryview(data), 0, len(data), {}, self._on_request, most)
            if not used:
                break
            self._data = self._data[used:]
        if self.authentication.state is State.DONE and self._timer is None:
            self.client.authentication = self.authentication
            self._admit(self.authentication.principal, bytes(self._data))
        else:
            self._reserve()

    def _reserve(self) -> None:
        """Stop reading a large request until there is memory for it."""
        size = 4 + SIZE.unpack_from(self._data)[0] if len(self._data) >= SIZE.size else 0
        if size <= SMALL_MAX:
            self._room.release(self)
        elif not self._room.reserve(self, size):
            self.link.pause_reading()

    def room_given(self) -> None:
        """Continue to receive a large request."""
        self.link.resume_reading()

    def received(self) -> int | None:
        """Return how many bytes of a large request have arrived."""
        return len(self._data)

    def give_up(self, reason: str) -> None:
        """Close the connection."""
        self._failures.failed(self.client, reason)
        self.link.abort()

    def _take_bare_token(self, most: int) -> int:
        """Answer a token without a request header; return the bytes that it took, 0 if it is incomplete."""
        assert self.authentication is not None
        if len(self._data) < SIZE.size:
            return 0
        [size] = SIZE.unpack_from(self._data)
        if not 0 <= size <= most:
            raise ProtocolViolation(f"a token of {size} bytes exceeds sasl.server.max.receive.size")
        stop: int = SIZE.size + size
        if stop > len(self._data):
            return 0
        try:
            answer = self.authentication.on_bare_token(bytes(self._data[SIZE.size : stop]))
        except LoginRefused as refused:
            self._refuse(refused, None)
        else:
            self.link.send((SIZE.pack(len(answer)), answer))
        return stop

    def _on_request(
        self,
        view: memoryview,
        api: int,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> bool:
        """Answer one request; return True, because the next one may have another form."""
        if api == API_VERSIONS and not is_served(api, version):
            self.link.send((versions.unsupported(correlation),))
            return True
        answer = {
            API_VERSIONS: versions.answer,
            SASL_HANDSHAKE: self.authentication.on_handshake,  # type: ignore[union-attr]
            SASL_AUTHENTICATE: self.authentication.on_authenticate,  # type: ignore[union-attr]
        }.get(api)
        if answer is None or not is_served(api, version):
            name = NAMES.get(api, f"API {api}")
            raise ProtocolViolation(f"unexpected {name} version {version} before authentication")
        try:
            response = answer(version, decode_request(api, version, bytes(view[body:end])))
        except LoginRefused as refused:
            body_of = refused.body
            frame = None if body_of is None else encode_response(correlation, api, version, body_of)
            self._refuse(refused, frame)
        else:
            self.link.send((encode_response(correlation, api, version, response),))
        return True

    def _refuse(self, refused: LoginRefused, frame: bytes | None) -> None:
        """After a delay, send the response, if there is one, and close the connection."""
        self._failures.failed(self.client, str(refused))
        self._data = bytearray()
        self.link.pause_reading()
        self._timer = self._clock.call_later(
            self._admission.failure_delay_ms, lambda: self._end(frame)
        )

    def _end(self, frame: bytes | None) -> None:
        if frame is None:
            self.link.close()
            return
        self.link.send((frame,))
        self._timer = self._clock.call_later(_READ_MS, self.link.close)

    def _admit_by_certificate(self, received: bytes) -> None:
        """Admit a client of a listener without SASL, whose TLS handshake is complete."""
        try:
            principal = self._admission.principal_of(self.link.peer_certificate())
        except LoginRefused as refused:
            self._refuse(refused, None)
        else:
            self._admit(principal, received)

    def _admit(self, principal: str, received: bytes) -> None:
        """Let the connection of an authenticated client take over."""
        self.client.principal = principal
        self._data = bytearray()
        self._failures.succeeded()
        self._room.release(self)
        accepted = self._accept(self)
        self._closed(self)
        self.link.hand_over(accepted, received)
