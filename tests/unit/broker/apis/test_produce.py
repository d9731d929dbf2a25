"""Produce on one connection: what is appended, what is refused, and in which order it is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from support.memory_cluster import MemoryCluster

from minikafka.base.errors import ErrorCode
from minikafka.base.model import LeaderAndIsrRequest, PartitionState, TopicPartition
from minikafka.base.ports import Buffer
from minikafka.broker.apis.produce import ProduceApi
from minikafka.record.batch import Record, build
from minikafka.replication.purgatory import AnswerQueue
from minikafka.wire.codec import decode_response, encode_request, request
from minikafka.wire.versions import PRODUCE

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSION = 9
HEADER = 14 + len("client")


class Connected:
    """A connection to broker 0, which a controller played by hand tells what to lead."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.broker = cluster.brokers[0]
        self.replicas = self.broker.replicas
        self.answered: list[dict[TopicPartition, int]] = []
        queue = AnswerQueue(self.replicas.purgatory, self._sent)
        self.api = ProduceApi(self.replicas, queue, self.broker.clock, lambda: None)

    def _sent(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            answer = decode_response(PRODUCE, VERSION, data[4:size])
            data = data[size:]
            self.answered.append(
                {
                    TopicPartition(topic.name, row.index): int(row.error_code)
                    for topic in answer.responses
                    for row in topic.partition_responses
                }
            )

    async def lead(self, tp: TopicPartition, leader: int, epoch: int, *isr: int) -> None:
        state = PartitionState(tp, leader, epoch, isr, 5, 100, (0, 9), is_new=True)
        told = LeaderAndIsrRequest(
            0, 100, self.broker.info.epoch, (state,), (self.broker.info,), ()
        )
        (answer,) = (await self.replicas.handle(told)).partitions
        assert answer[1] == 0

    def produce(self, *partitions: TopicPartition) -> None:
        """One request, and the end of its tick."""
        records = build([Record(0, 1000, None, b"x", ())])
        rows = [{"index": tp.partition, "records": records} for tp in partitions]
        topics = [{"name": "t", "partition_data": rows}]
        body = request(
            PRODUCE, VERSION, transactional_id=None, acks=-1, timeout=60_000, topic_data=topics
        )
        buf = bytearray(encode_request(PRODUCE, VERSION, 7, "client", body))
        self.api.now = self.broker.clock.now()
        self.api.on_request(buf, memoryview(buf), VERSION, 7, 0, HEADER, len(buf))
        self.replicas.purgatory.finish_tick(self.api.now)

    def end_of(self, tp: TopicPartition) -> int:
        return self.replicas.partitions[tp].log.log_end_offset


@pytest.fixture
async def connected() -> AsyncIterator[Connected]:
    async with MemoryCluster(1) as cluster:
        yield Connected(cluster)


@pytest.mark.parametrize("also", [(), (T0,)], ids=["alone", "with another partition"])
async def test_what_follows_a_refused_batch_is_refused_until_the_client_can_know(
    connected: Connected, also: tuple[TopicPartition, ...]
) -> None:
    """Or it would be appended before the batch that the client sends again first, out of sequence."""
    await connected.lead(T0, 0, 1, 0, 9)
    await connected.lead(T1, 9, 1, 0, 9)
    connected.produce(T0)  # waits for broker 9, and every later answer behind it
    connected.produce(T1, *also)
    await connected.lead(T1, 0, 2, 0)
    connected.produce(T1)
    connected.produce(T1, *also)
    assert connected.answered == []
    assert connected.end_of(T1) == 0
    await connected.lead(T0, 0, 2, 0)
    refused = {T1: ErrorCode.NOT_LEADER_OR_FOLLOWER} | dict.fromkeys(also, ErrorCode.NONE)
    assert connected.answered == [{T0: 0}, refused, {T1: refused[T1]}, refused]
    connected.produce(T1)
    assert connected.answered[-1] == {T1: ErrorCode.NONE}
    assert connected.end_of(T1) == 1
