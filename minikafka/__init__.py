"""minikafka: a Kafka-compatible broker cluster in asyncio Python.

The public names of the package are `LocalCluster`, the exceptions `ClusterError`, which the methods of
`LocalCluster` raise, and `FaultMissed`, for a fault that hit nothing, and `history`, which records clients. They are
imported on first use, so that `import minikafka` takes no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.testing.history import history
    from minikafka.tools.cluster import ClusterError, FaultMissed
    from minikafka.tools.cluster.local import LocalCluster

__all__ = ["ClusterError", "FaultMissed", "LocalCluster", "history"]


def __getattr__(name: str) -> Any:
    if name == "history":
        from minikafka.testing.history import history

        return history
    if name in __all__:
        from minikafka.tools import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
