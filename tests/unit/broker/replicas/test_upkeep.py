"""Retention on whole brokers in virtual time: what is deleted, when, and in which order on disk."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from support.storage.logs import produce as produce_to

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.replicas.upkeep import Upkeep
from minikafka.broker.turns import Scheduler
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.batch import build
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.cluster import LOG_DIR, MemoryCluster
from minikafka.simulation.descriptors import FewDescriptors
from minikafka.simulation.files import former_bytes
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import InlineExecutor
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.manager import LogManager
from minikafka.storage.log.retention import SEGMENTS_MAX
from minikafka.storage.replication.partition import Partition

T0 = TopicPartition("t", 0)
DIRECTORY = f"{LOG_DIR}/t-0"
SECOND, MINUTE = 1_000, 60_000
BATCH = len(build([Record(timestamp=0, value=b"v" * 50)]))
"""Bytes of a batch of `produce`; a segment holds two."""
KEPT = 3 * BATCH
QUICK = {
    "log_segment_bytes": 2 * BATCH,
    "log_initial_task_delay_ms": 0,
    "log_retention_check_interval_ms": SECOND,
}

BOTH_POLICIES = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": str(2 * BATCH + 10),
    "retention.bytes": str(BATCH),
    "min.compaction.lag.ms": str(MINUTE),
}

Scenario = Callable[[MemoryCluster, Client], Awaitable[None]]


def run(scenario: Scenario, brokers: int = 1, seed: int = 1, **config: object) -> None:
    """Run a scenario on a cluster with this broker configuration. Every broker has a replica of `t`."""

    async def scene() -> None:
        async with MemoryCluster(brokers, **QUICK, **config) as cluster, cluster.client() as user:
            replicas = tuple(range(brokers))
            await user.create_topics(NewTopic("t", assignment={0: replicas}))
            await scenario(cluster, user)

    run_seeded(seed, scene())


async def produce(user: Client, count: int = 1) -> None:
    """Produce `count` batches of one record with the current time."""
    for _ in range(count):
        await user.produce("t", [Record(value=b"v" * 50)], partition=0)


def hosted(cluster: MemoryCluster, broker: int = 0) -> Partition:
    return cluster.brokers[broker].replicas.partitions[T0]


def starts(cluster: MemoryCluster) -> list[int]:
    """Return the log start offset of every replica."""
    return [hosted(cluster, number).log.log_start_offset for number in cluster.brokers]


def log_files(cluster: MemoryCluster, suffix: str, broker: int = 0) -> list[int]:
    """Return the base offsets of the segment files with this suffix."""
    names = cluster.storages[broker].names(DIRECTORY)
    return [int(name[:20]) for name in names if name.endswith(suffix) and name[:20].isdigit()]


def test_old_segments_are_deleted_and_newer_segments_are_kept() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 4)
        await cluster.clock.sleep(5 * MINUTE)
        await produce(user, 3)
        await cluster.clock.sleep(6 * MINUTE)
        assert await user.list_offsets("t", "earliest") == {0: 4}
        assert log_files(cluster, ".log") == [4, 6]
        await cluster.clock.sleep(5 * MINUTE)
        assert await user.list_offsets("t", "earliest") == {0: 7}
        assert log_files(cluster, ".log") == [7]
        await produce(user)
        assert (await user.fetch("t", 0, 7)).records[0].offset == 7

    run(scenario, log_retention_ms=10 * MINUTE)


@pytest.mark.key("log.cleaner.enable")
@pytest.mark.parametrize(("enabled", "left"), [(True, [4]), (False, [0, 2, 4])])
def test_compact_and_delete_log_keeps_old_segments_when_the_cleaner_is_disabled(
    enabled: bool, left: list[int]
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("kept", 1, 1, configs=BOTH_POLICIES))
        for _ in range(5):
            await user.produce("kept", [Record(value=b"v" * 50, key=b"k")], partition=0)
        await cluster.clock.sleep(2 * SECOND)
        log = cluster.brokers[0].replicas.partitions[TopicPartition("kept", 0)].log
        assert [segment.base_offset for segment in log.segments] == left

    run(scenario, log_cleaner_enable=enabled)


def test_files_of_a_removed_segment_are_deleted_after_the_delay() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.clock.sleep(2 * SECOND)
        assert log_files(cluster, ".log.deleted") == [0]
        assert log_files(cluster, ".log") == [2, 4]
        await cluster.clock.sleep(20 * SECOND)
        assert log_files(cluster, ".log.deleted") == [0]
        await cluster.clock.sleep(11 * SECOND)
        assert log_files(cluster, ".deleted") == []

    run(scenario, log_retention_bytes=KEPT, log_segment_delete_delay_ms=30 * SECOND)


def test_broker_start_deletes_the_files_of_removed_segments() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.clock.sleep(2 * SECOND)
        assert log_files(cluster, ".deleted") == [0, 0, 0]
        await cluster.stop(0)
        await cluster.start(0)
        assert log_files(cluster, ".deleted") == []
        assert await user.list_offsets("t", "earliest") == {0: 2}

    run(scenario, log_retention_bytes=KEPT)


def test_each_segment_deletion_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.clock.sleep(2 * SECOND)
        await user.admin.delete_records({T0: 5})
        await cluster.clock.sleep(2 * SECOND)

    with caplog.at_level(logging.INFO, "minikafka.broker.replicas.upkeep"):
        run(scenario, log_retention_bytes=KEPT)
    assert caplog.messages == [
        f"partition t-0: deleting 1 segment, offsets 0 to 1, due to retention size "
        f"{KEPT} breach; the log size after deletion is {KEPT}",
        "partition t-0: deleting 1 segment, offsets 2 to 3, due to log start offset 5 breach",
    ]


def test_consumer_of_deleted_records_gets_offset_out_of_range() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.clock.sleep(2 * SECOND)
        with pytest.raises(KafkaError) as refused:
            await user.fetch("t", 0, 1)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await user.fetch("t", 0, 2)).records[0].offset == 2

    run(scenario, log_retention_bytes=KEPT)


def test_waiting_consumer_continues_after_every_record_was_deleted() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 3)
        stream = user.consume("t", start=2)
        assert (await anext(stream)).offset == 2
        await cluster.clock.sleep(2 * MINUTE)
        assert starts(cluster) == [3]
        await produce(user)
        assert (await anext(stream)).offset == 3

    run(scenario, log_retention_ms=MINUTE)


def test_followers_delete_the_segments_that_their_leader_deletes() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.clock.sleep(3 * SECOND)
        assert starts(cluster) == [2, 2, 2]
        assert [log_files(cluster, ".log", number) for number in range(3)] == [[2, 4]] * 3
        await user.admin.delete_records({T0: 5})
        assert starts(cluster) == [5, 5, 5]
        await cluster.clock.sleep(2 * SECOND)
        assert [log_files(cluster, ".log", number) for number in range(3)] == [[4]] * 3

    run(scenario, 3, log_retention_bytes=KEPT)


def test_new_leader_keeps_the_log_start_offset_of_the_former_leader() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.clock.sleep(2 * MINUTE)
        assert starts(cluster) == [5, 5]
        await cluster.stop(0)
        assert await user.list_offsets("t", "earliest") == {0: 5}
        await produce(user)
        await cluster.start(0)
        await cluster.clock.sleep(5 * SECOND)
        assert [hosted(cluster, number).log.log_end_offset for number in range(2)] == [6, 6]
        assert hosted(cluster, 1).isr == (1, 0)

    run(scenario, 2, log_retention_ms=MINUTE)


def test_follower_that_was_down_for_long_restarts_at_the_leaders_log_start() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.stop(1)
        for _ in range(3):
            await produce(user, 2)
            await cluster.clock.sleep(MINUTE)
        await produce(user, 2)
        await cluster.start(1)
        await cluster.clock.sleep(5 * SECOND)
        leader, follower = hosted(cluster, 0).log, hosted(cluster, 1).log
        assert leader.log_start_offset > 5
        assert follower.log_start_offset == leader.log_start_offset
        assert follower.log_end_offset == leader.log_end_offset == 13
        assert set(hosted(cluster, 0).isr) == {0, 1}

    run(scenario, 2, log_retention_ms=MINUTE)


def test_log_start_checkpoint_is_durable_before_the_first_file_is_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        storage = cluster.storages[0]
        await produce(user, 5)
        rename, seen = storage.rename, []

        def watched(old: str, new: str, *, sync: bool = True) -> None:
            checkpoint = f"{LOG_DIR}/log-start-offset-checkpoint"
            seen.append((storage.read(checkpoint), checkpoint in storage.synced))
            rename(old, new, sync=sync)

        monkeypatch.setattr(storage, "rename", watched)
        await cluster.clock.sleep(2 * SECOND)
        assert set(seen) == {(b"0\n1\nt 0 2\n", True)}

    run(scenario, log_retention_bytes=KEPT)


@pytest.mark.parametrize("part", ["log-start-offset-checkpoint", "t-0"])
def test_failed_segment_removal_takes_the_log_directory_offline(part: str) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        cluster.storages[0].fail(f"{LOG_DIR}/{part}", errno.EIO)
        await cluster.clock.sleep(2 * SECOND)
        assert hosted(cluster).offline
        assert cluster.brokers[0].replicas.logs.failed_directories == 1

    run(scenario, log_retention_bytes=KEPT)


def test_failed_deletion_of_segment_files_takes_the_log_directory_offline() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        await cluster.clock.sleep(2 * SECOND)
        cluster.storages[0].fail(f"{DIRECTORY}/{0:020d}.log.deleted", errno.EIO)
        await cluster.clock.sleep(MINUTE + SECOND)
        assert hosted(cluster).offline

    run(scenario, log_retention_bytes=KEPT)


def test_metrics_count_segments_and_bytes_that_retention_deletes() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 5)
        size = hosted(cluster).log.size
        await cluster.clock.sleep(2 * SECOND)
        totals = cluster.brokers[0].metrics.totals()
        assert totals["DeletedSegmentsPerSec"] == 1
        assert totals["DeletedBytesPerSec"] == size - hosted(cluster).log.size

    run(scenario, log_retention_bytes=KEPT)


def test_broker_description_has_log_size_and_oldest_timestamp_of_a_replica() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        (row,) = cluster.brokers[0].describe()["replicas"]
        assert (row["size"], row["earliest_timestamp"]) == (0, None)
        before = cluster.clock.wall_ms()
        await produce(user, 5)
        await cluster.clock.sleep(2 * SECOND)
        (row,) = cluster.brokers[0].describe()["replicas"]
        assert (row["log_start_offset"], row["size"]) == (2, KEPT)
        assert before <= row["earliest_timestamp"] < cluster.clock.wall_ms() - SECOND
        hosted(cluster).offline = True
        (row,) = cluster.brokers[0].describe()["replicas"]
        assert row["earliest_timestamp"] is None

    run(scenario, log_retention_bytes=KEPT)


class SlowClock(LoopClock):
    """A clock that advances 3 ms each time it is read; `turns` counts the callbacks of the scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.time = self.turns = 0

    def now(self) -> int:
        self.time += 3
        return self.time

    def call_later(self, ms: float, callback: Callable[[], None]) -> Any:
        self.turns += 1
        return super().call_later(ms, callback)


async def test_retention_pass_yields_to_the_event_loop_after_a_few_segments() -> None:
    clock, storage = SlowClock(), MemoryStorage()
    broker = BrokerConfig.from_mapping(
        {"broker.id": 0, "log.dirs": "/d", "zookeeper.connect": "h:1", "log.retention.ms": 1}
    )
    logs = LogManager(storage, broker, clock, InlineExecutor())
    await logs.start("c")
    partitions = {}
    settings = replace(TopicConfig.from_broker(broker, {}), segment_bytes=BATCH)
    for number in range(3):
        tp = TopicPartition("t", number)
        log = logs.create(tp, None, settings, is_new=True)
        produce_to(log, *[1] * 100, size=50)
        partitions[tp] = Partition(tp, 0, log, 1_000, lambda _: True)
        partitions[tp].restore_high_watermark(100)
    upkeep = Upkeep(
        logs,
        partitions,
        broker,
        clock,
        TaskRegistry(print),
        Scheduler(clock, lambda now: None).slices(),
        Partition.advance_log_start_offset,
        print,
    )
    await upkeep.apply_retention()
    assert upkeep.deleted_segments == 300
    plans, removals = 3 * (100 // SEGMENTS_MAX + 1), 3 * (100 // 16 + 1)
    assert clock.turns >= plans + removals


def test_new_log_gets_a_durable_name_and_topic_id_without_forced_fsyncs() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 1)
        await cluster.clock.sleep(SECOND)
        left = cluster.storages[0].power_cut(former_bytes)
        assert left.read(f"{DIRECTORY}/partition.metadata").startswith(b"version: 0\ntopic_id: ")

    run(scenario)


def test_retention_without_a_free_descriptor_waits_for_its_next_check() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await produce(user, 1)
        await cluster.clock.sleep(SECOND)  # the name of the log becomes durable
        few = FewDescriptors(cluster.storages[0])
        few.lacks = lambda path, at: path.startswith(DIRECTORY) and few.failed < 1_000
        await cluster.clock.sleep(10 * MINUTE + 5 * SECOND)
        assert 3 < few.failed < 20
        assert starts(cluster) == [0]
        few.heal()
        await cluster.clock.sleep(2 * SECOND)
        assert starts(cluster) == [1]

    run(scenario, log_retention_ms=10 * MINUTE)
