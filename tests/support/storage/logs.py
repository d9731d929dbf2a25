"""Logs and record batches for the tests of `minikafka.storage.log`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from minikafka.base.config import TopicConfig
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Storage
from minikafka.kafka.records.batch import Record, build, build_marker, records
from minikafka.kafka.records.header import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER,
    OVERHEAD,
    TRANSACTIONAL,
)
from minikafka.storage.log.log import Log
from minikafka.storage.log.replacement import Replacement
from minikafka.storage.log.segments.segment import Segment

TP = TopicPartition("t", 0)
DIRECTORY = "/d/t-0"


def config(**settings: Any) -> TopicConfig:
    return replace(TopicConfig(), **settings)


def open_log(
    storage: Storage,
    *,
    clean: bool = False,
    directory: str = DIRECTORY,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    first_dirty_offset: int | None = None,
    **settings: Any,
) -> Log:
    return Log.open(
        storage,
        directory,
        TP,
        config(**settings),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        first_dirty_offset=first_dirty_offset,
    )


def batch(count: int = 1, *, size: int = 10, timestamp: int = 1000, **fields: Any) -> bytearray:
    """Return a batch of `count` records with values of `size` bytes and timestamps 1 ms apart."""
    made = [Record(timestamp=timestamp + i, value=b"%0*d" % (size, i)) for i in range(count)]
    return bytearray(build(made, **fields))


def transactional_batch(sequence: int, *, producer: int = 7, epoch: int = 0) -> bytearray:
    """Return a transactional batch of one record."""
    return batch(
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )


def end_marker(
    *,
    commit: bool = True,
    coordinator_epoch: int = 0,
    producer: int = 7,
    epoch: int = 0,
    timestamp: int = 1000,
) -> bytearray:
    """Return the control batch with which a transaction coordinator commits or aborts a transaction."""
    return bytearray(
        build_marker(
            producer,
            epoch,
            committed=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
        )
    )


def append(log: Log, data: bytearray | None = None, *, epoch: int = 0, wall_ms: int = 5000) -> int:
    """Append one batch as leader, without flushing; return the batch's base offset."""
    data = batch() if data is None else data
    header = HEADER.unpack_from(data)
    return log.append(memoryview(data), header, epoch, wall_ms)


def produce(log: Log, *counts: int, epoch: int = 0, **fields: Any) -> None:
    """For each count, append and flush one batch of that number of records."""
    for count in counts:
        append(log, batch(count, **fields), epoch=epoch)
        log.flush()


def three_segments(storage: Storage) -> Log:
    """Return a log of single-record batches in the segments [0..10), [10..20) and [20..25).

    The leader epoch of a record is its offset // 8. All records are from one idempotent producer.
    """
    size = len(batch())
    log = open_log(storage, segment_bytes=10 * size, index_interval_bytes=2 * size)
    for i in range(25):
        fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": i}
        produce(log, 1, epoch=i // 8, timestamp=1000 + i, **fields)
    return log


def replicate(log: Log, data: bytes) -> None:
    """Append whole batches as a follower does."""
    received = bytearray(data)
    log.append_replicated(received, memoryview(received), 0, len(received))


def read_all(log: Log, max_bytes: int = 1 << 20) -> bytes:
    """Return all written bytes of the log, over all segments."""
    position, data = log.segments[0].start, b""
    while position < log.written_position:
        chunk, offset, position = log.read(position, log.written_position, max_bytes)
        assert chunk, (position, log.written_position)
        data += chunk
        assert position == log.locate(offset)
    return data


def remove_below(log: Log, offset: int) -> None:
    """Raise the log start offset to `offset`, and remove the segments that lie wholly below."""
    log.advance_log_start_offset(offset)
    log.remove_first_segments(log.segments.count_below(log.log_start_offset))


def segments_of(log: Log) -> list[int]:
    """Return the base offsets of the log's segments."""
    return [segment.base_offset for segment in log.segments]


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in records(data)]


def state_of(log: Log) -> dict[str, Any]:
    """Return the parts of a log's state that recovery must restore unchanged."""
    return {
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "epochs": log.epochs.entries,
        "producers": log.producers.encode(),
        "data": read_all(log),
        "segments": [segment.base_offset for segment in log.segments],
        "indexes": [index_of(log, slot) for slot in range(len(log.segments))],
    }


def index_of(log: Log, slot: int) -> tuple[Sequence[int], Sequence[int]]:
    index = log.segments[slot].index
    return list(index.lasts), list(index.positions)


def compacted(storage: Storage, *kept: int, size: int = 40, **settings: Any) -> Log:
    """Return a follower's log of a compacted topic, with single-record batches at the offsets `kept` only."""
    log = open_log(storage, cleanup_policy=("compact",), **settings)
    for offset in kept:
        replicate(log, bytes(batch(base_offset=offset, leader_epoch=0, size=size)))
    return log


def clean(log: Log, slot: int, keep: Callable[[int], bool]) -> None:
    """Compact one closed segment of single-record batches, as a log cleaner does; keep offsets that `keep` selects."""
    segment = log.segments[slot]
    data = segment.file.pread(segment.file.size(), 0)
    kept = b""
    for position, header in segment.headers(0, len(data)):
        if keep(header[BASE_OFFSET]):
            kept += data[position : position + OVERHEAD + header[BATCH_LENGTH]]
    log.storage.write_atomically(segment.path(".log.cleaned"), kept)
    replace_segments(log, [segment])


def replace_segments(log: Log, segments: Sequence[Segment]) -> None:
    """Replace the segments with their compacted copy, as a log cleaner does."""
    replacement = Replacement(log, segments)
    replacement.begin()
    replacement.sync()
    replacement.replace()
    replacement.sync()
    replacement.complete()
