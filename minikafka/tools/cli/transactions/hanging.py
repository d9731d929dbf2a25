"""The search for hanging transactions: open in a partition, but unknown to the coordinator (KIP-664).

No marker will ever end such a transaction, so it holds back the last stable offset until it is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.client import Client
from minikafka.client.administration.transaction_admin import ProducerState, TransactionDescription
from minikafka.client.metadata import PartitionInfo, TopicInfo


class HangingTransaction(NamedTuple):
    """A transaction that has no marker in a partition yet."""

    tp: TopicPartition
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        """The offset of its first record in the partition."""
        assert self.producer.start_offset is not None
        return self.producer.start_offset


class Scope(NamedTuple):
    """The partitions to search: all, those of a topic, or one. `broker`: only its replicas (None: the leaders)."""

    topic: str | None = None
    partition: int | None = None
    broker: BrokerId | None = None

    def select(self, topics: Iterable[TopicInfo]) -> dict[TopicPartition, PartitionInfo]:
        """Return the partitions of these topics that are in the scope."""
        return {
            TopicPartition(topic.name, number): info
            for topic in topics
            if self.topic in (None, topic.name)
            for number, info in sorted(topic.partitions.items())
            if self.partition in (None, number)
            if self.broker is None or self.broker in info.replicas
        }


class HangingTransactions(NamedTuple):
    """The hanging transactions, and the partitions that could not be examined, with the reasons."""

    hanging: list[HangingTransaction]
    failed: dict[TopicPartition, str]


async def find_hanging(client: Client, scope: Scope, open_since: int) -> HangingTransactions:
    """Return the hanging transactions of the scope whose last record is older than `open_since`, Unix ms.

    Partitions are read again at the end, because a transaction may end between the questions. Raises KafkaError.
    """
    cluster, topics = await client.admin.describe(None if scope.topic is None else [scope.topic])
    if scope.broker is not None and scope.broker not in cluster.brokers:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {scope.broker}")
    partitions = scope.select(topics)
    wanted = [tp for tp, info in partitions.items() if scope.broker is not None or info.leader >= 0]
    candidates, failed = await _read_open(client, wanted, scope.broker, open_since)
    failed |= {tp: f"{tp}: it has no leader" for tp in partitions if tp not in wanted}
    known = await _known_partitions(client, {one.producer.producer_id for one in candidates})
    hanging = [one for one in candidates if one.tp not in known.get(one.producer.producer_id, ())]
    again, _ = await _read_open(client, [one.tp for one in hanging], scope.broker, open_since)
    starts = {(one.tp, one.producer.producer_id, one.start_offset) for one in again}
    remaining = [
        one for one in hanging if (one.tp, one.producer.producer_id, one.start_offset) in starts
    ]
    return HangingTransactions(remaining, failed)


async def _read_open(
    client: Client, partitions: Sequence[TopicPartition], broker: BrokerId | None, open_since: int
) -> tuple[list[HangingTransaction], dict[TopicPartition, str]]:
    """Return the open transactions that are old enough, and the partitions that could not be read, with reasons."""
    described = await client.transactions.describe_producers(partitions, broker)
    found = [
        HangingTransaction(tp, producer)
        for tp, result in described.items()
        for producer in result.producers
        if producer.start_offset is not None and producer.last_timestamp < open_since
    ]
    failed = {tp: r.outcome.reason for tp, r in described.items() if not r.outcome.ok}
    return found, failed


async def _known_partitions(
    client: Client, producer_ids: Iterable[int]
) -> Mapping[int, tuple[TopicPartition, ...]]:
    """Return, by producer id, the partitions of the transaction that its coordinator knows. Raises KafkaError."""
    wanted = sorted(producer_ids)
    if not wanted:
        return {}
    listed = await client.transactions.list_transactions(producer_ids=wanted)
    described = await client.transactions.describe([one.transactional_id for one in listed])
    for name, result in described.items():
        if (
            not result.outcome.ok
            and result.outcome.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        ):
            raise MinikafkaError(f"transactional id {name}: {result.outcome}")
    found = [result.found for result in described.values() if result.found is not None]
    return {one.producer_id: one.partitions for one in found}


async def find_open(client: Client, tp: TopicPartition) -> list[HangingTransaction]:
    """Return the open transactions of a partition, the oldest first. Raises KafkaError."""
    result = (await client.transactions.describe_producers([tp]))[tp]
    if not result.outcome.ok:
        raise KafkaError(result.outcome.code, result.outcome.reason)
    found = [
        HangingTransaction(tp, one) for one in result.producers if one.start_offset is not None
    ]
    return sorted(found, key=lambda one: one.start_offset)


async def find_owner(client: Client, one: HangingTransaction) -> TransactionDescription | None:
    """Return the transaction to which the coordinator still counts the partition; None if it hangs."""
    for listed in await client.transactions.list_transactions(
        producer_ids=[one.producer.producer_id]
    ):
        result = (await client.transactions.describe([listed.transactional_id])).popitem()[1]
        if result.found is not None and one.tp in result.found.partitions:
            return result.found
    return None
