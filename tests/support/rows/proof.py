"""The level of a test: how much of a real cluster the test used, and in which coordination modes.

Cluster classes and fixtures note both.

A test has level TABLE if nothing that it used notes a higher level.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from minikafka.broker.broker import BrokerServer
    from minikafka.simulation import MemoryCluster


class Level(IntEnum):
    """The levels of tests, in rising order. docs/conformance.md explains the levels."""

    TABLE = 1
    MEMORY = 2
    HOSTED = 3
    REAL = 4

    @property
    def label(self) -> str:
        return self.name.lower()


CONTROLLER: Final = "controller"
LEADERS: Final = "leaders"
MODES: Final = (CONTROLLER, LEADERS)
"""The values of `minikafka.coordination`."""

_noted = Level.TABLE
_limit = Level.REAL
_modes: set[str] = set()


def begin() -> None:
    """Reset the recorded level to TABLE and the modes to none. Called at the start of each test."""
    global _noted, _limit
    _noted = Level.TABLE
    _limit = Level.REAL
    _modes.clear()


def note(level: Level, mode: str = "") -> None:
    """Record the level and the mode, if it is known, of a cluster of the current test; the highest level counts."""
    global _noted
    _noted = max(_noted, level)
    if mode:
        _modes.add(mode)


def note_imitated_death() -> None:
    """Record that a broker of the current test died by closing, so that the test is at most HOSTED."""
    global _limit
    _limit = Level.HOSTED


def note_simulated_brokers() -> None:
    """Make each start of a broker of a `MemoryCluster` note the level MEMORY and the cluster's mode.

    Called when all tests are imported. If none of them imports `MemoryCluster`, nothing is to be done, and the half
    second that the import of a broker takes is saved.
    """
    simulation = sys.modules.get("minikafka.simulation.cluster")
    if simulation is None:
        return
    memory_cluster = simulation.MemoryCluster
    start = memory_cluster.start

    async def noting(cluster: MemoryCluster, number: int) -> BrokerServer:
        note(Level.MEMORY, cluster.coordination)
        return await start(cluster, number)

    memory_cluster.start = noting


def modes() -> tuple[str, ...]:
    """Return the modes noted since `begin`: the controller mode if a cluster noted none, none without a cluster."""
    if not _modes and _noted > Level.TABLE:
        return (CONTROLLER,)
    return tuple(mode for mode in MODES if mode in _modes)


def strongest() -> Level:
    """Return the highest level noted since `begin`, but no more than an imitated death allows."""
    return min(_noted, _limit)
