"""The verification of tokens for the listeners that serve OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from minikafka.base.config import BrokerConfig
from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Storage
from minikafka.broker.ports import BrokerPorts
from minikafka.security.sasl import OAUTHBEARER, BearerToken

Verify: TypeAlias = Callable[[str], BearerToken]
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


class Verifying(Protocol):
    """The verification of tokens of one listener (`broker/clients/bearer_tokens.py`)."""

    async def start(self) -> None:
        """Read the keys. Raises ConfigError if they cannot be read."""


class BearerLogins:
    """Makes what verifies the tokens of each listener, and starts all of them."""

    def __init__(self, config: BrokerConfig, ports: BrokerPorts) -> None:
        self._config = config
        self._ports = ports
        self._verifying: list[Verifying] = []

    def of(self, listener: str) -> Verify:
        """Return the function that verifies tokens of a listener's clients. Raises ConfigError."""
        # A broker without OAUTHBEARER does not load PyJWT, 11 MB.
        from minikafka.broker.clients.bearer_tokens import BearerTokens, KeyTimes
        from minikafka.security.oauth import TokenRules

        keys = self._config.security_of(listener, OAUTHBEARER)
        url, fetch = _source(keys, self._ports)
        times = KeyTimes(
            keys.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        )
        rules = TokenRules(
            frozenset(keys.sasl_oauthbearer_expected_audience),
            keys.sasl_oauthbearer_expected_issuer,
            keys.sasl_oauthbearer_clock_skew_seconds,
            keys.sasl_oauthbearer_scope_claim_name,
            keys.sasl_oauthbearer_sub_claim_name,
        )
        found = BearerTokens(url, fetch, rules, times, self._ports.clock, self._ports.tasks)
        self._verifying.append(found)
        return found.verify

    async def start(self) -> None:
        """Read the keys of all listeners. Raises ConfigError if they cannot be read."""
        for tokens in self._verifying:
            await tokens.start()


def _source(keys: SecurityKeys, ports: BrokerPorts) -> tuple[str, Callable[[], Awaitable[str]]]:
    """Return the address of the key set, and the function that reads it. Raises ConfigError."""
    url = keys.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        raise ConfigError(f"{_URL} is not set: OAUTHBEARER needs the keys of the issuer of tokens")
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return url, partial(_read_file, ports.storage, unquote(parts.path))
    if parts.scheme in ("http", "https") and parts.netloc:
        return url, partial(ports.fetch_text, url)
    raise ConfigError(f"{_URL} must be file:///PATH, http://HOST/… or https://HOST/…, got {url!r}")


async def _read_file(storage: Storage, path: str) -> str:
    return storage.read(path).decode(errors="replace")
