"""The ports of one broker as one value, which the place that starts a broker chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minikafka.base.ports import (
    Cleaners,
    Clock,
    ControlPlane,
    Executor,
    Rng,
    Storage,
    Tasks,
    Transport,
)


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Everything a broker gets from outside, besides its coordination mode.

    `new_control_plane(cluster_id)` makes the RPC endpoint, whose signatures name the cluster.
    """

    clock: Clock
    rng: Rng
    storage: Storage
    transport: Transport
    tasks: Tasks
    executor: Executor
    cleaners: Cleaners
    new_control_plane: Callable[[str], ControlPlane]
