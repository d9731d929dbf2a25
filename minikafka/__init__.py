"""minikafka: a Kafka-compatible broker cluster in asyncio Python.

`LocalCluster` is the one name to import from here; it is loaded on first use, so that importing the
package costs nothing.
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
