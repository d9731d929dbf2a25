"""Calls to other brokers over the control plane, with items that are sent to each broker in batches.

Invariant: a broker gets each item in exactly one call, and calls to one broker begin in the order of their items. While
calls to a broker are in progress, further items for it gather, and the next call takes all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from minikafka.base.model import BrokerId
from minikafka.base.ports import ControlPlane, Tasks
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.rpc.broker_calls import call_broker

Item = TypeVar("Item")

CALLS_MAX: Final = 5
"""Maximum number of calls to one broker at a time. One call that waits for a slow partition delays only its items."""
ITEMS_MAX: Final = 1_000
"""Maximum number of items in one call."""


class OtherBrokers:
    """Calls to other brokers, at their addresses in the metadata. `listener`: name of the control listener."""

    def __init__(self, metadata: MetadataCache, control_plane: ControlPlane, listener: str) -> None:
        self._metadata = metadata
        self._control_plane = control_plane
        self._listener = listener

    async def call(
        self, broker_id: BrokerId, method: str, body: dict[str, Any], timeout_ms: int
    ) -> dict[str, Any]:
        """Make one call to a broker, and return the answer. Raises OSError and KafkaError."""
        broker = self._metadata.brokers.get(broker_id)
        if broker is None:
            raise ConnectionError(f"the address of broker {broker_id} is not known")
        return await call_broker(
            self._control_plane, broker, self._listener, method, body, timeout_ms
        )


class PeerCalls(Generic[Item]):
    """The items for each broker. `call(broker_id, items)` sends them in one call, and must not raise."""

    def __init__(
        self, tasks: Tasks, call: Callable[[BrokerId, Sequence[Item]], Awaitable[None]], name: str
    ) -> None:
        self._tasks = tasks
        self._call = call
        self._name = name
        self._queues: dict[BrokerId, _Queue[Item]] = {}

    def add(self, broker_id: BrokerId, item: Item) -> None:
        """Send the item with the next call to the broker."""
        queue = self._queues.setdefault(broker_id, _Queue())
        queue.items.append(item)
        if len(queue.items) == 1:
            self._begin(broker_id, queue)

    def _begin(self, broker_id: BrokerId, queue: _Queue[Item]) -> None:
        if queue.calls < CALLS_MAX:
            queue.calls += 1
            self._tasks.spawn(self._send(broker_id, queue), f"{self._name}-{broker_id}")

    async def _send(self, broker_id: BrokerId, queue: _Queue[Item]) -> None:
        """Send all items in one call. Items that were added in the turn before this task began are among them."""
        try:
            while queue.items:
                items = queue.items[:ITEMS_MAX]
                del queue.items[:ITEMS_MAX]
                if queue.items:
                    self._begin(broker_id, queue)
                await self._call(broker_id, items)
        finally:
            queue.calls -= 1


class _Queue(Generic[Item]):
    """The items that wait for the next call to one broker, and the number of calls in progress."""

    __slots__ = ("calls", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.calls = 0
