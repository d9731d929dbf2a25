"""Where things listen and connect, as Kafka writes it: `NAME://host:port`, and ZooKeeper's connect string."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from minikafka.base.errors import ConfigError

_ENDPOINT: Final = re.compile(r"([A-Za-z0-9._-]+)://(\[[0-9A-Fa-f:.]*\]|[^:/\[\]\s]*):([0-9]{1,5})")
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\[\]\s,]+)(:[0-9]{1,5})?")


class Endpoint(NamedTuple):
    """One entry of `listeners`: NAME://host:port. No host: all interfaces."""

    name: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_endpoint(text: str) -> Endpoint:
    """NAME://host:port, the host of an IPv6 address in brackets. Raises ConfigError."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[3]) > 65_535:
        raise ConfigError(f"{text!r} is not a listener: write NAME://host:port")
    return Endpoint(match[1].upper(), match[2].strip("[]"), int(match[3]))


def kafka_and_control(listeners: tuple[str, ...], control: str) -> tuple[Endpoint, Endpoint | None]:
    """The Kafka listener and the control-plane one. Raises ConfigError when they are not one and one."""
    parsed = [parse_endpoint(text) for text in listeners]
    kafka = [item for item in parsed if item.name != control.upper()]
    others = [item for item in parsed if item.name == control.upper()]
    if len(kafka) != 1 or len(others) > 1:
        rule = f"one entry for Kafka clients and one named {control}"
        raise ConfigError(f"listeners cannot be {','.join(listeners)!r}: it has {rule}")
    return kafka[0], others[0] if others else None


def check_connect(connect: str) -> None:
    """ZooKeeper's host:port,host:port/chroot, or nothing. Raises ConfigError."""
    servers, slash, chroot = connect.partition("/")
    if not connect:
        return
    if not all(map(_is_server, servers.split(","))):
        raise ConfigError(f"zookeeper.connect cannot be {connect!r}: write host:port,host:port")
    if slash and not {"", ".", ".."}.isdisjoint(chroot.split("/")):
        raise ConfigError(f"zookeeper.connect has the chroot {slash + chroot!r}: write /name")


def _is_server(text: str) -> bool:
    match = _SERVER.fullmatch(text.strip())
    return match is not None and (match[2] is None or 0 < int(match[2][1:]) <= 65_535)
