from __future__ import annotations

from typing import Any

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Call
from minikafka.broker.rpc import messages
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster

TP = TopicPartition("t", 0)


async def test_leader_returns_its_high_watermark_and_a_follower_returns_none() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", -1, -1, assignment={0: (1, 0)}))
        await client.produce("t", [Record(value=b"v")] * 3, partition=0)
        asked = messages.encode_ends_asked([TP, TopicPartition("unknown", 7)])
        answers = [
            messages.decode_ends(await broker.on_call(Call(messages.LOG_ENDS, asked)))
            for broker in cluster.brokers.values()
        ]
        assert answers == [{}, {TP: 3}]
        for broker in cluster.brokers.values():
            assert await broker.leader_ends.read([TP]) == {TP: 3}


async def test_leader_whose_high_watermark_may_be_too_low_returns_none() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1))
        await client.produce("t", [Record(value=b"v")] * 3, partition=0)
        broker = cluster.brokers[0]
        partition = broker.replicas.partition(TP)
        assert partition is not None
        partition.high_watermark = 1
        partition.epoch_start_offset = 3  # as right after an election
        assert broker.leader_ends.own([TP]) == {}


async def test_leader_that_does_not_answer_hides_no_other_leader() -> None:
    tps = [TopicPartition("t", number) for number in range(3)]
    async with MemoryCluster(3) as cluster, cluster.client() as client:
        await client.create_topics(
            NewTopic("t", -1, -1, assignment={number: (number,) for number in range(3)})
        )
        broker = cluster.brokers[0]
        call = broker.control_plane.call

        async def silent(*where: Any, target_id: int, **how: Any) -> Any:
            if target_id == 1:
                raise TimeoutError
            return await call(*where, target_id=target_id, **how)

        broker.control_plane.call = silent  # type: ignore[method-assign]
        assert await broker.leader_ends.read(tps) == {tps[0]: 0, tps[2]: 0}
