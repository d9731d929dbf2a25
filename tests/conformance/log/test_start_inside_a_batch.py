"""A follower whose log is empty, and a leader whose log start offset lies inside a batch, as after DeleteRecords.

The leader sends whole batches, so the first batch of the follower begins below the log start offset. The last test
runs on whole brokers in memory.
"""

from __future__ import annotations

import asyncio

import pytest
from support.storage.logs import (
    batch,
    end_marker,
    offsets,
    produce,
    read_all,
    replicate,
    segments_of,
)
from support.storage.replication import KEY, TP, Replicas
from support.until import until

from minikafka.base.errors import CorruptBatch, ErrorCode, KafkaError, OffsetGap
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.simulation.cluster import LOG_DIR, MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.directory import LogDirectory
from minikafka.storage.log.log import Log
from minikafka.storage.replication.follower import DELAYED, FETCHING

FOLLOWER = 1


def values(first: int, after: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, after)]


def leader_with_start(start: int, *counts: int, **config: str) -> Replicas:
    """Return a leader with batches of these numbers of records and this log start offset, and an empty follower."""
    world = Replicas((0, FOLLOWER), isr=(0,), **config)
    world.elect(0)
    end = 0
    for count in counts:
        world.produce(0, *values(end, end + count), acks=1)
        end += count
    world[0].partition.maybe_advance_high_watermark(world.now)
    world[0].partition.advance_log_start_offset(start)
    return world


def is_in_sync(world: Replicas) -> bool:
    world.commit_isr(0)
    return world.isr == (0, FOLLOWER)


@pytest.mark.parametrize("start", [1, 50, 99, 100, 101, 150, 199, 200])
def test_empty_follower_copies_a_log_that_begins_at_any_offset(start: int) -> None:
    world = leader_with_start(start, 100, 100)
    world.sync(0, FOLLOWER)
    follower = world[FOLLOWER]
    assert read_all(world[0].log).endswith(read_all(follower.log))
    assert follower.values() == (values(start // 100 * 100, 200) if start < 200 else [])
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (start, 200)
    assert follower.log.epochs.entries == ([(0, start)] if start < 200 else [])
    assert follower.hw == 200
    assert is_in_sync(world)


def test_follower_that_ends_below_the_leaders_start_restarts_inside_a_batch() -> None:
    world = Replicas((0, FOLLOWER), isr=(0,))
    world.elect(0)
    world.produce(0, *values(0, 100), acks=1)
    world.sync(0, FOLLOWER)
    world.crash(FOLLOWER)
    world.elect(0, isr=(0,))
    world.produce(0, *values(100, 200), acks=1)
    world[0].partition.advance_log_start_offset(150)
    world.restart(FOLLOWER, checkpoint=100)
    world.elect(0)
    world.sync(0, FOLLOWER)
    follower = world[FOLLOWER].log
    assert (follower.log_start_offset, follower.log_end_offset) == (150, 200)
    assert [segment.base_offset for segment in follower.segments] == [100]


def test_restarted_follower_reads_its_log_that_starts_inside_a_batch() -> None:
    world = leader_with_start(50, 100)
    world.sync(0, FOLLOWER)
    world.crash(FOLLOWER)
    world.restart(FOLLOWER, checkpoint=100)
    world[FOLLOWER].log.advance_log_start_offset(50)
    world.elect(0)
    world.produce(0, *values(100, 103), acks=1)
    world.sync(0, FOLLOWER)
    assert world[FOLLOWER].entries() == world[0].entries()
    assert world[FOLLOWER].log.epochs.entries == [(0, 50), (1, 100)]


def test_replica_whose_log_starts_inside_a_batch_leads_and_serves_an_empty_replica() -> None:
    world = leader_with_start(50, 100)
    world.sync(0, FOLLOWER)
    world.commit_isr(0)
    world.elect(FOLLOWER)
    assert world[FOLLOWER].log.log_start_offset == 50
    world.produce(FOLLOWER, b"100")
    world[0].partition.truncate_fully_and_start_at(0)
    world.sync(FOLLOWER, 0)
    assert world[0].values() == world[FOLLOWER].values() == values(0, 101)
    assert world[0].log.log_start_offset == 50


def test_log_that_starts_inside_a_batch_loses_more_records_by_deletion() -> None:
    world = leader_with_start(50, 100, 100)
    world.sync(0, FOLLOWER)
    for start in (70, 130):
        world[0].partition.advance_log_start_offset(start)
        world.sync(0, FOLLOWER)
        assert world[FOLLOWER].log.log_start_offset == start
        assert world[FOLLOWER].log.offset_for_timestamp(0, 200) == (1000, start, 0)
        assert world[FOLLOWER].log.latest_record(200) == (1000, start, 0)


def test_follower_copies_a_compacted_log_that_begins_inside_a_batch() -> None:
    world = leader_with_start(0, 1, cleanup_policy="compact,delete")
    leader = world[0].log
    replicate(leader, bytes(batch(60, base_offset=10, leader_epoch=0)))
    replicate(leader, bytes(batch(5, base_offset=90, leader_epoch=0)))
    world[0].partition.maybe_advance_high_watermark(world.now)
    world[0].partition.advance_log_start_offset(50)
    world.sync(0, FOLLOWER)
    follower = world[FOLLOWER].log
    assert offsets(read_all(follower)) == [*range(10, 70), *range(90, 95)]
    assert (follower.log_start_offset, follower.log_end_offset) == (50, 95)
    assert follower.gaps.first_dirty_offset is not None
    assert follower.gaps.first_dirty_offset <= 50
    assert is_in_sync(world)


def test_follower_of_a_formerly_compacted_topic_copies_a_gap_after_the_first_batch() -> None:
    world = leader_with_start(0, 1)
    leader = world[0].log
    leader.gaps.mark(0)
    replicate(leader, bytes(batch(60, base_offset=10, leader_epoch=0)))
    replicate(leader, bytes(batch(5, base_offset=90, leader_epoch=0)))
    world[0].partition.maybe_advance_high_watermark(world.now)
    world[0].partition.advance_log_start_offset(50)
    for _ in range(3):
        world.sync(0, FOLLOWER, rounds=2)
        world.retry(FOLLOWER)
    assert offsets(read_all(world[FOLLOWER].log)) == [*range(10, 70), *range(90, 95)]
    assert world[FOLLOWER].log.log_start_offset == 50


def test_last_stable_offset_of_a_log_inside_a_transactional_batch_is_the_log_start() -> None:
    world = leader_with_start(0)
    open_batch = batch(
        100,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
        leader_epoch=0,
    )
    replicate(world[0].log, bytes(open_batch))
    world[0].partition.maybe_advance_high_watermark(world.now)
    world[0].partition.advance_log_start_offset(50)
    world.sync(0, FOLLOWER)
    follower = world[FOLLOWER].partition
    assert follower.last_stable_offset == world[0].partition.last_stable_offset == 50
    produce_marker(world)
    world.sync(0, FOLLOWER)
    assert follower.last_stable_offset == follower.high_watermark == 101


def produce_marker(world: Replicas) -> None:
    marker = end_marker()
    world[0].purgatory.dirty.append(world[0].partition)
    world[0].partition.append_as_leader(memoryview(marker), -1, world.now, 0, internal=True)
    world[0].purgatory.finish_tick(world.now)


def test_new_leader_recognizes_a_retry_of_the_batch_that_holds_its_log_start() -> None:
    world = leader_with_start(0)
    world.produce(0, *values(0, 100), producer=(9, 0, 0), acks=1)
    world[0].partition.maybe_advance_high_watermark(world.now)
    world[0].partition.advance_log_start_offset(50)
    world.sync(0, FOLLOWER)
    world.commit_isr(0)
    world.elect(FOLLOWER)
    assert world.produce(FOLLOWER, *values(0, 100), producer=(9, 0, 0)) == 100
    assert world[FOLLOWER].log.log_end_offset == 100


class TestRefusals:
    """First batches that an empty log refuses: the log stays as it was, and the error names the true cause."""

    @pytest.fixture
    def log(self) -> Log:
        world = Replicas((0,))
        world[0].log.truncate_fully_and_start_at(50)
        return world[0].log

    def refusal(self, log: Log, data: bytes) -> str:
        with pytest.raises(CorruptBatch) as caught:
            replicate(log, data)
        assert (log.log_start_offset, log.log_end_offset, log.size) == (50, 50, 0)
        assert segments_of(log) == [50]
        return str(caught.value)

    def test_batch_wholly_below_the_log_start_is_refused(self, log: Log) -> None:
        text = "the batch of offsets 0 to 49 begins below offset 50"
        assert self.refusal(log, bytes(batch(50))) == text

    def test_batch_that_holds_the_log_start_but_has_a_wrong_crc_is_refused(self, log: Log) -> None:
        data = batch(100)
        data[-1] ^= 1
        assert self.refusal(log, bytes(data)) == "the batch at offset 0 has a wrong CRC"

    def test_gap_after_the_first_batch_is_refused(self, log: Log) -> None:
        text = self.refusal(log, bytes(batch(100) + batch(base_offset=110)))
        assert text == "offsets 100 to 109 are missing"

    def test_invalid_second_batch_is_refused(self, log: Log) -> None:
        text = self.refusal(log, bytes(batch(100) + batch(base_offset=100)[:-1]))
        assert text.startswith("the batch at offset 100 is cut off after ")

    def test_batch_below_the_end_of_a_log_with_records_is_refused(self, log: Log) -> None:
        replicate(log, bytes(batch(10, base_offset=50)))
        with pytest.raises(CorruptBatch, match="of offsets 0 to 99 begins below offset 60"):
            replicate(log, bytes(batch(100)))
        assert (log.log_start_offset, log.log_end_offset) == (50, 60)


def test_follower_logs_the_true_reason_for_which_it_refuses_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = leader_with_start(0, 3)
    world.sync(0, FOLLOWER)
    machine = world[FOLLOWER].follower
    data = bytearray(build([Record(value=b"x")] * 2, base_offset=2, leader_epoch=0))
    machine.on_partition(KEY, 0, 3, 0, (data, memoryview(data), 0, len(data)), None)
    assert machine.followed[KEY].state == DELAYED
    text = "refusing the leader's records: the batch of offsets 2 to 3 begins below offset 3"
    assert caplog.messages[-1] == f"partition {TP}: {text}"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((16, 1), "the batch at offset 0 has magic 1, expected 2"),
        ((11, 48), "the batch at offset 0 has length 48, expected at least 49"),
        ((11, 255), "the batch at offset 0 is cut off after 78 of 267 bytes"),
        ((20, 0), "the batch at offset 0 has a wrong CRC"),
        ((7, 4), "offsets 0 to 3 are missing"),
        (None, "the batch at offset 0 is cut off after 60 bytes"),
    ],
)
def test_refused_batch_is_described_by_its_true_fault(
    change: tuple[int, int] | None, reason: str
) -> None:
    log, data = Replicas((0,))[0].log, batch()
    if change:
        data[change[0]] = change[1]
    else:
        del data[60:]
    with pytest.raises(CorruptBatch) as caught:
        replicate(log, bytes(data))
    assert str(caught.value) == reason
    assert isinstance(caught.value, OffsetGap) == reason.endswith("missing")


def test_empty_follower_restarts_again_when_the_leader_deletes_more_before_its_fetch() -> None:
    world = leader_with_start(50, 100, 100)
    machine, nothing = world[FOLLOWER].follower, (bytearray(), memoryview(b""), 0, 0)
    world.ask(FOLLOWER, 0)
    machine.next_fetch()
    machine.on_partition(KEY, ErrorCode.OFFSET_OUT_OF_RANGE, -1, 50, nothing, None)
    world[0].partition.advance_log_start_offset(150)
    world.sync(0, FOLLOWER)
    assert world[FOLLOWER].log.log_start_offset == 150
    assert world[FOLLOWER].entries() == world[0].entries()
    assert machine.followed[KEY].state == FETCHING


def test_kill_at_any_file_operation_of_a_restart_below_the_log_start_leaves_a_valid_log() -> None:
    storage = MemoryStorage()
    directory = LogDirectory(storage, "/d")
    directory.lock()
    config = Replicas((0,)).config
    log = directory.create(TP, config)
    produce(log, 3)
    log.truncate_fully_and_start_at(50)
    killed: list[MemoryStorage] = []
    storage.before_change = lambda path: killed.append(storage.clone())
    replicate(log, bytes(batch(100, leader_epoch=0)))
    killed.append(storage.clone())
    assert len(killed) > 10
    for left in killed:
        again = LogDirectory(left, "/d")
        again.open_logs(config)
        log = again.logs[TP]
        start, end = log.log_start_offset, log.log_end_offset
        assert (start, end) in [(50, 50), (50, 100), (0, 0), (3, 3)], (start, end)
        replicate(log, bytes(batch(100, leader_epoch=0))) if (start, end) == (50, 50) else None
    assert (start, end) == (50, 100)


RECORDS = [Record(value=b"%d" % number) for number in range(100)]


async def read_from(user: Client, offset: int) -> list[int]:
    return [record.offset for record in (await user.fetch("t", 0, offset)).records]


async def check_leader(cluster: MemoryCluster, user: Client, leader: int) -> None:
    """Check that this broker leads and serves exactly the records from offset 50 on."""
    partitions = cluster.brokers[leader].replicas.partitions
    await until(lambda: TP in partitions and partitions[TP].is_leader)
    assert await user.list_offsets("t", "earliest") == {0: 50}
    assert await read_from(user, 50) == list(range(50, 100))
    with pytest.raises(KafkaError) as refused:
        await read_from(user, 49)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def log_of(cluster: MemoryCluster, number: int) -> list[int]:
    log = cluster.brokers[number].replicas.partitions[TP].log
    return [*segments_of(log), log.log_start_offset, log.log_end_offset]


@pytest.mark.row("R42")
def test_wiped_and_new_replicas_copy_a_log_that_begins_inside_a_batch() -> None:
    async def scene() -> None:
        async with MemoryCluster(3) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
            await user.produce("t", RECORDS, partition=0)
            await user.admin.delete_records({TP: 50})
            await cluster.stop(1)
            cluster.storages[1].remove_tree(f"{LOG_DIR}/{TP}")
            await cluster.start(1)
            leader = cluster.brokers[0].replicas.partitions[TP]
            async with asyncio.timeout(30):
                await until(lambda: set(leader.isr) == {0, 1})
                assert log_of(cluster, 1) == [0, 50, 100]
                assert await user.admin.reassign_partition("t", 0, [2])
            assert log_of(cluster, 2) == [0, 50, 100]
            await check_leader(cluster, user, 2)
            cluster.kill(2)
            await cluster.start(2)
            await check_leader(cluster, user, 2)

    run_seeded(1, scene())
