"""A simulation of whole clusters: brokers, disks, network and ZooKeeper in one process, in virtual time.

The public names are `MemoryCluster` and `run_seeded`; `docs/simulation.md` describes them. Both are imported on first
use, so that a test of one simulated part loads only this part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.simulation.cluster import MemoryCluster
    from minikafka.simulation.loop import run_seeded

__all__ = ["MemoryCluster", "run_seeded"]


def __getattr__(name: str) -> Any:
    if name == "MemoryCluster":
        from minikafka.simulation.cluster import MemoryCluster

        return MemoryCluster
    if name == "run_seeded":
        from minikafka.simulation.loop import run_seeded

        return run_seeded
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
