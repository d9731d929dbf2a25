from __future__ import annotations

from typing import Any

from minikafka.base.model import TopicPartition
from minikafka.cli.records.group_member import _End

TP = TopicPartition("t", 0)


class Consumer:
    """A consumer in generation 3 that reads one partition of five records."""

    generation = 3
    is_assigned = False
    read = 0

    def assignment(self) -> set[TopicPartition]:
        return {TP} if self.is_assigned else set()

    async def position(self, tp: TopicPartition) -> int:
        return self.read


class Client:
    async def log_offsets(self, wanted: dict[TopicPartition, Any]) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, 5)


async def test_end_is_not_reached_before_the_member_has_its_partitions() -> None:
    consumer = Consumer()
    end = _End(Client(), consumer)  # type: ignore[arg-type]
    assert not await end.is_reached()
    consumer.is_assigned = True
    assert not await end.is_reached()
    consumer.read = 5
    assert await end.is_reached()
