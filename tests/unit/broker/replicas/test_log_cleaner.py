"""The log cleaner of whole brokers in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.forms import seeds
from support.storage.cleaning import latest
from support.storage.logs import read_all

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.client.administration.admin import Resource, ResourceType
from minikafka.kafka.records.batch import Record, records
from minikafka.simulation.cluster import LOG_DIR, MemoryCluster
from minikafka.simulation.files import Folder, find
from minikafka.simulation.loop import run_seeded
from minikafka.storage.log.log import Log

T0 = TopicPartition("t", 0)
TOPIC = Resource(ResourceType.TOPIC, "t")
SECOND = 1_000
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.3"}


def run(
    scenario: Callable[[MemoryCluster, Client], Awaitable[None]],
    brokers: int = 1,
    settings: dict[str, str] = COMPACT,
    **config: object,
) -> None:
    """Run a scenario on brokers with the configuration `config`, which host a topic t with the settings `settings`."""

    async def scene() -> None:
        keys = {"log_cleaner_backoff_ms": SECOND, **config}
        async with MemoryCluster(brokers, **keys) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", 1, brokers, configs=settings))
            await scenario(cluster, user)

    run_seeded(1, scene())


async def update(user: Client, rounds: int, keys: int = 5, value: bytes = b"v") -> None:
    """Write each of `keys` keys `rounds` times, one record at a time."""
    for number in range(rounds):
        for key in range(keys):
            await user.produce("t", [Record(key=b"key-%d" % key, value=b"%s-%d" % (value, number))])


def log_of(cluster: MemoryCluster, broker: int = 0) -> Log:
    partition = cluster.brokers[broker].replicas.partition(T0)
    assert partition is not None
    return partition.log


async def until_clean(cluster: MemoryCluster, broker: int = 0) -> None:
    """Wait until every segment except the active segment is clean."""
    for _ in range(100):
        log = log_of(cluster, broker)
        if log.gaps.first_dirty_offset == log.segments[-1].base_offset:
            return
        await cluster.clock.sleep(SECOND)
    raise AssertionError(log_of(cluster, broker).gaps.first_dirty_offset)


async def read(user: Client) -> list[Record]:
    return [record async for record in user.consume("t", until_end=True)]


def test_compacted_topic_keeps_the_latest_value_of_each_key() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        before = await read(user)
        await until_clean(cluster)
        after = await read(user)
        assert latest(after) == latest(before) == {b"key-%d" % key: b"v-59" for key in range(5)}
        assert len(after) < len(before) / 2
        assert set(after) < set(before)
        await update(user, 1, value=b"w")
        assert latest(await read(user))[b"key-0"] == b"w-0"

    run(scenario)


def test_copy_gets_its_name_when_the_names_of_the_replaced_segments_are_durably_gone() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        storage = cluster.storages[0]
        named: list[str] = []

        def check(path: str) -> None:
            folder = find(storage.root, f"{LOG_DIR}/{T0}")
            if path.endswith(".log.swap") and isinstance(folder, Folder):
                pending = [change.added or "" for change in folder.changes]
                assert not [name for name in pending if name.endswith(".log.deleted")]
                named.append(path)

        storage.before_change = check
        await update(user, 60)
        await until_clean(cluster)
        assert named

    run(scenario)


def test_followers_compact_their_logs_themselves() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        for broker in range(3):
            await until_clean(cluster, broker)
        logs = [log_of(cluster, broker) for broker in range(3)]
        assert {log.log_end_offset for log in logs} == {300}
        assert all(log.size < 6_000 for log in logs)

    run(scenario, brokers=3)


@pytest.mark.key("log.cleaner.enable")
@pytest.mark.parametrize("enabled", [True, False])
def test_logs_are_compacted_unless_the_cleaner_is_disabled(enabled: bool) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        await cluster.clock.sleep(30 * SECOND)
        assert bool(cluster.cleaners[0].tasks) is enabled

    run(scenario, log_cleaner_enable=enabled)


def test_no_cleaning_begins_after_the_cleaner_was_closed() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await cluster.brokers[0].cleaner.close()
        await update(user, 60)
        await cluster.clock.sleep(30 * SECOND)
        assert cluster.cleaners[0].tasks == []

    run(scenario)


@pytest.mark.key("log.cleaner.backoff.ms")
def test_cleaner_looks_for_dirty_logs_after_the_backoff() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        await cluster.clock.sleep(59 * SECOND - cluster.clock.now() % SECOND)
        assert cluster.cleaners[0].tasks == []
        await cluster.clock.sleep(2 * SECOND)
        assert cluster.cleaners[0].tasks != []

    run(scenario, log_cleaner_backoff_ms=60 * SECOND)


@pytest.mark.key("log.cleaner.io.max.bytes.per.second", "log.cleaner.threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_cleanings_share_the_io_rate_and_run_at_most_one_per_thread(threads: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("other", 3, 1, configs=COMPACT))
        await update(user, 60)
        for _ in range(60):
            for partition in range(3):
                found = [Record(key=b"k", value=b"v" * 50)]
                await user.produce("other", found, partition=partition)
        most = 0
        begun = cluster.clock.now()
        while len(cluster.cleaners[0].tasks) < 4 or cluster.cleaners[0].running:
            most = max(most, cluster.cleaners[0].running)
            await cluster.clock.sleep(10)
        took = cluster.clock.now() - begun
        assert most == threads
        # Every byte counts twice: in the map pass and in the copy pass.
        size = 2 * 60 * (3 * 120 + 5 * 90)
        assert 0.4 * size < took * 10 < 2 * size

    run(scenario, log_cleaner_io_max_bytes_per_second=10_000.0, log_cleaner_threads=threads)


@pytest.mark.key(
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
)
def test_cleaner_memory_is_divided_among_the_threads() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        await until_clean(cluster)
        task = cluster.cleaners[0].tasks[0]
        assert (task.dedupe_bytes, task.load_factor, task.io_bytes) == (3 << 20, 0.5, 50_000)

    run(
        scenario,
        log_cleaner_threads=2,
        log_cleaner_dedupe_buffer_size=6 << 20,
        log_cleaner_io_buffer_load_factor=0.5,
        log_cleaner_io_buffer_size=200_000,
    )


@pytest.mark.key("cleanup.policy")
def test_log_is_not_compacted_while_its_cleanup_policy_is_delete() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        await cluster.clock.sleep(10 * SECOND)
        assert cluster.cleaners[0].tasks == []
        await user.admin.alter_configs({TOPIC: {"cleanup.policy": "compact,delete"}})
        await until_clean(cluster)

    run(scenario, settings={**COMPACT, "cleanup.policy": "delete"})


def test_next_cleaning_uses_settings_that_were_altered_at_run_time() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        changes = {
            "log.cleaner.io.max.bytes.per.second": "12345.0",
            "log.cleaner.backoff.ms": "700",
        }
        await user.admin.alter_configs({Resource(ResourceType.BROKER, ""): changes})
        await update(user, 60)
        await until_clean(cluster)
        assert cluster.cleaners[0].tasks[-1].bytes_per_second == 12_345

    run(scenario)


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_no_update_is_lost_when_brokers_are_killed_in_the_middle_of_cleanings(seed: int) -> None:
    """Each broker is killed once while its cleaner is running, and started again."""

    async def scene() -> None:
        keys = {"log_cleaner_backoff_ms": 200, "log_cleaner_io_max_bytes_per_second": 20_000.0}
        async with MemoryCluster(3, **keys) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", 1, 3, configs=COMPACT))
            for victim in range(3):
                await update(user, 30, value=b"before-%d" % victim)
                while not cluster.cleaners[victim].running:
                    await update(user, 1, value=b"waiting")
                cluster.kill_with_session(victim)
                await update(user, 10, value=b"after-%d" % victim)
                await cluster.start(victim)
            await cluster.clock.sleep(60 * SECOND)
            for broker in range(3):
                names = cluster.storages[broker].names(f"{LOG_DIR}/t-0")
                assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []
                assert cluster.brokers[broker].cleaner.uncleanable == {}
                found = latest(records(read_all(log_of(cluster, broker))))
                assert found == {b"key-%d" % key: b"after-2-9" for key in range(5)}

    run_seeded(seed, scene())


async def damage(cluster: MemoryCluster) -> None:
    """Change a byte of the first segment of t-0."""
    path = f"{LOG_DIR}/t-0/{0:020d}.log"
    cluster.storages[0].files[path][68] ^= 1


def test_damaged_log_is_marked_uncleanable_and_other_logs_are_compacted() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("other", 1, 1, configs=COMPACT))
        await update(user, 60)
        await damage(cluster)
        for _ in range(60):
            await user.produce("other", [Record(key=b"k", value=b"v" * 50)])
        await cluster.clock.sleep(20 * SECOND)
        broker = cluster.brokers[0]
        (reason,) = broker.cleaner.uncleanable.values()
        assert "the batch at offset 0 has a wrong CRC" in reason
        assert [task.directory for task in cluster.cleaners[0].tasks].count(f"{LOG_DIR}/t-0") == 1
        assert f"{LOG_DIR}/other-0" in [task.directory for task in cluster.cleaners[0].tasks]
        (row,) = [row for row in broker.describe()["replicas"] if row["topic"] == "t"]
        assert row["compaction"] == broker.explain(T0)["replica"]["compaction"] == report(cluster)
        assert report(cluster)["uncleanable"] == reason

    run(scenario)


def report(cluster: MemoryCluster) -> dict[str, Any]:
    broker = cluster.brokers[0]
    partition = broker.replicas.partition(T0)
    assert partition is not None
    found = broker.cleaner.report(partition)
    assert found is not None
    return found


def test_cleaning_is_aborted_when_the_topic_is_deleted() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        cleaners = cluster.cleaners[0]
        while not cleaners.running:
            await cluster.clock.sleep(100)
        await user.delete_topics("t")
        while cluster.brokers[0].replicas.partition(T0) is not None:
            await cluster.clock.sleep(100)
        await cluster.clock.sleep(0)
        assert not cleaners.running
        assert cluster.brokers[0].cleaner.uncleanable == {}

    run(scenario, log_cleaner_io_max_bytes_per_second=100.0)


def test_cleaned_copy_is_dropped_when_the_log_is_truncated_meanwhile() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        cleaners = cluster.cleaners[0]
        while not cleaners.running:
            await cluster.clock.sleep(100)
        log = log_of(cluster)
        log.truncate_to(50)
        while cleaners.running:
            await cluster.clock.sleep(100)
        await cluster.clock.sleep(1)
        assert log.gaps.first_dirty_offset is None
        assert [name for name in log.storage.names(log.directory) if "cleaned" in name] == []

    run(scenario, log_cleaner_io_max_bytes_per_second=3_000.0)


def test_cleaning_is_aborted_by_a_change_to_follower_and_is_started_again() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        leader = (await user.describe_topics("t"))[0].partitions[0].leader
        cleaners = cluster.cleaners[leader]
        while not cleaners.running:
            await cluster.clock.sleep(100)
        before = len(cleaners.tasks)
        broker = cluster.brokers[leader]
        broker.replicas.roles.follows(T0, 1)
        await cluster.clock.sleep(1)
        assert not cleaners.running
        await cluster.clock.sleep(10 * SECOND)
        assert len(cleaners.tasks) > before

    run(scenario, brokers=3, log_cleaner_io_max_bytes_per_second=3_000.0)


BROKER_KEYS = {
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
}
LAG = 600 * SECOND
"""Ten minutes of virtual time, not more: brokers that do nothing still run their timers."""


def run_with(
    scenario: Callable[[MemoryCluster, Client], Awaitable[None]], where: str, **settings: object
) -> None:
    """Run a scenario with these settings, which are set for the topic or for the broker (`where`)."""
    topic = {key: COMPACT[key] for key in ("cleanup.policy", "segment.bytes")}
    named = {key.replace("_", "."): str(value) for key, value in settings.items()}
    if where == "topic":
        run(scenario, settings={**topic, **named})
    else:
        run(
            scenario,
            settings=topic,
            **{BROKER_KEYS[key].replace(".", "_"): value for key, value in named.items()},
        )


@pytest.mark.key("min.cleanable.dirty.ratio")
@pytest.mark.parametrize("where", ["topic", "broker"])
def test_log_is_cleaned_again_only_above_the_minimum_dirty_ratio(where: str) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.produce("t", [Record(key=b"%d" % i, value=b"v" * 50) for i in range(200)])
        await update(user, 60, keys=1)
        await until_clean(cluster)
        tasks = len(cluster.cleaners[0].tasks)
        await update(user, 30, keys=1)
        await cluster.clock.sleep(10 * SECOND)
        dirt = report(cluster)["dirty_ratio"]
        assert 0 < dirt < 0.9
        assert len(cluster.cleaners[0].tasks) == tasks
        await update(user, 2_000, keys=1)
        await cluster.clock.sleep(10 * SECOND)
        assert len(cluster.cleaners[0].tasks) == tasks + 1

    run_with(scenario, where, min_cleanable_dirty_ratio=0.9)


@pytest.mark.key("min.compaction.lag.ms")
@pytest.mark.parametrize("where", ["topic", "broker"])
def test_records_younger_than_min_compaction_lag_are_not_compacted(where: str) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await update(user, 60)
        await cluster.clock.sleep(LAG - 60 * SECOND)
        assert cluster.cleaners[0].tasks == []
        await cluster.clock.sleep(120 * SECOND)
        assert cluster.cleaners[0].tasks != []

    run_with(scenario, where, min_compaction_lag_ms=LAG)


@pytest.mark.key("max.compaction.lag.ms")
@pytest.mark.parametrize("where", ["topic", "broker"])
def test_records_older_than_max_compaction_lag_are_compacted_even_if_few(where: str) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.produce("t", [Record(key=b"%d" % i, value=b"v" * 50) for i in range(500)])
        await update(user, 10)
        await until_clean(cluster)
        tasks = len(cluster.cleaners[0].tasks)
        await update(user, 20)
        await cluster.clock.sleep(LAG - 60 * SECOND)
        assert len(cluster.cleaners[0].tasks) == tasks
        await cluster.clock.sleep(120 * SECOND)
        assert len(cluster.cleaners[0].tasks) == tasks + 1

    run_with(scenario, where, max_compaction_lag_ms=LAG)


@pytest.mark.key("delete.retention.ms")
@pytest.mark.parametrize("where", ["topic", "broker"])
def test_tombstones_are_removed_after_delete_retention_ms(where: str) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        async def has_marker() -> bool:
            await update(user, 60)
            await until_clean(cluster)
            return any(record.value is None for record in await read(user))

        await user.produce("t", [Record(key=b"gone", value=b"v")])
        await user.produce("t", [Record(key=b"gone", value=None)])
        assert await has_marker()
        await cluster.clock.sleep(LAG - 120 * SECOND)
        assert await has_marker()
        await cluster.clock.sleep(240 * SECOND)
        assert not await has_marker()

    run_with(scenario, where, delete_retention_ms=LAG)
