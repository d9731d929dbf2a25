"""How a broker connects to the inter-broker listeners of other brokers."""

from __future__ import annotations

from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.security import GSSAPI, JAAS, MECHANISMS, PREFIX
from minikafka.base.endpoints import PLAINTEXT
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Clock, Rng
from minikafka.broker.ports import TlsTransport
from minikafka.client.login import Connector
from minikafka.client.token_source import TokenSource, source_of_tokens
from minikafka.security.jaas import InvalidJaas, JaasEntry, parse_for
from minikafka.security.sasl import OAUTHBEARER
from minikafka.security.sasl_client import Login, bearer_login_of, login_of

_KEY: Final = "sasl.mechanism.inter.broker.protocol"


def connector_of(
    config: BrokerConfig, transport: TlsTransport, rng: Rng, clock: Clock
) -> Connector:
    """Return how to connect to the other brokers. Raises ConfigError, which names the key."""
    listeners = config.endpoints
    [security] = [
        item.security for item in listeners.kafka if item.name == listeners.inter_broker
    ] or [PLAINTEXT]
    keys = config.security_of(listeners.inter_broker)
    tls = transport.tls(keys, server=False, between=True) if security.is_encrypted else None
    if not security.is_sasl:
        return Connector(transport, tls)
    login, tokens = _login(config, rng, clock)
    return Connector(transport, tls, login, rng.bytes, tokens)


def _login(config: BrokerConfig, rng: Rng, clock: Clock) -> tuple[Login, TokenSource | None]:
    listener, mechanism = config.endpoints.inter_broker, config.sasl_mechanism_inter_broker_protocol
    check_mechanism(_KEY, mechanism)
    enabled = config.security_of(listener).sasl_enabled_mechanisms
    if mechanism not in enabled:
        raise ConfigError(
            f"{_KEY} must be one of sasl.enabled.mechanisms ({', '.join(enabled)}), got {mechanism}"
        )
    entry = jaas_entry(listener, mechanism, config)
    try:
        if mechanism != OAUTHBEARER:
            return login_of(mechanism, entry), None
        keys = config.security_of(listener, mechanism)
        return bearer_login_of(entry), source_of_tokens(keys, entry, rng, clock)
    except InvalidJaas as error:
        raise ConfigError(f"{jaas_key(listener, mechanism)} {error}") from None


def check_mechanism(key: str, mechanism: str) -> None:
    """Raise ConfigError for a mechanism that is not implemented."""
    if mechanism not in MECHANISMS:
        why = "is not implemented" if mechanism == GSSAPI else "is unknown"
        raise ConfigError(f"{key}: {mechanism} {why}; use {' or '.join(MECHANISMS)}")


def jaas_key(listener: str, mechanism: str) -> str:
    """Return the key of the login module of a mechanism of a listener."""
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"


def jaas_entry(listener: str, mechanism: str, config: BrokerConfig) -> JaasEntry:
    """Return the login module of a mechanism of a listener. Raises ConfigError."""
    key = jaas_key(listener, mechanism)
    if config.sasl_jaas_config is not None:
        raise ConfigError(f"{JAAS} is for clients: write {key}")
    text = config.listener_keys.get(key)
    if text is None:
        raise ConfigError(f"{key} is not set: write the login module of {mechanism}")
    try:
        return parse_for(mechanism, text)
    except InvalidJaas as error:
        raise ConfigError(f"{key} {error}") from None
