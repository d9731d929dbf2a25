"""Logs with missing offsets: accepted where the topic is or was compacted, reported elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.storage.logs import (
    DIRECTORY,
    TP,
    batch,
    clean,
    compacted,
    config,
    offsets,
    open_log,
    produce,
    read_all,
    replace_segments,
    replicate,
)

from minikafka.base.errors import CorruptBatch, OffsetGap, StorageFailed
from minikafka.simulation.descriptors import no_descriptor
from minikafka.simulation.files import former_bytes, some_names
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.checkpoints import FIRST_DIRTY_OFFSETS
from minikafka.storage.log.directory import LogDirectory
from minikafka.storage.log.log import Log
from minikafka.storage.log.segments.segment import RELATIVE_OFFSET_MAX

KEPT = (0, 3, 4, 9, 20, 21, 35)
SIZE = len(batch(size=40))


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def reopened(log: Log, *, clean: bool, marked: bool = True) -> Log:
    """Open the log as a restart does. `marked`: keep the first dirty offset, which shows that the log was compacted."""
    if clean:
        log.close()
    storage = log.storage if clean else log.storage.clone()  # type: ignore[attr-defined]
    return open_log(
        storage,
        clean=clean,
        first_dirty_offset=log.gaps.first_dirty_offset if marked else None,
        segment_bytes=3 * SIZE,
        index_interval_bytes=SIZE,
    )


def reopened_in(storage: MemoryStorage) -> Log:
    return open_log(storage, first_dirty_offset=0, segment_bytes=2 * SIZE)


class TestFollower:
    def test_append_accepts_gaps_in_a_compacted_topic(self, storage: MemoryStorage) -> None:
        log = compacted(storage, *KEPT)
        assert offsets(read_all(log)) == list(KEPT)
        assert log.log_end_offset == 36

    def test_append_refuses_an_offset_below_the_expected_offset(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, *KEPT)
        with pytest.raises(CorruptBatch):
            replicate(log, bytes(batch(base_offset=34)))
        assert offsets(read_all(log)) == list(KEPT)

    def test_append_reports_a_gap_in_a_topic_that_was_never_compacted(
        self, storage: MemoryStorage
    ) -> None:
        log = open_log(storage)
        produce(log, 2)
        with pytest.raises(OffsetGap) as gap:
            replicate(log, bytes(batch(base_offset=5)))
        assert (gap.value.expected, gap.value.found) == (2, 5)
        assert log.log_end_offset == 2

    def test_append_reports_damage_behind_a_gap_as_corrupt(self, storage: MemoryStorage) -> None:
        damaged = batch(base_offset=5)
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatch) as refused:
            replicate(open_log(storage), bytes(damaged))
        assert type(refused.value) is CorruptBatch

    def test_log_is_marked_as_compacted_before_its_first_gap_is_written(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, 0, 1, 2)
        assert log.gaps.first_dirty_offset is None
        ends: list[int] = []
        log.gaps.on_marked = lambda: ends.append(log.log_end_offset)
        replicate(log, bytes(batch(base_offset=7)) + bytes(batch(base_offset=9)))
        assert (ends, log.gaps.first_dirty_offset) == ([3], 0)

    def test_gaps_are_accepted_after_compaction_was_disabled(self, storage: MemoryStorage) -> None:
        log = compacted(storage, 0, 5)
        log.configure(config(cleanup_policy=("delete",)))
        replicate(log, bytes(batch(base_offset=9)))
        assert offsets(read_all(log)) == [0, 5, 9]

    def test_epoch_starts_at_the_expected_offset_when_its_first_record_is_missing(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, 0, 1)
        replicate(log, bytes(batch(base_offset=7, leader_epoch=2)))
        assert log.epochs.entries == [(0, 0), (2, 2)]
        assert log.epochs.end_offset_for(0, log.log_end_offset) == (0, 2)

    @pytest.mark.parametrize("before", [(), (0, 1)], ids=["empty log", "records before"])
    def test_gap_wider_than_the_offset_range_of_a_segment_begins_a_segment(
        self, storage: MemoryStorage, before: tuple[int, ...]
    ) -> None:
        far = RELATIVE_OFFSET_MAX + 10
        log = compacted(storage, *before, far, far + 1)
        assert offsets(read_all(log)) == [*before, far, far + 1]
        assert log.segments[-1].base_offset == far
        assert log.locate(2) == log.locate(far)
        again = reopened(log, clean=False)
        assert offsets(read_all(again)) == [*before, far, far + 1]

    def test_recovery_keeps_a_segment_with_the_largest_relative_offset(
        self, storage: MemoryStorage
    ) -> None:
        kept = [0, RELATIVE_OFFSET_MAX, RELATIVE_OFFSET_MAX + 1]
        log = compacted(storage, *kept)
        assert [segment.base_offset for segment in log.segments] == [0, RELATIVE_OFFSET_MAX + 1]
        again = reopened(log, clean=False)
        assert offsets(read_all(again)) == kept
        assert again.log_end_offset == RELATIVE_OFFSET_MAX + 2

    def test_recovery_cuts_a_segment_before_an_offset_that_its_index_cannot_hold(
        self, storage: MemoryStorage
    ) -> None:
        log, far = compacted(storage, 0, 1), RELATIVE_OFFSET_MAX + 1
        log.gaps.mark(0)
        storage.files[log.segments[0].path(".log")] += batch(base_offset=far, size=40)
        again = reopened(log, clean=False)
        assert (offsets(read_all(again)), again.log_end_offset) == ([0, 1], far)

    def test_gap_wider_than_a_segments_offset_range_inside_a_response_is_refused(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, 0)
        far = batch(base_offset=RELATIVE_OFFSET_MAX + 10)
        with pytest.raises(CorruptBatch):
            replicate(log, bytes(batch(base_offset=1)) + bytes(far))
        assert log.log_end_offset == 1


class TestReading:
    @pytest.fixture
    def log(self, storage: MemoryStorage) -> Log:
        return compacted(storage, *KEPT, segment_bytes=3 * SIZE, index_interval_bytes=SIZE)

    def test_an_offset_in_a_gap_is_located_at_the_next_batch(self, log: Log) -> None:
        assert len(log.segments) > 2
        for offset in range(36):
            following = sum(kept < offset for kept in KEPT)
            assert log.locate(offset) == following * SIZE, offset

    @pytest.mark.parametrize("max_bytes", [1, SIZE + 1, 1 << 20])
    def test_a_read_from_a_gap_returns_the_next_records(self, log: Log, max_bytes: int) -> None:
        for offset in range(36):
            data, _, _ = log.read(log.locate(offset), log.written_position, max_bytes)
            assert offsets(data)[0] == min(kept for kept in KEPT if kept >= offset)

    def test_timestamps_are_found_behind_gaps(self, storage: MemoryStorage) -> None:
        log = open_log(storage, cleanup_policy=("compact",), index_interval_bytes=0)
        for offset in KEPT:
            replicate(log, bytes(batch(base_offset=offset, timestamp=1000 + offset)))
        for wanted in range(1000, 1036):
            found = min(kept for kept in KEPT if 1000 + kept >= wanted)
            located = log.offset_for_timestamp(wanted, 36)
            assert located is not None
            assert located[:2] == (1000 + found, found)

    def test_log_start_offset_may_lie_in_a_gap(self, log: Log) -> None:
        log.advance_log_start_offset(15)
        data, _, _ = log.read(log.locate(15), log.written_position, 1)
        assert offsets(data) == [20]


def zeros(path: str, data: bytes, former: bytes) -> bytes:
    return bytes(len(data))


class TestRecovery:
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_restart_keeps_the_records_behind_a_gap_in_a_log_marked_as_compacted(
        self, storage: MemoryStorage, is_clean: bool
    ) -> None:
        log = compacted(storage, *KEPT, segment_bytes=3 * SIZE)
        again = reopened(log, clean=is_clean)
        assert offsets(read_all(again)) == list(KEPT)
        assert again.gaps.lost_from is None
        assert again.epochs.entries == log.epochs.entries

    @pytest.mark.parametrize("damage", ["cut", "bit", "zeros"])
    def test_recovery_deletes_the_segments_after_a_torn_segment_of_a_compacted_log(
        self, storage: MemoryStorage, damage: str
    ) -> None:
        """The torn part was not compacted away, so the log must not look as if it only had a gap there."""
        log = compacted(storage, *KEPT, segment_bytes=3 * SIZE)
        assert len(log.segments) >= 3
        file = storage.files[log.segments[1].path(".log")]
        if damage == "cut":
            del file[-1:]
        elif damage == "bit":
            file[2 * SIZE + 70] ^= 1
        else:
            file[2 * SIZE :] = bytes(SIZE)
        again = reopened(log, clean=False)
        assert offsets(read_all(again)) == list(KEPT[:5])
        assert again.log_end_offset == KEPT[4] + 1
        assert [segment.base_offset for segment in again.segments] == [
            segment.base_offset for segment in log.segments[:2]
        ]

    def test_kill_at_any_file_operation_of_a_recovery_brings_back_no_later_segment(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, *KEPT, segment_bytes=2 * SIZE)
        assert len(log.segments) == 4
        del storage.files[log.segments[1].path(".log")][-1:]
        killed: list[MemoryStorage] = []
        storage.before_change = lambda path: killed.append(storage.clone())
        reopened_in(storage)
        storage.before_change = lambda path: None
        assert len(killed) > 8
        for left in killed:
            assert offsets(read_all(reopened_in(left))) == list(KEPT[:3])

    def test_recovery_deletes_segments_that_begin_below_the_end_of_the_one_before(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, *KEPT, segment_bytes=3 * SIZE)
        storage.write_atomically(f"{DIRECTORY}/{2:020d}.log", bytes(batch(base_offset=2, size=40)))
        assert offsets(read_all(reopened(log, clean=False))) == list(KEPT[:3])

    def test_recovery_replaces_a_wrong_epoch_at_the_start_of_a_recovered_segment(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, *KEPT, segment_bytes=3 * SIZE)
        base = log.segments[1].base_offset
        log.epochs.replace([(0, 0), (7, base)])
        again = open_log(
            storage.clone(), first_dirty_offset=0, recovery_point=base, segment_bytes=3 * SIZE
        )
        assert again.epochs.entries == [(0, 0)]

    def test_log_without_the_compaction_mark_is_truncated_at_a_gap_inside_a_segment(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, 0, 1, 5)
        assert offsets(read_all(reopened(log, clean=False, marked=False))) == [0, 1]

    def test_reported_gap_is_accepted_once_the_topic_is_known_to_be_compacted(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, *KEPT, segment_bytes=3 * SIZE)
        again = reopened(log, clean=True, marked=False)
        assert again.gaps.lost_from == 5
        assert again.is_missing(5)
        again.configure(config(cleanup_policy=("compact",)))
        assert again.gaps.lost_from is None
        assert not again.is_missing(5)

    def test_recovered_epoch_starts_at_the_offset_recorded_by_the_follower(
        self, storage: MemoryStorage
    ) -> None:
        log = compacted(storage, 0, 1)
        for epoch, offset in ((2, 7), (4, 12)):
            replicate(log, bytes(batch(base_offset=offset, leader_epoch=epoch)))
        noted = log.epochs.entries
        storage.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
        assert reopened(log, clean=False).epochs.entries == noted == [(0, 0), (2, 2), (4, 8)]

    def test_first_dirty_offset_is_at_most_the_log_end(self, storage: MemoryStorage) -> None:
        log = compacted(storage, 0, 5)
        log.gaps.mark(1000)
        assert reopened(log, clean=False).gaps.first_dirty_offset == 6


class TestTruncation:
    @pytest.mark.parametrize("offset", range(36))
    def test_truncation_keeps_the_records_below_the_offset(
        self, storage: MemoryStorage, offset: int
    ) -> None:
        log = compacted(storage, *KEPT, segment_bytes=3 * SIZE)
        log.sync()
        log.gaps.mark(30)
        log.truncate_to(offset)
        kept = [found for found in KEPT if found < offset]
        assert offsets(read_all(log)) == kept
        assert log.recovery_point <= log.log_end_offset <= max(offset, 0)
        assert (log.gaps.first_dirty_offset or 0) <= log.log_end_offset
        replicate(log, bytes(batch(base_offset=40, leader_epoch=1)))
        again = open_log(storage.clone(), recovery_point=log.recovery_point, first_dirty_offset=0)
        assert offsets(read_all(again)) == [*kept, 40]


class TestReplacingASegment:
    @pytest.fixture
    def log(self, storage: MemoryStorage) -> Log:
        """Return a log of three segments of ten records."""
        log = open_log(storage, segment_bytes=10 * SIZE, index_interval_bytes=2 * SIZE)
        for offset in range(30):
            produce(log, 1, size=40, epoch=offset // 8, timestamp=1000 + offset)
        return log

    def test_cleaning_keeps_remaining_records_readable_and_later_file_positions_valid(
        self, log: Log
    ) -> None:
        position, end = log.locate(20), log.written_position
        clean(log, 1, lambda offset: offset in (12, 19))
        kept = [*range(10), 12, 19, *range(20, 30)]
        assert offsets(read_all(log)) == kept
        assert (log.locate(20), log.written_position) == (position, end)
        clean(log, 0, lambda offset: offset == 4)
        assert offsets(read_all(log, SIZE)) == [4, 12, 19, *range(20, 30)]
        assert log.offset_for_timestamp(1005, 30) == (1012, 12, 1)
        produce(log, 1)
        assert log.log_end_offset == 31

    def test_layout_generation_increases_when_a_segment_is_replaced(self, log: Log) -> None:
        before = log.layout_generation
        clean(log, 1, lambda offset: True)
        assert log.layout_generation > before

    @pytest.mark.parametrize("is_clean", [True, False])
    def test_records_of_a_compacted_log_are_the_same_after_a_restart(
        self, log: Log, is_clean: bool
    ) -> None:
        clean(log, 0, lambda offset: offset > 7)
        clean(log, 1, lambda offset: offset < 12)
        before = read_all(log)
        again = reopened(log, clean=is_clean)
        assert read_all(again) == before

    def test_recovered_epoch_does_not_start_later_than_the_original_epoch(self, log: Log) -> None:
        """With a later start, another replica would keep records that this log does not have when it truncates."""
        clean(log, 0, lambda offset: offset > 8)
        clean(log, 1, lambda offset: offset < 12)
        recovered = reopened(log, clean=False).epochs.entries
        assert recovered == [(1, 0), (2, 12), (3, 24)]
        assert log.epochs.entries == [(0, 0), (1, 8), (2, 16), (3, 24)]

    def test_log_is_readable_when_a_compacted_segment_has_no_records(self, log: Log) -> None:
        clean(log, 0, lambda offset: False)
        assert offsets(read_all(log)) == list(range(10, 30))
        assert log.locate(3) == log.locate(10)
        assert offsets(read_all(reopened(log, clean=False))) == list(range(10, 30))

    def test_mark_of_a_compacted_log_is_written_before_a_segment_is_replaced(
        self, log: Log
    ) -> None:
        first: list[list[int]] = []
        log.gaps.on_marked = lambda: first.append(offsets(read_all(log)))
        clean(log, 0, lambda offset: False)
        assert first == [list(range(30))]

    def test_replacement_of_a_segment_removed_by_a_truncation_fails_without_any_change(
        self, log: Log
    ) -> None:
        segment = log.segments[1]
        log.storage.write_atomically(segment.path(".log.cleaned"), b"")
        log.truncate_to(5)
        before = read_all(log), log.layout_generation, log.gaps.first_dirty_offset
        with pytest.raises(ValueError, match="not in list"):
            replace_segments(log, [segment])
        assert (read_all(log), log.layout_generation, log.gaps.first_dirty_offset) == before

    def test_restart_removes_a_cleaned_copy_that_has_not_replaced_its_segment(
        self, storage: MemoryStorage, log: Log
    ) -> None:
        path = log.segments[0].path(".log.cleaned")
        storage.write_atomically(path, b"half a copy")
        again = reopened(log, clean=False)
        assert not again.storage.exists(path)
        assert offsets(read_all(again)) == list(range(30))


def test_power_loss_during_a_truncation_leaves_no_gap_in_a_compacted_log() -> None:
    storage = MemoryStorage()
    settings = config(cleanup_policy=("compact",), segment_bytes=3 * SIZE)
    directory = LogDirectory(storage, "/d")
    directory.lock()
    log = directory.create(TP, settings)
    produce(log, *[1] * 15, size=40)
    log.sync()
    directory.write_recovery_points(sync=True)
    images: list[MemoryStorage] = []
    storage.before_change = lambda path: images.extend(
        storage.power_cut(former_bytes, some_names(len(images) + seed)) for seed in range(4)
    )
    log.truncate_to(4)
    produce(log, 1, size=40)
    log.sync()
    for number, image in enumerate(images):
        again = LogDirectory(image, "/d")
        again.open_logs(settings)
        found = offsets(read_all(again.logs[TP]))
        assert found == list(range(len(found))), number
        assert len(found) >= 4, number


def test_power_loss_after_a_restart_above_the_log_brings_no_unchecked_record_back() -> None:
    storage = MemoryStorage()
    directory = LogDirectory(storage, "/d")
    directory.lock()
    log = directory.create(TP, config(segment_bytes=3 * SIZE))
    produce(log, *[1] * 9, size=40)
    directory.sync()
    log.epochs.sync()
    log.truncate_fully_and_start_at(50)
    directory.write_recovery_points(sync=True)
    again = LogDirectory(storage.power_cut(zeros), "/d")
    again.open_logs(config())
    assert read_all(again.logs[TP]) == b""


class TestDirectory:
    def test_mark_of_a_compacted_log_survives_a_restart(self, storage: MemoryStorage) -> None:
        directory = LogDirectory(storage, "/d")
        log = directory.create(TP, config(cleanup_policy=("compact",)))
        assert not storage.exists(f"/d/{FIRST_DIRTY_OFFSETS}")
        for offset in KEPT:
            replicate(log, bytes(batch(base_offset=offset)))
        assert storage.read(f"/d/{FIRST_DIRTY_OFFSETS}") == b"0\n1\nt 0 0\n"
        again = LogDirectory(storage.clone(), "/d")
        again.open_logs(config())
        assert offsets(read_all(again.logs[TP])) == list(KEPT)
        assert again.logs[TP].gaps.accepted

    def test_truncation_lowers_the_first_dirty_offset_in_its_checkpoint_first(
        self, storage: MemoryStorage
    ) -> None:
        directory = LogDirectory(storage, "/d")
        directory.lock()
        log = directory.create(TP, config(cleanup_policy=("compact",)))
        produce(log, *[1] * 10)
        log.gaps.mark(8)
        log.truncate_to(3)
        assert storage.power_cut(former_bytes).read(f"/d/{FIRST_DIRTY_OFFSETS}") == b"0\n1\nt 0 3\n"
        log.truncate_fully_and_start_at(1)
        assert storage.power_cut(former_bytes).read(f"/d/{FIRST_DIRTY_OFFSETS}") == b"0\n1\nt 0 1\n"

    def test_mark_of_a_compacted_log_is_not_inherited_by_a_new_log_of_the_same_name(
        self, storage: MemoryStorage
    ) -> None:
        directory = LogDirectory(storage, "/d")
        directory.create(TP, config()).gaps.mark(7)
        directory.move_aside(TP, 1, "-delete")
        directory.create(TP, config())
        again = LogDirectory(storage.clone(), "/d")
        again.open_logs(config())
        assert not again.logs[TP].gaps.accepted


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_log_with_gaps_equals_a_list_of_records_after_random_steps(data: st.DataObject) -> None:
    """The log is compared with a list of record offsets and a log end offset."""
    storage = MemoryStorage()
    log = compacted(storage, segment_bytes=3 * SIZE, index_interval_bytes=SIZE)
    model: list[int] = []
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["append"] * 6 + ["truncate", "restart", "kill", "clean"]))
        if step == "append":
            offset = log.log_end_offset + data.draw(st.sampled_from([0, 0, 1, 5]))
            replicate(log, bytes(batch(base_offset=offset, leader_epoch=0, size=40)))
            model.append(offset)
        elif step == "truncate":
            offset = data.draw(st.integers(0, log.log_end_offset))
            log.truncate_to(offset)
            model = [kept for kept in model if kept < offset]
        elif step == "clean" and len(log.segments) > 1:
            slot = data.draw(st.integers(0, len(log.segments) - 2))
            base, end = log.segments[slot].base_offset, log.segments[slot + 1].base_offset
            drop = data.draw(st.sets(st.integers(base, end - 1)))
            clean(log, slot, lambda offset, drop=drop: offset not in drop)
            model = [kept for kept in model if kept not in drop]
        elif step in ("restart", "kill"):
            log = reopened(log, clean=step == "restart")
            log.configure(config(cleanup_policy=("compact",), segment_bytes=3 * SIZE))
    assert offsets(read_all(log, 2 * SIZE)) == model
    for offset in range(log.log_end_offset):
        found, _, _ = log.read(log.locate(offset), log.written_position, 1)
        following = [kept for kept in model if kept >= offset]
        assert offsets(found) == following[:1]


def test_mark_that_is_not_persisted_changes_nothing(storage: MemoryStorage) -> None:
    log = open_log(storage)

    def refuse() -> None:
        raise no_descriptor("/d/cleaner-offset-checkpoint")

    log.gaps.on_marked = refuse
    log.gaps.lost_from = 7
    with pytest.raises(StorageFailed):
        log.gaps.mark(3)
    gaps = log.gaps
    assert (gaps.first_dirty_offset, gaps.accepted, gaps.lost_from) == (None, False, 7)
