"""The test kit: a cluster with the helpers that tests need, for pytest, unittest and asyncio.

Both names are imported on first use, because the pytest plugin must not slow down runs that use no cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.testing.blocking import Minikafka
    from minikafka.testing.kit import AsyncMinikafka

__all__ = ["AsyncMinikafka", "Minikafka"]


def __getattr__(name: str) -> Any:
    if name == "AsyncMinikafka":
        from minikafka.testing.kit import AsyncMinikafka

        return AsyncMinikafka
    if name == "Minikafka":
        from minikafka.testing.blocking import Minikafka

        return Minikafka
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
