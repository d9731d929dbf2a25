"""Effects of the group coordinator's configuration keys, on whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.clients.group_client import GroupClient, Member

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.header import ATTRIBUTES, CODEC_MASK, HEADER
from minikafka.kafka.wire.versions import JOIN_GROUP, OFFSET_COMMIT
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.storage.replication.reader import PartitionReader

pytestmark = pytest.mark.usefixtures("each_mode")
P0 = TopicPartition(GROUP_TOPIC, 0)
MINUTE = 60_000
ONE = {
    "offsets_topic_replication_factor": 1,
    "offsets_topic_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
}


def run(
    scenario: Callable[[MemoryCluster, Client], Awaitable[None]], brokers: int = 1, **config: object
) -> None:
    """Run a scenario with the topic t on a cluster whose brokers have this configuration."""

    async def scene() -> None:
        keys = {**ONE, **config}
        async with MemoryCluster(brokers, **keys) as cluster, cluster.client() as user:
            await user.admin.create_topics([NewTopic("t", 1, brokers)])
            await scenario(cluster, user)

    run_seeded(1, scene())


async def first_error(client: GroupClient, session_ms: int) -> int:
    answer = await client.ask(
        JOIN_GROUP,
        3,
        group_id=client.group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    client.close()
    return int(answer.error_code)


@pytest.mark.key("group.min.session.timeout.ms", "group.max.session.timeout.ms")
@pytest.mark.parametrize(("session_ms", "accepted"), [(99, 0), (100, 1), (200, 1), (201, 0)])
def test_member_is_refused_when_its_session_timeout_is_outside_the_bounds(
    session_ms: int, accepted: int
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        expected = 0 if accepted else ErrorCode.INVALID_SESSION_TIMEOUT
        assert await first_error(GroupClient(cluster, "g"), session_ms) == expected

    run(scenario, group_min_session_timeout_ms=100, group_max_session_timeout_ms=200)


@pytest.mark.key("group.initial.rebalance.delay.ms")
def test_first_rebalance_of_a_group_waits_for_more_members() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        member = Member(cluster, "g")
        await member.find()
        begun = cluster.clock.now()
        await member.join()
        assert 700 <= cluster.clock.now() - begun < 1_500
        member.close()

    run(scenario, group_initial_rebalance_delay_ms=700)


@pytest.mark.key("group.max.size")
def test_member_beyond_the_maximum_is_refused() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        member = Member(cluster, "g")
        await member.join()
        refused = await first_error(GroupClient(cluster, "g"), 10_000)
        assert refused == ErrorCode.GROUP_MAX_SIZE_REACHED
        member.close()

    run(scenario, group_max_size=1)


@pytest.mark.key("offset.metadata.max.bytes")
@pytest.mark.parametrize(("size", "error"), [(10, 0), (11, ErrorCode.OFFSET_METADATA_TOO_LARGE)])
def test_offset_commit_is_refused_when_its_metadata_exceeds_the_limit(
    size: int, error: int
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        client = GroupClient(cluster, "g")
        row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * size}
        answer = await client.ask(
            OFFSET_COMMIT, group_id="g", topics=[{"name": "t", "partitions": [row]}]
        )
        assert answer.topics[0].partitions[0].error_code == error
        client.close()

    run(scenario, offset_metadata_max_bytes=10)


@pytest.mark.key("offsets.topic.compression.codec")
@pytest.mark.parametrize("codec", [0, 1, 4])
def test_offsets_topic_batches_have_the_configured_codec(codec: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        client = GroupClient(cluster, "g")
        assert await client.commit({("t", 0): 5}) == {0}
        chunk = cluster.brokers[0].replicas.reader(P0).read(1 << 20)
        assert HEADER.unpack_from(chunk)[ATTRIBUTES] & CODEC_MASK == codec
        await cluster.stop(0)
        await cluster.start(0)
        assert await client.committed() == {("t", 0): 5}
        client.close()

    run(scenario, offsets_topic_compression_codec=codec)


@pytest.mark.key("offsets.load.buffer.size")
def test_coordinator_loads_group_offsets_in_reads_of_the_configured_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    read = PartitionReader.read

    def watched(reader: Any, max_bytes: int) -> bytes:
        sizes.append(max_bytes)
        return read(reader, max_bytes)

    monkeypatch.setattr(PartitionReader, "read", watched)

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        client = GroupClient(cluster, "g")
        for offset in range(20):
            assert await client.commit({("t", 0): offset}) == {0}
        await cluster.stop(0)
        await cluster.start(0)
        assert await client.committed() == {("t", 0): 19}
        client.close()

    run(scenario, offsets_load_buffer_size=300)
    assert set(sizes) == {300}
    assert len(sizes) > 10


@pytest.mark.key("offsets.commit.timeout.ms")
def test_commit_that_is_not_replicated_times_out() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        client = GroupClient(cluster, "g")
        assert await client.commit({("t", 0): 1}) == {0}
        leader, _ = client.coordinator or (0, 0)
        follower = 1 - leader
        await cluster.until_all_are_in_sync()  # a leader alone in the ISR waits for nobody
        cluster.pause(follower)
        begun = cluster.clock.now()
        assert await client.commit({("t", 0): 2}) == {ErrorCode.REQUEST_TIMED_OUT}
        assert 900 <= cluster.clock.now() - begun < 1_500
        cluster.resume(follower)
        client.close()

    run(
        scenario,
        2,
        offsets_topic_replication_factor=2,
        offsets_commit_timeout_ms=900,
        replica_lag_time_max_ms=30_000,
    )


@pytest.mark.key("offsets.retention.minutes", "offsets.retention.check.interval.ms")
def test_offsets_of_an_empty_group_expire_after_the_retention() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        client = GroupClient(cluster, "g")
        assert await client.commit({("t", 0): 1}) == {0}
        await cluster.clock.sleep(2 * MINUTE - 10_000)
        assert await client.committed() == {("t", 0): 1}
        await cluster.clock.sleep(15_000)
        assert await client.committed() == {}
        client.close()

    run(scenario, offsets_retention_minutes=2, offsets_retention_check_interval_ms=1_000)
