"""`reassign --generate`: print the current plan and a proposal that spreads topics evenly over brokers."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker, BrokerId, TopicPartition
from minikafka.base.names import ids
from minikafka.cli.arguments import placement
from minikafka.cli.arguments.placement import Plan
from minikafka.cli.terminal.result import show
from minikafka.cli.terminal.topic_errors import unknown_topics
from minikafka.client.admin import Admin
from minikafka.controller.assignments import assign
from minikafka.runtime.clock import SystemRng


class Propose:
    """The job that proposes a plan to spread topics over brokers, and over racks if every broker has one (R70)."""

    def __init__(self, topics: Sequence[str], brokers: tuple[BrokerId, ...] | None) -> None:
        self._topics = topics
        self._brokers = brokers
        self._rng = SystemRng()

    async def do(self, admin: Admin) -> bool:
        """Print the proposal and return True. Raises KafkaError for unknown topics and brokers."""
        known = await admin.describe_topics(self._topics)
        missing = [name for name in self._topics if name not in known]
        if missing:
            raise unknown_topics(missing)
        brokers = await self._live_brokers(admin)
        current: Plan = {}
        proposed: Plan = {}
        for name in self._topics:
            partitions = known[name].partitions
            before = [partitions[number].replicas for number in sorted(partitions)]
            current |= {TopicPartition(name, at): replicas for at, replicas in enumerate(before)}
            spread = self._spread(name, brokers, len(before), len(before[0]))
            proposed |= {TopicPartition(name, at): replicas for at, replicas in spread.items()}
        lines = ["Current partition replica assignment", placement.as_text(current), ""]
        lines += ["Proposed partition reassignment configuration", placement.as_text(proposed)]
        both = {"current": placement.as_json(current), "proposed": placement.as_json(proposed)}
        show(both, lines)
        return True

    async def _live_brokers(self, admin: Admin) -> list[Broker]:
        nodes = (await admin.describe_cluster()).brokers
        wanted = nodes.keys() if self._brokers is None else set(self._brokers)
        missing = sorted(wanted - nodes.keys())
        if missing:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"no live broker with id {ids(missing)}"
            )
        return [Broker(node.id, (), rack=node.rack) for node in nodes.values() if node.id in wanted]

    def _spread(
        self, topic: str, brokers: Sequence[Broker], partitions: int, factor: int
    ) -> dict[int, tuple[BrokerId, ...]]:
        if factor > len(brokers):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{topic} has {factor} replicas, but there are only {len(brokers)} brokers to use",
            )
        start, shift = (int(self._rng.uniform(0, len(brokers))) for _ in range(2))
        return assign(brokers, partitions, factor, start, shift)
