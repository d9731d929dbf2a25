"""The batches of aborted transactions, and the type of a transaction marker."""

from __future__ import annotations

import struct

import pytest
from support.storage.logs import end_marker, transactional_batch

from minikafka.kafka.records.batch import Record, build, marker_of
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.kafka.records.transactions import (
    ABORT,
    COMMIT,
    Aborted,
    AbortedBatches,
    AbortedScan,
    Marker,
    is_control,
    marker_type,
    marker_type_in,
)


def header(offset: int, producer: int = 7, attributes: int = TRANSACTIONAL) -> Header:
    """Return the header of a batch with one record."""
    fields = list(HEADER.unpack_from(build([Record(timestamp=0)])))
    fields[BASE_OFFSET], fields[PRODUCER_ID], fields[ATTRIBUTES] = offset, producer, attributes
    return tuple(fields)


MARKER = TRANSACTIONAL | CONTROL
LOG = [
    (header(0), None),
    (header(1, attributes=0), None),
    (header(2, producer=8), None),
    (header(3, attributes=MARKER), ABORT),
    (header(4), None),
    (header(5, producer=8, attributes=MARKER), COMMIT),
    (header(6, producer=8), None),
    (header(7, attributes=MARKER), COMMIT),
    (header(8, producer=8, attributes=MARKER), ABORT),
    (header(9), None),
]


def test_scan_finds_the_aborted_transactions_of_a_log() -> None:
    assert found(AbortedScan(), LOG) == [Aborted(7, 0, 3, 2), Aborted(8, 6, 8, 9)]


def test_scan_from_the_middle_of_a_log_begins_with_the_open_transactions() -> None:
    assert found(AbortedScan({7: 0, 8: 2}), LOG[3:]) == [
        Aborted(7, 0, 3, 2),
        Aborted(8, 6, 8, 9),
    ]


def found(scan: AbortedScan, log: list[tuple[Header, int | None]]) -> list[Aborted]:
    """Return the aborted transactions that the scan finds in these batches and markers."""
    aborted = []
    for batch, kind in log:
        if is_control(batch):
            aborted.append(scan.marker(batch, kind))
        elif batch[ATTRIBUTES] & TRANSACTIONAL:
            scan.batch(batch)
    return [one for one in aborted if one is not None]


@pytest.mark.parametrize(("start", "expected"), [(0, [0, 6]), (1, [6]), (4, [6]), (7, [])])
def test_only_batches_of_aborted_transactions_are_aborted(start: int, expected: list[int]) -> None:
    aborted = [one for one in (Aborted(7, 0, 3), Aborted(8, 6, 8)) if one.last_offset >= start]
    batches = AbortedBatches(aborted)
    passed = [batch for batch, _ in LOG[start:]]
    assert [batch[BASE_OFFSET] for batch in passed if batches.is_aborted(batch)] == expected


def test_type_of_a_marker_is_read_from_its_batch() -> None:
    for commit, kind in ((True, COMMIT), (False, ABORT)):
        batch = memoryview(bytes(end_marker(commit=commit)))
        assert marker_type_in(batch[HEADER_BYTES:]) == kind
        assert marker_of(batch) == Marker(7, commit)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_marker_without_a_whole_key_has_no_type(key: bytes | None) -> None:
    assert marker_type(key) is None
    batch = memoryview(build([Record(timestamp=0, key=key)]))
    assert marker_type_in(batch[HEADER_BYTES:]) is None
    assert not marker_of(batch).committed


def test_marker_that_is_cut_off_has_no_type() -> None:
    whole = memoryview(bytes(end_marker()))[HEADER_BYTES:]
    key_end = bytes(whole).index(struct.pack(">hh", 0, 1)) + 4
    for size in range(key_end):
        assert marker_type_in(whole[:size]) is None
    assert marker_type_in(whole[:key_end]) == COMMIT


def test_transactional_batch_is_no_marker() -> None:
    assert not is_control(HEADER.unpack_from(transactional_batch(0)))
