"""The end of a log: the active segment, when the next segment begins, and what a failed write leaves.

Invariant: see `log.py`, which appends, reads and truncates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Buffer, Storage
from minikafka.base.traffic import Traffic
from minikafka.kafka.records.codecs import crc32c
from minikafka.kafka.records.header import HEADER, HEADER_BYTES, MAX_TIMESTAMP
from minikafka.storage.log.checkpoints import PARTITION_METADATA
from minikafka.storage.log.gaps import Gaps
from minikafka.storage.log.recovery import Loaded
from minikafka.storage.log.segments.index import OFFSET_ENTRY
from minikafka.storage.log.segments.index_files import sync_files
from minikafka.storage.log.segments.segment import RELATIVE_OFFSET_MAX, Segment
from minikafka.storage.log.segments.segments import RetiredSegments, Segments, create_or_plan
from minikafka.storage.log.segments.stand_ins import RefusingFile

_unpack_header: Final = HEADER.unpack_from
_JOIN_BELOW_BYTES: Final = 4096
"""If the mean size of the pending batches is smaller than this, they are joined into one buffer for the write."""
_NEWEST_MAX_BYTES: Final = 4096
"""A write of at most this size stays in memory, so that waiting followers are served without a file read."""
_SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""Largest size of a segment that an offset index can describe; also the largest value of segment.bytes."""
_NO_BATCH_YET: Final = -2
"""`_roll_timestamp` of an empty segment. Every timestamp is larger, so the first batch sets the real value."""


class LogEnd:
    """The files and positions of a log, its pending batches, and the roll to the next segment."""

    __slots__ = (
        "_active",
        "_index_entries_max",
        "_newest",
        "_newest_position",
        "_roll_last_offset",
        "_roll_position",
        "_roll_timestamp",
        "_sync_after_records",
        "before_removal",
        "config",
        "directory",
        "epochs",
        "gaps",
        "has_durable_name",
        "layout_generation",
        "log_end_offset",
        "log_start_offset",
        "lower_high_watermark",
        "pending",
        "position",
        "producers",
        "recovery_point",
        "retired",
        "segments",
        "storage",
        "topic_id",
        "tp",
        "traffic",
        "write_checkpoints",
        "written_log_end_offset",
        "written_position",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        tp: TopicPartition,
        config: TopicConfig,
        loaded: Loaded,
        recovery_point: int,
        gaps: Gaps,
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.tp = tp
        self.traffic = Traffic()  # `Replicas` sets the counters that all logs of the topic share
        self.config = config
        self.topic_id: bytes | None = None
        self.has_durable_name = False
        """True if the log's directory and its topic id will exist after a power loss, as far as this process knows."""
        self.write_checkpoints: Callable[[], object] = bool  # the log directory sets it
        self.lower_high_watermark: Callable[[int], object] = bool  # the log directory sets it
        self.recovery_point = min(recovery_point, loaded.log_end_offset)
        self.segments = Segments(loaded.segments, self.recovery_point)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.retired = RetiredSegments()  # the log directory sets its own RetiredSegments
        self.gaps = gaps
        gaps.lost_from = loaded.lost_from
        gaps.truncated(loaded.log_end_offset)
        self.layout_generation = 0
        self.before_removal: Callable[[], None] | None = None
        self.pending: list[memoryview] = []
        self._newest, self._newest_position = b"", 0
        self.log_end_offset = self.written_log_end_offset = loaded.log_end_offset
        self.position = self.written_position = loaded.end_position
        self._roll_timestamp = _NO_BATCH_YET
        self._index_entries_max = 0
        self._sync_after_records = config.flush_messages
        self._activate()

    def configure(self, config: TopicConfig) -> None:
        """Replace the topic settings; they apply to the active segment too. Raises StorageFailed.

        If flush.messages or more records are not fsynced, fsync the log. They may be left from a process that was
        killed, and may count as committed without a further write.
        """
        self.config = config
        self._sync_after_records = config.flush_messages
        self.gaps.configure(config)
        self._activate()
        if self.written_log_end_offset - self.recovery_point >= self._sync_after_records:
            self.sync()

    def flush(self) -> None:
        """Write the pending batches to the page cache; advance the written log end. Raises StorageFailed."""
        pending = self.pending
        if not pending:
            return
        position = self.written_position
        size = self.position - position
        slices: Sequence[Buffer] = pending
        newest = b""
        if size < _JOIN_BELOW_BYTES * len(pending):
            newest = b"".join(pending)
            slices = (newest,)
        self.pending = []
        try:
            self._active.file.pwritev(slices, position - self._active.start)
            if self.log_end_offset - self.recovery_point >= self._sync_after_records:
                self._sync_files()
        except StorageFailed as failure:
            raise self._unsynced(failure) from failure
        if size > _NEWEST_MAX_BYTES:
            newest = b""
        self._newest, self._newest_position = newest, position
        end = self.log_end_offset
        traffic = self.traffic
        traffic.produce_requests += len(pending)
        traffic.bytes_in += size
        traffic.messages_in += end - self.written_log_end_offset
        # Last: records below the written end may be sent to followers and acknowledged.
        self.written_position, self.written_log_end_offset = self.position, end

    def sync(self) -> None:
        """Write pending batches, fsync the log, raise the recovery point to the log end. Raises StorageFailed."""
        self.flush()
        with self.failing_for_good(is_repeatable=True):
            self._sync_files()

    def _sync_files(self) -> None:
        """Fsync all unsynced files, and raise the recovery point to the log end. No batch may be pending."""
        assert not self.pending, self.tp
        for segment in [*self.segments.unsynced, self._active]:
            segment.file.sync()
        sync_files(self.storage, self.segments.unsynced_derived())
        self.epochs.sync()
        self.storage.sync_directory(self.directory)
        if not self.has_durable_name:
            sync_name(self.storage, self.directory)
            self.has_durable_name = True
        self.segments.all_synced()
        # Last: after a crash, nothing below the recovery point is checked.
        self.recovery_point = self.log_end_offset

    def _note_in_segment(
        self, base_offset: int, last_offset: int, timestamp: int, position: int
    ) -> None:
        """Add a batch to the active segment's indexes. If the offset index is full, the next batch begins a segment."""
        segment = self._active
        has_entry = segment.note(base_offset, last_offset, timestamp, position)
        if has_entry and len(segment.index) >= self._index_entries_max:
            self._roll_position = segment.start

    def _before_append(
        self, base_offset: int, timestamp: int, end_position: int, last_offset: int, wall_ms: int
    ) -> None:
        """Roll to a new segment if the batches do not fit. At a segment's first batch, set `_roll_timestamp`.

        The first batch of a new log creates the segment's files. If no file descriptor is free for a new segment, the
        batches are added to the active segment, and the next batches try to roll again.

        As in Kafka, the age of a segment is the difference between the timestamps of its batches. If the first batch
        has no timestamp, the leader counts the age from the current time, `wall_ms` (Unix ms). A follower passes -1 as
        `wall_ms`, and the age counts from the first batch that has a timestamp.
        """
        if self.position > self._active.start:
            by_time = self._roll_timestamp != _NO_BATCH_YET and timestamp > self._roll_timestamp
            if (
                by_time
                or end_position > self._roll_position
                or last_offset > self._roll_last_offset
            ):
                self._try_to_roll(base_offset, end_position, last_offset)
        elif last_offset > self._roll_last_offset:
            self._replace_empty_segment(base_offset)
        self._active.make()
        if self._roll_timestamp == _NO_BATCH_YET:
            first = timestamp if timestamp >= 0 else wall_ms
            if first >= 0:
                self._roll_timestamp = first + _roll_age(self.config, self._active)

    def _try_to_roll(self, base_offset: int, end_position: int, last_offset: int) -> None:
        """Roll to a new segment, unless no descriptor is free and the active segment can hold the batches."""
        try:
            self._roll(base_offset)
        except StorageFailed as failure:
            is_full = end_position - self._active.start > _SEGMENT_BYTES_MAX
            if not failure.lacks_descriptors or is_full or last_offset > self._roll_last_offset:
                raise

    def _roll(self, base_offset: int) -> None:
        """Write the pending batches, seal the active segment and begin the next segment at this offset."""
        self.flush()
        # Offsets only grow from segment to segment: lookups search them by bisection.
        assert base_offset >= self.log_end_offset, (base_offset, self.log_end_offset, self.tp)
        assert self.position > self._active.start, self.tp
        with self.failing_for_good(is_repeatable=True):
            sealed = self._active
            sealed.write_index_files(sealed=True)
            self.producers.snapshot(self.log_end_offset)
            self.segments.append(self._create_segment(base_offset))
        self.segments.unsynced.append(sealed)
        self._activate()

    def _replace_empty_segment(self, base_offset: int) -> None:
        """Replace the empty active segment, whose base offset is too far below the next offset (more than 31 bits)."""
        assert self.position == self._active.start, self.tp
        with self.failing_for_good():
            self._delete_segment(-1)
            segment = self._create_or_plan_segment(base_offset)
            self.segments.append(segment)
            if segment.is_made:
                self.epochs.ensure_file()
        self._activate()

    def _create_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self.storage,
            self.directory,
            base_offset,
            self.position,
            self.config.index_interval_bytes,
        )

    def _create_or_plan_segment(self, base_offset: int) -> Segment:
        place = self.storage, self.directory, base_offset, self.position
        return create_or_plan(
            *place, self.config.index_interval_bytes, made=self.epochs.ensure_file
        )

    def _activate(self) -> None:
        """Make the last segment the active segment; set the position and the timestamp at which it is rolled."""
        segment = self._active = self.segments[-1]
        self._roll_position = segment.start + self.config.segment_bytes
        self._index_entries_max = self.config.segment_index_bytes // OFFSET_ENTRY.size
        self._roll_last_offset = segment.base_offset + RELATIVE_OFFSET_MAX
        self._roll_timestamp = _NO_BATCH_YET
        if self.position > segment.start:
            first = _unpack_header(segment.file.pread(HEADER_BYTES, 0))[MAX_TIMESTAMP]
            self._roll_timestamp = int(max(first, 0)) + _roll_age(self.config, self._active)
            if len(segment.index) >= self._index_entries_max:
                self._roll_position = segment.start

    def _end_at(self, offset: int, position: int) -> None:
        self.log_end_offset = self.written_log_end_offset = offset
        self.position = self.written_position = position
        self._newest = b""
        self.layout_generation += 1
        self._activate()

    def _unsynced(self, failure: StorageFailed) -> StorageFailed:
        """Return the error of a `flush` that failed.

        If only a descriptor for the fsync was missing, the batches are written and stay in the log, but the caller
        must not acknowledge them. A later `flush` tries the fsync again.
        """
        if not failure.lacks_descriptors:
            return self._fail(failure)
        self._newest = b""
        self.written_position, self.written_log_end_offset = self.position, self.log_end_offset
        return failure

    def _fail(self, failure: StorageFailed) -> StorageFailed:
        """Drop the pending batches, and refuse further use of the active file until a restart recovers the log.

        Return the error to raise. It takes the log directory offline, even if a descriptor was missing: the change of
        the log is half done.
        """
        failure = failure.for_good("in the middle of a change of the log")
        self.pending = []
        self._newest = b""
        self.log_end_offset = self.written_log_end_offset
        self.position = self.written_position
        self._active.file = RefusingFile(failure, self._active.file)
        return failure

    @contextmanager
    def failing_for_good(self, *, is_repeatable: bool = False) -> Iterator[None]:
        """Return a context manager. If the `with` body raises StorageFailed, the active file refuses further use.

        `is_repeatable`: the body can be run again if it found no free descriptor, so the file stays in use.
        """
        try:
            yield
        except StorageFailed as failure:
            if is_repeatable and failure.lacks_descriptors:
                raise
            raise self._fail(failure) from failure

    def _delete_segment(self, slot: int) -> None:
        self.layout_generation += 1
        self.segments.delete(slot)


def sync_name(storage: Storage, directory: str) -> None:
    """Make a log's directory and its topic id durable. Raises StorageFailed.

    Without the topic id, the log could be taken for the log of a later topic with the same name.
    """
    sync_files(storage, [f"{directory}/{PARTITION_METADATA}"])
    storage.sync_directory(directory)
    storage.sync_directory(directory.rpartition("/")[0])


def _roll_age(config: TopicConfig, segment: Segment) -> int:
    """Return segment.ms minus the jitter of the segment. A restart does not change the jitter.

    In a compacted topic max.compaction.lag.ms replaces a larger segment.ms, because the active segment
    is never cleaned.
    """
    age = config.segment_ms
    if "compact" in config.cleanup_policy:
        age = min(age, config.max_compaction_lag_ms)
    jitter_max = min(config.segment_jitter_ms, config.segment_ms)
    seed = f"{segment.directory}/{segment.base_offset}".encode()
    return age - (crc32c(seed) % jitter_max if jitter_max else 0)
