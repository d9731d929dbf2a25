"""The log of one replica: record batches in segment files, with leader epochs, producer state and indexes.

Byte positions count from the first segment that this process opened; a segment begins at `segment.start`.
`log_end_offset` and `position` include pending batches, which are not written yet. `written_log_end_offset` and
`written_position` are the end of the file, and only records below them may be served or acknowledged.
Invariant: `written_*` advances only after a write that succeeded. After a write or fsync that failed, the
active file refuses every further call until the broker restarts (S37). An operation that found no free file
descriptor has changed nothing, and can be tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import CorruptBatch, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Buffer, Storage
from minikafka.base.traffic import Traffic
from minikafka.log.recovery import Loaded, load, reload_producers
from minikafka.log.segments.index import OFFSET_ENTRY
from minikafka.log.segments.index_files import sync_files
from minikafka.log.segments.retired import RetiredSegments
from minikafka.log.segments.segment import RECORD_OFFSET, RELATIVE_OFFSET_MAX, Segment
from minikafka.log.segments.segments import Segments, create_or_plan, roll_age
from minikafka.log.segments.stand_ins import RefusingFile
from minikafka.log.state.gaps import Gaps
from minikafka.record.batch import (
    base_offset_below,
    has_gap,
    marker_coordinator_epoch,
    stamp,
    unsound_error,
    valid_run,
)
from minikafka.record.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    OVERHEAD,
    PRODUCER_ID,
    Header,
)

logger = logging.getLogger(__name__)

_Run = tuple[list[Header], int]
"""The headers of valid batches, and the offset after the last batch."""
_unpack_header: Final = HEADER.unpack_from
_JOIN_BELOW_BYTES: Final = 4096
"""If the mean size of the pending batches is smaller than this, they are joined into one buffer for the write."""
_NEWEST_MAX_BYTES: Final = 4096
"""A write of at most this size stays in memory, so that waiting followers are served without a file read."""
_SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""Largest size of a segment that an offset index can describe; also the largest value of segment.bytes."""
_NO_BATCH_YET: Final = -2
"""`_roll_timestamp` of an empty segment. Every timestamp is larger, so the first batch sets the real value."""


class Log:
    """The log of one replica.

    `write_checkpoints` makes recovery point and log start offset durable; it is called before records are truncated.
    `before_removal` is called before segments are truncated or removed; a `Replacement` in progress sets it.
    `layout_generation` increases when truncation, deletion or compaction makes byte positions invalid. A caller that
    keeps a position also keeps this number, and looks up the position again when the number has changed.
    """

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
        "layout_generation",
        "log_end_offset",
        "log_start_offset",
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
        self.write_checkpoints: Callable[[], object] = bool  # the log directory sets it
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
        """Replace the topic settings; they apply to the active segment too."""
        self.config = config
        self._sync_after_records = config.flush_messages
        self.gaps.configure(config)
        self._activate()

    @classmethod
    def open(
        cls,
        storage: Storage,
        directory: str,
        tp: TopicPartition,
        config: TopicConfig,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        first_dirty_offset: int | None = None,
    ) -> Log:
        """Open the log in the directory, with recovery if needed, or create it. Raises StorageFailed.

        `clean`: the log was closed properly, so its batches are checked only if its epoch file is missing.
        `first_dirty_offset`: the log's entry in `cleaner-offset-checkpoint`, None without an entry.
        """
        gaps = Gaps(config, first_dirty_offset)
        loaded = load(
            storage,
            directory,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            accept_gaps=gaps.accepted,
        )
        return cls(storage, directory, tp, config, loaded, recovery_point, gaps)

    # ---- the per-batch path

    def append(self, batch: memoryview, header: Header, leader_epoch: int, wall_ms: int) -> int:
        """Append one checked batch, a slice of the receive buffer, as leader; return its base offset.

        Base offset and leader epoch are stamped into the buffer, and `pending` keeps the slice: the buffer
        must not change before `flush()`. Raises StorageFailed, and appends nothing, when the file of the segment
        cannot be created.
        """
        base_offset = self.log_end_offset
        position = self.position
        end_position = position + len(batch)
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        timestamp = header[MAX_TIMESTAMP]
        if (
            end_position > self._roll_position
            or timestamp > self._roll_timestamp
            or last_offset > self._roll_last_offset
        ):
            self._before_append(base_offset, timestamp, end_position, last_offset, wall_ms)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        stamp(batch, 0, base_offset, header[BATCH_LENGTH], leader_epoch)
        self.pending.append(batch)
        segment = self._active
        if timestamp > segment.max_timestamp or position > segment.next_index_position:
            # `Segment.note` does nothing for other batches: skipping the call saves 25 of 435 ns.
            self._note_in_segment(base_offset, last_offset, timestamp, position)
        if header[PRODUCER_ID] >= 0:
            self.producers.update(header, base_offset)
            if header[ATTRIBUTES] & CONTROL:
                self._note_marker(header, batch)
        self.log_end_offset = last_offset + 1
        self.position = end_position
        return base_offset

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
        self.written_position, self.written_log_end_offset = self.position, end

    def append_replicated(self, buf: bytearray, view: memoryview, start: int, end: int) -> None:
        """Append whole batches of the leader, bytes [start, end), with the leader's offsets and epochs.

        All batches are written with one call. The first batch may begin below the log start offset of an empty log.
        Raises StorageFailed. Raises CorruptBatch, and appends nothing, for an invalid batch or any other offset below
        the expected offset; OffsetGap for an offset above it, unless the topic is or was compacted.
        """
        gaps = self.gaps
        accept_gaps = gaps.accepted
        headers, stop, next_offset = valid_run(
            buf, view, start, end, self.log_end_offset, accept_gaps
        )
        if stop != end or not headers:
            headers, next_offset = self._restart_below_start(buf, view, start, end)
        if self.pending:
            self.flush()
        if (
            accept_gaps
            and gaps.first_dirty_offset is None
            and has_gap(headers, self.log_end_offset)
        ):
            gaps.mark(self.log_start_offset)
        position = self.position
        end_position = position + end - start
        if (
            end_position > self._roll_position
            or headers[0][MAX_TIMESTAMP] > self._roll_timestamp
            or next_offset > self._roll_last_offset
        ):
            self._before_replicated(headers[0], end_position, next_offset - 1)
        segment = self._active
        try:
            segment.file.pwritev((view[start:end],), position - segment.start)
            self._note_appended(headers, position, segment, view, start)
        except StorageFailed as failure:
            raise self._fail(failure) from failure
        self.traffic.replication_bytes_in += end - start
        self.log_end_offset = self.written_log_end_offset = next_offset
        self.position = self.written_position = end_position
        if self.log_end_offset - self.recovery_point >= self._sync_after_records:
            self.sync()  # before the next fetch acknowledges the records

    def _restart_below_start(self, buf: bytearray, view: memoryview, start: int, end: int) -> _Run:
        """Let an empty log begin at the first of these batches, which begins below the log start offset.

        After DeleteRecords, the log start offset may lie inside a batch, and the leader sends whole batches. Return the
        headers and the offset after the last batch. Raises CorruptBatch if this log cannot begin like this.
        """
        first = expected = self.log_end_offset
        if expected == self.log_start_offset:
            first = base_offset_below(buf, start, end, expected)
        headers, stop, next_offset = valid_run(buf, view, start, end, first, self.gaps.accepted)
        if stop != end or not headers:
            raise unsound_error(buf, view, stop, end, next_offset)
        self.truncate_fully_and_start_at(first, log_start_offset=expected)
        return headers, next_offset

    def _before_replicated(self, first: Header, end_position: int, last_offset: int) -> None:
        """Roll to a new segment if batches of the leader do not fit (see `_before_append`).

        `first`: header of the first batch. `last_offset`: of the last batch. Raises CorruptBatch if no segment fits.
        """
        base = first[BASE_OFFSET]
        if last_offset - base > RELATIVE_OFFSET_MAX:
            raise CorruptBatch(f"offsets {base} to {last_offset} do not fit into one segment")
        self._before_append(base, first[MAX_TIMESTAMP], end_position, last_offset, -1)

    def _note_appended(
        self, headers: list[Header], position: int, segment: Segment, view: memoryview, start: int
    ) -> None:
        """Update leader epochs, indexes and producer state with batches that were written at this position.

        The start offset of an epoch is the log end before the epoch's first batch. In a compacted log this may
        be lower than the leader's start offset of the epoch. Another replica may then truncate too many records,
        but never keeps records that the leader did not have.
        """
        last_offset = self.log_end_offset - 1
        latest = self.epochs.latest
        for header in headers:
            base, length, epoch, _, _, attributes, delta, _, timestamp, producer, _, _, _ = header
            if epoch != latest:
                self.epochs.assign(epoch, max(last_offset + 1, self.log_start_offset))
                latest = epoch
            last_offset = base + delta
            if timestamp > segment.max_timestamp or position > segment.next_index_position:
                self._note_in_segment(base, last_offset, timestamp, position)
            if producer >= 0:
                self.producers.update(header, base)
                if attributes & CONTROL:
                    first = start + position - self.position
                    self._note_marker(header, view[first : first + OVERHEAD + length])
            position += OVERHEAD + length

    def _note_marker(self, header: Header, batch: memoryview) -> None:
        self.producers.update_coordinator(header[PRODUCER_ID], marker_coordinator_epoch(batch))

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
                self._roll_timestamp = first + roll_age(self.config, self._active)

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
        with self.failing_for_good(is_repeatable=True):
            sealed = self._active
            sealed.write_index_files(sealed=True)
            self.producers.snapshot(self.log_end_offset)
            self.segments.append(self._create_segment(base_offset))
        self.segments.unsynced.append(sealed)
        self._activate()

    def _replace_empty_segment(self, base_offset: int) -> None:
        """Replace the empty active segment, whose base offset is too far below the next offset (more than 31 bits)."""
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
            self._roll_timestamp = int(max(first, 0)) + roll_age(self.config, self._active)
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

    # ---- reading

    @property
    def size(self) -> int:
        """Number of bytes written to the log's segments."""
        return self.written_position - self.segments[0].start

    def locate(self, offset: int) -> int:
        """Return the byte position of the batch that holds the offset, or of the first batch above the offset.

        For the written log end, return the written position. For a higher offset, return the end of the pending
        batches. Raises StorageFailed.
        """
        if offset >= self.written_log_end_offset:
            return self.written_position if offset == self.written_log_end_offset else self.position
        return self.segments.locate(offset, self.written_position)

    def read(self, position: int, limit_position: int, max_bytes: int) -> tuple[bytes, int, int]:
        """Return (data, next offset, next position): whole batches from `position`, which is a batch boundary.

        The data ends at the latest at `limit_position` (a batch boundary) or at the end of the segment. It has
        at most `max_bytes`, or one batch that is larger. If there is nothing to read, the data is b"", and the
        next offset is the log end or -1 (unknown). Raises StorageFailed.
        """
        end = self.written_position
        if position == self._newest_position and limit_position == end:
            newest = self._newest
            if end - position == len(newest) <= max_bytes and newest:
                return newest, self.written_log_end_offset, end
        segment = self._active
        if position < segment.start:
            found = self.segments.at(position, end)
            if found is None:
                return b"", -1, position
            segment, end = found
        if limit_position < end:
            end = limit_position
        size = end - position
        if size <= 0:
            return (
                b"",
                self.written_log_end_offset if position == self.written_position else -1,
                position,
            )
        start = segment.start
        if size > max_bytes:
            data, offset = segment.read_up_to(position - start, end - start, max_bytes)
            return data, offset, position + len(data)
        data = segment.file.pread(size, position - start)
        if end == self.written_position:
            return data, self.written_log_end_offset, end
        return data, segment.offset_after(data, position - start), end

    def offset_for_timestamp(self, timestamp: int, upto_offset: int) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record whose timestamp is at least `timestamp`.

        Return None if there is no such record below `upto_offset`. Raises CorruptBatch, StorageFailed.
        """
        found = self.segments.record_since(timestamp, self.log_start_offset, self.written_position)
        return found if found is not None and found[RECORD_OFFSET] < upto_offset else None

    def latest_record(self, upto_offset: int) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record with the largest timestamp in the log.

        Return None if the log is empty, or if this record has offset `upto_offset` or above. Raises CorruptBatch,
        StorageFailed.
        """
        found = self.segments.latest_record(self.log_start_offset, self.written_position)
        return found if found is not None and found[RECORD_OFFSET] < upto_offset else None

    # ---- truncation

    def truncate_to(self, offset: int) -> None:
        """Remove every batch with a record at the offset or above it; do nothing if there is no such batch.

        Only whole batches are removed, so the new log end may lie below the offset. The last segment is deleted
        first, so that a crash in between leaves a log without gaps, only truncated less far. Raises StorageFailed.
        """
        if offset >= self.log_end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self.flush()
        with self.failing_for_good(is_repeatable=True):
            self._lower_checkpoints(self.segments.batch_begin(offset))
        with self.failing_for_good():
            while self.segments[-1].base_offset > offset:
                self._delete_segment(-1)
            segment = self.segments[-1]
            self.segments.forget_unsynced(segment)
            position, end_offset = segment.truncate(segment.find(offset, segment.file.size()))
            self._end_at(end_offset, segment.start + position)
            self._lower_checkpoints(end_offset)  # `end_offset` < `offset` if `offset` lies in a gap
            self.epochs.truncate_from_end(end_offset)
            reload_producers(self.producers, self.segments, end_offset, self.position)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int = -1) -> None:
        """Remove every record; the empty log then begins and ends at the offset (R42). Raises StorageFailed.

        `log_start_offset`: a log start offset above `offset`. The caller must then append a batch that holds it.
        """
        with self.failing_for_good(is_repeatable=True):
            self._lower_checkpoints(offset)
        with self.failing_for_good():
            while self.segments:
                self._delete_segment(-1)
            self.pending = []
            self.segments.append(self._create_or_plan_segment(offset))
            self.log_start_offset = max(offset, log_start_offset)
            self.recovery_point = offset
            self._end_at(offset, self.position)
            if log_start_offset > offset:
                self.write_checkpoints()
            self.epochs.clear()
            self.producers.clear()

    def _lower_checkpoints(self, offset: int) -> None:
        """Limit recovery point, log start offset and first dirty offset to this offset, and persist them."""
        if self.before_removal is not None:
            self.before_removal()
        self.gaps.truncated(offset)
        before = self.recovery_point, self.log_start_offset
        if offset < max(before):
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            try:
                self.write_checkpoints()
            except StorageFailed:
                self.recovery_point, self.log_start_offset = before
                raise

    def _delete_segment(self, slot: int) -> None:
        self.layout_generation += 1
        self.segments.delete(slot)

    # ---- deletion from the start

    def advance_log_start_offset(self, offset: int) -> None:
        """Raise the log start offset to `offset`, at most to the written log end; a lower `offset` changes nothing.

        The segments wholly below the log start offset stay until `remove_first_segments`. Nothing is written.
        """
        offset = min(offset, self.written_log_end_offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def roll(self) -> None:
        """Seal the active segment, which must have records, and begin a new one. Raises StorageFailed."""
        self._roll(self.log_end_offset)

    def remove_first_segments(self, count: int) -> None:
        """Remove the first `count` segments, which lie wholly below the log start offset. Raises StorageFailed.

        The caller must first make the checkpoint of the log start offset durable, because a power loss may
        undo the removal of only some of these segments. The files are renamed, and `retired` keeps the
        segments until the files may be deleted.
        """
        assert count <= self.segments.count_below(self.log_start_offset), (self, count)
        if self.before_removal is not None:
            self.before_removal()
        self.layout_generation += 1
        for segment in self.segments.remove_first(count):
            segment.mark_deleted()
            self.producers.remove_snapshot(segment.base_offset)
            self.retired.add(segment, self.config.file_delete_delay_ms)

    # ---- durability

    def sync(self) -> None:
        """Write pending batches, fsync the log, raise the recovery point to the log end. Raises StorageFailed."""
        self.flush()
        with self.failing_for_good(is_repeatable=True):
            self._sync_files()

    def _sync_files(self) -> None:
        """Fsync all unsynced files, and raise the recovery point to the log end. No batch may be pending."""
        for segment in [*self.segments.unsynced, self._active]:
            segment.file.sync()
        sync_files(self.storage, self.segments.unsynced_derived())
        self.epochs.sync()
        self.storage.sync_directory(self.directory)
        self.segments.all_synced()
        self.recovery_point = self.log_end_offset

    def synced(self, end_offset: int, layout_generation: int) -> None:
        """Raise the recovery point to `end_offset` after an fsync of all files.

        `end_offset`, `layout_generation`: the written log end and `Log.layout_generation` at the start of the fsync.
        If truncation, deletion or compaction has changed `Log.layout_generation` since then, the recovery point stays
        the same.
        """
        if layout_generation == self.layout_generation:
            self.recovery_point = max(self.recovery_point, end_offset)

    def sealed_synced(self, count: int, removals: int) -> None:
        """Raise the recovery point, unless the fsync of these segments is out of date (`Segments.synced`)."""
        self.recovery_point = max(self.recovery_point, self.segments.synced(count, removals))

    def checkpoint_indexes(self) -> None:
        """Write the index files of the active segment, so that tools can read its indexes.

        Also write the leader epochs, if their file lacks a change because no descriptor was free.
        """
        self._active.write_index_files(sealed=False)
        self.epochs.catch_up()

    def close(self) -> None:
        """Write and fsync everything, then close the files, even if writing fails. Raises StorageFailed."""
        try:
            self.flush()
            if self._active.is_made:  # a log that never had a record has nothing to write
                self._active.write_index_files(sealed=True)
                self.producers.snapshot(self.log_end_offset)
                sync_files(self.storage, self._active.derived_paths(self.log_end_offset))
                self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files and write nothing, as a crash would."""
        for segment in self.segments:
            segment.close()

    def is_missing(self, offset: int) -> bool:
        """Return True if recovery found that the record at this offset is missing. Raises StorageFailed."""
        lost_from = self.gaps.lost_from
        if lost_from is None or not lost_from <= offset < self.written_log_end_offset:
            return False
        data, _, _ = self.read(self.locate(offset), self.written_position, HEADER_BYTES)
        return bool(_unpack_header(data)[BASE_OFFSET] > offset)

    def __repr__(self) -> str:
        span = f"{self.log_start_offset}..{self.log_end_offset}"
        return f"Log({self.tp}, {span}, segments={len(self.segments)})"
