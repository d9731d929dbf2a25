"""The reader with which coordinators load their state: it reads a partition on its leader up to the high watermark."""

from __future__ import annotations

import pytest
from support.storage.logs import clean
from support.storage.replication import Replica, Replicas

from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.kafka.records.batch import records
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.reader import PartitionReader

SMALL = "200"
"""segment.bytes for segments of two batches."""


def committed(count: int, **config: str) -> Replicas:
    """Return two replicas with `count` committed batches of one record each."""
    replicas = Replicas((0, 1), **config)
    replicas.elect(0)
    for number in range(count):
        replicas.produce(0, b"%03d" % number)
    replicas.sync(0, 1, rounds=count + 1)
    assert replicas[0].hw == count
    return replicas


def reader_of(replica: Replica) -> PartitionReader:
    def storage_failed(partition: Partition, failure: StorageFailed) -> None:
        raise AssertionError(f"{partition}: {failure}")

    return PartitionReader(replica.partition, storage_failed)


def read_to_end(reader: PartitionReader, max_bytes: int) -> list[bytes | None]:
    values = []
    while chunk := reader.read(max_bytes):
        values += [record.value for record in records(chunk)]
    return values


@pytest.mark.parametrize("max_bytes", [1, 100, 150, 1 << 20])
@pytest.mark.parametrize("segment_bytes", [SMALL, "1000000"])
def test_reader_returns_every_committed_record_in_chunks(
    max_bytes: int, segment_bytes: str
) -> None:
    replicas = committed(7, segment_bytes=segment_bytes)
    reader = reader_of(replicas[0])
    assert read_to_end(reader, max_bytes) == [b"%03d" % number for number in range(7)]
    assert reader.offset == 7


def test_reader_chunk_is_at_most_max_bytes_or_one_batch() -> None:
    replicas = committed(6)
    batch = replicas[0].log.written_position // 6
    assert len(reader_of(replicas[0]).read(1)) == batch
    assert len(reader_of(replicas[0]).read(3 * batch + 1)) == 3 * batch


def test_reader_stops_at_the_high_watermark_until_it_moves() -> None:
    replicas = committed(2)
    replicas.produce(0, b"002")
    reader = reader_of(replicas[0])
    assert read_to_end(reader, 1 << 20) == [b"000", b"001"]
    assert reader.read(1 << 20) == b""
    replicas.sync(0, 1)
    assert read_to_end(reader, 1 << 20) == [b"002"]


def test_reader_of_a_new_leader_is_not_at_end_before_its_first_records_commit() -> None:
    replicas = committed(2)
    replicas.produce(0, b"002")
    replicas.fetch(1, 0)
    assert replicas[1].hw == 2  # the next fetch will bring the new high watermark
    replicas.elect(1)
    reader = reader_of(replicas[1])
    assert read_to_end(reader, 1 << 20) == [b"000", b"001"]
    assert not reader.at_end()
    replicas.sync(1, 0)
    assert not reader.at_end()
    assert read_to_end(reader, 1 << 20) == [b"002"]
    assert reader.at_end()


def test_end_check_of_a_reader_raises_when_its_leader_epoch_has_ended() -> None:
    replicas = committed(2)
    reader = reader_of(replicas[0])
    read_to_end(reader, 1 << 20)
    replicas.elect(1)
    with pytest.raises(KafkaError) as refused:
        reader.at_end()
    assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH


def test_reader_starts_at_the_log_start_offset() -> None:
    replicas = committed(4)
    replicas[0].log.advance_log_start_offset(3)
    assert read_to_end(reader_of(replicas[0]), 1 << 20) == [b"003"]


@pytest.mark.parametrize("segment_bytes", [SMALL, "1000000"])
def test_reader_continues_at_the_new_log_start_when_records_are_deleted(segment_bytes: str) -> None:
    replicas = committed(8, segment_bytes=segment_bytes)
    reader = reader_of(replicas[0])
    reader.read(1)
    replicas[0].log.advance_log_start_offset(5)
    assert read_to_end(reader, 1) == [b"005", b"006", b"007"]


@pytest.mark.parametrize(
    ("leader", "code"),
    [(1, ErrorCode.FENCED_LEADER_EPOCH), (0, ErrorCode.FENCED_LEADER_EPOCH)],
    ids=["another leader", "a new epoch of the same leader"],
)
def test_reader_raises_when_its_leader_epoch_has_ended(leader: int, code: ErrorCode) -> None:
    replicas = committed(3)
    reader = reader_of(replicas[0])
    reader.read(1)
    replicas.elect(leader)
    with pytest.raises(KafkaError) as refused:
        reader.read(1)
    assert refused.value.code == code


def test_reader_of_a_follower_raises_not_leader() -> None:
    replicas = committed(1)
    with pytest.raises(KafkaError) as refused:
        reader_of(replicas[1]).read(1)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_reader_reports_a_failed_disk_and_raises_a_storage_error() -> None:
    replicas = committed(3)
    partition = replicas[0].partition
    reported: list[Partition] = []
    reader = PartitionReader(partition, lambda failed, failure: reported.append(failed))
    partition.log.segments[0].file.close()
    with pytest.raises(KafkaError) as refused:
        reader.read(1)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(refused.value.__cause__, StorageFailed)
    assert reported == [partition]


def test_reader_continues_with_the_next_record_after_a_compaction() -> None:
    replicas = committed(8, segment_bytes=SMALL)
    reader = reader_of(replicas[0])
    assert reader.read(1)
    clean(replicas[0].log, 0, lambda offset: offset == 0)
    assert read_to_end(reader, 1) == [b"%03d" % number for number in range(2, 8)]
