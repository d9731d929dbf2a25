"""The cleaning of a log: which records and batches stay.

tests/clients/test_log_cleaning.py compares our cleaning with Kafka's.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from support.storage.aborted import indexed
from support.storage.cleaning import batches_of, carry_out, latest, task, varied_log
from support.storage.logs import (
    DIRECTORY,
    append,
    end_marker,
    open_log,
    read_all,
    replace_segments,
    transactional_batch,
)

from minikafka.base.errors import CorruptBatch
from minikafka.kafka.records.batch import Record, build, records, records_of, stamp_append_time
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    DELETE_HORIZON,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.kafka.records.transactions import Aborted
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.cleaner.task import CleanedGroup
from minikafka.storage.log.log import Log

NOW = 1_000_000
HOUR = 3_600_000
Made = tuple[str, str | None]


def log_of(*batches: Sequence[Made], codec: int = 0, **fields: Any) -> Log:
    """Return a log with one batch of (key, value) records per segment, and one record in the active segment."""
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    for batch in batches:
        add(log, *batch, codec=codec, **fields)
    add(log, ("active", "a"))
    return log


def add(log: Log, *made: Made, codec: int = 0, **fields: Any) -> None:
    found = [
        Record(
            timestamp=1_000 + i,
            key=key.encode(),
            value=None if value is None else value.encode(),
        )
        for i, (key, value) in enumerate(made)
    ]
    append(log, bytearray(build(found, codec=codec, **fields)))
    log.flush()


def cleaned(log: Log, wall_ms: int = NOW, **other: Any) -> bytes:
    """Clean the log below its active segment; return the bytes of the cleaned copies."""
    groups, _ = carry_out(log.storage, task(log, wall_ms, **other))
    return b"".join(copy_of(log, group) for group in groups)


def copy_of(log: Log, group: CleanedGroup) -> bytes:
    return log.storage.read(f"{log.directory}/{group.bases[0]:020d}.log.cleaned")


def kept(data: bytes) -> list[tuple[int, str, str | None]]:
    return [
        (
            each.offset,
            (each.key or b"").decode(),
            None if each.value is None else each.value.decode(),
        )
        for each in records(data)
    ]


def headers(data: bytes) -> list[Header]:
    return [header for header, _ in batches_of(data)]


@pytest.mark.parametrize("codec", range(5))
def test_latest_record_of_each_key_stays_with_its_offset_and_timestamp(codec: int) -> None:
    log = log_of([("a", "1"), ("b", "1"), ("a", "2")], [("c", "1"), ("b", "2")], codec=codec)
    data = cleaned(log)
    assert kept(data) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2")]
    assert [each.timestamp for each in records(data)] == [1_002, 1_000, 1_001]
    assert [header[ATTRIBUTES] & 7 for header in headers(data)] == [codec, codec]


def test_batch_keeps_offsets_epoch_and_producer_when_it_loses_records() -> None:
    log = log_of(
        [("a", "1"), ("b", "1"), ("a", "2")], producer_id=7, producer_epoch=3, base_sequence=5
    )
    (header,) = headers(cleaned(log))
    assert (header[BASE_OFFSET], header[LAST_OFFSET_DELTA], header[COUNT]) == (0, 2, 2)
    assert (header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]) == (7, 3, 5)
    assert (header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]) == (1_001, 1_002)


def test_batch_that_keeps_every_record_is_copied_unchanged() -> None:
    log = log_of([("a", "1"), ("b", "1")], codec=1)
    before = log.segments[0].file.pread(1_000, 0)
    assert cleaned(log) == before


def test_tombstone_stays_until_its_delete_horizon() -> None:
    log = log_of([("a", "1"), ("b", "1")], [("a", None)])
    data = cleaned(log, NOW, delete_retention_ms=HOUR)
    assert kept(data) == [(1, "b", "1"), (2, "a", None)]
    plain, marked = headers(data)
    assert not plain[ATTRIBUTES] & DELETE_HORIZON
    assert (marked[ATTRIBUTES] & DELETE_HORIZON, marked[BASE_TIMESTAMP]) == (
        DELETE_HORIZON,
        NOW + HOUR,
    )
    assert [each.timestamp for each in records(data)] == [1_001, 1_000]
    again = rewritten(data)
    assert kept(cleaned(again, NOW + HOUR - 1)) == [(1, "b", "1"), (2, "a", None)]
    assert kept(cleaned(again, NOW + HOUR)) == [(1, "b", "1")]


@pytest.mark.parametrize("codec", [0, 1])
def test_delete_horizon_stays_when_a_later_cleaning_rewrites_the_batch(codec: int) -> None:
    """Otherwise each cleaning that removes a neighbour of a delete marker would keep the marker for longer."""
    log = log_of([("a", None), ("b", "1"), ("c", "1")], codec=codec)
    horizon = NOW + HOUR
    for wall_ms, updated in ((NOW, "b"), (NOW + HOUR // 2, "c"), (horizon - 1, "d")):
        data = cleaned(log, wall_ms, delete_retention_ms=HOUR)
        header = headers(data)[0]
        assert kept(data)[0] == (0, "a", None)
        assert header[ATTRIBUTES] & DELETE_HORIZON
        assert header[BASE_TIMESTAMP] == horizon
        log = rewritten(data)
        add(log, (updated, "2"))
        add(log, ("active", "a"))
    assert header[COUNT] == 1, "each cleaning has rewritten the batch"
    assert [row for row in kept(cleaned(log, horizon)) if row[1] == "a"] == []


def test_batch_that_loses_its_latest_record_gets_the_largest_timestamp_that_stays() -> None:
    """Retention by time and lookups by time use the largest timestamp in the header."""
    for removed in range(4):
        times = (1_005, 1_009, 1_002, 1_007)
        made = [Record(timestamp=time, key=b"%d" % time, value=b"1") for time in times]
        log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
        append(log, bytearray(build(made)))
        append(log, bytearray(build([made[removed]])))
        add(log, ("active", "a"))
        rebuilt, copied = headers(cleaned(log))
        kept_times = [time for time in times if time != times[removed]]
        assert (rebuilt[COUNT], rebuilt[MAX_TIMESTAMP]) == (3, max(kept_times))
        assert rebuilt[BASE_TIMESTAMP] == kept_times[0]
        assert copied[MAX_TIMESTAMP] == times[removed]


def test_rewritten_batch_with_append_time_stores_the_append_time_in_each_record() -> None:
    """As in Kafka: the records have no timestamps of their own any more, even if the base timestamp stays."""
    made = [Record(timestamp=1_000 + i, key=b"%d" % i, value=b"1") for i in range(3)]
    data = bytearray(build(made))
    stamp_append_time(memoryview(data), 1_000)
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    append(log, data)
    append(log, bytearray(build([made[1]])))
    add(log, ("active", "a"))
    (header, batch), _ = batches_of(cleaned(log))
    plain = (*header[:ATTRIBUTES], 0, *header[ATTRIBUTES + 1 :])
    found = records_of(memoryview(batch)[HEADER_BYTES:], plain)
    assert [(each.offset, each.timestamp) for each in found] == [(0, 1_000), (2, 1_000)]


def rewritten(data: bytes) -> Log:
    """Return a follower's log with each batch of `data` in its own segment, and one record in the active segment."""
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    for _, batch in batches_of(data):
        copied = bytearray(batch)
        log.append_replicated(copied, memoryview(copied), 0, len(copied))
    add(log, ("active", "a"))
    return log


def test_cleaned_segment_has_the_modification_time_of_the_last_segment_it_replaces() -> None:
    log = log_of([("a", "1")], [("active", "b")])
    for number, segment in enumerate(log.segments):
        log.storage.set_modified_ms(segment.path(".log"), 1_000 + number)
    groups, _ = carry_out(log.storage, task(log, NOW, segment_bytes=10_000))
    assert [group.bases for group in groups] == [[0, 1]]
    assert log.storage.modified_ms(f"{log.directory}/{0:020d}.log.cleaned") == 1_001


def test_every_file_of_a_copy_is_durable_when_its_group_is_reported() -> None:
    """The replaced segments are deleted, so a power loss must not damage the copy."""
    log = log_of([("a", "1")], [("b", "1")])
    log.storage.synced.clear()
    groups, _ = carry_out(log.storage, task(log, NOW, segment_bytes=10_000))
    assert [group.bases for group in groups] == [[0, 1]]
    path = f"{log.directory}/{0:020d}"
    kinds = (".log", ".index", ".timeindex")
    assert {f"{path}{kind}.cleaned" for kind in kinds} <= set(log.storage.synced)


def test_record_without_key_is_removed() -> None:
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    append(
        log,
        bytearray(
            build([Record(timestamp=1, value=b"v"), Record(timestamp=2, key=b"k", value=b"v")])
        ),
    )
    add(log, ("active", "a"))
    assert kept(cleaned(log)) == [(1, "k", "v")]


def test_last_batch_of_an_active_producer_stays_as_an_empty_batch() -> None:
    producer = {"producer_id": 7, "producer_epoch": 3}
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    add(log, ("a", "1"), base_sequence=0, **producer)
    add(log, ("a", "2"), ("a", "3"), base_sequence=1, **producer)
    add(log, ("a", "4"))
    add(log, ("active", "a"))
    data = cleaned(log)
    assert kept(data) == [(3, "a", "4")]
    empty = headers(data)[0]
    assert (empty[BASE_OFFSET], empty[LAST_OFFSET_DELTA], empty[COUNT]) == (1, 1, 0)
    assert (empty[PRODUCER_ID], empty[PRODUCER_EPOCH], empty[BASE_SEQUENCE]) == (7, 3, 1)
    followers = rewritten(data)
    assert followers.producers.last_of(7) == (3, 2)
    log.producers.clear()
    assert [header[BASE_OFFSET] for header in headers(cleaned(log))] == [3]


def test_empty_batch_keeps_the_largest_timestamp_but_no_codec_and_no_delete_horizon() -> None:
    """A codec without records is invalid for clients, and an empty batch has no marker that must stay longer."""
    producer = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0, "codec": 1}
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    add(log, ("a", None), ("b", "1"), **producer)
    add(log, ("b", "2"))
    add(log, ("active", "a"))
    (marked, _) = headers(first := cleaned(log, delete_retention_ms=HOUR))
    assert (marked[COUNT], marked[ATTRIBUTES]) == (1, DELETE_HORIZON | 1)
    empty = headers(cleaned(rewritten(first), NOW + HOUR))[0]
    assert (empty[COUNT], empty[ATTRIBUTES]) == (0, 0)
    assert (empty[BASE_TIMESTAMP], empty[MAX_TIMESTAMP]) == (-1, marked[MAX_TIMESTAMP])


def transactions(*, commit: bool) -> Log:
    """Return a log with two batches of a transaction, its marker, and a second transaction of the same producer."""
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    made = [Record(timestamp=1, key=b"a", value=b"old")]
    fields = {"producer_id": 7, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    for sequence in range(2):
        append(log, bytearray(build(made, base_sequence=sequence, **fields)))
    append(log, end_marker(commit=commit))
    append(log, transactional_batch(2))
    append(log, end_marker())
    add(log, ("active", "a"))
    return log


def test_records_of_an_aborted_transaction_are_removed_at_once() -> None:
    data = cleaned(transactions(commit=False))
    assert kept(data) == []
    assert [header[BASE_OFFSET] for header in headers(data)] == [2, 3, 4]


def test_records_of_a_committed_transaction_are_compacted_by_key() -> None:
    data = cleaned(transactions(commit=True))
    assert kept(data) == [(1, "a", "old")]
    assert [header[BASE_OFFSET] for header in headers(data)] == [1, 2, 3, 4]


def test_transaction_marker_without_batches_is_removed_after_the_delete_retention() -> None:
    first = rewritten(cleaned(transactions(commit=False)))
    data = cleaned(first, delete_retention_ms=HOUR)
    marker = headers(data)[0]
    assert (marker[BASE_OFFSET], marker[BASE_TIMESTAMP]) == (2, NOW + HOUR)
    second = rewritten(data)
    assert headers(cleaned(second, NOW + HOUR - 1))[0][BASE_OFFSET] == 2
    assert headers(cleaned(second, NOW + HOUR))[0][BASE_OFFSET] == 3


def clean_in_place(log: Log, wall_ms: int = NOW) -> None:
    """Clean the log up to its active segment, and replace its segments by their copies."""
    groups, _ = carry_out(log.storage, task(log, wall_ms))
    segments = {segment.base_offset: segment for segment in log.segments}
    for group in groups:
        replace_segments(log, [segments[base] for base in group.bases])


def test_index_of_a_copy_has_no_entry_without_a_marker() -> None:
    """The entry would hide the producer's next transaction, because only the marker ends the hidden one."""
    log = transactions(commit=False)
    assert indexed(log) == [Aborted(7, 0, 2, 3)]
    clean_in_place(log)
    assert indexed(log) == [Aborted(7, 0, 2, 3)]
    clean_in_place(log, NOW + 2 * HOUR)
    clean_in_place(log, NOW + 30 * HOUR)
    assert headers(read_all(log))[0][BASE_OFFSET] == 3
    assert indexed(log) == []


def test_only_a_marker_of_the_newest_epoch_stays_for_a_producer_without_batches() -> None:
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    append(log, end_marker(epoch=2))
    append(log, end_marker(epoch=3))
    add(log, ("active", "a"))
    first = cleaned(log, delete_retention_ms=HOUR)
    assert [header[BASE_OFFSET] for header in headers(first)] == [0, 1]
    last = headers(cleaned(rewritten(first), NOW + HOUR))
    assert [(header[BASE_OFFSET], header[COUNT]) for header in last] == [(1, 0)]


def add_transactional(log: Log, producer: int, sequence: int, key: str, value: str) -> None:
    fields = {"producer_id": producer, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    add(log, (key, value), base_sequence=sequence, **fields)


def test_transaction_with_an_abort_marker_above_the_cleaned_segments_is_removed() -> None:
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    add_transactional(log, 7, 0, "a", "1")
    append(log, end_marker(commit=False))
    log.flush()
    assert kept(cleaned(log)) == []


def test_transaction_that_is_aborted_above_the_last_stable_offset_is_removed() -> None:
    log = log_of([("a", "stays")])
    add_transactional(log, 7, 0, "a", "aborted")
    add_transactional(log, 8, 0, "b", "of an open transaction")
    append(log, end_marker(commit=False))
    add(log, ("active", "a"))
    assert log.producers.first_unstable_offset(log.log_end_offset) == 3
    assert kept(cleaned(log, uncleanable=3)) == [(0, "a", "stays"), (1, "active", "a")]


def test_committed_transaction_is_kept_after_an_earlier_aborted_one_of_its_producer() -> None:
    """The first cleaning empties the last aborted batch. The second cleaning begins above the abort marker."""
    log = log_of([("a", "old")])
    add_transactional(log, 7, 0, "x", "aborted")
    append(log, end_marker(commit=False))
    add(log, ("active", "b"))
    again = rewritten(cleaned(log))
    first_dirty = again.log_end_offset
    add_transactional(again, 7, 1, "a", "new")
    append(again, end_marker())
    add(again, ("active", "c"))
    again.gaps.mark(first_dirty)
    assert kept(cleaned(again))[-1] == (first_dirty, "a", "new")
    assert "old" not in [value for _, _, value in kept(cleaned(again))]


def test_last_batch_of_a_log_with_an_empty_active_segment_stays_as_an_empty_batch() -> None:
    """Without the empty batch, a follower that copies the log would never reach the leader's log end."""
    log = open_log(MemoryStorage(), segment_bytes=1, cleanup_policy=("compact",))
    add(log, ("a", "1"))
    append(log, bytearray(build([Record(timestamp=1, value=b"without a key")])))
    add(log, ("b", "1"))
    log.truncate_to(2)
    assert log.log_end_offset == log.segments[-1].base_offset == 2
    data = cleaned(log)
    assert kept(data) == [(0, "a", "1")]
    assert [(header[BASE_OFFSET], header[COUNT]) for header in headers(data)] == [(0, 1), (1, 0)]


def test_damaged_batch_is_not_copied() -> None:
    log = log_of([("a", "1")], [("b", "1")])
    log.storage.open(log.segments[1].path(".log")).pwritev((b"X",), 65)
    with pytest.raises(CorruptBatch, match="offset 1 has a wrong CRC"):
        cleaned(log)


def test_damaged_batch_that_is_already_clean_is_not_copied() -> None:
    """A new CRC would hide the damage from followers and consumers."""
    log = log_of([("a", "1"), ("b", "1")], [("a", "2")])
    log.gaps.mark(2)
    log.storage.open(log.segments[0].path(".log")).pwritev((b"X",), 65)
    with pytest.raises(CorruptBatch, match="offset 0 has a wrong CRC"):
        cleaned(log)


def test_segment_with_a_truncated_batch_is_not_copied() -> None:
    log = log_of([("a", "1")], [("b", "1")])
    log.storage.open(log.segments[1].path(".log")).truncate(65)
    with pytest.raises(CorruptBatch, match="no whole batch at byte 0"):
        cleaned(log)


def test_latest_value_of_each_key_is_the_same_after_a_cleaning() -> None:
    storage = MemoryStorage()
    log = varied_log(storage, DIRECTORY, Random(3), NOW, cleanup_policy=("compact",))
    log.producers.clear()
    made = [Record(timestamp=1, key=each.key, value=each.value) for each in records(read_all(log))]
    plain = open_log(storage, directory="/d/p-0", segment_bytes=2_000, cleanup_policy=("compact",))
    for record in made:
        append(plain, bytearray(build([record])))
    plain.flush()
    groups, _ = carry_out(storage, task(plain, NOW))
    tail = plain.segments[-1].file.pread(1 << 20, 0)
    copies = b"".join(copy_of(plain, group) for group in groups)
    assert latest(records(copies + tail)) == latest(made)
    assert len(copies) + len(tail) < len(read_all(plain)) / 4
