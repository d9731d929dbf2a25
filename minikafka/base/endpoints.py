"""Network endpoints as Kafka writes them (`NAME://host:port`), and ZooKeeper's connect string."""

from __future__ import annotations

import ipaddress
import re
from enum import Enum
from typing import Final, NamedTuple

from minikafka.base.errors import ConfigError

_ENDPOINT: Final = re.compile(r"([A-Za-z0-9._-]+)://(\[[0-9A-Fa-f:.]*\]|[^:/\[\]\s]*):([0-9]{1,5})")
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\[\]\s,]+)(:[0-9]{1,5})?")


class SecurityProtocol(Enum):
    """Kafka's security protocols, by their names in `listener.security.protocol.map`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """True if connections use TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """True if clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


PLAINTEXT: Final = SecurityProtocol.PLAINTEXT
"""The protocol without encryption and authentication."""


class Endpoint(NamedTuple):
    """One listener of a broker: its name, address and security protocol. An empty host means all interfaces."""

    name: str
    host: str
    port: int
    security: SecurityProtocol = PLAINTEXT

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect to the endpoint."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_routable(self) -> bool:
        """False if the host is empty or a meta-address such as 0.0.0.0, which other machines cannot connect to."""
        return self.host not in ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def not_opened(endpoint: Endpoint, error: OSError) -> OSError:
    """Return the error of a listener that cannot be opened, with the key and the listener."""
    reason = error.strerror or str(error)
    return OSError(error.errno, f"listeners: {endpoint} cannot be opened: {reason}")


def parse_endpoint(text: str) -> Endpoint:
    """Return the endpoint written as NAME://host:port, an IPv6 host in brackets. Raises ConfigError."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[3]) > 65_535:
        raise ConfigError(f"{text!r} is not a listener: write NAME://host:port")
    return Endpoint(match[1].upper(), match[2].strip("[]"), int(match[3]))


def check_connect(connect: str) -> None:
    """Raise ConfigError unless the text is ZooKeeper's host:port,host:port/chroot, or empty."""
    servers, slash, chroot = connect.partition("/")
    if not connect:
        return
    if "," in chroot:
        others = "".join("," + part.partition("/")[0] for part in chroot.split(",")[1:])
        path = slash + chroot.partition(",")[0]
        raise ConfigError(
            f"zookeeper.connect has {slash + chroot!r} as the chroot: name it once, after the last server: "
            f"{servers}{others}{path}"
        )
    if not all(map(_is_server, servers.split(","))):
        raise ConfigError(f"zookeeper.connect cannot be {connect!r}: write host:port,host:port")
    if chroot and not (chroot.isprintable() and {"", ".", ".."}.isdisjoint(chroot.split("/"))):
        raise ConfigError(f"zookeeper.connect has the chroot {slash + chroot!r}: write /name")


def _is_server(text: str) -> bool:
    match = _SERVER.fullmatch(text.strip())
    return match is not None and (match[2] is None or 0 < int(match[2][1:]) <= 65_535)
