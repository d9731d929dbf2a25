"""The high watermarks of partitions that other brokers lead, which this broker asks them for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.coordinators.peer_calls import OtherBrokers
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.rpc import messages
from minikafka.broker.side_by_side import all_of

CALL_TIMEOUT_MS: Final = 2_000

Ends = dict[TopicPartition, int]


class LeaderEnds:
    """Reads the high watermarks of partitions from their leaders."""

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        others: OtherBrokers,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._others = others

    async def read(self, partitions: Collection[TopicPartition]) -> Ends:
        """Return the high watermarks, with one call to each leader.

        Partitions whose leader does not answer within CALL_TIMEOUT_MS, or does not know its high watermark yet, are
        left out.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            state = self._metadata.topics.get(tp.topic, {}).get(tp.partition)
            if state is not None:
                by_leader.setdefault(state.leader, []).append(tp)
        answers = await all_of(self._ask(leader, led) for leader, led in by_leader.items())
        return {tp: end for ends in answers for tp, end in ends.items()}

    def own(self, partitions: Iterable[TopicPartition]) -> Ends:
        """Return the high watermarks of the partitions that this broker leads, if it knows them (KIP-207)."""
        found = {}
        for tp in partitions:
            partition = self._replicas.partition(tp)
            if partition is None or partition.offline or not partition.is_open:
                continue
            if partition.latest_offset_is_known:
                found[tp] = partition.high_watermark
        return found

    async def _ask(self, leader: int, partitions: list[TopicPartition]) -> Ends:
        if leader == self._broker_id:
            return self.own(partitions)
        try:
            body = messages.encode_ends_asked(partitions)
            answer = await self._others.call(leader, messages.LOG_ENDS, body, CALL_TIMEOUT_MS)
            return messages.decode_ends(answer)
        except (OSError, KafkaError):
            return {}
