"""Connections to brokers that demand TLS, SASL or both: the client's side.

After the TLS handshake, a client with a login sends SaslHandshake 17 and its tokens in SaslAuthenticate 36. Then the
handler of the caller takes over the link.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from minikafka.base.config.security import JAAS
from minikafka.base.encryption import ListenerTls
from minikafka.base.errors import ErrorCode, KafkaError, ProtocolViolation
from minikafka.base.ports import Buffer, Link, StreamHandler, Transport
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.framing import SIZE
from minikafka.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from minikafka.runtime.tls_contexts import tls_reason
from minikafka.security.sasl import OAUTHBEARER
from minikafka.security.sasl_client import Login, ServerNotTrusted, new_client_exchange

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 1
SESSION_SHARE: Final = 0.85
"""Share of a session after which a client logs in again. Kafka's clients take 0.85 to 0.95."""
_ANSWER_MAX_BYTES: Final = 1 << 20


class NotAdmitted(KafkaError):
    """The client and the broker do not trust each other. Another attempt would fail too."""

    exit_code = 3


class TlsFailed(NotAdmitted):
    """The TLS handshake has failed, or the broker has refused the certificate of the client."""

    def __init__(self, error: ssl.SSLError) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"no connection by TLS: {tls_reason(error)}"
        )

    def __str__(self) -> str:
        return self.detail


class LoginFailed(NotAdmitted):
    """The broker has refused the login. The text says what it answered, and contains no secret."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, detail)


class LoginSteps:
    """The requests of one login, and of each later one on the same connection."""

    def __init__(self, login: Login, random_bytes: Callable[[int], bytes], client_id: str) -> None:
        self._login = login
        self._client_id = client_id
        self._exchange = new_client_exchange(login, random_bytes)
        self._asked = SASL_HANDSHAKE
        self.lifetime_ms = 0
        """The length of the session, 0 if it has no end; known after the last step."""

    def first(self) -> bytes:
        """Return the first request."""
        body = request(SASL_HANDSHAKE, HANDSHAKE_VERSION, mechanism=self._login.mechanism)
        return encode_request(SASL_HANDSHAKE, HANDSHAKE_VERSION, 0, self._client_id, body)

    def next(self, answer: Buffer) -> bytes | None:
        """Return the request that follows an answer, None when the login is complete. Raises LoginFailed.

        `answer`: a response from its correlation id on.
        """
        try:
            if self._asked == SASL_HANDSHAKE:
                found = decode_response(SASL_HANDSHAKE, HANDSHAKE_VERSION, memoryview(answer))
                self._check_mechanism(found)
                token = self._exchange.step(b"")
            else:
                found = decode_response(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, memoryview(answer))
                if found.error_code:
                    raise self._refused(found.error_message or ErrorCode(found.error_code).name)
                self.lifetime_ms = found.session_lifetime_ms
                token = self._exchange.step(bytes(found.auth_bytes))
        except (ServerNotTrusted, ProtocolViolation) as error:
            raise LoginFailed(str(error)) from error
        return None if token is None else self._authenticate(token)

    def _refused(self, reason: str) -> LoginFailed:
        if self._login.mechanism == OAUTHBEARER:
            return LoginFailed(reason)
        return LoginFailed(f"{reason.rstrip('.')}; check {JAAS}")

    def _check_mechanism(self, answer: Any) -> None:
        if answer.error_code:
            served = ", ".join(answer.mechanisms)
            raise LoginFailed(
                f"the broker does not serve the SASL mechanism {self._login.mechanism}, but {served}"
            )

    def _authenticate(self, token: bytes) -> bytes:
        self._asked = SASL_AUTHENTICATE
        body = request(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, auth_bytes=token)
        return encode_request(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, 0, self._client_id, body)


class _LoginStream:
    """The stream handler of a connection until its login is complete."""

    def __init__(self, steps: LoginSteps, factory: Callable[[int], StreamHandler]) -> None:
        self._steps = steps
        self._factory = factory
        self._buffer = memoryview(bytearray(4096))
        self._data = bytearray()
        self.done: asyncio.Future[StreamHandler] = asyncio.get_running_loop().create_future()

    link: Link

    def connected(self, link: Link) -> None:
        self.link = link
        link.send((self._steps.first(),))

    def get_buffer(self, hint: int) -> Buffer:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._data += self._buffer[:count]
        while len(self._data) >= SIZE.size and not self.done.done():
            size: int = SIZE.unpack_from(self._data)[0]
            if not 4 <= size <= _ANSWER_MAX_BYTES:
                self._fail(LoginFailed(f"not a Kafka broker: it sent a response of {size} bytes"))
                return
            stop = SIZE.size + size
            if len(self._data) < stop:
                return
            answer = bytes(self._data[SIZE.size : stop])
            del self._data[:stop]
            self._on_answer(answer)

    def _on_answer(self, answer: bytes) -> None:
        try:
            following = self._steps.next(answer)
        except LoginFailed as error:
            self._fail(error)
            return
        if following is not None:
            self.link.send((following,))
        elif not self.done.done():
            handler = self._factory(self._steps.lifetime_ms)
            self.done.set_result(handler)
            self.link.hand_over(handler, bytes(self._data))

    def _fail(self, error: LoginFailed) -> None:
        if not self.done.done():
            self.done.set_exception(error)
        self.link.abort()

    def disconnected(self, error: Exception | None) -> None:
        if not self.done.done():
            why = "the broker closed the connection during the login"
            self.done.set_exception(error if isinstance(error, OSError) else ConnectionError(why))

    def drained(self) -> None:
        """Do nothing. The requests are small."""


class Tokens(Protocol):
    """The tokens of a client that logs in with OAUTHBEARER (`token_source.py`)."""

    async def token(self) -> str:
        """Return a valid token. Raises OSError, LoginFailed."""


class Connector:
    """Opens connections to the brokers of one cluster.

    `tls`: how they are encrypted; None: in the clear. `login`: with what the client logs in; None: without SASL.
    `tokens`: None unless the client logs in with OAUTHBEARER.
    """

    def __init__(
        self,
        transport: Transport,
        tls: ListenerTls | None = None,
        login: Login | None = None,
        random_bytes: Callable[[int], bytes] = bytes,
        tokens: Tokens | None = None,
    ) -> None:
        self._tokens = tokens
        self._transport = transport
        self.tls = tls
        self._login = login
        self._random_bytes = random_bytes

    async def renew(self) -> None:
        """Get a valid token for the next login. Raises OSError, LoginFailed."""
        if self._tokens is not None:
            assert self._login is not None
            self._login = replace(self._login, token=await self._tokens.token())

    def new_login(self, client_id: str) -> LoginSteps:
        """Return the steps of a login on a connection that is open."""
        assert self._login is not None
        return LoginSteps(self._login, self._random_bytes, client_id)

    async def connect(
        self, factory: Callable[[int], StreamHandler], host: str, port: int, client_id: str
    ) -> StreamHandler:
        """Open a connection, log in, and return the handler, which has the link.

        `factory` gets the length of the session in ms, 0 if it has no end. Raises OSError and LoginFailed.
        """
        await self.renew()
        if self._login is None:
            return await self._transport.connect(lambda: factory(0), host, port, self.tls)
        steps = self.new_login(client_id)
        stream = await self._transport.connect(
            lambda: _LoginStream(steps, factory), host, port, self.tls
        )
        assert isinstance(stream, _LoginStream)
        try:
            return await stream.done
        except asyncio.CancelledError:
            stream.link.abort()
            raise
