"""How the calls of the control plane are encrypted: with the keys of the inter-broker listener (`ssl.*`).

A client of the control listener needs no certificate, because all calls are signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minikafka.base.config import BrokerConfig
from minikafka.base.config.security import SecurityKeys
from minikafka.base.encryption import Expiry, ListenerTls
from minikafka.broker.ports import ControlTls, TlsTransport


def control_tls(config: BrokerConfig, transport: TlsTransport) -> ControlTls | None:
    """Return how the broker encrypts its calls; None if it does not. Raises ConfigError, which names the key.

    A broker whose own control listener is not encrypted calls others that are, if it has a truststore.
    """
    listeners = config.endpoints
    keys = _for_signed_calls(config.security_of(listeners.inter_broker))
    is_server = listeners.control.security.is_encrypted
    if not is_server and not keys.has_truststore:
        return None
    server = transport.tls(keys, server=True, between=True) if is_server else None
    return ControlTls(server, transport.tls(keys, server=False, between=True))


def changeable(tls: ControlTls) -> list[ListenerTls]:
    """Return the encryption of both sides, which may get other keys of the inter-broker listener."""
    return [_ForSignedCalls(item) for item in tls if item is not None]


def _for_signed_calls(keys: SecurityKeys) -> SecurityKeys:
    return replace(keys, ssl_client_auth="none")


class _ForSignedCalls:
    """The encryption of the control plane, whose clients need no certificate."""

    def __init__(self, tls: ListenerTls) -> None:
        self._tls = tls
        self.refresh = tls.refresh

    @property
    def expiries(self) -> Sequence[Expiry]:
        """The expiry of each certificate in use."""
        return self._tls.expiries

    def check(self, keys: SecurityKeys) -> None:
        """Raise ConfigError unless these keys could be used."""
        self._tls.check(_for_signed_calls(keys))

    def use(self, keys: SecurityKeys) -> None:
        """Use these keys for new connections. Raises ConfigError."""
        self._tls.use(_for_signed_calls(keys))
