"""Look-ups by timestamp, compared with a list of the records that the log holds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from support.storage.logs import append, open_log

from minikafka.kafka.records.batch import Record, build, records
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log

CODECS = (0, 1, 2, 3, 4)
FIRST, LAST = 1000, 1060


def random_batch(rng: random.Random) -> bytearray:
    rows = [
        Record(timestamp=rng.randrange(FIRST, LAST), value=rng.randbytes(20))
        for _ in range(rng.randrange(1, 5))
    ]
    return bytearray(build(rows, codec=rng.choice(CODECS)))


def held(log: Log) -> list[tuple[int, int]]:
    """Return (timestamp, offset) of every record of the log."""
    return [
        (record.timestamp, record.offset)
        for segment in log.segments
        for record in records(segment.file.pread(segment.file.size(), 0))
        if record.offset >= log.log_start_offset
    ]


def first_since(rows: Sequence[tuple[int, int]], timestamp: int) -> tuple[int, int] | None:
    return next((row for row in rows if row[0] >= timestamp), None)


def assert_found_as_in(log: Log) -> None:
    rows = held(log)
    end = log.written_log_end_offset
    for wanted in range(FIRST - 1, LAST + 1):
        found = log.offset_for_timestamp(wanted, end)
        assert (found and found[:2]) == first_since(rows, wanted), wanted
    latest = log.latest_record(end)
    largest = max((timestamp for timestamp, _ in rows), default=0)
    assert (latest and latest[:2]) == (first_since(rows, largest) if rows else None)


@pytest.mark.parametrize("seed", range(12))
def test_timestamp_lookup_is_correct_after_every_change_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    storage = MemoryStorage()
    log = open_log(storage, segment_bytes=600, index_interval_bytes=rng.choice((0, 100, 4096)))
    for _ in range(40):
        append(log, random_batch(rng))
        log.flush()
    assert_found_as_in(log)
    log.advance_log_start_offset(rng.randrange(log.log_end_offset // 2))
    assert_found_as_in(log)
    log.truncate_to(rng.randrange(log.log_start_offset, log.log_end_offset))
    assert_found_as_in(log)
    for _ in range(3):
        append(log, random_batch(rng))
        log.flush()
    assert_found_as_in(log)
    start = log.log_start_offset
    log.close()
    for name in storage.names("/d/t-0"):
        if name.endswith(("index", "timeindex")) and rng.random() < 0.5:
            storage.remove(f"/d/t-0/{name}")
    assert_found_as_in(open_log(storage, clean=True, log_start_offset=start, segment_bytes=600))


def test_record_with_the_latest_timestamp_is_not_a_deleted_record() -> None:
    log = open_log(MemoryStorage())
    for timestamp in (1000, 3000, 1500, 2000):
        rows = [Record(timestamp=timestamp), Record(timestamp=timestamp - 1)]
        append(log, bytearray(build(rows)))
        log.flush()
    assert log.latest_record(8) == (3000, 2, 0)
    log.advance_log_start_offset(3)
    assert log.latest_record(8) == (2999, 3, 0)
    log.advance_log_start_offset(4)
    assert log.latest_record(8) == (2000, 6, 0)
    log.advance_log_start_offset(8)
    assert log.latest_record(8) is None
