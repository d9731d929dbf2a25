"""Offsets that a producer commits in a transaction, which may be open when a new coordinator loads the group."""

from __future__ import annotations

from typing import Any

import pytest
from support.clients.group_client import GroupClient
from support.storage.logs import end_marker

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.client import NewTopic
from minikafka.deciders.groups.records import (
    OffsetAndMetadata,
    offset_commit_key,
    offset_commit_value,
)
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.kafka.wire.versions import OFFSET_FETCH
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

pytestmark = pytest.mark.usefixtures("each_mode")
P0 = TopicPartition(GROUP_TOPIC, 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
PRODUCER = 7


def offset_commit(offset: int, producer: int) -> bytes:
    """Return the batch that Kafka writes for a TxnOffsetCommit of partition t-0."""
    key = offset_commit_key("g", TopicPartition("t", 0))
    value = offset_commit_value(OffsetAndMetadata(offset, commit_timestamp=1))
    return build(
        [Record(timestamp=1, key=key, value=value)],
        producer_id=producer,
        producer_epoch=0,
        attributes=TRANSACTIONAL,
    )


class Scene:
    """One group on two brokers. Batches are appended to its partition by the broker that leads the partition."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.client = GroupClient(cluster, "g")

    async def append(self, batch: bytes | bytearray) -> None:
        leader, _ = await self.client.find()
        replicas = self.cluster.brokers[leader].replicas
        guard = replicas.partitions[P0].verification_of(memoryview(batch))
        await replicas.appends.append(P0, bytes(batch), guard)

    async def move(self) -> None:
        """Restart the coordinator's broker, so that the other broker loads the group."""
        leader, _ = await self.client.find()
        await self.cluster.stop(leader)
        await self.cluster.start(leader)

    async def fetch(self) -> Any:
        """Return the committed offset of t-0 for a client that waits for open transactions, or the error code."""
        topics = [{"name": "t", "partition_indexes": [0]}]
        asked = [{"group_id": "g", "topics": topics}]
        answer = await self.client.ask(OFFSET_FETCH, groups=asked, require_stable=True)
        found = answer.groups[0].topics[0].partitions[0]
        return found.error_code or found.committed_offset


def run(scenario: Any) -> None:
    async def scene() -> None:
        keys = {"offsets_topic_num_partitions": 1, "offsets_topic_replication_factor": 2}
        async with MemoryCluster(2, **keys) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("t", 1, 1)])
            scene = Scene(cluster)
            assert await scene.client.commit({("t", 0): 1}) == {0}
            await scenario(scene)
            scene.client.close()

    run_seeded(1, scene())


def test_offset_of_a_transaction_open_at_the_load_is_visible_after_its_commit_marker() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.append(offset_commit(5, PRODUCER))
        await scene.move()
        assert await scene.fetch() == UNSTABLE
        assert await scene.client.committed() == {("t", 0): 1}
        await scene.append(end_marker(producer=PRODUCER))
        assert await scene.fetch() == 5
        await scene.move()
        assert await scene.fetch() == 5

    run(scenario)


def test_offset_of_a_transaction_open_at_the_load_is_dropped_by_its_abort_marker() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.append(offset_commit(5, PRODUCER))
        await scene.move()
        await scene.append(end_marker(producer=PRODUCER + 1))
        assert await scene.fetch() == UNSTABLE
        await scene.append(end_marker(producer=PRODUCER, commit=False))
        assert await scene.fetch() == 1
        await scene.move()
        assert await scene.fetch() == 1

    run(scenario)


def test_open_transaction_survives_a_second_load() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.append(offset_commit(5, PRODUCER))
        await scene.move()
        await scene.move()
        assert await scene.fetch() == UNSTABLE
        await scene.append(end_marker(producer=PRODUCER))
        assert await scene.fetch() == 5

    run(scenario)


def test_commit_after_the_records_of_a_transaction_outlasts_its_commit_marker() -> None:
    """As in Kafka, the commit whose record is later in the log counts, not the one that completes later."""

    async def scenario(scene: Scene) -> None:
        await scene.append(offset_commit(5, PRODUCER))
        await scene.move()
        assert await scene.client.commit({("t", 0): 6}) == {0}
        await scene.append(end_marker(producer=PRODUCER))
        assert await scene.fetch() == 6
        await scene.move()
        assert await scene.fetch() == 6

    run(scenario)
