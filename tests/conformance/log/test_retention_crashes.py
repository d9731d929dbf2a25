"""A broker that is killed, or whose storage fails, at each file operation of a retention pass.

The pass deletes segments of three logs. In the first log, it deletes by time, and rolls the active segment. In the
second log, it deletes by size. In the third log, it deletes below the offset of a DeleteRecords request. The pass ends
when the files are removed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable

import pytest
from support.forms import IS_LONG
from support.storage.logs import read_all

from minikafka.base.errors import StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.batch import build, records
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log

SECOND = 1_000
BATCH = len(build([Record(timestamp=0, value=bytes(60))]))
OLD, LARGE, CUT = (TopicPartition(name, 0) for name in ("old", "large", "cut"))
ENDS = {OLD: 5, LARGE: 9, CUT: 7}
STARTS = {OLD: 5, LARGE: 6, CUT: 5}
"""Log start offsets after the pass; a segment holds two records."""
LAST_SEGMENTS = {OLD: [5], LARGE: [6, 8], CUT: [4, 6]}

Scenario = Callable[[MemoryCluster, Client], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Fill three logs of one broker, then run a scenario that starts before the retention pass."""

    async def scene() -> None:
        keys = {
            "log_segment_bytes": 2 * BATCH,
            "log_retention_check_interval_ms": SECOND,
            "log_initial_task_delay_ms": 10 * SECOND,
            "log_segment_delete_delay_ms": 3 * SECOND,
        }
        async with MemoryCluster(1, **keys) as cluster, cluster.client() as user:
            await fill(user)
            await scenario(cluster, user)

    run_seeded(1, scene())


async def fill(user: Client) -> None:
    configs = {
        OLD: {"retention.ms": "1"},
        LARGE: {"retention.bytes": str(3 * BATCH), "retention.ms": "-1"},
        CUT: {"retention.ms": "-1"},
    }
    for tp, settings in configs.items():
        await user.create_topics(NewTopic(tp.topic, configs=settings))
        for number in range(ENDS[tp]):
            await user.produce(tp.topic, [Record(value=b"%060d" % number)], partition=0)
    await user.admin.delete_records({CUT: STARTS[CUT]})


async def whole_pass(cluster: MemoryCluster) -> None:
    """Wait until retention has run and the files of removed segments are deleted."""
    await cluster.clock.sleep(18 * SECOND)


def check(storage: MemoryStorage, log: Log) -> None:
    """Check that the log start is not too high, no record above it is lost, and removed segments have no files."""
    assert log.log_start_offset <= STARTS[log.tp]
    assert log.log_end_offset == ENDS[log.tp]
    assert log.gaps.lost_from is None
    found = [(record.offset, record.value) for record in records(read_all(log))]
    begin = log.segments[0].base_offset
    assert begin <= log.log_start_offset
    assert log.segments.count_below(log.log_start_offset) == 0
    assert found == [(number, b"%060d" % number) for number in range(begin, ENDS[log.tp])]
    bases = {f"{segment.base_offset:020d}" for segment in log.segments}
    others = {"leader-epoch-checkpoint", "partition.metadata", f"{ENDS[log.tp]:020d}.snapshot"}
    names = set(storage.names(log.directory)) - others
    assert {name[:20] for name in names} <= bases, names
    assert {name[20:] for name in names} <= {".index", ".log", ".snapshot", ".timeindex"}
    epochs = log.epochs.entries
    assert not epochs or epochs[0][1] == log.log_start_offset


def states() -> list[MemoryStorage]:
    """Run a retention pass, and copy the storage before each file operation of the pass. Return the copies."""
    found: list[MemoryStorage] = []

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        storage = cluster.storages[0]
        await cluster.clock.sleep(5 * SECOND)
        storage.before_change = lambda path: found.append(storage.clone())
        await whole_pass(cluster)
        storage.before_change = lambda path: None
        logs = cluster.brokers[0].replicas.logs.logs
        for tp, log in logs.items():
            check(storage, log)
            assert log.log_start_offset == STARTS[tp]
            assert [segment.base_offset for segment in log.segments] == LAST_SEGMENTS[tp]

    run(scenario)
    return found


def test_broker_killed_at_any_file_operation_of_a_retention_pass_loses_no_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    killed = states()
    assert len(killed) > 60

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        for storage in killed:
            cluster.kill_with_session(0)
            cluster.storages[0] = storage
            caplog.clear()
            broker = await cluster.start(0)
            assert [r.message for r in caplog.records if r.levelname in ("WARNING", "ERROR")] == []
            assert set(broker.replicas.logs.logs) == set(ENDS)
            for log in broker.replicas.logs.logs.values():
                check(storage, log)
            await whole_pass(cluster)
            for tp, log in broker.replicas.logs.logs.items():
                check(storage, log)
                # A crash undoes DeleteRecords if the new log start offset was not checkpointed, as in Kafka.
                assert log.log_start_offset == STARTS[tp] or tp == CUT

    run(scenario)


def test_log_directory_goes_offline_when_storage_fails_in_a_retention_pass() -> None:
    """The storage fails at one change only or, in every second case, at that change and all later changes.

    The short form has every third change.
    """
    for position in range(0, len(states()), 1 if IS_LONG else 3):
        is_once = bool(position % 2)

        async def scenario(
            cluster: MemoryCluster,
            user: Client,
            position: int = position,
            is_once: bool = is_once,
        ) -> None:
            storage = cluster.storages[0]
            await cluster.clock.sleep(5 * SECOND)
            changes = 0

            def fail(path: str) -> None:
                nonlocal changes
                changes += 1
                if changes > position and (changes == position + 1 or not is_once):
                    raise StorageFailed(path, OSError(errno.EIO, os.strerror(errno.EIO)))

            storage.before_change = fail
            await whole_pass(cluster)
            storage.before_change = lambda path: None
            replicas = cluster.brokers[0].replicas
            assert replicas.logs.failed_directories == 1
            assert all(partition.offline for partition in replicas.partitions.values())
            cluster.kill_with_session(0)
            broker = await cluster.start(0)
            for log in broker.replicas.logs.logs.values():
                check(cluster.storages[0], log)

        run(scenario)
