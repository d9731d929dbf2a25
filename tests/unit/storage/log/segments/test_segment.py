"""One segment: index entries, wrong indexes, and files that failed."""

from __future__ import annotations

import struct

import pytest
from support.storage.logs import DIRECTORY, batch

from minikafka.base.errors import StorageFailed
from minikafka.kafka.records.batch import stamp
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.segments.segment import Segment

SIZE = len(batch())
INTERVAL = 2 * SIZE


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    storage.make_directories(DIRECTORY)
    return storage


def written(storage: MemoryStorage, count: int = 12) -> Segment:
    """Return a segment of one-record batches from offset 100 on, with an index entry for every third batch."""
    segment = Segment.create(storage, DIRECTORY, 100, 5000, INTERVAL)
    for i in range(count):
        data = batch(timestamp=1000 + i)
        stamp(data, 0, 100 + i, len(data) - 12, 0)
        segment.file.pwritev([data], i * SIZE)
        segment.note(100 + i, 100 + i, 1000 + i, 5000 + i * SIZE)
    segment.write_index_files(sealed=True)
    return segment


def opened(storage: MemoryStorage) -> Segment:
    return Segment(storage, DIRECTORY, 100, 5000, INTERVAL)


@pytest.mark.key("index.interval.bytes")
def test_offset_index_gets_an_entry_after_more_than_index_interval_bytes(
    storage: MemoryStorage,
) -> None:
    assert list(written(storage).index.positions) == [3 * SIZE, 6 * SIZE, 9 * SIZE]


def test_time_index_entry_holds_the_last_offset_of_its_batch_as_in_kafka(
    storage: MemoryStorage,
) -> None:
    segment = Segment.create(storage, DIRECTORY, 100, 0, INTERVAL)
    segment.note(100, 102, 1000, 0)
    segment.write_index_files(sealed=True)
    assert storage.read(segment.path(".timeindex")) == struct.pack(">qi", 1000, 2)


def test_reopened_segment_gets_its_next_index_entry_after_the_interval(
    storage: MemoryStorage,
) -> None:
    written(storage)
    segment = opened(storage)
    segment.load_index()
    added = [segment.note(100 + i, 100 + i, 2000, 5000 + i * SIZE) for i in range(10, 13)]
    assert added == [False, False, True]


def test_reopened_segment_finds_offsets_with_its_index_files(storage: MemoryStorage) -> None:
    written(storage)
    segment = opened(storage)
    for i in range(12):
        assert segment.find(100 + i, 12 * SIZE) == i * SIZE
        position, base = segment.entry_at_or_before(i * SIZE)
        assert (position, base) == (i // 3 * 3 * SIZE, 100 + i // 3 * 3)
    assert segment.find(112, 12 * SIZE) == 12 * SIZE
    assert (segment.times.last, segment.max_timestamp, segment.max_timestamp_offset) == (
        (1011, 11),
        1011,
        111,
    )


@pytest.mark.parametrize("lie", [(3, 3 * SIZE + 1), (4, 3 * SIZE), (3, 4 * SIZE)])
def test_index_that_contradicts_the_log_is_rebuilt(
    storage: MemoryStorage, lie: tuple[int, int]
) -> None:
    written(storage)
    path = opened(storage).path(".index")
    struct.pack_into(">ii", storage.files[path], 0, *lie)
    segment = opened(storage)
    assert segment.find(105, 12 * SIZE) == 5 * SIZE
    assert list(segment.index.positions) == [3 * SIZE, 6 * SIZE, 9 * SIZE]
    assert struct.unpack_from(">ii", storage.read(path)) == (3, 3 * SIZE)


def test_batch_headers_are_read_up_to_an_incomplete_batch(storage: MemoryStorage) -> None:
    segment = written(storage)
    assert len(list(segment.headers(0, 12 * SIZE))) == 12
    assert len(list(segment.headers(0, 12 * SIZE - 1))) == 11
    assert len(list(segment.headers(4 * SIZE, 12 * SIZE, 61))) == 8
    assert list(segment.headers(1, 12 * SIZE)) == []


def test_new_segment_empties_existing_files_of_the_same_name(storage: MemoryStorage) -> None:
    written(storage)
    segment = Segment.create(storage, DIRECTORY, 100, 0, INTERVAL)
    assert segment.file.size() == len(segment.index) == len(segment.times) == 0
    assert [storage.read(path) for path in segment.paths()[1:]] == [b"", b"", b""]


def test_delete_removes_every_file_of_the_segment(storage: MemoryStorage) -> None:
    segment = written(storage)
    segment.delete()
    assert storage.names(DIRECTORY) == []


def test_first_segment_creates_its_file_with_the_first_write() -> None:
    storage = MemoryStorage()
    storage.make_directories(DIRECTORY)
    segment = Segment.first(storage, DIRECTORY, 0, 4096, lambda: None)
    assert (segment.file.size(), segment.file.pread(10, 0)) == (0, b"")
    segment.file.truncate(0)
    segment.file.sync()
    segment.write_index_files(sealed=True)
    assert storage.names(DIRECTORY) == []
    segment.file.pwritev((b"abc",), 0)
    segment.file.pwritev((b"def",), 3)
    assert storage.read(segment.path(".log")) == b"abcdef"


def test_closing_a_segment_without_a_file_creates_no_file() -> None:
    storage = MemoryStorage()
    storage.make_directories(DIRECTORY)
    segment = Segment.first(storage, DIRECTORY, 0, 4096, lambda: None)
    file = segment.file
    segment.close()
    with pytest.raises(StorageFailed):
        file.pwritev((b"abc",), 0)
    assert storage.names(DIRECTORY) == []
