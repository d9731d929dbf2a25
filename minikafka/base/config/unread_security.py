"""The keys of TLS and SASL that a broker does not read, because none of its listeners and calls uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from minikafka.base.config.keys import table
from minikafka.base.config.listeners import Listeners
from minikafka.base.config.security import PREFIX, SecurityKeys
from minikafka.base.endpoints import Endpoint, SecurityProtocol

_TLS: Final = ("TLS", lambda protocol: protocol.is_encrypted)
_SASL: Final = ("SASL", lambda protocol: protocol.is_sasl)
_ANY: Final = ("TLS or SASL", lambda protocol: protocol is not SecurityProtocol.PLAINTEXT)
_INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
_Use = tuple[str, Callable[[SecurityProtocol], bool]]
"""What a key is for, and whether listeners of a security protocol use it."""
_OTHERS: Final[dict[str, _Use]] = {
    "connections.max.reauth.ms": _SASL,
    "connection.failed.authentication.delay.ms": _SASL,
    "minikafka.handshake.timeout.ms": _ANY,
}
"""The keys whose names do not begin with `ssl.` or `sasl.`."""
_OF_SERVERS: Final = ("ssl.client.auth", "ssl.principal.mapping.rules")
"""The keys of TLS that connections to other brokers do not use."""


def unread_security(
    keys: Iterable[str], listeners: Listeners, *, calls_with_tls: bool
) -> dict[str, str]:
    """Return the reason for each of these keys that nothing uses. Keys of other features are left out.

    `calls_with_tls`: the broker has a truststore for its calls to the control listeners of other brokers. Then it uses
    the keys of TLS of the inter-broker listener, even if it has no listener with TLS itself.
    """
    endpoints = {item.name: item for item in (*listeners.kafka, listeners.control)}
    called = _of_calls(listeners.inter_broker) if calls_with_tls else frozenset()
    return {
        name: reason
        for name in keys
        if name not in called and (reason := _reason(name, listeners.inter_broker, endpoints))
    }


def _of_calls(inter_broker: str) -> frozenset[str]:
    """Return the names of the keys of TLS for calls to other brokers."""
    used = [name for name in table(SecurityKeys) if name.startswith("ssl.")]
    own = [name for name in used if name not in _OF_SERVERS]
    return frozenset([*own, *(f"{PREFIX}{inter_broker.lower()}.{name}" for name in own)])


def _reason(name: str, inter_broker: str, endpoints: dict[str, Endpoint]) -> str:
    if name.startswith(PREFIX):
        listener, _, key = name.removeprefix(PREFIX).partition(".")
        return _reason_of_listener(listener.upper(), key, endpoints)
    if name == _INTER_BROKER:
        is_used = endpoints[inter_broker].security.is_sasl
        return "" if is_used else f"brokers connect to the listener {inter_broker} without SASL"
    use = _use_of(name)
    if use is None or any(use[1](item.security) for item in endpoints.values()):
        return ""
    return f"no listener uses {use[0]}"


def _reason_of_listener(listener: str, key: str, endpoints: dict[str, Endpoint]) -> str:
    found = endpoints.get(listener)
    if found is None:
        return f"there is no listener {listener}"
    # The key may begin with the name of a mechanism.
    use = _use_of(key) or _use_of(key.partition(".")[2])
    if use is None or use[1](found.security):
        return ""
    return f"the listener {listener} does not use {use[0]}"


def _use_of(name: str) -> _Use | None:
    if name.startswith("ssl."):
        return _TLS
    return _SASL if name.startswith("sasl.") else _OTHERS.get(name)
