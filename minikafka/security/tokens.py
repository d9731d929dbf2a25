"""Delegation tokens (KIP-48): who may use, renew and describe one, and how a client logs in with one.

A token has no password of its own: its HMAC with `delegation.token.secret.key` is the password.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.security import scram
from minikafka.security.principals import split_principal
from minikafka.security.sasl import TokenLogin
from minikafka.security.scram import ScramCredential


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. Owner, requester and renewers are principals, such as `User:alice`. Times are Unix milliseconds."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    @property
    def principals(self) -> tuple[str, ...]:
        """The principals that may describe the token: owner, requester and renewers."""
        return self.owner, self.requester, *self.renewers

    def has_expired(self, now_ms: int) -> bool:
        """Return True if the token can no longer be used."""
        return min(self.expires_ms, self.max_ms) < now_ms


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """The longest life of a token, and the time after which it must be renewed."""

    max_ms: int
    renew_ms: int


def new_token(
    id: str,
    owner: str,
    requester: str,
    renewers: Sequence[str],
    life_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """Return a token that begins now. `life_ms`: 0 or less asks for the longest life."""
    life_ms = lifetimes.max_ms if life_ms <= 0 else min(life_ms, lifetimes.max_ms)
    expires_ms = now_ms + min(life_ms, lifetimes.renew_ms)
    return DelegationToken(
        id, owner, requester, tuple(renewers), now_ms, expires_ms, now_ms + life_ms
    )


def renewed(
    token: DelegationToken,
    principal: str,
    period_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """Return the token with a later end. `period_ms`: a negative number asks for the usual time. Raises KafkaError."""
    _check_may_change(token, principal)
    _check_is_valid(token, now_ms)
    period_ms = lifetimes.renew_ms if period_ms < 0 else period_ms
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def ended(
    token: DelegationToken, principal: str, period_ms: int, now_ms: int
) -> DelegationToken | None:
    """Return the token with an earlier end, None for a token that must be removed. Raises KafkaError."""
    _check_may_change(token, principal)
    if period_ms < 0:
        return None
    _check_is_valid(token, now_ms)
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def _check_may_change(token: DelegationToken, principal: str) -> None:
    if principal not in (token.owner, *token.renewers):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_is_valid(token: DelegationToken, now_ms: int) -> None:
    if token.has_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


class KnownTokens:
    """The delegation tokens that a broker knows. `secret`: the value of `delegation.token.secret.key`."""

    def __init__(self, secret: str, wall_ms: Callable[[], int]) -> None:
        self._secret = secret.encode()
        self._wall_ms = wall_ms
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """HMAC of a token → its id."""
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """(mechanism, id) → credential of a token that was used."""

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter(tuple(self._tokens.values()))

    def hmac_of(self, id: str) -> bytes:
        """Return the HMAC of the token with this id."""
        return hmac.digest(self._secret, id.encode(), "sha512")

    def find(self, token_hmac: bytes) -> DelegationToken | None:
        """Return the token with this HMAC, or None."""
        return self._tokens.get(self._ids.get(token_hmac, ""))

    def replace(self, tokens: Sequence[DelegationToken]) -> None:
        """Replace all tokens."""
        for gone in self._tokens.keys() - {token.id for token in tokens}:
            self.update(gone, None)
        for token in tokens:
            self.update(token.id, token)

    def update(self, id: str, token: DelegationToken | None) -> None:
        """Replace or forget one token."""
        if token is not None:
            self._tokens[id] = token
            self._ids[self.hmac_of(id)] = id
        elif self._tokens.pop(id, None) is not None:
            del self._ids[self.hmac_of(id)]
            for mechanism in scram.BY_NAME:
                self._credentials.pop((mechanism, id), None)

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """Return the login of a token, or None if there is no such token, or if it has expired."""
        token = self._tokens.get(token_id)
        if token is None or token.has_expired(self._wall_ms()):
            return None
        key = mechanism, token_id
        if key not in self._credentials:
            self._credentials[key] = self._credential(mechanism, token_id)
        _, user = split_principal(token.owner)
        return TokenLogin(user, self._credentials[key], min(token.expires_ms, token.max_ms))

    def _credential(self, mechanism: str, id: str) -> ScramCredential:
        """Return the credential of a token, whose password is its HMAC in Base64."""
        token_hmac = self.hmac_of(id)
        seed = hmac.digest(token_hmac, f"salt:{mechanism}".encode(), "sha256")
        return scram.new_credential(
            scram.BY_NAME[mechanism],
            b64encode(token_hmac).decode(),
            scram.MIN_ITERATIONS,
            scram.random_text(seed).encode(),
        )
