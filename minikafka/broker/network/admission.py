"""What each listener demands of its clients, from the configuration, and the record of who has failed.

Invariant: a listener starts only if each of its mechanisms can be used. A wrong or missing value is a ConfigError that
names the key.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint, SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.metrics import Metrics
from minikafka.base.ports import Clock
from minikafka.broker.clients.accounts import Accounts
from minikafka.broker.clients.authentication import LoginRefused, ServedMechanism
from minikafka.broker.inter_broker import check_mechanism, jaas_entry, jaas_key
from minikafka.broker.network.newcomer import Admission
from minikafka.broker.ports import TlsTransport
from minikafka.broker.services import ANONYMOUS, ClientConnection
from minikafka.security.principals import (
    InvalidCertificate,
    InvalidRule,
    NoRuleApplies,
    PrincipalRules,
)
from minikafka.security.sasl import OAUTHBEARER, PLAIN

logger = logging.getLogger(__name__)

_LOG_EVERY_MS: Final = 1_000
_ADDRESSES_MAX: Final = 1_000
"""Most addresses whose latest log line is remembered."""


def admission_of(
    endpoint: Endpoint,
    config: BrokerConfig,
    transport: TlsTransport,
    accounts: Accounts,
) -> Admission | None:
    """Return what a listener demands; None if it serves everybody in the clear. Raises ConfigError."""
    security = endpoint.security
    if security is SecurityProtocol.PLAINTEXT:
        return None
    keys = config.security_of(endpoint.name)
    mechanisms = _mechanisms(endpoint.name, config, accounts) if security.is_sasl else {}
    between = endpoint.name == config.endpoints.inter_broker
    return Admission(
        tls=transport.tls(keys, server=True, between=between) if security.is_encrypted else None,
        mechanisms=mechanisms,
        principal_of=partial(_principal_of, _rules(keys.ssl_principal_mapping_rules)),
        receive_max_bytes=keys.sasl_server_max_receive_size,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
    )


def _rules(text: str) -> PrincipalRules:
    try:
        return PrincipalRules(text)
    except InvalidRule as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {error}") from None


def _principal_of(rules: PrincipalRules, certificate: bytes | None) -> str:
    """Return the principal of a client with this certificate. Raises LoginRefused if no rule applies."""
    if certificate is None:
        return ANONYMOUS
    try:
        return rules.principal_of(certificate)
    except (NoRuleApplies, InvalidCertificate) as error:
        raise LoginRefused(str(error)) from None


def _mechanisms(
    listener: str, config: BrokerConfig, accounts: Accounts
) -> dict[str, ServedMechanism]:
    found = {}
    for name in config.security_of(listener).sasl_enabled_mechanisms:
        check_mechanism(f"sasl.enabled.mechanisms of listener {listener}", name)
        lookups = accounts.lookups
        if name == PLAIN:
            lookups = replace(lookups, plain_users=jaas_entry(listener, PLAIN, config).plain_users)
        elif name == OAUTHBEARER:
            lookups = replace(lookups, bearer_token=accounts.bearers.of(listener))
        elif jaas_key(listener, name) in config.listener_keys:
            jaas_entry(listener, name, config)  # raises ConfigError for a malformed one
        keys = config.security_of(listener, name)
        found[name] = ServedMechanism(name, lookups, max(keys.connections_max_reauth_ms, 0))
    if not found:
        raise ConfigError(f"sasl.enabled.mechanisms of listener {listener} is empty")
    return found


class AuthenticationLog:
    """Counts authentications, and logs each failure, but only one of an address and second."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._logged: dict[str, int] = {}
        """Address → the time of its latest log line, the oldest first."""
        group = "kafka.server:type=socket-server-metrics,name="
        self._failed = metrics.counter(f"{group}failed-authentication-total", "Failed logins.")
        self._succeeded = metrics.counter(
            f"{group}successful-authentication-total", "Clients that have authenticated."
        )

    def succeeded(self) -> None:
        """Count one success."""
        self._succeeded.value += 1

    def failed(self, client: ClientConnection, reason: str) -> None:
        """Count one failure, and log it if the address has had no log line for a second."""
        self._failed.value += 1
        now, host = self._clock.now(), client.host
        if now - self._logged.get(host, -_LOG_EVERY_MS) < _LOG_EVERY_MS:
            return
        self._logged.pop(host, None)
        self._logged[host] = now
        if len(self._logged) > _ADDRESSES_MAX:
            del self._logged[next(iter(self._logged))]
        logger.info("failed authentication with %s on %s: %s", client.peer, client.listener, reason)
