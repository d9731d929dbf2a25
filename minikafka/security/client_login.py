"""The login of a client that its configuration describes: `sasl.mechanism` and `sasl.jaas.config`."""

from __future__ import annotations

from minikafka.base.config.client import ClientConfig
from minikafka.base.config.security import JAAS, MECHANISMS
from minikafka.base.errors import ConfigError
from minikafka.security.jaas import InvalidJaas, JaasEntry, parse_for
from minikafka.security.sasl import OAUTHBEARER
from minikafka.security.sasl_client import Login, bearer_login_of, login_of


def login_from(config: ClientConfig) -> Login | None:
    """Return how to log in, None without SASL; OAUTHBEARER lacks its token. Raises ConfigError, which names the key."""
    if not config.protocol.is_sasl:
        return None
    try:
        entry = login_module(config)
        if config.sasl_mechanism == OAUTHBEARER:
            return bearer_login_of(entry)
        return login_of(config.sasl_mechanism, entry)
    except InvalidJaas as error:
        raise ConfigError(f"{JAAS} {error}") from None


def login_module(config: ClientConfig) -> JaasEntry:
    """Return the login module of the mechanism. Raises ConfigError and InvalidJaas."""
    mechanism = config.sasl_mechanism
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism}")
    if config.sasl_jaas_config is None:
        needed = (
            "clientId and clientSecret" if mechanism == OAUTHBEARER else "username and password"
        )
        raise ConfigError(
            f"{JAAS} is not set, but security.protocol is {config.security_protocol}: write the login module "
            f"with {needed}"
        )
    return parse_for(mechanism, config.sasl_jaas_config)
