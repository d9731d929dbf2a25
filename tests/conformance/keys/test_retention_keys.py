"""Effects of the configuration keys for retention, on whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from minikafka.client import Client, NewTopic, Record
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.kafka.records.batch import build
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BATCH = len(build([Record(timestamp=0, value=b"v" * 100)]))

OFTEN = {"log_initial_task_delay_ms": 0, "log_retention_check_interval_ms": 1_000}
"""Default of these tests: retention is checked every second."""

Scenario = Callable[[MemoryCluster, Client], Awaitable[None]]


def run(scenario: Scenario, configs: dict[str, str] | None = None, **config: object) -> None:
    """Run a scenario on one broker with the keys `config`.

    `configs`: settings of topic `t`, whose segments hold one batch each.
    """

    async def scene() -> None:
        async with MemoryCluster(1, **{**OFTEN, **config}) as cluster, cluster.client() as user:
            settings = {"segment.bytes": str(BATCH), **(configs or {})}
            await user.create_topics(NewTopic("t", configs=settings))
            await scenario(cluster, user)

    run_seeded(1, scene())


async def produce(user: Client, count: int = 1, timestamp: int = -1) -> None:
    """Produce this number of batches of one record. Timestamp -1 stands for the current time."""
    for _ in range(count):
        await user.produce("t", [Record(timestamp=timestamp, value=b"v" * 100)], partition=0)


async def start(user: Client) -> int:
    return (await user.list_offsets("t", "earliest"))[0]


async def start_after(cluster: MemoryCluster, user: Client, ms: int) -> int:
    """Set the broker's clock forward by `ms`, and return the log start offset after the next retention check."""
    cluster.clock.skipped_ms += ms
    return await start_in(cluster, user, 3_000)


async def start_in(cluster: MemoryCluster, user: Client, ms: int) -> int:
    """Wait `ms` milliseconds, and return the log start offset."""
    await cluster.clock.sleep(ms)
    return await start(user)


@pytest.mark.key("retention.ms")
@pytest.mark.parametrize(
    ("age", "offset"), [("60000", 3), ("0", 3), ("-1", 0), (str(2**63 - 1), 0), (str(DAY), 0)]
)
def test_records_older_than_the_limit_are_deleted(age: str, offset: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 3)
        assert await start_after(cluster, user, 10 * MINUTE) == offset

    run(scenario, {"retention.ms": age})


@pytest.mark.key("retention.ms")
@pytest.mark.parametrize(
    "config",
    [
        {"log_retention_ms": HOUR},
        {"log_retention_minutes": 60},
        {"log_retention_hours": 1},
        {"log_retention_ms": HOUR, "log_retention_minutes": 1, "log_retention_hours": 9},
    ],
    ids=["ms", "minutes", "hours", "all"],
)
def test_broker_retention_time_is_set_in_milliseconds_minutes_or_hours(
    config: dict[str, int],
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 3)
        assert await start_after(cluster, user, 59 * MINUTE) == 0
        assert await start_after(cluster, user, 7 * MINUTE) == 3

    run(scenario, **config)


def test_records_are_kept_for_a_week_by_default() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        now = cluster.clock.wall_ms()
        await produce(user, 2, now - 7 * DAY - MINUTE)
        await produce(user, 2, now - 7 * DAY + HOUR)
        assert await start_after(cluster, user, 10 * MINUTE) == 2

    run(scenario)


def test_topic_setting_keeps_records_that_the_broker_default_would_delete() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 2)
        assert await start_after(cluster, user, 10 * MINUTE) == 0
        topic = Resource(ResourceType.TOPIC, "t")
        await user.admin.alter_configs({topic: {"retention.ms": str(MINUTE)}})
        assert await start_after(cluster, user, 10 * MINUTE) == 2

    run(scenario, {"retention.ms": "-1"}, log_retention_ms=1)


def test_records_with_future_timestamps_are_kept_until_they_are_old() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 1, cluster.clock.wall_ms() + HOUR)
        await produce(user, 2)
        assert await start_after(cluster, user, 30 * MINUTE) == 0
        assert await start_after(cluster, user, 45 * MINUTE) == 3

    run(scenario, {"retention.ms": str(10 * MINUTE)})


def test_retention_uses_the_append_time_with_log_append_time() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 2, timestamp=1)
        assert await start_after(cluster, user, 30 * MINUTE) == 0
        assert await start_after(cluster, user, 40 * MINUTE) == 2

    run(scenario, {"retention.ms": str(HOUR), "message.timestamp.type": "LogAppendTime"})


@pytest.mark.key("retention.bytes")
@pytest.mark.parametrize(
    ("limit", "offset"),
    [(0, 5), (1, 4), (2 * BATCH, 3), (2 * BATCH + 1, 2), (-1, 0), (2**63 - 1, 0)],
)
def test_oldest_records_beyond_the_retention_size_are_deleted(limit: int, offset: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        assert await start_after(cluster, user, 10 * MINUTE) == offset

    run(scenario, {"retention.bytes": str(limit)})


def test_broker_retention_size_applies_to_a_topic_without_retention_bytes() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        assert await start_after(cluster, user, 10 * MINUTE) == 3

    run(scenario, log_retention_bytes=2 * BATCH)


@pytest.mark.parametrize(("policy", "offset"), [("delete", 3), ("compact,delete", 3)])
def test_old_records_are_deleted_only_if_the_policy_contains_delete(
    policy: str, offset: int
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for _ in range(3):
            record = Record(key=b"k", value=b"v" * 100)
            await user.produce("t", [record], partition=0)
        assert await start_after(cluster, user, 10 * MINUTE) == offset

    run(scenario, {"cleanup.policy": policy, "retention.ms": "60000"})


@pytest.mark.key("log.initial.task.delay.ms", "log.retention.check.interval.ms")
@pytest.mark.parametrize("delay", [20_000, 120_000])
def test_retention_is_checked_after_the_delay_and_then_at_each_interval(delay: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user)
        assert await start_in(cluster, user, delay - 2_000) == 0
        assert await start_in(cluster, user, 3_000) == 1
        await produce(user)
        assert await start_in(cluster, user, 8_000) == 1
        assert await start_in(cluster, user, 3_000) == 2

    run(
        scenario,
        {"retention.ms": "0"},
        log_initial_task_delay_ms=delay,
        log_retention_check_interval_ms=10_000,
    )


def test_retention_is_checked_at_the_start_without_a_delay() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user)
        assert await start_in(cluster, user, 2_000) == 1

    run(scenario, {"retention.ms": "0"})
