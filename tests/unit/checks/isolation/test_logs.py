"""The logs of replicas as the isolation checker reads them from segment files."""

from __future__ import annotations

from struct import pack

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import digest_of
from minikafka.checks.isolation.logs import (
    ABORTED,
    COMMITTED,
    HIDDEN,
    OPEN,
    RECORD,
    VISIBLE,
    PartitionLog,
    stored,
)
from minikafka.checks.isolation.operations import OFFSETS_TOPIC, offset_digest
from minikafka.deciders.groups.records import (
    OffsetAndMetadata,
    offset_commit_key,
    offset_commit_value,
)
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import CONTROL, TRANSACTIONAL

TP = TopicPartition("t", 0)


def batch(offset: int, *values: bytes | None, producer: int = -1, codec: int = 0) -> bytes:
    records = [Record(0, 0, None, value, ()) for value in values]
    attributes = TRANSACTIONAL if producer >= 0 else 0
    return build(
        records,
        base_offset=offset,
        codec=codec,
        attributes=attributes,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
    )


def marker(offset: int, producer: int, kind: int) -> bytes:
    record = Record(0, 0, pack(">hh", 0, kind), pack(">hi", 0, 1), ())
    return build(
        [record],
        base_offset=offset,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer,
        producer_epoch=0,
    )


def test_segment_with_records_and_markers_is_read() -> None:
    data = batch(0, b"a", None, producer=7, codec=1) + marker(2, 7, 1) + marker(3, 8, 0)
    entries = list(stored(data, TP))
    assert [entry.kind for entry in entries] == [RECORD, RECORD, COMMITTED, ABORTED]
    assert [entry.digest for entry in entries[:2]] == [digest_of(b"a"), digest_of(None)]
    assert entries[0].producer_id == 7
    assert entries[0].transactional
    assert list(stored(data + batch(4, b"x")[:30] + bytes(100), TP)) == entries


def test_committed_offset_is_identified_by_group_partition_and_offset() -> None:
    key = offset_commit_key("g", TP)
    records = [Record(0, 0, key, offset_commit_value(OffsetAndMetadata(5, metadata="m")), ())]
    records.append(Record(0, 0, key, None, ()))
    first, tombstone = stored(build(records), TopicPartition(OFFSETS_TOPIC, 0))
    assert first.digest == offset_digest("g", TP, 5)
    assert tombstone.digest == digest_of(None)


def test_marker_decides_only_the_records_of_its_producer() -> None:
    data = b"".join(
        (
            batch(0, b"a", producer=1),
            batch(1, b"b", producer=2),
            batch(2, b"c"),
            marker(3, 1, 0),
            batch(4, b"d", producer=1),
            marker(5, 1, 1),
            batch(6, b"e"),
        )
    )
    log = PartitionLog(stored(data, TP))
    assert log.outcomes == {0: HIDDEN, 1: OPEN, 2: VISIBLE, 4: VISIBLE, 6: VISIBLE}
    assert log.last_stable == 1
    assert log.is_whole
    assert [offset for offset in log.outcomes if log.is_readable(offset)] == []
    closed = PartitionLog(stored(data + marker(7, 2, 1), TP))
    assert [offset for offset in closed.outcomes if closed.is_readable(offset)] == [1, 2, 4, 6]


def test_log_without_its_first_records_is_not_whole() -> None:
    assert not PartitionLog(stored(batch(3, b"a"), TP)).is_whole
