"""Delegation tokens on one broker: creating, renewing and ending them, and removing those that have expired."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.model import version_4_uuid
from minikafka.base.ports import Clock, Rng
from minikafka.base.printable import printable
from minikafka.broker.capabilities import Administration, TokenStore
from minikafka.security import tokens
from minikafka.security.tokens import DelegationToken, KnownTokens, TokenLifetimes

logger = logging.getLogger(__name__)


def _log(what: str, token: DelegationToken) -> None:
    logger.info("the delegation token %s of %s %s", token.id, printable(token.owner), what)


def known_tokens(config: BrokerConfig, clock: Clock) -> KnownTokens | None:
    """Return the tokens with which clients may log in, which are not read yet; None without a secret."""
    secret = config.delegation_token_secret_key or config.delegation_token_master_key
    return KnownTokens(secret, clock.wall_ms) if secret else None


class DelegationTokens:
    """The delegation tokens of the cluster. Without `delegation.token.secret.key`, every request is refused."""

    def __init__(
        self,
        config: BrokerConfig,
        known: KnownTokens | None,
        store: TokenStore,
        administration: Administration,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.known = known
        self._store = store
        self._administration = administration
        self._clock = clock
        self._rng = rng
        self._lifetimes = TokenLifetimes(
            config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
        )
        self._check_ms = config.delegation_token_expiry_check_interval_ms

    async def start(self) -> None:
        """Read the tokens, and begin to follow their changes. Raises CoordinationError."""
        if self.known is not None:
            await self._store.start(self.known)

    async def run(self) -> None:
        """Remove expired tokens at intervals, if this broker may act. Never returns."""
        while self.known is not None:
            await self._clock.sleep(self._check_ms)
            try:
                await self.remove_expired()
            except (KafkaError, CoordinationError) as error:
                logger.debug("expired tokens are not removed: %s", error)

    async def remove_expired(self) -> list[str]:
        """Remove the tokens that have expired; return their ids. Raises KafkaError if this broker may not act."""
        self._administration.check_may_act()
        gone = [one for one in self.known or () if one.has_expired(self._clock.wall_ms())]
        for token in gone:
            await self._store.remove(token.id)
            _log("has expired", token)
        return [token.id for token in gone]

    def require(self) -> KnownTokens:
        """Return the known tokens. Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED without a secret."""
        if self.known is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self.known

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], life_ms: int
    ) -> DelegationToken:
        """Return a new token, which is stored. Raises KafkaError, CoordinationError."""
        self.require()
        uuid = version_4_uuid(self._rng.bytes(16))
        token = tokens.new_token(
            urlsafe_b64encode(uuid).decode().rstrip("="),
            owner,
            requester,
            renewers,
            life_ms,
            self._lifetimes,
            self._clock.wall_ms(),
        )
        await self._store.create(token)
        _log("was created", token)
        return token

    async def renew(self, principal: str, token_hmac: bytes, period_ms: int) -> int:
        """Give a token a later end; return that time. Raises KafkaError, CoordinationError."""
        return await self._change(
            token_hmac,
            lambda token: tokens.renewed(
                token, principal, period_ms, self._lifetimes, self._clock.wall_ms()
            ),
        )

    async def end(self, principal: str, token_hmac: bytes, period_ms: int) -> int:
        """Give a token an earlier end, or remove it; return that time. Raises KafkaError, CoordinationError."""
        return await self._change(
            token_hmac,
            lambda token: tokens.ended(token, principal, period_ms, self._clock.wall_ms()),
        )

    async def _change(
        self, token_hmac: bytes, change: Callable[[DelegationToken], DelegationToken | None]
    ) -> int:
        token = await self._find(token_hmac)
        changed = change(token)
        if changed is None:
            await self._store.remove(token.id)
            _log("was removed", token)
            return self._clock.wall_ms()
        if not await self._store.change(changed):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return changed.expires_ms

    async def _find(self, token_hmac: bytes) -> DelegationToken:
        """Return the token with this HMAC, also if another broker has just created it. Raises KafkaError."""
        known = self.require()
        token = known.find(token_hmac)
        if token is None:
            await self._store.refresh()
            token = known.find(token_hmac)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token
