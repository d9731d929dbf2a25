"""The valid and the invalid batches that are found in the bytes of segment files."""

from __future__ import annotations

import pytest
from support.storage.replica_logs import batch, marker

from minikafka.kafka.records.transactions import ABORT
from minikafka.spark.records import checksum
from minikafka.spark.records.encode import Producer
from minikafka.spark.replicas import StoredBatch, walk

FIRST, SECOND = batch([b"a", b"b"], 10, epoch=3), batch([b"c"], 12, epoch=4)


def found(data: bytes) -> list[StoredBatch]:
    return list(walk(memoryview(data), 10, checksum.find()))


def test_each_batch_of_a_segment_is_listed_with_position_offsets_and_digest():
    first, second = found(FIRST + SECOND)
    assert (first.position, first.size, first.base_offset, first.last_offset) == (
        0,
        len(FIRST),
        10,
        11,
    )
    assert (second.position, second.leader_epoch, second.record_count) == (len(FIRST), 4, 1)
    assert (
        len({first.digest, second.digest, found(batch([b"a", b"b"], 10, epoch=4))[0].digest}) == 3
    )


def test_transaction_markers_are_listed_as_abort_or_commit():
    ends = [found(marker(10, Producer(7, 0), commit=commit))[0].marker for commit in (False, True)]
    assert ends == [ABORT, 1]


def test_zeros_after_the_last_batch_of_a_segment_are_ignored():
    assert len(found(FIRST + bytes(1000))) == 1
    assert len(found(FIRST + bytes(5))) == 1


def test_zeros_between_two_batches_of_a_segment_are_listed_as_a_fault():
    _, hole = found(FIRST + bytes(1000) + SECOND)
    assert (hole.position, hole.size) == (len(FIRST), 1000 + len(SECOND))
    assert hole.fault == "invalid batch length 0"


def test_batch_with_a_wrong_checksum_is_named_and_the_next_one_is_read():
    damaged = bytearray(FIRST)
    damaged[-2] ^= 1
    first, second = found(bytes(damaged) + SECOND)
    assert (first.base_offset, first.last_offset, second.fault) == (10, 11, None)
    assert first.fault == "the CRC-32C differs from the one in the batch header"


@pytest.mark.parametrize(
    ("tail", "fault"),
    [
        (SECOND[:30], "the file ends within a batch header, 30 bytes after its start"),
        (SECOND[:-1], "the file ends within a batch of"),
        (SECOND[:8] + b"\xff" * 4 + SECOND[12:], "invalid batch length -1"),
    ],
)
def test_bytes_that_are_not_a_batch_are_reported_at_the_expected_offset(tail, fault):
    _, last = found(FIRST + tail)
    assert last.base_offset == 12
    assert last.fault is not None
    assert last.fault.startswith(fault)
