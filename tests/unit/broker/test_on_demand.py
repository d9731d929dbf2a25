"""Compaction, retention, expiry and a later clock on demand, on whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Call
from minikafka.broker.rpc import time_calls
from minikafka.broker.rpc.time_calls import Demand, Due, PartitionGone
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

T0 = TopicPartition("t", 0)
DAY = 86_400_000
COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": str(DAY)}


def run(
    scenario: Callable[[MemoryCluster, Client], Awaitable[None]],
    settings: Mapping[str, str] = COMPACT,
    **config: object,
) -> None:
    """Run a scenario on one broker, whose own retention and cleaner do nothing for a day."""

    async def scene() -> None:
        quiet = {"log_cleaner_backoff_ms": DAY, "log_retention_check_interval_ms": DAY}
        async with MemoryCluster(1, **{**quiet, **config}) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", 1, 1, configs=dict(settings)))
            await scenario(cluster, user)

    run_seeded(1, scene())


async def call(cluster: MemoryCluster, method: str, body: dict[str, object]) -> dict[str, object]:
    return await cluster.brokers[0].on_call(Call(method, body))


async def gone(
    cluster: MemoryCluster, method: str, end: int = 0, wait_ms: int = 60_000
) -> PartitionGone:
    body = time_calls.encode_asked(Demand({T0: end}, wait_ms))
    (row,) = time_calls.decode_gone(await call(cluster, method, body))
    return row


async def advance(cluster: MemoryCluster, total_ms: int) -> Due:
    body = time_calls.encode_advance(total_ms)
    return time_calls.decode_due(await call(cluster, time_calls.ADVANCE_CLOCK, body))


async def values(user: Client) -> list[bytes | None]:
    return [record.value async for record in user.consume("t", until_end=True)]


def test_tombstone_goes_with_the_compaction_after_its_retention() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for value in (b"old", None, b"other"):
            key = b"k" if value != b"other" else b"o"
            await user.produce("t", [Record(key=key, value=value)])
        assert (await gone(cluster, time_calls.COMPACT, 3)).records == 1
        assert await values(user) == [None, b"other"]
        assert (await gone(cluster, time_calls.COMPACT, 3)).records == 0
        await advance(cluster, 2 * DAY)
        assert (await gone(cluster, time_calls.COMPACT, 3)).records == 1
        assert await values(user) == [b"other"]

    run(scenario)


def test_empty_log_is_compacted_at_once() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        assert await gone(cluster, time_calls.COMPACT) == PartitionGone(T0, 0, 0, 0, "")

    run(scenario)


@pytest.mark.parametrize("method", [time_calls.COMPACT, time_calls.EXPIRE])
def test_replica_that_lacks_records_is_named_after_the_time_limit(method: str) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.produce("t", [Record(key=b"k", value=b"v")])
        before = cluster.clock.now()
        row = await gone(cluster, method, end=2, wait_ms=500)
        assert row.failure == "not finished in time; its high watermark is 1"
        assert cluster.clock.now() - before < 1_000

    run(scenario, {"cleanup.policy": "compact,delete"})


def test_clock_that_advances_expires_what_is_due_and_goes_on() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.produce("t", [Record(key=b"k", value=b"v")])
        clock = cluster.brokers[0].clock
        wall, now = clock.wall_ms(), clock.now()
        assert await advance(cluster, DAY // 2) == Due((), (), (), (), (), 0)
        due = await advance(cluster, 8 * DAY)
        assert [(row.tp, row.records) for row in due.retained] == [(T0, 1)]
        assert due.producers == 1
        assert clock.wall_ms() - wall - (clock.now() - now) == 8 * DAY
        assert (await advance(cluster, 8 * DAY)).retained == ()

    run(scenario, {})


def test_clock_does_not_go_back() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await advance(cluster, DAY)
        with pytest.raises(KafkaError, match="does not go back") as refused:
            await advance(cluster, DAY - 1)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert cluster.brokers[0].clock.advanced_ms == DAY

    run(scenario)


def test_compaction_that_became_overdue_is_done_with_the_clock() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for number in range(60):
            await user.produce("t", [Record(key=b"k", value=b"%0100d" % number)])
        due = await advance(cluster, 2 * DAY)
        assert [(row.tp, row.records) for row in due.compacted] == [(T0, 59)]
        assert await values(user) == [b"%0100d" % 59]

    lag = {"max.compaction.lag.ms": str(DAY), "segment.bytes": "2000"}
    run(scenario, {**COMPACT, **lag})


def test_unknown_group_and_group_of_another_coordinator_are_refused() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        with pytest.raises(KafkaError) as refused:
            await call(cluster, time_calls.EXPIRE_GROUP, time_calls.encode_group("g"))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    run(scenario)
