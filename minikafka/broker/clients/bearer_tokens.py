"""The keys that sign the tokens of OAUTHBEARER: read at the start, at intervals, and when a token names a new key.

Invariant: reading keys never delays a client. A client whose token names a key that is not known yet fails, and
succeeds with its next attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from minikafka.base.errors import ConfigError, StorageFailed
from minikafka.base.ports import Clock, Tasks
from minikafka.base.printable import printable
from minikafka.security.oauth import (
    KEY_ID_MAX,
    InvalidKeys,
    KeySet,
    TokenRules,
    UnknownSigner,
    verify,
)
from minikafka.security.sasl import BearerToken

logger = logging.getLogger(__name__)

_UNKNOWN_MS: Final = 60_000
"""Time for which the same unknown key causes no second reading, as in Kafka."""
_UNKNOWN_MAX: Final = 16
"""Number of unknown keys that are remembered, as in Kafka."""
_URL_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"


class KeyTimes(NamedTuple):
    """Time between two readings, and the first and the longest pause after a failed reading (milliseconds)."""

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


class BearerTokens:
    """Verifies tokens with the keys of one address. `fetch` returns the text of the key set."""

    def __init__(
        self,
        url: str,
        fetch: Callable[[], Awaitable[str]],
        rules: TokenRules,
        times: KeyTimes,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._url = url
        self._fetch = fetch
        self._rules = rules
        self._times = times
        self._clock = clock
        self._tasks = tasks
        self._keys: KeySet | None = None
        self._is_wanted = asyncio.Event()
        self._unknown: dict[str, int] = {}
        """Id of an unknown key → the time until which it causes no reading."""

    async def start(self) -> None:
        """Read the keys, and begin to read them again. Raises ConfigError if they cannot be read."""
        try:
            self._keys = KeySet(await self._fetch())
        except (InvalidKeys, OSError, StorageFailed, TimeoutError) as error:
            raise ConfigError(f"{_URL_KEY}: {self._url}: {error}") from error
        self._tasks.spawn(self._run(), "bearer-keys")

    def verify(self, token: str) -> BearerToken:
        """Return what a token says, with its end by this broker's clock. Raises RefusedToken."""
        assert self._keys is not None, "start has not returned"
        advanced_ms = self._clock.advanced_ms  # not that of the issuer
        try:
            found = verify(token, self._keys, self._rules, self._clock.wall_ms() - advanced_ms)
            return found._replace(expires_ms=found.expires_ms + advanced_ms)
        except UnknownSigner as unknown:
            self._want(unknown.key_id)
            raise

    def _want(self, key_id: str) -> None:
        """Read the keys soon, unless this key has caused a reading lately."""
        now = self._clock.now()
        if not key_id or len(key_id) > KEY_ID_MAX or self._unknown.get(key_id, now) > now:
            return
        self._unknown.pop(key_id, None)
        self._unknown[key_id] = now + _UNKNOWN_MS
        if len(self._unknown) > _UNKNOWN_MAX:
            del self._unknown[next(iter(self._unknown))]
        self._is_wanted.set()

    async def _run(self) -> None:
        while True:
            timer = self._clock.call_later(self._times.refresh_ms, self._is_wanted.set)
            await self._is_wanted.wait()
            timer.cancel()
            self._is_wanted.clear()
            await self._refresh()

    async def _refresh(self) -> None:
        """Read the keys, again and again until that succeeds. Meanwhile, the former keys are used."""
        pause = self._times.backoff_ms
        while True:
            try:
                self._keys = KeySet(await self._fetch())
            except (InvalidKeys, OSError, StorageFailed, TimeoutError) as error:
                reason = printable(str(error) or type(error).__name__)
                logger.warning("the keys of tokens at %s cannot be read: %s", self._url, reason)
            else:
                return
            await self._clock.sleep(pause)
            pause = min(2 * pause, self._times.backoff_max_ms)
