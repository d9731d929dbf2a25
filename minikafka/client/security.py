"""How a client connects to brokers that encrypt or authenticate, from Kafka's configuration keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from minikafka.base.config.client import ClientConfig
from minikafka.base.config.security import JAAS
from minikafka.base.errors import ConfigError
from minikafka.client.login import Connector
from minikafka.runtime.transport import SocketTransport
from minikafka.security.jaas import InvalidJaas, parse_for
from minikafka.security.sasl_client import Login, login_of

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms with which a client can log in."""


def connector_from(config: ClientConfig, random_bytes: Callable[[int], bytes]) -> Connector:
    """Return how to connect. Reads the files of keys and certificates. Raises ConfigError, which names the key."""
    transport = SocketTransport()
    tls = transport.tls(config, server=False) if config.protocol.is_encrypted else None
    return Connector(transport, tls, login_from(config), random_bytes)


def login_from(config: ClientConfig) -> Login | None:
    """Return how to log in, None without SASL. Raises ConfigError, which names the key."""
    if not config.protocol.is_sasl:
        return None
    mechanism = config.sasl_mechanism
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism}")
    if config.sasl_jaas_config is None:
        raise ConfigError(
            f"{JAAS} is not set, but security.protocol is {config.security_protocol}: write the login module "
            f"with username and password"
        )
    try:
        return login_of(mechanism, parse_for(mechanism, config.sasl_jaas_config))
    except InvalidJaas as error:
        raise ConfigError(f"{JAAS} {error}") from None


def aiokafka_arguments(config: ClientConfig) -> dict[str, Any]:
    """Return the arguments with which a client of aiokafka connects in the same way. Raises ConfigError."""
    found: dict[str, Any] = {"security_protocol": config.security_protocol}
    if config.protocol.is_encrypted:
        found["ssl_context"] = SocketTransport().tls(config, server=False).context
    login = login_from(config)
    if login is not None:
        if login.is_by_token:
            raise ConfigError(f"{JAAS}: a member of a group cannot log in with a delegation token")
        found |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return found
