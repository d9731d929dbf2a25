"""DeleteRecords: refused requests, the resulting log start offsets, and the wait for followers."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.client.administration.results import DeletedRecords, Outcome
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

T0 = TopicPartition("t", 0)
LATEST = -1
LONG_SESSIONS = {"zookeeper_session_timeout_ms": 600_000}
"""A paused broker stays registered."""


async def filled(user: Client, count: int = 10, **configs: str) -> None:
    """Create `t` with leader 0 and followers 1 and 2, and produce `count` batches of one record."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    await user.create_topics(NewTopic("t", assignment={0: (0, 1, 2)}, configs=settings))
    for number in range(count):
        await user.produce("t", [Record(value=b"%d" % number)])


async def delete(user: Client, offset: int, tp: TopicPartition = T0) -> DeletedRecords:
    return (await user.admin.delete_records({tp: offset}))[tp]


def deleted_to(offset: int) -> DeletedRecords:
    return DeletedRecords(Outcome(ErrorCode.NONE), offset)


def starts(cluster: MemoryCluster) -> dict[int, int]:
    """Return the log start offset of each running broker's replica."""
    return {
        number: partition.log_start_offset
        for number, broker in cluster.brokers.items()
        if (partition := broker.replicas.partition(T0)) is not None
    }


@pytest.mark.parametrize(("offset", "start"), [(4, 4), (0, 0), (10, 10), (LATEST, 10)])
@pytest.mark.row("R33")
def test_all_logs_start_at_the_requested_offset_when_delete_records_is_answered(
    offset: int, start: int
) -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await filled(user)
            assert await delete(user, offset) == deleted_to(start)
            assert starts(cluster) == {0: start, 1: start, 2: start}
            assert await user.list_offsets("t", "earliest") == {0: start}
            assert await user.list_offsets("t", "latest") == {0: 10}

    run_seeded(1, scenario())


def test_deletion_of_deleted_records_returns_the_current_log_start_offset() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await filled(user)
            await delete(user, 6)
            assert await delete(user, 3) == deleted_to(6)
            assert starts(cluster) == {0: 6, 1: 6, 2: 6}

    run_seeded(2, scenario())


@pytest.mark.parametrize("offset", [11, -2, 2**62])
def test_offset_outside_of_the_committed_records_is_refused(offset: int) -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await filled(user)
            await delete(user, 3)
            refused = await delete(user, offset)
            assert refused.outcome.code is ErrorCode.OFFSET_OUT_OF_RANGE
            assert refused.outcome.reason == (
                f"t-0 has no offset {offset}: valid offsets are 3 to 10, or -1 for all committed records"
            )
            assert starts(cluster) == {0: 3, 1: 3, 2: 3}

    run_seeded(3, scenario())


@pytest.mark.parametrize(
    ("policy", "code"),
    [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE)],
)
def test_delete_records_refuses_a_topic_that_is_only_compacted(
    policy: str, code: ErrorCode
) -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await filled(user, 0, cleanup_policy=policy)
            assert (await delete(user, LATEST)).outcome.code is code

    run_seeded(4, scenario())


def test_delete_records_refuses_unknown_and_internal_partitions() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("__consumer_offsets", assignment={0: (0, 1, 2)}))
            internal = await delete(user, 0, TopicPartition("__consumer_offsets", 0))
            assert internal.outcome.code is ErrorCode.INVALID_TOPIC_EXCEPTION
            unknown = await delete(user, 0, TopicPartition("__consumer_offsets", 7))
            assert str(unknown.outcome) == (
                "UNKNOWN_TOPIC_OR_PARTITION: __consumer_offsets-7: there is no such partition; its only partition is 0"
            )

    run_seeded(5, scenario())


def test_dead_follower_delays_no_deletion_and_later_takes_the_leaders_log_start() -> None:
    """The leader no longer has the deleted segments, so the follower's log restarts at the leader's start offset."""

    async def scenario() -> None:
        async with MemoryCluster(3, log_segment_bytes=200) as cluster, cluster.client() as user:
            await filled(user, 4)
            await cluster.stop(2)
            for number in range(4, 12):
                await user.produce("t", [Record(value=b"%d" % number)])
            assert await delete(user, 9) == deleted_to(9)
            assert starts(cluster) == {0: 9, 1: 9}
            await cluster.start(2)
            while starts(cluster).get(2) != 9:
                await cluster.clock.sleep(10)
            replica = cluster.brokers[2].replicas.partitions[T0]
            while replica.log.log_end_offset < 12:
                await cluster.clock.sleep(10)
            assert replica.log.segments[0].base_offset == 9

    run_seeded(6, scenario())


def test_delete_records_waits_for_a_live_follower_until_the_timeout() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3, **LONG_SESSIONS) as cluster, cluster.client() as user:
            await filled(user)
            cluster.pause(1)
            late = await delete(user, 5)
            assert late.outcome.code is ErrorCode.REQUEST_TIMED_OUT
            assert starts(cluster) == {0: 5, 1: 0, 2: 5}
            waiting = asyncio.create_task(delete(user, 6))
            await cluster.clock.sleep(1000)
            assert not waiting.done()
            cluster.resume(1)
            assert await waiting == deleted_to(6)
            assert starts(cluster) == {0: 6, 1: 6, 2: 6}

    run_seeded(7, scenario())


def test_delete_records_is_answered_when_the_awaited_follower_dies() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await filled(user)
            cluster.pause(2)
            waiting = asyncio.create_task(delete(user, 5))
            await cluster.clock.sleep(1000)
            assert not waiting.done()
            cluster.kill_with_session(2)
            assert await waiting == deleted_to(5)

    run_seeded(10, scenario())


def test_waiting_delete_records_fails_when_another_broker_becomes_leader() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3, **LONG_SESSIONS) as cluster, cluster.client() as user:
            await filled(user)
            cluster.pause(2)
            partition = cluster.brokers[0].replicas.partitions[T0]
            waiting = asyncio.create_task(delete(user, 5))
            await cluster.clock.sleep(1000)
            await user.admin.alter_reassignments({T0: (1, 0, 2)})
            await user.admin.elect_leaders([T0])
            while partition.is_leader:
                await cluster.clock.sleep(10)
            cluster.resume(2)
            assert await waiting == deleted_to(5)  # the client asked the new leader again
            assert partition.waiting == {}
            assert starts(cluster) == {0: 5, 1: 5, 2: 5}

    run_seeded(11, scenario())


def test_log_start_survives_the_restart_of_all_brokers() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await filled(user)
            await delete(user, 7)
            for number in (2, 1, 0):
                await cluster.stop(number)
            for number in (0, 1, 2):
                await cluster.start(number)
            assert await user.list_offsets("t", "earliest") == {0: 7}
            assert starts(cluster) == {0: 7, 1: 7, 2: 7}

    run_seeded(8, scenario())


def test_consumer_below_the_log_start_is_out_of_range() -> None:
    async def scenario() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await filled(user)
            await delete(user, 7)
            fetched = await user.fetch("t", 0, 7)
            assert [record.value for record in fetched.records] == [b"7", b"8", b"9"]
            assert fetched.log_start_offset == 7
            with pytest.raises(Exception, match="OFFSET_OUT_OF_RANGE"):
                await user.fetch("t", 0, 6)

    run_seeded(9, scenario())
