"""The persistent parent nodes that every broker creates first when it starts."""

from __future__ import annotations

from minikafka.base.ports import Coordination
from minikafka.zk import layout


async def ensure(coordination: Coordination) -> None:
    """Create Kafka's persistent nodes that do not exist yet. Raises CoordinationError."""
    for path in layout.PERSISTENT:
        await coordination.ensure(path)
