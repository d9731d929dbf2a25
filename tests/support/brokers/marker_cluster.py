"""Whole brokers in memory whose transaction coordinators are scripts: a test says which markers a broker sends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from support.storage.logs import transactional_batch

from minikafka.base.model import TopicPartition
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.broker.broker import BrokerServer
from minikafka.client import NewTopic
from minikafka.deciders.transactions.commands import EndedTransaction, SendMarkers
from minikafka.deciders.transactions.events import MarkersFenced, MarkersWritten
from minikafka.kafka.records.batch import end_of_transaction, marker_of
from minikafka.kafka.records.header import ATTRIBUTES, BATCH_LENGTH, CONTROL, HEADER, OVERHEAD
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import context_of
from minikafka.storage.replication.partition import Partition

PRODUCER = 7
SCRIPTED = 99
"""A partition that `__transaction_state` does not have. The brokers' own coordinators never drop its markers."""
POLL_MS = 20


class MarkerCluster(MemoryCluster):
    """Brokers that send markers for a test. `written` and `fenced` hold what the senders have reported."""

    def __init__(self, brokers: int = 3, **config: object) -> None:
        super().__init__(brokers, **config)
        self.written: list[tuple[int, str, TopicPartition]] = []
        """(broker, transactional id, partition) for each partition that was reported as written."""
        self.fenced: list[tuple[int, str]] = []

    def created(self, broker: BrokerServer) -> None:
        number = broker.config.broker_id

        def report(event: MarkersWritten | MarkersFenced) -> None:
            name = event.ended.transactional_id
            if isinstance(event, MarkersWritten):
                self.written += [(number, name, tp) for tp in event.partitions]
            else:
                self.fenced.append((number, name))

        broker.markers.report = report

    async def until(self, condition: Callable[[], object], *, seconds: float = 300) -> None:
        """Wait until the condition is true. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                await self.clock.sleep(POLL_MS)

    async def create(self, *topics: NewTopic) -> None:
        """Create topics, and the topic of the coordinators, which no broker may lack."""
        async with self.client() as user:
            names = (NewTopic(TRANSACTION_TOPIC, 1, len(self.storages)), *topics)
            for outcome in (await user.admin.create_topics(names)).values():
                assert outcome.ok, outcome
        known = {topic.name for topic in names}
        for broker in self.brokers.values():
            await self.until(lambda broker=broker: known <= broker.metadata.topics.keys())  # type: ignore[misc]
        await self.until_all_are_in_sync()

    def leader(self, tp: TopicPartition) -> BrokerServer | None:
        """Return the broker that serves clients as the leader of a partition."""
        for broker in self.brokers.values():
            partition = broker.replicas.partition(tp)
            if partition is not None and partition.is_open and not partition.offline:
                return broker
        return None

    async def leading(self, tp: TopicPartition) -> Partition:
        """Wait until a partition has a leader that serves clients; return the leader's replica."""
        await self.until(lambda: self.leader(tp))
        broker = self.leader(tp)
        assert broker is not None
        partition = broker.replicas.partition(tp)
        assert partition is not None
        return partition

    async def produce(self, *partitions: TopicPartition, epoch: int = 0) -> None:
        """Append a batch to each partition, which opens a transaction of `PRODUCER`."""
        for tp in partitions:
            partition = await self.leading(tp)
            broker = self.leader(tp)
            assert broker is not None
            batch = transactional_batch(0, producer=PRODUCER, epoch=epoch)
            guard = partition.verification_of(memoryview(batch))
            await broker.replicas.appends.append(tp, bytes(batch), guard)

    def send(
        self, number: int, *partitions: TopicPartition, name: str = "a", **values: object
    ) -> None:
        """Let a broker send the marker of a transaction of `PRODUCER` to these partitions."""
        fields = {"producer_epoch": 0, "coordinator_epoch": 1, "committed": True, **values}
        ended = EndedTransaction(name, PRODUCER, **fields)
        sender = self.brokers[number].markers
        context_of(self.processes[number]).run(
            sender.send, SendMarkers(SCRIPTED, ended, partitions)
        )

    async def all_written(self, *partitions: TopicPartition) -> None:
        """Wait until each partition was reported as written."""
        await self.until(lambda: {tp for _, _, tp in self.written} >= set(partitions))


def markers(partition: Partition) -> list[tuple[int, bool, int]]:
    """Return (producer id, committed, coordinator epoch) of each committed marker in a replica's log."""
    log, found = partition.log, []
    data, at = b"", log.segments[0].start
    while at < log.written_position:
        chunk, _, at = log.read(at, log.written_position, 1 << 20)
        data += chunk
    at = 0
    while at < len(data):
        header = HEADER.unpack_from(data, at)
        end = at + OVERHEAD + header[BATCH_LENGTH]
        if header[ATTRIBUTES] & CONTROL and header[0] < partition.high_watermark:
            batch = memoryview(data)[at:end]
            found.append((*marker_of(batch), end_of_transaction(batch)[1]))
        at = end
    return found
