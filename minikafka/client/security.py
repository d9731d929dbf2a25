"""How a client connects to brokers that encrypt or authenticate, from Kafka's configuration keys."""

from __future__ import annotations

from typing import Any

from minikafka.base.config.client import ClientConfig
from minikafka.base.config.security import JAAS
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Clock, Rng
from minikafka.client.login import Connector
from minikafka.client.token_source import TokenSource, source_of_tokens
from minikafka.runtime.transport import SocketTransport
from minikafka.security.client_login import login_from, login_module
from minikafka.security.jaas import InvalidJaas
from minikafka.security.sasl import OAUTHBEARER


def connector_from(config: ClientConfig, rng: Rng, clock: Clock) -> Connector:
    """Return how to connect. Reads the files of keys and certificates. Raises ConfigError, which names the key."""
    transport = SocketTransport()
    tls = transport.tls(config, server=False) if config.protocol.is_encrypted else None
    login = login_from(config)
    return Connector(transport, tls, login, rng.bytes, tokens_from(config, rng, clock))


def tokens_from(config: ClientConfig, rng: Rng, clock: Clock) -> TokenSource | None:
    """Return the tokens of a client that logs in with OAUTHBEARER, None for others. Raises ConfigError."""
    if not config.protocol.is_sasl or config.sasl_mechanism != OAUTHBEARER:
        return None
    try:
        return source_of_tokens(config, login_module(config), rng, clock)
    except InvalidJaas as error:
        raise ConfigError(f"{JAAS} {error}") from None


def aiokafka_arguments(config: ClientConfig, rng: Rng, clock: Clock) -> dict[str, Any]:
    """Return the arguments with which a client of aiokafka connects in the same way. Raises ConfigError."""
    found: dict[str, Any] = {"security_protocol": config.security_protocol}
    if config.protocol.is_encrypted:
        found["ssl_context"] = SocketTransport().tls(config, server=False).context
    login = login_from(config)
    if login is not None:
        if login.is_by_token:
            raise ConfigError(f"{JAAS}: a member of a group cannot log in with a delegation token")
        if login.mechanism == OAUTHBEARER:
            tokens = tokens_from(config, rng, clock)
            return found | {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": tokens}
        found |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return found
