"""Records that were written in transactions: returned at the commit marker, or dropped at the abort marker."""

from __future__ import annotations

import struct

from minikafka.broker.coordinators.groups.transactions import CommittedRecords
from minikafka.record.batch import CONTROL, TRANSACTIONAL, Record, build


def batch(*values: str, producer: int = -1) -> bytes:
    records = [Record(timestamp=0, key=b"k", value=value.encode()) for value in values]
    if producer < 0:
        return build(records)
    return build(records, producer_id=producer, producer_epoch=0, attributes=TRANSACTIONAL)


def marker(producer: int, *, commits: bool) -> bytes:
    key = struct.pack(">hh", 0, 1 if commits else 0)
    return build(
        [Record(timestamp=0, key=key, value=struct.pack(">hi", 0, 0))],
        producer_id=producer,
        producer_epoch=0,
        attributes=TRANSACTIONAL | CONTROL,
    )


def values(reader: CommittedRecords, *batches: bytes) -> list[str]:
    return [(value or b"").decode() for _, value in reader.records(b"".join(batches))]


def test_records_outside_of_transactions_are_returned_in_order() -> None:
    assert values(CommittedRecords(), batch("a", "b"), batch("c")) == ["a", "b", "c"]


def test_records_of_a_transaction_are_returned_at_its_commit_marker() -> None:
    reader = CommittedRecords()
    assert values(reader, batch("a", producer=7), batch("b"), batch("c", producer=8)) == ["b"]
    assert values(reader, batch("d", producer=7), marker(7, commits=True)) == ["a", "d"]
    assert values(reader, marker(8, commits=True), marker(7, commits=True)) == ["c"]


def test_records_of_an_aborted_transaction_are_dropped() -> None:
    reader = CommittedRecords()
    assert values(reader, batch("a", producer=7), marker(7, commits=False)) == []
    assert values(reader, batch("b", producer=7), marker(7, commits=True)) == ["b"]


def test_corrupt_batch_is_skipped_and_the_batches_around_it_are_returned() -> None:
    broken = bytearray(batch("b"))
    broken[-1] ^= 1
    assert values(CommittedRecords(), batch("a"), bytes(broken), batch("c")) == ["a", "c"]
