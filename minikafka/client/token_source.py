"""The token of a client that logs in by OAUTHBEARER: fetched before the first login, and again before it ends.

Invariant: a login lacks a token only if the previous one has expired. While it is valid, an endpoint that failed is
asked again after `_AGAIN_MS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from minikafka.base.config.security import SecurityKeys
from minikafka.base.ports import Clock, Rng
from minikafka.client.login import LoginFailed
from minikafka.client.token_endpoint import token_origin
from minikafka.security.bearer import InvalidToken, OwnToken, RefreshRules, read_token, refresh_ms
from minikafka.security.jaas import JaasEntry

logger = logging.getLogger(__name__)

_AGAIN_MS: Final = 10_000
"""Pause after a failed fetch while the token is valid, as in Kafka."""


class TokenOrigin(Protocol):
    """Where tokens come from."""

    async def fetch(self, *, is_patient: bool) -> str:
        """Return a token. If `is_patient`, failed attempts are repeated for a while. Raises NoToken, LoginFailed."""


class TokenSource:
    """The current token of a client."""

    def __init__(
        self, origin: TokenOrigin, keys: SecurityKeys, clock: Clock, share: Callable[[], float]
    ) -> None:
        """`share()` returns a random number between 0 and 1."""
        self._origin = origin
        self._sub_claim = keys.sasl_oauthbearer_sub_claim_name
        self._rules = RefreshRules(
            keys.sasl_login_refresh_window_factor,
            keys.sasl_login_refresh_window_jitter,
            keys.sasl_login_refresh_min_period_seconds * 1000,
            keys.sasl_login_refresh_buffer_seconds * 1000,
        )
        self._clock = clock
        self._share = share
        self._known: OwnToken | None = None
        self._due_ms = 0
        """The wall-clock time at which the next token is fetched."""
        self._fetching = asyncio.Lock()

    async def token(self) -> str:
        """Return a valid token. Raises NoToken, LoginFailed."""
        async with self._fetching:
            now, known = self._clock.wall_ms(), self._known
            if known is None or now >= known.expires_ms:
                known = await self._fetch(is_patient=True)
            elif now >= self._due_ms:
                known = await self._fetch_next(known)
            return known.text

    async def _fetch_next(self, known: OwnToken) -> OwnToken:
        """Return the next token, or the one that is known if there is no other yet."""
        left = known.expires_ms - self._clock.wall_ms()
        try:
            async with asyncio.timeout(left / 2 / 1000):
                return await self._fetch(is_patient=False)
        except (OSError, LoginFailed) as error:  # of which TimeoutError is one
            logger.warning(
                "logins use the token that ends soon: %s", str(error) or "no answer in time"
            )
            self._due_ms = self._clock.wall_ms() + _AGAIN_MS
            return known

    async def _fetch(self, *, is_patient: bool) -> OwnToken:
        try:
            found = read_token(await self._origin.fetch(is_patient=is_patient), self._sub_claim)
            now = self._clock.wall_ms()
            if found.expires_ms <= now:
                raise InvalidToken("it has expired")
        except InvalidToken as error:
            raise LoginFailed(f"the fetched token cannot be used: {error}") from None
        self._known = found
        self._due_ms = refresh_ms(found, now, self._rules, self._share())
        return found


def source_of_tokens(keys: SecurityKeys, module: JaasEntry, rng: Rng, clock: Clock) -> TokenSource:
    """Return the tokens of a login module of OAUTHBEARER. Raises ConfigError, InvalidJaas."""
    origin = token_origin(keys, module.options, clock)
    return TokenSource(origin, keys, clock, lambda: rng.uniform(0, 1))
