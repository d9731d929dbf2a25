"""One log over storage in memory: appends, reads, truncation and disk failures."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest
from support.storage.logs import (
    DIRECTORY,
    append,
    batch,
    offsets,
    open_log,
    produce,
    read_all,
    remove_below,
    replicate,
    three_segments,
)

from minikafka.base.errors import CorruptBatch, StorageFailed
from minikafka.kafka.records.batch import records
from minikafka.kafka.records.header import HEADER
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log

SIZE = len(batch())


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def log(storage: MemoryStorage) -> Log:
    return open_log(storage)


def _failing(path: str) -> None:
    raise StorageFailed(path, OSError(errno.EIO, "fsync failed"))


def segments(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


class TestAppending:
    def test_append_stamps_offset_and_epoch_into_the_buffer(self, log: Log) -> None:
        first, second = batch(3), batch(2)
        assert append(log, first, epoch=4) == 0
        assert append(log, second, epoch=4) == 3
        assert HEADER.unpack_from(second)[:3] == (3, len(second) - 12, 4)
        assert (log.log_end_offset, log.position) == (5, len(first) + len(second))
        assert (log.written_log_end_offset, log.written_position) == (0, 0)

    def test_pending_batches_are_not_read_before_a_flush(self, log: Log) -> None:
        data = batch(3)
        append(log, data)
        assert log.read(0, log.position, 1000) == (b"", 0, 0)
        log.flush()
        assert log.read(0, log.position, 1000) == (bytes(data), 3, len(data))
        log.flush()
        assert log.written_log_end_offset == 3

    def test_last_write_is_read_from_memory_until_it_is_truncated(
        self, storage: MemoryStorage, log: Log
    ) -> None:
        produce(log, 2, 2)
        size = log.written_position // 2
        log._active.file.truncate(size)  # a read of the file would return too few bytes
        newest, offset, end = log.read(size, 2 * size, size)
        assert (len(newest), offset, end) == (size, 4, 2 * size)
        log.truncate_to(2)
        other = batch(2, timestamp=9000, base_offset=2)
        replicate(log, bytes(other))
        assert log.read(size, 2 * size, size) == (bytes(other), 4, 2 * size)

    def test_read_of_the_last_write_stops_at_the_file_position_limit(self, log: Log) -> None:
        produce(log, 2)
        size = log.written_position
        replicate(log, bytes(batch(3, base_offset=2)))
        assert log.read(0, size, 1 << 20)[1:] == (2, size)

    @pytest.mark.parametrize("size", [10, 6000], ids=["joined", "in slices"])
    def test_batches_appended_before_one_flush_are_written_in_order(
        self, log: Log, size: int
    ) -> None:
        made = [batch(2, size=size) for _ in range(5)]
        for data in made:
            append(log, data)
        log.flush()
        assert read_all(log) == b"".join(made)
        assert offsets(read_all(log)) == list(range(10))

    def test_append_records_the_start_offset_of_a_new_epoch(self, log: Log) -> None:
        produce(log, 3, epoch=1)
        produce(log, 2, epoch=4)
        assert log.epochs.entries == [(1, 0), (4, 3)]

    def test_append_updates_producer_state_before_the_flush(self, log: Log) -> None:
        data = batch(2, producer_id=9, producer_epoch=0, base_sequence=0)
        header = HEADER.unpack_from(data)
        assert log.producers.check(header) == -1
        append(log, data)
        assert log.producers.check(header) == 0


class TestRolling:
    def test_a_batch_that_does_not_fit_begins_a_segment(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_bytes=2 * SIZE)
        produce(log, *[1] * 5)
        assert segments(log) == [0, 2, 4]
        assert offsets(read_all(log)) == [0, 1, 2, 3, 4]
        names = storage.names(DIRECTORY)
        assert "00000000000000000002.snapshot" in names
        assert len(storage.read(f"{DIRECTORY}/00000000000000000002.log")) == 2 * SIZE

    def test_roll_between_two_flushes_keeps_pending_batches(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_bytes=2 * SIZE)
        made = [batch() for _ in range(5)]
        for data in made:
            append(log, data)
        log.flush()
        assert read_all(log) == b"".join(made)
        assert segments(log) == [0, 2, 4]
        assert [segment.file.size() for segment in log.segments] == [2 * SIZE, 2 * SIZE, SIZE]

    def test_batch_larger_than_a_segment_gets_its_own_segment(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_bytes=50)
        produce(log, 1, 1)
        assert segments(log) == [0, 1]

    @pytest.mark.key("segment.index.bytes")
    def test_segment_is_full_when_its_index_is_full(self, storage: MemoryStorage) -> None:
        log = open_log(storage, index_interval_bytes=0, segment_index_bytes=16)
        produce(log, *[1] * 7)
        assert segments(log) == [0, 3, 6]
        assert [len(segment.index) for segment in log.segments] == [2, 2, 0]

    @pytest.mark.key("segment.ms")
    def test_log_rolls_when_timestamps_are_far_apart(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_ms=100)
        for timestamp in (1000, 1100, 1101, 1050, 1300):
            produce(log, 1, timestamp=timestamp)
        assert segments(log) == [0, 2, 4]

    @pytest.mark.key("segment.jitter.ms")
    def test_segments_roll_earlier_by_a_random_jitter(self, storage: MemoryStorage) -> None:
        ages = []
        for number in range(20):
            log = open_log(
                storage, directory=f"/d/t-{number}", segment_ms=1000, segment_jitter_ms=400
            )
            for timestamp in range(1000, 2100):
                produce(log, 1, timestamp=timestamp)
            ages.append(log.segments[1].base_offset - 1)
        assert all(600 < age <= 1000 for age in ages)
        assert len(set(ages)) > 10

    @pytest.mark.parametrize(("policy", "segments"), [("compact", 2), ("delete", 1)])
    def test_segment_of_a_compacted_log_rolls_after_the_maximum_compaction_lag(
        self, storage: MemoryStorage, policy: str, segments: int
    ) -> None:
        log = open_log(storage, cleanup_policy=(policy,), max_compaction_lag_ms=1000)
        for timestamp in (5_000, 6_000, 6_001):
            produce(log, 1, timestamp=timestamp)
        assert len(log.segments) == segments

    def test_jitter_of_a_segment_is_the_same_after_a_restart(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_ms=1000, segment_jitter_ms=1 << 40)
        produce(log, 1, timestamp=1000)
        again = open_log(storage.clone(), segment_ms=1000, segment_jitter_ms=1 << 40)
        assert 1000 < log._roll_timestamp == again._roll_timestamp <= 2000

    def test_segment_age_is_measured_by_the_clock_when_records_have_no_timestamps(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, segment_ms=100)
        append(log, batch(timestamp=-1), wall_ms=1000)
        append(log, batch(timestamp=1101), wall_ms=1000)
        assert segments(log) == [0, 1]

    def test_follower_rolls_segments_only_between_fetch_responses(
        self, storage: MemoryStorage
    ) -> None:
        leader = open_log(storage)
        produce(leader, *[1] * 4)
        data = read_all(leader)
        follower = open_log(storage, directory="/d/t-1", segment_bytes=3 * SIZE)
        replicate(follower, data[: 2 * SIZE])
        replicate(follower, data[2 * SIZE :])
        assert segments(follower) == [0, 2]
        assert read_all(follower) == data

    def test_changed_segment_bytes_apply_to_the_active_segment(self, log: Log) -> None:
        produce(log, 1, 1)
        log.configure(open_log(MemoryStorage(), segment_bytes=SIZE).config)
        produce(log, 1)
        assert segments(log) == [0, 2]


class TestReplicating:
    def test_replicated_records_keep_their_offsets_and_epochs_and_producers(
        self, storage: MemoryStorage
    ) -> None:
        leader = open_log(storage)
        produce(leader, 2, epoch=3, producer_id=9, producer_epoch=0, base_sequence=0)
        produce(leader, 3, epoch=5)
        follower = open_log(storage, directory="/d/t-1")
        replicate(follower, read_all(leader))
        assert read_all(follower) == read_all(leader)
        assert follower.written_log_end_offset == 5
        assert follower.epochs.entries == [(3, 0), (5, 2)]
        assert follower.producers.encode() == leader.producers.encode()

    @pytest.mark.parametrize("damage", ["bit", "cut", "gap", "again", "nothing"])
    def test_replicated_append_refuses_a_response_with_any_invalid_batch(
        self, storage: MemoryStorage, damage: str
    ) -> None:
        leader = open_log(storage)
        produce(leader, 1, 1, 1)
        data = bytearray(read_all(leader))
        follower = open_log(storage, directory="/d/t-1")
        replicate(follower, bytes(data[:SIZE]))
        rest = data[SIZE:]
        if damage == "bit":
            rest[-1] ^= 1
        bad = {"cut": rest[:-1], "gap": rest[SIZE:], "again": data, "nothing": b"", "bit": rest}[
            damage
        ]
        with pytest.raises(CorruptBatch):
            replicate(follower, bytes(bad))
        assert (follower.log_end_offset, follower.written_position) == (1, SIZE)
        assert read_all(follower) == data[:SIZE]
        replicate(follower, bytes(data[SIZE:])) if damage != "bit" else None


class TestReading:
    @pytest.fixture
    def long(self, storage: MemoryStorage) -> Log:
        """Return a log with 35 batches of 2 records, 10 per segment, and an index entry for about every third batch."""
        size = len(batch(2))
        log = open_log(storage, segment_bytes=10 * size, index_interval_bytes=2 * size)
        produce(log, *[2] * 35)
        return log

    def test_every_offset_is_located_at_its_batch(self, long: Log) -> None:
        size = len(batch(2))
        for offset in range(70):
            assert long.locate(offset) == offset // 2 * size
        assert long.locate(70) == long.written_position

    def test_file_position_of_the_log_end_includes_pending_batches(self, long: Log) -> None:
        append(long)
        assert long.locate(70) == long.written_position
        assert long.locate(71) == long.position

    @pytest.mark.parametrize("max_bytes", [1, 100, 250, 600, 1 << 20])
    def test_consecutive_reads_return_all_segments(self, long: Log, max_bytes: int) -> None:
        assert offsets(read_all(long, max_bytes)) == list(range(70))

    @pytest.mark.row("R53")
    def test_read_returns_at_most_max_bytes_or_one_batch(self, long: Log) -> None:
        size = len(batch(2))
        end = long.written_position
        assert len(long.read(0, end, 1)[0]) == size
        assert len(long.read(0, end, size + 1)[0]) == size
        for max_bytes in range(size, 10 * size, 37):
            assert size <= len(long.read(0, end, max_bytes)[0]) <= max_bytes

    def test_read_stops_at_the_file_position_limit_and_returns_the_next_offset(
        self, long: Log
    ) -> None:
        size = len(batch(2))
        for batches in range(10):
            data, offset, position = long.read(0, batches * size, 1 << 20)
            assert len(data) == position == batches * size
            if batches:
                assert offset == 2 * batches
        data, offset, position = long.read(8 * size, 12 * size, 1 << 20)
        assert (len(data), offset, position) == (2 * size, 20, 10 * size)

    def test_reads_and_positions_are_unchanged_after_the_indexes_are_loaded_from_files(
        self, storage: MemoryStorage, long: Log
    ) -> None:
        data, interval = read_all(long), long.config.index_interval_bytes
        long.close()
        again = open_log(storage, clean=True, index_interval_bytes=interval)
        assert read_all(again, 300) == data
        assert [again.locate(offset) for offset in range(70)] == [
            offset // 2 * len(batch(2)) for offset in range(70)
        ]

    def test_deleted_segments_are_not_read(self, long: Log) -> None:
        remove_below(long, 25)
        assert long.read(0, long.written_position, 100) == (b"", -1, 0)

    @pytest.mark.row("R53")
    def test_batch_larger_than_max_bytes_is_read_whole(self, log: Log) -> None:
        produce(log, 1, size=100_000)
        produce(log, 1)
        data, offset, _ = log.read(0, log.written_position, 1000)
        assert len(data) > 100_000
        assert offset == 1


class TestTimestamps:
    def test_timestamp_lookup_finds_the_first_record_at_or_after_the_timestamp(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, segment_bytes=400, index_interval_bytes=100)
        for i in range(20):
            produce(log, 2, timestamp=1000 + 10 * i, epoch=i // 5, codec=i % 5)
        for wanted in range(990, 1195, 3):
            found = log.offset_for_timestamp(wanted, 40)
            first = (
                next(r for r in records(read_all(log)) if r.timestamp >= wanted)
                if wanted <= 1191
                else None
            )
            expected = first and (first.timestamp, first.offset, first.offset // 10)
            assert found == expected, wanted

    def test_timestamp_lookup_skips_records_outside_of_the_readable_range(self, log: Log) -> None:
        produce(log, 2, 2, 2)
        assert log.offset_for_timestamp(1001, 1) is None
        assert log.offset_for_timestamp(1000, 6) == (1000, 0, 0)
        log.advance_log_start_offset(3)
        assert log.offset_for_timestamp(0, 6) == (1001, 3, 0)
        assert log.offset_for_timestamp(1002, 6) is None

    def test_timestamp_lookup_handles_falling_timestamps_as_kafka_does(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, index_interval_bytes=0)
        for timestamp in (1000, 3000, 500, 2000):
            produce(log, 1, timestamp=timestamp)
        assert log.offset_for_timestamp(600, 4) == (1000, 0, 0)
        assert log.offset_for_timestamp(1500, 4) == (3000, 1, 0)


class TestTruncating:
    @pytest.fixture
    def cut(self, storage: MemoryStorage) -> Log:
        """Return a log of offsets 0 to 24, with ten records per segment. The epoch of a record is offset // 8."""
        return three_segments(storage)

    @pytest.mark.parametrize("offset", [24, 21, 20, 19, 15, 10, 9, 1, 0])
    def test_truncation_removes_everything_from_the_offset_on(self, cut: Log, offset: int) -> None:
        before = read_all(cut)
        cut.truncate_to(offset)
        assert cut.log_end_offset == cut.written_log_end_offset == offset
        assert cut.position == cut.written_position == offset * SIZE
        assert read_all(cut) == before[: offset * SIZE]
        assert cut.epochs.entries == [(e, 8 * e) for e in range(4) if 8 * e < offset]
        wanted = HEADER.unpack_from(batch(producer_id=9, producer_epoch=0, base_sequence=offset))
        assert cut.producers.check(wanted) == -1
        if offset:
            duplicate = HEADER.unpack_from(
                batch(producer_id=9, producer_epoch=0, base_sequence=offset - 1)
            )
            assert cut.producers.check(duplicate) == offset - 1

    @pytest.mark.parametrize("offset", [21, 20, 15, 10, 0])
    def test_truncated_log_takes_appends_and_survives_a_crash(
        self, storage: MemoryStorage, cut: Log, offset: int
    ) -> None:
        cut.truncate_to(offset)
        produce(cut, 1, 1, epoch=9)
        data = read_all(cut)
        assert offsets(data) == list(range(offset + 2))
        again = open_log(storage.clone(), recovery_point=cut.recovery_point)
        assert read_all(again) == data
        assert again.epochs.entries == cut.epochs.entries
        assert again.producers.encode() == cut.producers.encode()

    def test_truncation_removes_the_timestamps_of_the_removed_records(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, index_interval_bytes=0)
        for number in range(10):
            produce(log, 1, timestamp=1000 + number)
        log.checkpoint_indexes()
        log.truncate_to(5)
        assert log.segments[0].times.last == (1004, 4)
        assert log.latest_record(5) == (1004, 4, 0)
        produce(log, 1, timestamp=1001)
        assert log.offset_for_timestamp(1005, 6) is None

    def test_truncation_at_or_above_the_log_end_does_nothing(self, cut: Log) -> None:
        cut.truncate_to(25)
        cut.truncate_to(100)
        assert cut.log_end_offset == 25

    def test_truncation_inside_a_batch_removes_the_whole_batch(self, log: Log) -> None:
        produce(log, 3, 3)
        log.truncate_to(5)
        assert log.log_end_offset == 3
        produce(log, 1)
        assert offsets(read_all(log)) == [0, 1, 2, 3]

    def test_truncation_below_the_first_segment_restarts_the_log_at_the_offset(
        self, cut: Log
    ) -> None:
        remove_below(cut, 20)
        cut.truncate_to(7)
        assert (cut.log_start_offset, cut.log_end_offset) == (7, 7)
        assert segments(cut) == [7]
        assert cut.epochs.entries == []

    def test_truncation_below_the_log_start_offset_lowers_the_log_start_offset(
        self, cut: Log
    ) -> None:
        cut.advance_log_start_offset(5)
        cut.truncate_to(3)
        assert (cut.log_start_offset, cut.log_end_offset) == (3, 3)

    def test_full_truncation_restarts_the_log_at_the_offset(
        self, storage: MemoryStorage, cut: Log
    ) -> None:
        end = cut.position
        cut.truncate_fully_and_start_at(100)
        assert (cut.log_start_offset, cut.log_end_offset, cut.recovery_point) == (100, 100, 100)
        assert cut.position == cut.locate(100) == end, "no position is used twice"
        assert len(cut.producers) == 0
        produce(cut, 2, epoch=5)
        assert offsets(read_all(cut)) == [100, 101]
        assert sorted(name[:20] for name in storage.names(DIRECTORY) if name.endswith(".log")) == [
            f"{100:020d}"
        ]

    def test_truncation_lowers_the_recovery_point_before_it_removes_records(self, cut: Log) -> None:
        seen: list[tuple[int, int]] = []
        cut.sync()
        cut.write_checkpoints = lambda: seen.append((cut.recovery_point, cut.log_end_offset))
        cut.truncate_to(12)
        assert seen == [(12, 25)]

    def test_truncation_inside_a_batch_lowers_the_recovery_point_to_its_start(
        self, log: Log
    ) -> None:
        """Otherwise the next batch that is written at this offset would count as durable."""
        seen: list[tuple[int, int]] = []
        produce(log, 5, 5, 5)
        log.sync()
        log.write_checkpoints = lambda: seen.append((log.recovery_point, log.log_end_offset))
        log.truncate_to(7)
        assert (log.recovery_point, log.log_end_offset) == (5, 5)
        assert seen == [(5, 15)]

    def test_log_start_offset_rises_at_most_to_the_log_end(self, cut: Log) -> None:
        cut.advance_log_start_offset(15)
        assert cut.epochs.entries == [(1, 15), (2, 16), (3, 24)]
        cut.advance_log_start_offset(12)
        assert cut.log_start_offset == 15
        cut.advance_log_start_offset(1000)
        assert cut.log_start_offset == 25
        assert segments(cut) == [0, 10, 20]

    def test_truncation_lowers_the_log_start_offset_before_it_removes_records(
        self, cut: Log
    ) -> None:
        """Otherwise a restart would delete the log, which ends below its checkpointed start."""
        cut.advance_log_start_offset(22)
        cut.recovery_point = 3
        seen: list[tuple[int, int]] = []
        cut.write_checkpoints = lambda: seen.append((cut.log_start_offset, cut.log_end_offset))
        cut.truncate_to(5)
        assert seen == [(5, 25)]


class TestRemoving:
    """Removal of whole segments from the start of the log."""

    @pytest.fixture
    def cut(self, storage: MemoryStorage) -> Log:
        return three_segments(storage)

    def test_files_of_removed_segments_are_renamed_and_kept(
        self, storage: MemoryStorage, cut: Log
    ) -> None:
        generation = cut.layout_generation
        remove_below(cut, 15)
        assert segments(cut) == [10, 20]
        assert cut.layout_generation > generation
        names = storage.names(DIRECTORY)
        assert [name for name in names if name.startswith(f"{0:020d}")] == [
            f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")
        ]
        assert cut.retired.take_due(0, 10) == []
        assert [segment.base_offset for segment in cut.retired.take_due(60_000, 10)] == [0]

    def test_producer_snapshot_of_a_removed_segment_is_deleted(
        self, storage: MemoryStorage, cut: Log
    ) -> None:
        assert storage.exists(f"{DIRECTORY}/{10:020d}.snapshot")
        remove_below(cut, 20)
        assert cut.producers.snapshot_offsets() == [20]

    def test_file_positions_of_remaining_records_stay_when_earlier_segments_are_removed(
        self, cut: Log
    ) -> None:
        position, data = cut.locate(15), read_all(cut)
        size = cut.size
        remove_below(cut, 10)
        assert cut.locate(15) == position
        assert cut.size == size - len(data) * 10 // 25
        assert data.endswith(read_all(cut))

    def test_roll_leaves_an_empty_active_segment(self, cut: Log) -> None:
        cut.roll()
        assert segments(cut) == [0, 10, 20, 25]
        remove_below(cut, 25)
        assert segments(cut) == [25]
        assert (cut.log_start_offset, cut.log_end_offset, cut.size) == (25, 25, 0)
        produce(cut, 1, epoch=4)
        assert offsets(read_all(cut)) == [25]

    def test_restart_deletes_segments_whose_removal_was_interrupted(
        self, storage: MemoryStorage, cut: Log
    ) -> None:
        """After a power loss, one segment may be renamed while the rename of the segment before it is lost."""
        remove_below(cut, 20)
        crashed = storage.clone()
        for suffix in (".index", ".log", ".timeindex"):
            path = f"{DIRECTORY}/{0:020d}{suffix}"
            crashed.rename(path + ".deleted", path)
        log = open_log(crashed, log_start_offset=20)
        assert segments(log) == [20]
        assert log.gaps.lost_from is None
        assert (log.log_start_offset, log.log_end_offset) == (20, 25)
        suffixes = ("index", "log", "snapshot", "timeindex")
        files = [f"{20:020d}.{suffix}" for suffix in suffixes]
        assert crashed.names(DIRECTORY) == [*files, "leader-epoch-checkpoint"]


class TestFailing:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_failed_write_does_not_move_the_log_end_and_is_not_repeated(
        self, storage: MemoryStorage, log: Log, number: int
    ) -> None:
        produce(log, 2)
        append(log, batch(3))
        storage.fail(DIRECTORY, number)
        with pytest.raises(StorageFailed) as failure:
            log.flush()
        assert failure.value.cause.errno == number
        assert log.pending == []
        assert log.log_end_offset == log.written_log_end_offset == 2
        storage.heal()
        append(log, batch(1))
        with pytest.raises(StorageFailed):
            log.flush()
        with pytest.raises(StorageFailed):
            log.sync()
        assert log.written_log_end_offset == 2

    def test_follower_log_end_stays_when_its_write_fails(self, storage: MemoryStorage) -> None:
        leader = open_log(MemoryStorage())
        produce(leader, 1, 1)
        follower = open_log(storage)
        storage.fail(DIRECTORY)
        with pytest.raises(StorageFailed):
            replicate(follower, read_all(leader))
        assert (follower.log_end_offset, follower.written_position) == (0, 0)

    def test_failed_fsync_is_not_repeated(self, storage: MemoryStorage, log: Log) -> None:
        produce(log, 2)
        storage.fail(log.segments[0].path(".log"), errno.EIO)
        with pytest.raises(StorageFailed):
            log.sync()
        storage.heal()
        with pytest.raises(StorageFailed):
            log.sync()
        assert log.recovery_point == 0

    def test_failed_roll_keeps_all_written_records(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_bytes=2 * SIZE)
        produce(log, 1, 1)
        storage.fail(DIRECTORY)
        with pytest.raises(StorageFailed):
            append(log)
        storage.heal()
        assert open_log(storage.clone()).log_end_offset == 2

    def test_half_written_batch_is_truncated_at_the_next_start(
        self, storage: MemoryStorage, log: Log
    ) -> None:
        produce(log, 2)
        before = read_all(log)
        storage.fail(DIRECTORY)
        append(log, batch(5))
        with pytest.raises(StorageFailed):
            log.flush()
        assert len(storage.read(log.segments[0].path(".log"))) > len(before)
        storage.heal()
        assert read_all(open_log(storage.clone())) == before


class TestDurability:
    def test_sync_moves_the_recovery_point_over_all_segments(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_bytes=2 * SIZE)
        produce(log, *[1] * 5)
        log.sync()
        assert log.recovery_point == 5
        assert {f"{DIRECTORY}/{base:020d}.log" for base in (0, 2, 4)} <= set(storage.synced)
        assert DIRECTORY in storage.synced

    def test_leader_epochs_are_durable_before_the_recovery_point_passes_them(
        self, storage: MemoryStorage
    ) -> None:
        """Recovery does not read the batches below the recovery point, so it could not find their epochs."""
        log = open_log(storage)
        produce(log, 1)
        log.epochs.assign(3, 1)
        assert log.epochs.path not in storage.synced
        log.sync()
        assert log.epochs.path in storage.synced

    @pytest.mark.key("flush.messages")
    def test_log_is_fsynced_before_its_records_count_as_written(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, flush_messages=3)
        path = log.segments[0].path(".log")
        produce(log, 1, 1)
        assert path not in storage.synced
        produce(log, 1)
        assert (path in storage.synced, log.recovery_point) == (True, 3)
        produce(log, 2)
        assert (storage.synced.count(path), log.recovery_point) == (1, 3)

    def test_follower_log_is_fsynced_before_its_next_fetch_acknowledges_the_records(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, flush_messages=2)
        replicate(log, bytes(batch(2, base_offset=0)))
        assert (storage.synced.count(log.segments[0].path(".log")), log.recovery_point) == (1, 2)

    def test_records_whose_fsync_failed_do_not_count_as_written(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, flush_messages=2)
        produce(log, 1)
        append(log)
        storage.sync_directory = _failing  # type: ignore[method-assign]
        with pytest.raises(StorageFailed):
            log.flush()
        assert (log.log_end_offset, log.written_log_end_offset, log.recovery_point) == (1, 1, 0)

    def test_files_of_sealed_segments_are_fsynced_before_the_recovery_point_passes_them(
        self, storage: MemoryStorage
    ) -> None:
        """Otherwise a power loss could leave zeros in the indexes of a segment that recovery does not read."""
        log = open_log(storage, segment_bytes=2 * SIZE, flush_messages=1)
        point = -1
        for _ in range(7):
            produce(log, 1)
            assert log.recovery_point == log.log_end_offset > point
            point = log.recovery_point
            for segment, following in pairwise(log.segments):
                kept = segment.derived_paths(following.base_offset)[1:]
                assert {*kept, segment.path(".log")} <= set(storage.synced)
        assert all(storage.synced.count(path) == 1 for path in log.segments[0].derived_paths(2)[1:])

    def test_closed_log_has_durable_indexes_and_a_durable_snapshot(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, index_interval_bytes=0)
        produce(log, 1, 1, 1)
        kept = log.segments[0].derived_paths(3)[1:]
        log.close()
        assert set(kept) <= set(storage.synced)
        assert all(map(storage.exists, kept))

    def test_fsync_of_sealed_segments_raises_the_recovery_point_to_their_end(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, segment_bytes=2 * SIZE)
        produce(log, *[1] * 5)
        sealed, removals = len(log.segments.unsynced), log.segments.removals
        produce(log, *[1] * 2)
        log.sealed_synced(sealed, removals)
        assert log.recovery_point == 4
        assert [segment.base_offset for segment in log.segments.unsynced] == [4]

    def test_sealed_segments_from_the_recovery_point_on_are_unsynced_after_a_kill(
        self, storage: MemoryStorage
    ) -> None:
        log = three_segments(storage)
        log.sealed_synced(1, log.segments.removals)
        assert log.recovery_point == 10
        again = open_log(storage.clone(), recovery_point=log.recovery_point)
        assert segments(again) == [0, 10, 20]
        assert [segment.base_offset for segment in again.segments.unsynced] == [0, 10], (
            "segment 0 may have been sealed, and its indexes written, after the fsync"
        )
        again.sync()
        assert open_log(storage.clone(), recovery_point=25).segments.unsynced == []

    def test_fsync_result_from_before_a_truncation_is_ignored(self, storage: MemoryStorage) -> None:
        log = open_log(storage, segment_bytes=2 * SIZE)
        produce(log, *[1] * 5)
        sealed, removals = len(log.segments.unsynced), log.segments.removals
        log.truncate_to(3)
        produce(log, *[1] * 2)
        log.sealed_synced(sealed, removals)
        assert log.recovery_point == 0

    def test_fsync_result_from_before_an_fsync_of_the_whole_log_is_ignored(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, segment_bytes=2 * SIZE)
        produce(log, *[1] * 5)
        sealed, removals = len(log.segments.unsynced), log.segments.removals
        log.sync()
        produce(log, *[1] * 2)
        log.sealed_synced(sealed, removals)
        assert log.recovery_point == 5
        assert [segment.base_offset for segment in log.segments.unsynced] == [4]

    def test_index_files_are_written_when_the_indexes_are_checkpointed(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage, index_interval_bytes=0)
        produce(log, 1, 1, 1)
        path = f"{DIRECTORY}/00000000000000000000.index"
        assert storage.read(path) == b""
        log.checkpoint_indexes()
        assert len(storage.read(path)) == 16


def test_first_batch_creates_every_file_that_kafkas_tools_expect(
    storage: MemoryStorage, log: Log
) -> None:
    log.epochs.assign(0, 0)
    assert storage.names(DIRECTORY) == []
    append(log)
    log.flush()
    assert sorted(storage.names(DIRECTORY)) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
    ]
