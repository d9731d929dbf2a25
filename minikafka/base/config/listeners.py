"""The listeners of one broker, from Kafka's keys `listeners`, `advertised.listeners` and related keys.

The rules and most error messages are Kafka's. One difference: a broker always has a control listener, which
receives the controller's requests. If `listeners` has no entry for the control listener, it gets a free port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.endpoints import (
    PLAINTEXT,
    Endpoint,
    SecurityProtocol,
    parse_endpoint,
)
from minikafka.base.errors import ConfigError

_MAP: Final = "listener.security.protocol.map"


class Listeners(NamedTuple):
    """Where one broker listens, and the endpoints that it registers for clients and other brokers.

    `kafka`: the listeners for Kafka requests, in the order of the configuration. `inter_broker`: the name of the
    listener that followers fetch from. `advertised`: the endpoints to register; port 0 stands for the actual
    port of the listener with the same name.
    """

    kafka: tuple[Endpoint, ...]
    control: Endpoint
    inter_broker: str
    advertised: tuple[Endpoint, ...]

    def registered(self, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
        """Return the endpoints to register. `ports`: the actual port of every listener, by listener name."""
        return tuple(item._replace(port=item.port or ports[item.name]) for item in self.advertised)


def parse_listeners(
    listeners: Sequence[str],
    advertised: Sequence[str],
    protocols: Iterable[str],
    control_name: str,
    inter_broker_name: str,
) -> Listeners:
    """Return the listeners that these values of the configuration describe. Raises ConfigError.

    `protocols`: entries NAME:PROTOCOL of `listener.security.protocol.map`.
    """
    by_name = _protocols(protocols)
    control_name = control_name.upper()
    by_name.setdefault(control_name, PLAINTEXT)
    inter_broker = _inter_broker(inter_broker_name, by_name)
    if control_name == inter_broker:
        raise ConfigError(
            "control.plane.listener.name should have a different value from the inter broker listener name. "
            f"Currently they both have the value {control_name}"
        )
    found = _listening(listeners, by_name)
    kafka = tuple(item for item in found.values() if item.name != control_name)
    if not kafka:
        raise ConfigError(
            f"listeners needs a listener besides {control_name}, got {','.join(listeners)!r}"
        )
    shown = _advertised(advertised, found, control_name)
    if inter_broker not in shown:
        raise ConfigError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"Found {inter_broker}. The valid options based on currently configured listeners are "
            f"{','.join(name for name in shown if name != control_name)}. "
            "security.inter.broker.protocol is the name if inter.broker.listener.name is not set"
        )
    security = _of_control(control_name, by_name, by_name[inter_broker])
    [host] = [item.host for item in kafka if item.name == inter_broker]
    control = found.get(control_name, Endpoint(control_name, host, 0))
    control = control._replace(host=control.host or host, security=security)
    own = shown.get(control_name, control._replace(host=""))
    shown[control_name] = own._replace(host=own.host or shown[inter_broker].host, security=security)
    _require_routable(shown.values())
    return Listeners(kafka, control, inter_broker, tuple(shown.values()))


def _protocols(entries: Iterable[str]) -> dict[str, SecurityProtocol]:
    by_name = {}
    for entry in entries:
        name, colon, protocol = (word.strip().upper() for word in entry.partition(":"))
        if not name or not colon or name in by_name:
            raise ConfigError(
                f"Error parsing configuration property '{_MAP}': {entry!r}: write each name once, as NAME:PROTOCOL"
            )
        try:
            by_name[name] = SecurityProtocol(protocol)
        except ValueError:
            known = ", ".join(item.value for item in SecurityProtocol)
            text = (
                f"Invalid security protocol `{protocol}` defined in {_MAP}: must be one of {known}"
            )
            raise ConfigError(text) from None
    return by_name


def _of_control(
    name: str, by_name: Mapping[str, SecurityProtocol], between: SecurityProtocol
) -> SecurityProtocol:
    """Return the security protocol of the control listener: SSL if brokers encrypt what they send to each other.

    Its requests are signed, so it needs no SASL.
    """
    security = SecurityProtocol.SSL if between.is_encrypted else PLAINTEXT
    if by_name.get(name, PLAINTEXT) not in (PLAINTEXT, security):
        raise ConfigError(
            f"{_MAP}: the control listener {name} has the security protocol {security.value}, because the one "
            f"between brokers is {between.value}; remove its entry"
        )
    return security


def _inter_broker(name: str, by_name: Mapping[str, SecurityProtocol]) -> str:
    """Return the name of the inter-broker listener."""
    if name.upper() not in by_name:
        raise ConfigError(
            f"Listener with name {name.upper()} defined in inter.broker.listener.name not found in {_MAP}."
        )
    return name.upper()


def _listening(
    listeners: Sequence[str], by_name: Mapping[str, SecurityProtocol]
) -> dict[str, Endpoint]:
    """Return the entries of `listeners` by name. Raises ConfigError if two entries have the same name or port."""
    text = ",".join(listeners)
    found: dict[str, Endpoint] = {}
    for endpoint in _endpoints("listeners", listeners):
        if endpoint.name in found:
            raise ConfigError(f"Each listener must have a different name, listeners: {text}")
        if any(_share_port(endpoint, other) for other in found.values()):
            raise ConfigError(f"Each listener must have a different port, listeners: {text}")
        if endpoint.name not in by_name:
            raise ConfigError(
                f"No security protocol defined for listener {endpoint.name}: "
                f"add {endpoint.name}:PROTOCOL to {_MAP}"
            )
        found[endpoint.name] = endpoint._replace(security=by_name[endpoint.name])
    return found


def _endpoints(key: str, entries: Iterable[str]) -> list[Endpoint]:
    try:
        return [parse_endpoint(entry) for entry in entries]
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def _share_port(one: Endpoint, other: Endpoint) -> bool:
    """True if both endpoints have the same port (not 0), and both or neither have an IPv6 address."""
    return one.port == other.port != 0 and (":" in one.host) is (":" in other.host)


def _advertised(
    entries: Sequence[str], found: Mapping[str, Endpoint], control_name: str
) -> dict[str, Endpoint]:
    """Return the advertised endpoints by name: the endpoints in `entries`, or `found` if `entries` is empty.

    If `entries` lacks the control endpoint, the control endpoint in `found` is added. Raises ConfigError.
    """
    given = {item.name: item for item in _endpoints("advertised.listeners", entries)}
    if not given:
        return dict(found)
    if len(given) != len(entries):
        raise ConfigError(
            f"Each listener must have a different name, advertised.listeners: {','.join(entries)}"
        )
    if not given.keys() <= found.keys() | {control_name}:
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
            f"Found {','.join(given)}. The valid options based on the current configuration are {','.join(found)}"
        )
    for item in given.values():
        if not item.port:
            raise ConfigError(
                f"advertised.listeners needs a port that others can reach, got {item}"
            )
    if control_name in found:
        given.setdefault(control_name, found[control_name])
    return {
        name: item._replace(security=found[name].security if name in found else PLAINTEXT)
        for name, item in given.items()
    }


def _require_routable(advertised: Iterable[Endpoint]) -> None:
    for endpoint in advertised:
        if not endpoint.is_routable:
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address of {endpoint}. "
                "Use a routable IP address."
            )
