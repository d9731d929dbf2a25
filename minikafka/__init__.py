"""minikafka: a Kafka-compatible broker cluster in asyncio Python.

`LocalCluster` is the only public name of the package; it is imported on first use, so that `import
minikafka` takes no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.cluster.local import LocalCluster

__all__ = ["LocalCluster"]


def __getattr__(name: str) -> Any:
    if name == "LocalCluster":
        from minikafka.cluster.local import LocalCluster

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
