"""Which segments retention deletes, and why."""

from __future__ import annotations

import pytest
from support.storage.logs import (
    append,
    batch,
    clean,
    compacted,
    config,
    open_log,
    produce,
    remove_below,
    three_segments,
)

from minikafka.kafka.records.batch import stamp_append_time
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log
from minikafka.storage.log.retention import SEGMENTS_MAX, below_start, earliest_timestamp, plan

SIZE = len(batch())
NOW = 10_000


def dated(*timestamps: int, storage: MemoryStorage | None = None, **settings: object) -> Log:
    """Return a log with one segment per timestamp, each with one record; the last segment is active."""
    log = open_log(storage or MemoryStorage(), segment_bytes=SIZE, **settings)
    for timestamp in timestamps:
        produce(log, 1, timestamp=timestamp)
    return log


def start_after(log: Log, high_watermark: int | None = None, wall_ms: int = NOW) -> int:
    """Return the log start offset after the planned deletion."""
    limit = log.log_end_offset if high_watermark is None else high_watermark
    planned = plan(log, limit, wall_ms)
    return log.log_start_offset if planned is None else planned.log_start_offset


class TestTime:
    def test_segment_is_deleted_when_its_newest_record_is_older_than_the_limit(self) -> None:
        log = dated(9000, 9500, 9900, retention_ms=500)
        assert [start_after(log, wall_ms=now) for now in (9500, 9501, 10_000, 10_001)] == [
            0,
            1,
            1,
            2,
        ]

    def test_segments_after_a_segment_that_is_kept_are_kept_too(self) -> None:
        assert start_after(dated(9000, 20_000, 9000, 9000, retention_ms=500)) == 1

    def test_age_of_a_segment_is_the_age_of_its_largest_timestamp(self) -> None:
        log = open_log(MemoryStorage(), segment_bytes=2 * SIZE, retention_ms=500)
        for timestamp in (9900, 1000, 9000, 9000):
            produce(log, 1, timestamp=timestamp)
        assert start_after(log) == 0
        assert start_after(log, wall_ms=10_401) == 4

    def test_retention_without_a_time_limit_deletes_nothing(self) -> None:
        assert start_after(dated(0, 0, retention_ms=-1)) == 0

    def test_retention_time_of_zero_deletes_every_segment_older_than_now(self) -> None:
        assert start_after(dated(9998, 9999, 10_000, 9000, retention_ms=0)) == 2

    def test_largest_possible_retention_time_deletes_nothing(self) -> None:
        assert start_after(dated(0, 0, retention_ms=2**63 - 1)) == 0

    def test_records_without_a_timestamp_are_as_old_as_their_file(self) -> None:
        storage = MemoryStorage()
        storage.wall_ms = lambda: 9000
        log = dated(-1, -1, storage=storage, retention_ms=500)
        assert start_after(log, wall_ms=9500) == 0
        planned = plan(log, 2, 9501)
        assert planned is not None
        assert planned.log_start_offset == 2
        assert "based on the last modified time of each" in planned.reasons[0]

    def test_timestamp_of_a_segment_is_read_from_the_end_of_its_time_index(self) -> None:
        storage = MemoryStorage()
        log = open_log(storage, segment_bytes=20 * SIZE, index_interval_bytes=SIZE)
        for number in range(50):
            produce(log, 1, timestamp=9000 + number)
        log.close()
        again = open_log(
            storage,
            clean=True,
            segment_bytes=20 * SIZE,
            index_interval_bytes=SIZE,
            retention_ms=500,
        )
        assert not again.segments[0]._index_is_loaded
        assert [start_after(again, wall_ms=now) for now in (9519, 9520, 9540)] == [0, 20, 40]
        assert not again.segments[0]._index_is_loaded

    @pytest.mark.parametrize("damage", [b"", b"x", bytes(24)], ids=["empty", "torn", "zeros"])
    def test_invalid_time_index_is_rebuilt(self, damage: bytes) -> None:
        storage = MemoryStorage()
        dated(9900, 9900, 9900, storage=storage).close()
        storage.write_atomically(f"/d/t-0/{0:020d}.timeindex", damage)
        again = open_log(storage, clean=True, segment_bytes=SIZE, retention_ms=500)
        assert start_after(again, wall_ms=10_400) == 0
        assert start_after(again, wall_ms=10_401) == 3


class TestSize:
    def test_log_keeps_at_least_the_retention_size(self) -> None:
        for limit, expected in ((0, 4), (1, 3), (SIZE, 3), (SIZE + 1, 2), (4 * SIZE, 0)):
            assert (
                start_after(dated(1, 1, 1, 1, retention_bytes=limit, retention_ms=-1)) == expected
            )

    @pytest.mark.parametrize("limit", [-1, 2**63 - 1])
    def test_retention_without_a_size_limit_deletes_nothing(self, limit: int) -> None:
        assert start_after(dated(1, 1, retention_bytes=limit, retention_ms=-1)) == 0

    def test_segments_below_the_log_start_do_not_count_for_the_retention_size(self) -> None:
        log = dated(1, 1, 1, 1, retention_bytes=2 * SIZE, retention_ms=-1)
        log.advance_log_start_offset(2)
        assert plan(log, 4, NOW) is None

    def test_size_limit_is_applied_before_the_time_limit(self) -> None:
        planned = plan(dated(1, 1, 9990, retention_bytes=2 * SIZE, retention_ms=500), 3, NOW)
        assert planned is not None
        assert planned.log_start_offset == 2
        assert planned.reasons == (
            f"deleting 1 segment, offsets 0 to 0, due to retention size {2 * SIZE} breach; "
            f"the log size after deletion is {2 * SIZE}",
            "deleting 1 segment, offsets 1 to 1, due to retention time 500 ms breach, "
            "based on the largest record timestamp of each",
        )


class TestBounds:
    def test_records_at_the_high_watermark_and_above_are_kept(self) -> None:
        log = three_segments(MemoryStorage())
        log.configure(config(retention_ms=0, segment_bytes=10 * SIZE))
        assert [start_after(log, hw) for hw in (0, 9, 10, 19, 20, 24, 25)] == [
            0,
            0,
            10,
            10,
            20,
            20,
            25,
        ]

    def test_active_segment_is_rolled_first_when_retention_deletes_every_segment(self) -> None:
        log = dated(1, 1, retention_ms=500)
        planned = plan(log, 2, NOW)
        assert planned is not None
        assert (planned.log_start_offset, planned.needs_roll) == (2, True)
        log.roll()
        remove_below(log, 2)
        assert plan(log, 2, NOW) is None, "an empty segment stays"

    def test_segments_before_the_active_segment_are_deleted_without_a_roll(self) -> None:
        planned = plan(dated(1, 1, 9900, retention_ms=500), 3, NOW)
        assert planned is not None
        assert (planned.log_start_offset, planned.needs_roll) == (2, False)

    def test_empty_log_keeps_its_segment(self) -> None:
        assert plan(open_log(MemoryStorage(), retention_ms=0, retention_bytes=0), 0, NOW) is None

    def test_retention_plan_has_a_maximum_of_segments_and_the_next_plan_has_the_rest(self) -> None:
        log = dated(*[1] * (SEGMENTS_MAX + 2), retention_ms=500)
        first = plan(log, SEGMENTS_MAX + 2, NOW)
        assert first is not None
        assert (first.log_start_offset, first.needs_roll, first.is_last) == (
            SEGMENTS_MAX,
            False,
            False,
        )
        log.advance_log_start_offset(first.log_start_offset)
        second = plan(log, SEGMENTS_MAX + 2, NOW)
        assert second is not None
        assert (second.log_start_offset, second.needs_roll, second.is_last) == (
            SEGMENTS_MAX + 2,
            True,
            True,
        )


class TestPolicy:
    def test_old_segments_of_a_compacted_log_are_not_deleted(self) -> None:
        log = compacted(MemoryStorage(), 0, 5, 9, segment_bytes=SIZE)
        assert start_after(log, wall_ms=1 << 50) == 0

    def test_old_segments_of_a_log_with_compact_and_delete_policies_are_deleted(self) -> None:
        log = compacted(MemoryStorage(), 0, 5, 9, segment_bytes=SIZE)
        log.configure(config(cleanup_policy=("compact", "delete"), segment_bytes=SIZE))
        assert start_after(log, wall_ms=1 << 50) == 10

    def test_old_segments_of_a_log_without_a_cleanup_policy_are_not_deleted(self) -> None:
        log = dated(100, 200, 300)
        assert start_after(log, wall_ms=1 << 50) > 0
        kept = dated(100, 200, 300, cleanup_policy=())
        assert start_after(kept, wall_ms=1 << 50) == 0

    def test_segments_below_the_log_start_are_deleted_even_in_a_compacted_log(self) -> None:
        log = compacted(MemoryStorage(), 0, 5, 9, segment_bytes=SIZE)
        assert below_start(log) == ""
        log.advance_log_start_offset(7)
        assert below_start(log) == (
            "deleting 1 segment, offsets 0 to 4, due to log start offset 7 breach"
        )


class TestEarliestTimestamp:
    def test_earliest_timestamp_is_the_timestamp_of_the_batch_at_the_log_start(self) -> None:
        log = open_log(MemoryStorage(), segment_bytes=2 * SIZE)
        assert earliest_timestamp(log) == -1
        for timestamp in (100, 200, 300, 400, 500):
            produce(log, 1, timestamp=timestamp)
        found = []
        for start in range(6):
            log.advance_log_start_offset(start)
            found.append(earliest_timestamp(log))
        assert found == [100, 200, 300, 400, 500, -1]

    def test_earliest_timestamp_of_a_log_append_time_batch_is_its_append_time(self) -> None:
        log = open_log(MemoryStorage())
        data = batch(2, timestamp=100)
        stamp_append_time(memoryview(data), 700)
        append(log, data)
        log.flush()
        assert earliest_timestamp(log) == 700

    def test_earliest_timestamp_skips_segments_that_compaction_has_emptied(self) -> None:
        log = dated(100, 200, 300, cleanup_policy=("compact",))
        clean(log, 0, lambda offset: False)
        clean(log, 1, lambda offset: False)
        assert (log.log_start_offset, earliest_timestamp(log)) == (0, 300)

    def test_earliest_timestamp_is_that_of_the_record_appended_after_a_truncation(self) -> None:
        log = open_log(MemoryStorage())
        produce(log, 1, timestamp=100)
        assert earliest_timestamp(log) == 100
        log.truncate_to(0)
        produce(log, 1, timestamp=200)
        assert earliest_timestamp(log) == 200
