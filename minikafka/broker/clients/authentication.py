"""The authentication of one client by SASL, at first and again (KIP-43, KIP-152, KIP-368).

SaslHandshake 17 chooses the mechanism; the client's tokens follow, in requests SaslAuthenticate 36. After
SaslHandshake of version 0 they follow as bare bytes with a length. A client that has failed learns whether it named
an unknown mechanism, and nothing else. Its answer waits for `connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from minikafka.base.errors import ErrorCode
from minikafka.base.ports import Clock
from minikafka.kafka.wire.codec import response
from minikafka.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from minikafka.security.sasl import AuthenticationFailed, Exchange, Lookups, new_exchange

SESSION_SINCE: Final = 1
"""The first version of SaslAuthenticate whose response has the lifetime of the session."""


@dataclass(frozen=True, slots=True)
class ServedMechanism:
    """One SASL mechanism of a listener. `max_reauth_ms`: 0 if clients need not authenticate again."""

    name: str
    lookups: Lookups
    max_reauth_ms: int


class State(Enum):
    """What the server expects next."""

    HANDSHAKE = "SaslHandshake"
    TOKENS = "SaslAuthenticate"
    BARE_TOKENS = "tokens without a header"
    DONE = "nothing"


class LoginRefused(Exception):
    """The client has not authenticated. `body`: the response to send before the connection is closed, if any.

    The text is for the log.
    """

    def __init__(self, why: str, body: bytes | None = None) -> None:
        super().__init__(why)
        self.body = body


class Authentication:
    """The state of one client's authentication."""

    __slots__ = (
        "_clock",
        "_exchange",
        "_mechanism",
        "_mechanisms",
        "_previous",
        "expires",
        "on_renewed",
        "state",
    )

    on_renewed: Callable[[], None]
    """Called when the client has authenticated again."""

    def __init__(self, mechanisms: Mapping[str, ServedMechanism], clock: Clock) -> None:
        self._mechanisms = mechanisms
        self._clock = clock
        self._mechanism: ServedMechanism | None = None
        self._exchange: Exchange | None = None
        self._previous: tuple[str, str] | None = None
        """ServedMechanism and principal of the earlier authentication, which the client repeats."""
        self.state = State.HANDSHAKE
        self.expires: int | None = None
        """The monotonic time (ms) after which the client must have authenticated again; None: it need not."""

    @property
    def principal(self) -> str:
        """The authenticated client, for example `User:alice`."""
        assert self._exchange is not None
        return self._exchange.principal

    @property
    def is_by_token(self) -> bool:
        """True if the client has authenticated with a delegation token."""
        return self._exchange is not None and self._exchange.is_by_token

    def again(self) -> None:
        """Let an authenticated client authenticate again."""
        assert self._mechanism is not None
        self._previous = self._mechanism.name, self.principal
        self.state = State.HANDSHAKE

    def on_handshake(self, version: int, request: Any) -> bytes:
        """Return the response to SaslHandshake. Raises LoginRefused."""
        if self.state is not State.HANDSHAKE:
            raise LoginRefused("unexpected SaslHandshake during SASL authentication")
        mechanism = self._mechanisms.get(request.mechanism)
        if mechanism is None:
            unsupported = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            body = self._handshake_response(version, unsupported)
            raise LoginRefused(f"Unsupported SASL mechanism {request.mechanism!r}", body)
        self.state = State.TOKENS if version else State.BARE_TOKENS
        self._mechanism = mechanism
        self._exchange = new_exchange(
            mechanism.name, mechanism.lookups, reauthenticating=self._previous is not None
        )
        return self._handshake_response(version, ErrorCode.NONE)

    def _handshake_response(self, version: int, error: ErrorCode) -> bytes:
        names = list(self._mechanisms)
        return response(SASL_HANDSHAKE, version, error_code=error, mechanisms=names)

    def on_authenticate(self, version: int, request: Any) -> bytes:
        """Return the response to SaslAuthenticate. Raises LoginRefused."""
        if self.state is not State.TOKENS:
            raise LoginRefused(f"unexpected SaslAuthenticate while {self.state.value} is expected")
        try:
            answer = self._step(bytes(request.auth_bytes))
        except AuthenticationFailed as failed:
            body = response(
                SASL_AUTHENTICATE,
                version,
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=str(failed),
                auth_bytes=b"",
            )
            raise LoginRefused(str(failed), body) from None
        lifetime = self._end() if self._is_done() else 0
        values = {"session_lifetime_ms": lifetime} if version >= SESSION_SINCE else {}
        return response(SASL_AUTHENTICATE, version, error_code=0, auth_bytes=answer, **values)

    def on_bare_token(self, token: bytes) -> bytes:
        """Return the answer to a token without a request header. Raises LoginRefused."""
        try:
            answer = self._step(token)
        except AuthenticationFailed as failed:
            raise LoginRefused(str(failed)) from None
        if self._is_done():
            self._end()
        return answer

    def _is_done(self) -> bool:
        return self.state is State.DONE

    def _step(self, token: bytes) -> bytes:
        assert self._exchange is not None
        assert self._mechanism is not None
        if self._previous is not None and self._previous[0] != self._mechanism.name:
            raise AuthenticationFailed(
                f"SASL mechanism '{self._mechanism.name}' requested by client is not supported "
                f"for re-authentication of mechanism '{self._previous[0]}'"
            )
        answer = self._exchange.step(token)
        if self._exchange.is_done:
            self._check_same_principal(self._exchange.principal)
            self.state = State.DONE
        return answer

    def _check_same_principal(self, principal: str) -> None:
        if self._previous is not None and self._previous[1] != principal:
            before, after = (name.replace(":", ".", 1) for name in (self._previous[1], principal))
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {before}: {after}"
            )

    def _end(self) -> int:
        """Set the end of the session; return its length in ms, 0 if it has no end."""
        assert self._exchange is not None
        assert self._mechanism is not None
        lifetime = self._lifetime(self._mechanism.max_reauth_ms, self._exchange.expires_ms)
        self.expires = None if lifetime is None else self._clock.now() + lifetime
        if self._previous is not None:
            self.on_renewed()
        return lifetime or 0

    def _lifetime(self, max_reauth_ms: int, expires_ms: int | None) -> int | None:
        """Return the length of a session that begins now, in ms; None if it has no end."""
        limits = [max_reauth_ms] if max_reauth_ms else []
        if expires_ms is not None:
            limits.append(expires_ms - self._clock.wall_ms())
        return max(min(limits), 0) if limits else None
