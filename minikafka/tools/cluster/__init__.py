"""Clusters on this machine: their processes, their data directory, and the `LocalCluster` API for both.

`LocalCluster` is imported on first use, because commands that only read the data directory do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.tools.cluster.directory import ClusterError

if TYPE_CHECKING:
    from minikafka.tools.cluster.faults.script.run import FaultMissed
    from minikafka.tools.cluster.local import LocalCluster

__all__ = ["ClusterError", "FaultMissed", "LocalCluster"]


def __getattr__(name: str) -> Any:
    if name == "LocalCluster":
        from minikafka.tools.cluster.local import LocalCluster

        return LocalCluster
    if name == "FaultMissed":
        from minikafka.tools.cluster.faults.script.run import FaultMissed

        return FaultMissed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
