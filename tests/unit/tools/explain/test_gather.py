"""The collection of a partition's evidence from sources that answer one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.ledger.ledger_lines import Scene

from minikafka.base.model import TopicPartition
from minikafka.tools.explain.gather import gather

T0 = TopicPartition("t", 0)


class Sources:
    """Sources whose leader answers the first question before the end of a transaction, and the next one after it."""

    where = ""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.asked = 0
        self.seen = SimpleNamespace(brokers={1: None}, coordination="controller")

    async def ask(self, method: str, body: dict[str, Any]) -> dict[int, Any]:
        self.asked += 1
        leader = {**self.scene.leader}
        if self.asked > 1:
            leader["open_transactions"] = []
        return {**self.scene.answers, 1: {**self.scene.answers[1], "replica": leader}}

    async def nodes(self, tp: TopicPartition) -> None: ...

    async def sights(self) -> Any:
        return self.seen

    async def causes(self) -> list[Any]:
        return []

    async def partition_lines(self, topic: str) -> list[Any]:
        return []


async def test_transaction_that_ends_while_the_coordinator_is_slow_is_not_called_hanging() -> None:
    scene = Scene()
    scene.leader["open_transactions"] = [
        {"producer_id": 7, "producer_epoch": 2, "start_offset": 4, "last_record_ms": 20_000}
    ]
    sources: Any = Sources(scene)
    assert (await gather(sources, T0)).open_transactions == []
    assert sources.asked == 2
    scene.leader["open_transactions"] = []
    await gather(sources, T0)
    assert sources.asked == 3
