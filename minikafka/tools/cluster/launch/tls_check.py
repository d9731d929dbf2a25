"""The check of the keys of TLS before a start: brokers that could not connect to each other are not started."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.listeners import Listeners
from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.runtime.tls import shake_hands

_EXPIRED: Final = 10
"""OpenSSL's code of a certificate that has expired (X509_V_ERR_CERT_HAS_EXPIRED)."""


def check_tls(configs: Iterable[BrokerConfig]) -> None:
    """Raise ConfigError if keys cannot be used, or if brokers would refuse each other's certificates."""
    checked: set[tuple[object, ...]] = set()
    for config in configs:
        for listener in (item for item in config.endpoints.kafka if item.security.is_encrypted):
            keys = config.security_of(listener.name)
            hosts = _hosts(listener.name, config.endpoints)
            values = (hosts, *(getattr(keys, each.name) for each in fields(SecurityKeys)))
            if values not in checked:
                checked.add(values)
                _check(listener.name, keys, hosts)


def _hosts(name: str, listeners: Listeners) -> tuple[str, ...]:
    """Return the hosts to which other brokers connect with the keys of a listener, if it is the one between brokers."""
    if name != listeners.inter_broker:
        return ()
    used = (listeners.inter_broker, listeners.control.name)
    return tuple(dict.fromkeys(item.host for item in listeners.advertised if item.name in used))


def _check(name: str, keys: SecurityKeys, hosts: Iterable[str]) -> None:
    from minikafka.runtime.tls_keys import context_of

    server = context_of(keys, server=True)
    for host in hosts:
        try:
            shake_hands(server, context_of(keys, server=False), host)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            rule = f"it must be for {host}, where they listen, of an authority in ssl.truststore.location"
            if getattr(error, "verify_code", 0) == _EXPIRED:
                rule = (
                    "replace the expired file of ssl.keystore.location or ssl.truststore.location"
                )
            raise ConfigError(
                f"brokers would refuse each other's certificate on the listener {name}: {reason.rstrip('.')}; {rule}"
            ) from error
