"""A power loss of all brokers, after which file systems return zeros, or less, for what was not fsynced.

With flush.messages=1 every acknowledged record is fsynced on all replicas in the ISR. No record that is younger than
retention.ms may be gone after the restart, whatever the other files of the log contain.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from support.storage.logs import TP, config, offsets, produce, read_all

from minikafka.base.config import TopicConfig
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.batch import build
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.files import (
    BytesLeft,
    NamesLeft,
    all_names,
    former_bytes,
    names_of_last_fsync,
    some_names,
)
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.directory import LogDirectory
from minikafka.storage.log.log import Log
from minikafka.storage.log.retention import plan

pytestmark = pytest.mark.usefixtures("each_mode")

SECOND = 1_000
BATCH = len(build([Record(timestamp=0, value=bytes(60))]))
STEP = 20 * SECOND
RETENTION = 250 * SECOND
"""A segment has the records of 200 seconds."""
KEYS = {
    "log_segment_bytes": 10 * BATCH,
    "log_index_interval_bytes": BATCH,
    "log_flush_interval_messages": 1,
    "log_flush_offset_checkpoint_interval_ms": 3 * SECOND,
    "log_retention_ms": RETENTION,
    "log_retention_check_interval_ms": 2 * SECOND,
    "log_initial_task_delay_ms": SECOND,
    "log_segment_delete_delay_ms": SECOND,
    "default_replication_factor": 3,
}
PAGE = 64
"""Size of a page that is lost as a whole; the files of these tests are small."""

INDEXES = {"timeindex": 12, "index": 8}
"""Suffix of each kind of index file → size of an entry."""


def is_index(path: str) -> int:
    """Return the size of an entry of an index file, 0 for another file."""
    return INDEXES.get(path.rpartition(".")[2], 0)


def zeros(path: str, data: bytes, former: bytes) -> bytes:
    return bytes(len(data))


def nothing(path: str, data: bytes, former: bytes) -> bytes:
    return b""


def zeroed_indexes(path: str, data: bytes, former: bytes) -> bytes:
    return bytes(len(data)) if is_index(path) else data


def one_zeroed_entry(path: str, data: bytes, former: bytes) -> bytes:
    return bytes(size) if (size := is_index(path)) else data


def first_entries(path: str, data: bytes, former: bytes) -> bytes:
    """Keep only the first entry of each index file, as if an earlier version of the file had remained."""
    return data[:size] if (size := is_index(path)) else data


def some_pages(path: str, data: bytes, former: bytes) -> bytes:
    """Replace some pages by zeros, and cut the file behind one of them."""
    rng = Random(path)
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    kept = [page if rng.random() < 0.5 else bytes(len(page)) for page in pages]
    return b"".join(kept[: rng.randint(0, len(kept))])


class Producing:
    """Produces one record after the other, and advances the wall clocks by `STEP` after each record.

    `acknowledged`: the offset of each acknowledged record → its timestamp and value.
    """

    def __init__(self, cluster: MemoryCluster, user: Client) -> None:
        self.cluster = cluster
        self.user = user
        self.acknowledged: dict[int, tuple[int, bytes]] = {}

    async def run(self, count: int) -> None:
        clock = self.cluster.clock
        for _ in range(count):
            value, now = b"%060d" % len(self.acknowledged), clock.wall_ms()
            record = Record(timestamp=now, value=value)
            (produced,) = await self.user.produce("t", [record], partition=0)
            self.acknowledged[produced.offset] = now, value
            clock.skipped_ms += STEP

    def young(self) -> dict[int, bytes]:
        """Return the acknowledged records that retention must keep."""
        oldest = self.cluster.clock.wall_ms() - RETENTION
        rows = self.acknowledged.items()
        return {offset: value for offset, (time, value) in rows if time >= oldest}


def cut_power(
    cluster: MemoryCluster, remains: BytesLeft, names: NamesLeft = names_of_last_fsync
) -> None:
    for number in list(cluster.brokers):
        cluster.lose_power(number, remains, names)
        cluster.end_session(number)


async def restart(cluster: MemoryCluster) -> None:
    for number in cluster.storages:
        await cluster.start(number)


async def read(user: Client) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    async with asyncio.timeout(120):
        position = (await user.list_offsets("t", "earliest"))[0]
        end = (await user.list_offsets("t", "latest"))[0]
        while position < end:
            fetched = await user.fetch("t", 0, position)
            found |= {record.offset: record.value or b"" for record in fetched.records}
            position = max(found, default=position) + 1
    return found


@pytest.mark.parametrize(
    "remains", [zeros, nothing, zeroed_indexes, one_zeroed_entry, first_entries, some_pages]
)
def test_power_loss_of_all_brokers_loses_no_acknowledged_record(remains: BytesLeft) -> None:
    async def scene() -> None:
        async with MemoryCluster(3, **KEYS) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", 1, 3))
            producing = Producing(cluster, user)
            for _ in range(2):
                await producing.run(33)
                await cluster.clock.sleep(5 * SECOND)
                await producing.run(2)
                cut_power(cluster, remains)
                await restart(cluster)
                await cluster.clock.sleep(10 * SECOND)
                found = await read(user)
                assert found.items() >= producing.young().items()
            assert min(found) > 40, "retention deletes old records"

    run_seeded(1, scene())


@pytest.mark.parametrize(
    "remains", [zeros, nothing, former_bytes, one_zeroed_entry, first_entries, some_pages]
)
def test_power_loss_at_any_file_operation_loses_no_fsynced_record(remains: BytesLeft) -> None:
    """Produce to one log and write checkpoints, then check the log as it is after a loss before each operation."""
    storage = MemoryStorage()
    directory = LogDirectory(storage, "/d")
    directory.lock()
    settings = config(
        segment_bytes=4 * BATCH,
        index_interval_bytes=BATCH,
        flush_messages=1,
        retention_ms=RETENTION,
    )
    log = directory.create(TP, settings)
    lost: list[tuple[int, MemoryStorage]] = []

    def cut(path: str) -> None:
        end = log.written_log_end_offset
        models = (names_of_last_fsync, some_names(len(lost)), all_names)
        lost.extend((end, storage.power_cut(remains, names)) for names in models)

    storage.before_change = cut
    for number in range(18):
        produce(log, 1, size=60, timestamp=number * SECOND)
        if number % 5 == 4:
            log.checkpoint_indexes()
            directory.write_recovery_points()
    directory.close()
    assert len(lost) > 450
    for acknowledged, left in lost:
        check_log(left, settings, acknowledged)


def check_log(left: MemoryStorage, settings: TopicConfig, acknowledged: int) -> None:
    """Check that the log has every acknowledged record, and that its time indexes let no record expire too early."""
    directory = LogDirectory(left, "/d")
    directory.open_logs(settings)
    if TP not in directory.logs:
        assert not acknowledged, "the directory of the log is gone"
        return
    log = directory.logs[TP]
    assert log.log_end_offset >= acknowledged
    assert offsets(read_all(log))[:acknowledged] == list(range(acknowledged))
    for slot, segment in enumerate(log.segments):
        end = log.segments[slot + 1].base_offset if slot + 1 < len(log.segments) else acknowledged
        assert first_kept(log, (end - 1) * SECOND + RETENTION) <= segment.base_offset
    assert first_kept(log, 60 * SECOND + RETENTION) == log.log_end_offset


def first_kept(log: Log, wall_ms: int) -> int:
    planned = plan(log, log.log_end_offset, wall_ms)
    return planned.log_start_offset if planned is not None else log.log_start_offset
