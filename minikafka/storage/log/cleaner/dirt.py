"""How dirty a log is, and how much of it may be cleaned now (Kafka's LogCleanerManager).

The active segment, records at the last stable offset or above it, and records younger than `min.compaction.lag.ms`
are never cleaned. Clean and dirty bytes are counted in whole segments.
"""

from __future__ import annotations

from typing import NamedTuple

from minikafka.base.config.keys import LONG_MAX
from minikafka.kafka.records.header import HEADER, HEADER_BYTES, MAX_TIMESTAMP
from minikafka.storage.log.cleaner.task import CleaningTask
from minikafka.storage.log.log import Log
from minikafka.storage.log.segments.segment import Segment


class Dirt(NamedTuple):
    """The dirty part of a log, from `first_dirty_offset` up to `uncleanable_offset`, with sizes in bytes.

    `overdue_ms`: by how much the age of the oldest dirty segment exceeds `max.compaction.lag.ms`; 0 if the age
    does not exceed this limit.
    """

    first_dirty_offset: int
    uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int = 0

    @property
    def ratio(self) -> float:
        """The share of dirty bytes in all clean and dirty bytes, from 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def dirt_of(log: Log, last_stable_offset: int, wall_ms: int) -> Dirt:
    """Return the dirty part of the log, without records that must not be cleaned yet. Raises StorageFailed.

    `wall_ms`: the current time (Unix ms). The timestamps of segments are read only if a compaction lag is set.
    """
    segments = log.segments
    first_dirty = first_dirty_offset(log)
    limit = min(last_stable_offset, segments[-1].base_offset)
    young = _first_young(log, first_dirty, wall_ms)
    if young is not None:
        limit = min(limit, young.base_offset)
    slot = min(segments.slot_of(max(first_dirty, limit)), len(segments) - 1)
    uncleanable = segments[slot].base_offset
    first_slot = min(segments.slot_of(first_dirty), slot)
    clean_end = next(
        (segment.start for segment in segments if segment.base_offset >= first_dirty),
        log.written_position,
    )
    return Dirt(
        first_dirty,
        uncleanable,
        clean_end - segments[0].start,
        segments[slot].start - segments[first_slot].start,
        _overdue_ms(log, first_slot, wall_ms),
    )


def first_dirty_offset(log: Log) -> int:
    """Return the offset at which the dirty (not yet cleaned) part of the log begins."""
    return max(log.gaps.first_dirty_offset or 0, log.log_start_offset)


def is_due(log: Log, dirt: Dirt) -> bool:
    """Return True if the log should be cleaned: it is dirty enough, or a dirty record has waited long enough."""
    if not dirt.dirty_bytes or dirt.uncleanable_offset <= dirt.first_dirty_offset:
        return False
    return dirt.overdue_ms > 0 or dirt.ratio > log.config.min_cleanable_dirty_ratio


def _first_young(log: Log, first_dirty: int, wall_ms: int) -> Segment | None:
    """Return the first dirty sealed segment with a record younger than `min.compaction.lag.ms`, or None."""
    lag = log.config.min_compaction_lag_ms
    if not lag:
        return None
    for segment in log.segments[log.segments.slot_of(first_dirty) : -1]:
        if segment.largest_timestamp() > wall_ms - lag:
            return segment
    return None


def _overdue_ms(log: Log, first_slot: int, wall_ms: int) -> int:
    """Return the age of the oldest dirty sealed segment minus `max.compaction.lag.ms`, at least 0 ms.

    The age of a segment is the age of its first batch.
    """
    lag = log.config.max_compaction_lag_ms
    if lag == LONG_MAX:
        return 0
    oldest = [
        HEADER.unpack_from(head)[MAX_TIMESTAMP]
        for segment in log.segments[first_slot:-1]
        if len(head := segment.file.pread(HEADER_BYTES, 0)) == HEADER_BYTES
    ]
    return max(wall_ms - lag - min((each for each in oldest if each > 0), default=LONG_MAX), 0)


def task_of(
    log: Log,
    dirt: Dirt,
    wall_ms: int,
    *,
    dedupe_bytes: int,
    load_factor: float,
    io_bytes: int,
    bytes_per_second: float,
) -> CleaningTask:
    """Return the task that cleans the log up to the uncleanable offset; `wall_ms` is the current Unix time.

    The transaction indexes, which the cleaning reads, are written if their files lack entries. Raises StorageFailed.
    """
    for segment in log.segments:
        segment.transactions.write()
    bases = [segment.base_offset for segment in log.segments]
    return CleaningTask(
        directory=log.directory,
        segments=[base for base in bases if base < dirt.uncleanable_offset],
        later_segments=[base for base in bases if base >= dirt.uncleanable_offset],
        segment_bytes=log.config.segment_bytes,
        index_bytes=log.config.segment_index_bytes,
        first_dirty_offset=dirt.first_dirty_offset,
        uncleanable_offset=dirt.uncleanable_offset,
        now_ms=wall_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        index_interval_bytes=log.config.index_interval_bytes,
        producers=[list(each) for each in log.producers.last_batches()],
        kept_end=_kept_end(log),
        dedupe_bytes=dedupe_bytes,
        load_factor=load_factor,
        io_bytes=io_bytes,
        bytes_per_second=bytes_per_second,
    )


def _kept_end(log: Log) -> int:
    """Return the last offset of the log if the active segment is empty, else -1.

    A follower's log ends after the last batch that the follower copied, and the follower joins the ISR only when
    it reaches the leader's log end. Therefore the batch before an empty active segment stays, even without records.
    Kafka removes such a batch: only in this case, a compacted log ends at another offset than Kafka's.
    """
    is_empty = log.log_end_offset == log.segments[-1].base_offset
    return log.log_end_offset - 1 if is_empty else -1
