"""Index files that a power loss or a fault has changed: what retention and lookups decide, and what they read."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from support.storage.logs import DIRECTORY, batch, open_log, produce

from minikafka.simulation.storage import MemoryFile, MemoryStorage
from minikafka.storage.log import retention
from minikafka.storage.log.log import Log
from minikafka.storage.log.retention import plan
from minikafka.storage.log.segments import segment

SIZE = len(batch())
COUNT = 40
PER_SEGMENT = 20
FIRST = 9000
LAST = FIRST + PER_SEGMENT - 1
"""Timestamps of the first and the last record of the first segment."""
SETTINGS = {"segment_bytes": PER_SEGMENT * SIZE, "index_interval_bytes": 2 * SIZE}
INDEX, TIME_INDEX = (f"{DIRECTORY}/{0:020d}{suffix}" for suffix in (".index", ".timeindex"))

Change = Callable[[bytes], bytes | None]


def timestamps_of(*timestamps: int) -> MemoryStorage:
    """Return the files of a log that was closed: one record for each timestamp, and `PER_SEGMENT` in a segment."""
    storage = MemoryStorage()
    log = open_log(storage, **SETTINGS)
    for timestamp in timestamps:
        produce(log, 1, timestamp=timestamp)
    log.close()
    return storage


def rising() -> MemoryStorage:
    return timestamps_of(*range(FIRST, FIRST + COUNT))


def damaged(storage: MemoryStorage, path: str, change: Change) -> MemoryStorage:
    data = change(storage.read(path))
    if data is None:
        storage.remove(path)
    else:
        storage.files[path] = bytearray(data)
    return storage


def reopened(storage: MemoryStorage) -> Log:
    return open_log(storage, clean=True, retention_ms=500, **SETTINGS)


def expiry(log: Log) -> int:
    """Return the first time (Unix ms) at which retention deletes the first segment."""
    low, high = 0, 1 << 20
    while low < high:
        now = (low + high) // 2
        low, high = (low, now) if _deletes(log, now) else (now + 1, high)
    return low


def _deletes(log: Log, wall_ms: int) -> bool:
    planned = plan(log, log.log_end_offset, wall_ms)
    while planned is not None and not planned.reasons:
        planned = plan(log, log.log_end_offset, wall_ms)
    return planned is not None


def entries(*rows: tuple[int, int], layout: str = ">qi") -> bytes:
    return b"".join(struct.pack(layout, *row) for row in rows)


TIME_CHANGES = {
    "zeros": lambda data: bytes(len(data)),
    "one zeroed entry": lambda data: bytes(12),
    "zeros at the end": lambda data: data[:-12] + bytes(12),
    "zeros at the beginning": lambda data: bytes(12) + data[12:],
    "the first entry only": lambda data: data[:12],
    "all entries but the last": lambda data: data[:-12],
    "nothing": lambda data: b"",
    "missing": lambda data: None,
    "part of an entry": lambda data: data[:-5],
    "equal entries": lambda data: data + data[-12:],
    "falling timestamps": lambda data: entries((FIRST + 3, 3), (FIRST + 2, 5)),
    "falling offsets": lambda data: entries((FIRST + 3, 3), (FIRST + 5, 2)),
    "low timestamps": lambda data: entries(*((1 + row, row) for row in range(PER_SEGMENT))),
    "a low last timestamp": lambda data: entries((FIRST + 3, 3), (FIRST + 4, PER_SEGMENT - 1)),
    "a high last timestamp": lambda data: data[:-12] + entries((1 << 60, PER_SEGMENT - 1)),
    "an offset beyond the segment": lambda data: data[:-12] + entries((LAST, PER_SEGMENT)),
    "an offset far beyond the segment": lambda data: data + entries((1 << 60, 1 << 30)),
    "a negative offset": lambda data: entries((LAST, -1)),
    "entries of another segment": lambda data: entries((100, 3), (200, 6), (300, 19)),
}


@pytest.mark.parametrize("change", TIME_CHANGES.values(), ids=TIME_CHANGES)
def test_time_index_that_contradicts_the_log_is_rebuilt_before_retention(change: Change) -> None:
    storage = rising()
    sound = storage.read(TIME_INDEX)
    log = reopened(damaged(storage, TIME_INDEX, change))
    storage.synced.clear()
    assert expiry(log) == LAST + 501
    assert storage.read(TIME_INDEX) == sound
    assert {INDEX, TIME_INDEX} <= set(storage.synced), "recovery does not read this segment"


@pytest.mark.parametrize("change", TIME_CHANGES.values(), ids=TIME_CHANGES)
def test_time_index_that_contradicts_the_log_does_not_change_lookups(change: Change) -> None:
    log = reopened(damaged(rising(), TIME_INDEX, change))
    for timestamp in range(FIRST - 1, FIRST + COUNT):
        offset = max(timestamp - FIRST, 0)
        assert log.offset_for_timestamp(timestamp, COUNT) == (FIRST + offset, offset, 0)
    assert log.latest_record(COUNT) == (FIRST + COUNT - 1, COUNT - 1, 0)


def test_time_index_entry_that_contradicts_its_batch_is_rebuilt_before_a_lookup() -> None:
    """The first and the last entry are right, so that the wrong entry is found only when a lookup uses it."""
    storage = rising()
    sound = storage.read(TIME_INDEX)
    wrong = entries((FIRST + 3, 3), (FIRST + 4, 15), (LAST, PER_SEGMENT - 1))
    log = reopened(damaged(storage, TIME_INDEX, lambda data: wrong))
    assert log.offset_for_timestamp(FIRST + 6, COUNT) == (FIRST + 6, 6, 0)
    assert storage.read(TIME_INDEX) == sound


INDEX_CHANGES = {
    "zeros": lambda data: bytes(len(data)),
    "one zeroed entry": lambda data: bytes(8),
    "the first entry only": lambda data: data[:8],
    "nothing": lambda data: b"",
    "missing": lambda data: None,
    "part of an entry": lambda data: data[:-3],
    "a last position inside a batch": lambda data: data[:-4] + struct.pack(">i", 18 * SIZE + 7),
    "a last position of another batch": lambda data: data[:-4] + struct.pack(">i", 19 * SIZE),
    "a last position beyond the log": lambda data: data[:-4] + struct.pack(">i", 20 * SIZE),
    "a negative last position": lambda data: data[:-4] + struct.pack(">i", -SIZE),
    "an offset beyond the segment": lambda data: data[:-8] + struct.pack(">ii", 99, 18 * SIZE),
    "a position inside a batch": lambda data: struct.pack(">ii", 3, 3 * SIZE + 1) + data[8:],
    "falling positions": lambda data: entries((6, 6 * SIZE), (9, 3 * SIZE), layout=">ii"),
}


@pytest.mark.parametrize("change", INDEX_CHANGES.values(), ids=INDEX_CHANGES)
def test_offset_index_that_contradicts_the_log_changes_no_result(change: Change) -> None:
    log = reopened(damaged(rising(), INDEX, change))
    assert log.segments[0].end_offset() == PER_SEGMENT
    assert expiry(log) == LAST + 501
    assert [log.locate(offset) for offset in range(COUNT)] == [SIZE * row for row in range(COUNT)]
    assert log.offset_for_timestamp(FIRST + 7, COUNT) == (FIRST + 7, 7, 0)


@pytest.mark.parametrize("change", INDEX_CHANGES.values(), ids=INDEX_CHANGES)
def test_log_whose_active_segment_has_a_wrong_offset_index_keeps_its_end(change: Change) -> None:
    storage = timestamps_of(*range(FIRST, FIRST + PER_SEGMENT))
    log = reopened(damaged(storage, INDEX, change))
    assert (log.log_end_offset, log.size) == (PER_SEGMENT, PER_SEGMENT * SIZE)
    assert log.latest_record(PER_SEGMENT) == (LAST, PER_SEGMENT - 1, 0)


def test_index_entry_that_kafka_wrote_for_several_batches_is_accepted() -> None:
    """Kafka writes one entry for all batches of a fetch response: the last offset of all, and the first position."""
    storage = rising()
    entry = struct.pack(">ii", 19, 17 * SIZE)
    log = reopened(damaged(storage, INDEX, lambda data: data[:-8] + entry))
    assert log.segments[0].largest_timestamp() == LAST
    assert storage.read(INDEX).endswith(entry), "the index is not rebuilt"
    assert expiry(log) == LAST + 501


def test_truncated_log_does_not_end_at_a_wrong_index_entry() -> None:
    storage = timestamps_of(*range(FIRST, FIRST + PER_SEGMENT))
    wrong = struct.pack(">ii", 6, 6 * SIZE + 5)
    log = reopened(damaged(storage, INDEX, lambda data: data[:8] + wrong + data[16:]))
    log.truncate_to(9)
    assert (log.log_end_offset, log.size) == (9, 9 * SIZE)


class TestLateRecords:
    """The record with the largest timestamp is far from the end, and the time index has lost its entry."""

    TIMESTAMPS = (100, 100, 200, 200, 200, 200, 9500, *[50] * 13)

    def log(self, *, entries_kept: int) -> Log:
        storage = timestamps_of(*self.TIMESTAMPS, 1, 1)
        return reopened(damaged(storage, TIME_INDEX, lambda data: data[: 12 * entries_kept]))

    @pytest.mark.parametrize("is_loaded", [False, True])
    def test_batches_that_the_time_index_does_not_cover_are_read_before_a_deletion(
        self, is_loaded: bool
    ) -> None:
        log = self.log(entries_kept=1)
        if is_loaded:
            log.segments[0].load_index()
        assert log.segments[0].largest_timestamp() == 200, (
            "the test needs an index that looks sound"
        )
        assert expiry(log) == 9500 + 501

    def test_segment_is_deleted_when_its_batches_confirm_the_time_index(self) -> None:
        log = self.log(entries_kept=9)
        assert expiry(log) == 9500 + 501

    def test_check_of_a_long_segment_takes_several_plans(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention, "READ_MAX", 4 * SIZE)
        log, plans = self.log(entries_kept=9), 0
        planned = plan(log, log.log_end_offset, 20_000)
        while planned is not None and not planned.reasons:
            assert (planned.log_start_offset, planned.is_last) == (0, False)
            plans += 1
            planned = plan(log, log.log_end_offset, 20_000)
        assert planned is not None
        assert planned.log_start_offset >= PER_SEGMENT
        assert plans == 2

    def test_plan_before_a_segment_that_must_be_read_is_not_the_last_plan(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention, "READ_MAX", 0)
        log = reopened(timestamps_of(*range(FIRST, FIRST + PER_SEGMENT), *self.TIMESTAMPS, 1))
        planned = plan(log, log.log_end_offset, 20_000)
        assert planned is not None
        assert (planned.log_start_offset, planned.is_last) == (PER_SEGMENT, False)

    def test_young_segment_is_not_read(self) -> None:
        log = self.log(entries_kept=9)
        assert plan(log, log.log_end_offset, 9600) is None
        assert not log.segments[0].is_confirmed


def test_truncated_segment_is_read_again_before_it_is_deleted() -> None:
    log = reopened(timestamps_of(9500, *range(100, 100 + PER_SEGMENT - 1)))
    log.truncate_to(10)
    log.segments[0].times.timestamps[-1] = log.segments[0].max_timestamp = 105
    assert expiry(log) == 9500 + 501


def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the size of each read from now on."""
    sizes: list[int] = []
    pread = MemoryFile.pread

    def counted(file: MemoryFile, count: int, position: int) -> bytes:
        data = pread(file, count, position)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(MemoryFile, "pread", counted)
    return sizes


def test_batch_of_the_largest_timestamp_is_found_with_the_whole_offset_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the newest entries are read first. The batch in question lies before them."""
    monkeypatch.setattr(segment, "_NEWEST_ENTRIES", 2)
    storage, large = MemoryStorage(), 20_000
    log = open_log(storage)
    for number in range(60):
        produce(log, 1, size=large, timestamp=FIRST + number if number < 30 else 1)
    log.close()
    closed = segment.Segment(storage, DIRECTORY, 0, 0, log.config.index_interval_bytes)
    sizes = read_bytes(monkeypatch)
    assert closed.largest_timestamp() == FIRST + 29
    assert sum(sizes) < 100_000


def test_start_and_retention_read_only_the_ends_of_closed_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, large = MemoryStorage(), 20_000
    settings = {"segment_bytes": 60 * large, "retention_ms": 500}
    log = open_log(storage, **settings)
    for number in range(300):
        produce(log, 1, size=large, timestamp=FIRST + number)
    log.close()
    sizes = read_bytes(monkeypatch)
    log = open_log(storage, clean=True, **settings)
    assert plan(log, 300, FIRST + 400) is None
    planned = plan(log, 300, FIRST + 1000)
    assert planned is not None
    assert planned.log_start_offset == 300
    assert sum(sizes) < log.size / 10
