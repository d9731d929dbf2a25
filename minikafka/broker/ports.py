"""The ports of one broker, in one object: its interfaces to the clock, the disk, the network and so on.

The code that starts the broker creates this object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from minikafka.base.config.security import SecurityKeys
from minikafka.base.disk_faults import DiskFault
from minikafka.base.encryption import ListenerTls
from minikafka.base.ports import (
    Cleaners,
    Clock,
    ControlPlane,
    Descriptors,
    Executor,
    Processor,
    Rng,
    Storage,
    Tasks,
    Transport,
)


class TlsTransport(Transport, Protocol):
    """Byte streams between processes, which Kafka's `ssl.*` keys can encrypt."""

    def tls(self, keys: SecurityKeys, *, server: bool, between: bool = False) -> ListenerTls:
        """Return the encryption of a listener, or of the connections to it. Raises ConfigError, which names the key.

        `between`: brokers connect to each other with these keys.
        """


class ControlTls(NamedTuple):
    """How the control plane encrypts. `server`: None if this broker's control listener is not encrypted."""

    server: ListenerTls | None
    client: ListenerTls


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """All external dependencies of a broker except its coordination mode.

    `new_control_plane(cluster_id, tls)` returns the RPC endpoint, whose signed requests contain the cluster id.
    `fetch_text(url)` returns the text at an HTTP address, and raises OSError. `set_disk_faults(faults)` replaces the
    active faults of the disk; None: this broker was not started with faults.
    """

    clock: Clock
    processor: Processor
    rng: Rng
    storage: Storage
    transport: TlsTransport
    tasks: Tasks
    executor: Executor
    cleaners: Cleaners
    new_control_plane: Callable[[str, ControlTls | None], ControlPlane]
    descriptors: Descriptors
    fetch_text: Callable[[str], Awaitable[str]]
    set_disk_faults: Callable[[Sequence[DiskFault]], None] | None = None
