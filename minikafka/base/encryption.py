"""The encryption of connections, as the code above the transports sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # a ZooKeeper server does not load the configuration of brokers, 2 MB
    from minikafka.base.config.security import SecurityKeys


class Expiry(NamedTuple):
    """When a certificate expires (Unix ms). `source`: the file, or the configuration key, that it comes from."""

    source: str
    subject: str
    ends_ms: int


class Tls(Protocol):
    """How connections are encrypted. Only the transport that made it can use it (`runtime/tls.py`)."""

    @property
    def expiries(self) -> Sequence[Expiry]:
        """The expiry of each certificate in use: the own one with its chain, and the trusted authorities."""

    def refresh(self) -> bool:
        """Use the files of keys and certificates for new connections if they have changed; return True if they have.

        Raises ConfigError, once for each change, and keeps what was in use.
        """


class ListenerTls(Tls, Protocol):
    """How the connections of a Kafka listener are encrypted, by keys that may be changed."""

    def check(self, keys: SecurityKeys) -> None:
        """Raise ConfigError unless these keys can be used, and may take the place of the current ones."""

    def use(self, keys: SecurityKeys) -> None:
        """Use these keys for new connections, whatever was in use. Raises ConfigError, and keeps what was in use."""
