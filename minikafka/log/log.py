"""The Log: one replica's batches, in segments, with what follows from them (epochs, producers, indexes).

Positions are absolute byte positions within the life of the log in this process: a segment begins at
`segment.start`. `log_end_offset` and `position` count what is pending; `written_log_end_offset` and
`written_position` are what is in the file, and only that may be served or acknowledged.
Invariant: `written_*` moves only after a write that succeeded; after one that failed nothing of the log
believes in its file any more (S37).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import CorruptBatch, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Buffer, Storage
from minikafka.base.traffic import Traffic
from minikafka.log.gaps import Gaps
from minikafka.log.index import OFFSET_ENTRY
from minikafka.log.recovery import Loaded, load, reload_producers
from minikafka.log.segment import RELATIVE_OFFSET_MAX, RefusingFile, Segment
from minikafka.log.segments import Segments
from minikafka.record.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    PRODUCER_ID,
    Header,
    has_gap,
    marker_coordinator_epoch,
    stamp,
    unsound_error,
    valid_run,
)

logger = logging.getLogger(__name__)

_unpack_header: Final = HEADER.unpack_from
_JOIN_BELOW_BYTES: Final = 4096
"""Slices of a smaller mean size are joined before they are written."""
_NEWEST_MAX_BYTES: Final = 4096
"""What the leader wrote last is kept up to this size: followers that wait for it need not read the file."""
_NO_BATCH_YET: Final = -2
"""`_roll_timestamp` of an empty segment: any batch passes it and sets the real one."""


class Log:
    """One replica's log.

    `before_truncation`: called before anything below the recovery point is cut, to persist the lower one.
    `layout_generation`: raised by truncation, deletion and compaction, which make earlier positions worthless.
    Whoever keeps a position beyond one call keeps this number with it, and locates the offset again when the
    number has changed.
    """

    __slots__ = (
        "_active",
        "_index_entries_max",
        "_newest",
        "_newest_position",
        "_roll_last_offset",
        "_roll_position",
        "_roll_timestamp",
        "before_truncation",
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
        "segments",
        "storage",
        "topic_id",
        "tp",
        "traffic",
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
        self.traffic = Traffic()  # replaced by the counters that all logs of the topic share
        self.config = config
        self.topic_id: bytes | None = None
        self.before_truncation: Callable[[], None] | None = None
        self.recovery_point = min(recovery_point, loaded.log_end_offset)
        self.segments = Segments(loaded.segments, self.recovery_point)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.gaps = gaps
        gaps.lost_from = loaded.gap
        gaps.truncated(loaded.log_end_offset)
        self.layout_generation = 0
        self.pending: list[memoryview] = []
        self._newest, self._newest_position = b"", 0
        self.log_end_offset = self.written_log_end_offset = loaded.log_end_offset
        self.position = self.written_position = loaded.end_position
        self._roll_timestamp = _NO_BATCH_YET
        self._index_entries_max = 0
        self._activate()

    def configure(self, config: TopicConfig) -> None:
        """Use these settings from now on, for the active segment too."""
        self.config = config
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
        """Return the log in that directory, recovered or created. `clean`: closed properly, so not scanned.

        `first_dirty_offset`: its entry in `cleaner-offset-checkpoint`, if there is one. Raises StorageFailed.
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

    def append(
        self,
        buf: bytearray,
        view: memoryview,
        start: int,
        end: int,
        header: Header,
        leader_epoch: int,
        wall_ms: int,
    ) -> int:
        """Append one checked batch, [start, end) of the buffer, as leader; its base offset.

        It is stamped in place and joins `pending` as a slice of `view`, so the buffer must not change before
        `flush()`. Raises StorageFailed when a roll does.
        """
        base_offset = self.log_end_offset
        position = self.position
        end_position = position + end - start
        last_offset = base_offset + header[6]
        timestamp = header[8]
        if (
            end_position > self._roll_position
            or timestamp > self._roll_timestamp
            or last_offset > self._roll_last_offset
        ):
            self._before_append(base_offset, timestamp, end_position, last_offset, wall_ms)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        stamp(buf, start, base_offset, header[1], leader_epoch)
        self.pending.append(view[start:end])
        segment = self._active
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
            segment.max_timestamp_offset = last_offset
        if position > segment.next_index_position:
            self._add_index_entry(last_offset, position, base_offset)
        if header[PRODUCER_ID] >= 0:
            self.producers.update(header, base_offset)
            if header[ATTRIBUTES] & CONTROL:
                self._note_marker(header, view[start:end])
        self.log_end_offset = last_offset + 1
        self.position = end_position
        return base_offset

    def flush(self) -> None:
        """Write what is pending to the file (page cache) and publish it. Raises StorageFailed: nothing published."""
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
        except StorageFailed as failure:
            self._fail(failure)
            raise
        if size > _NEWEST_MAX_BYTES:
            newest = b""
        self._newest, self._newest_position = newest, position
        end = self.log_end_offset
        self.traffic.count_appends(len(pending), size, end - self.written_log_end_offset)
        self.written_position, self.written_log_end_offset = self.position, end

    def append_replicated(self, buf: bytearray, view: memoryview, start: int, end: int) -> None:
        """Write the leader's whole batches [start, end) with their offsets and epochs, in one write.

        Raises CorruptBatch for a header or CRC that is wrong or an offset below the expected one, OffsetGap for
        one above it unless the topic is or was compacted (nothing is appended then), and StorageFailed.
        """
        gaps = self.gaps
        expected = self.log_end_offset
        headers, stop = valid_run(buf, view, start, end, expected, gaps.accepted)
        if stop != end or not headers:
            raise unsound_error(buf, view, stop, end, headers, expected)
        if self.pending:
            self.flush()
        if gaps.accepted and gaps.first_dirty_offset is None and has_gap(headers, expected):
            gaps.mark(self.log_start_offset)
        position = self.position
        end_position = position + end - start
        last = headers[-1]
        last_offset = last[0] + last[6]
        if (
            end_position > self._roll_position
            or headers[0][8] > self._roll_timestamp
            or last_offset > self._roll_last_offset
        ):
            if last_offset - headers[0][BASE_OFFSET] > RELATIVE_OFFSET_MAX:
                raise CorruptBatch(
                    f"offsets {headers[0][BASE_OFFSET]} to {last_offset} do not fit into one segment"
                )
            self._before_append(headers[0][0], headers[0][8], end_position, last_offset, -1)
        segment = self._active
        try:
            segment.file.pwritev((view[start:end],), position - segment.start)
            self._note(headers, position, segment, view, start)
        except StorageFailed as failure:
            self._fail(failure)
            raise
        self.traffic.replication_bytes_in += end - start
        self.log_end_offset = self.written_log_end_offset = last_offset + 1
        self.position = self.written_position = end_position

    def _note(
        self, headers: list[Header], position: int, segment: Segment, view: memoryview, start: int
    ) -> None:
        """Note epochs, indexes and producers of batches that were written from this position on.

        An epoch begins at the offset expected before its first batch. Where the start of an epoch was compacted
        away in the source, that is below its true start: a replica with records of the former epoch beyond the
        true start is then told to cut too much instead of too little, and copies the rest again.
        """
        epoch = self.epochs.latest
        expected = self.log_end_offset
        for header in headers:
            base_offset = header[0]
            if header[2] != epoch:
                self.epochs.assign(header[2], expected)
                epoch = header[2]
            expected = base_offset + header[6] + 1
            if header[8] > segment.max_timestamp:
                segment.max_timestamp = header[8]
                segment.max_timestamp_offset = base_offset + header[6]
            if position > segment.next_index_position:
                self._add_index_entry(base_offset + header[6], position, base_offset)
            stop = start + OVERHEAD + header[BATCH_LENGTH]
            if header[PRODUCER_ID] >= 0:
                self.producers.update(header, base_offset)
                if header[ATTRIBUTES] & CONTROL:
                    self._note_marker(header, view[start:stop])
            position += stop - start
            start = stop

    def _note_marker(self, header: Header, batch: memoryview) -> None:
        self.producers.update_coordinator(header[PRODUCER_ID], marker_coordinator_epoch(batch))

    def _add_index_entry(self, last_offset: int, position: int, base_offset: int) -> None:
        count = self._active.add_index_entry(last_offset, position, base_offset)
        if count >= self._index_entries_max:
            self._roll_position = self._active.start

    def _before_append(
        self, base_offset: int, timestamp: int, end_position: int, last_offset: int, wall_ms: int
    ) -> None:
        """Roll if the batches do not fit; in an empty segment only note when it is due by time.

        As in Kafka the age of a segment is the time between batches, by their timestamps; the clock (leaders
        only) serves for a first batch that has none.
        """
        if self.position > self._active.start:
            by_time = self._roll_timestamp != _NO_BATCH_YET and timestamp > self._roll_timestamp
            if (
                by_time
                or end_position > self._roll_position
                or last_offset > self._roll_last_offset
            ):
                self._roll(base_offset)
        elif last_offset > self._roll_last_offset:
            self._replace_empty_segment(base_offset)
        if self._roll_timestamp == _NO_BATCH_YET:
            first = timestamp if timestamp >= 0 else wall_ms
            if first >= 0:
                self._roll_timestamp = first + self.config.segment_ms

    def _roll(self, base_offset: int) -> None:
        """Seal the active segment and begin the next at this offset; pending slices belong to the old one."""
        self.flush()
        try:
            sealed = self._active
            sealed.write_index_files(sealed=True)
            self.producers.snapshot(self.log_end_offset)
            self.segments.append(self._create_segment(base_offset))
        except StorageFailed as failure:
            self._fail(failure)
            raise
        self.segments.unsynced.append(sealed)
        self._activate()

    def _replace_empty_segment(self, base_offset: int) -> None:
        """Begin the empty active segment at this offset: a gap is too wide for its 32-bit relative offsets."""
        try:
            self._delete_segment(-1)
            self.segments.append(self._create_segment(base_offset))
            self.epochs.ensure_file()
        except StorageFailed as failure:
            self._fail(failure)
            raise
        self._activate()

    def _create_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self.storage,
            self.directory,
            base_offset,
            self.position,
            self.config.index_interval_bytes,
        )

    def _activate(self) -> None:
        """The last segment takes the appends from here on."""
        segment = self._active = self.segments[-1]
        self._roll_position = segment.start + self.config.segment_bytes
        self._index_entries_max = self.config.segment_index_bytes // OFFSET_ENTRY.size
        self._roll_last_offset = segment.base_offset + RELATIVE_OFFSET_MAX
        self._roll_timestamp = _NO_BATCH_YET
        if self.position > segment.start:
            first = _unpack_header(segment.file.pread(HEADER_BYTES, 0))[8]
            self._roll_timestamp = int(max(first, 0)) + self.config.segment_ms
            if len(segment.index) >= self._index_entries_max:
                self._roll_position = segment.start

    def _end_at(self, offset: int, position: int) -> None:
        self.log_end_offset = self.written_log_end_offset = offset
        self.position = self.written_position = position
        self._newest = b""
        self.layout_generation += 1
        self._activate()

    def _fail(self, failure: StorageFailed) -> None:
        """Forget what was not written, and never believe in the file again; a restart recovers it."""
        self.pending = []
        self._newest = b""
        self.log_end_offset = self.written_log_end_offset
        self.position = self.written_position
        self._active.file = RefusingFile(failure, self._active.file)

    # ---- reading

    def locate(self, offset: int) -> int:
        """The position of the batch that holds the offset (or of the next one above it).

        At and above the written log end: the written position, or the end with what is pending.
        """
        if offset >= self.written_log_end_offset:
            return self.written_position if offset == self.written_log_end_offset else self.position
        return self.segments.locate(offset, self.written_position)

    def read(self, position: int, limit_position: int, max_bytes: int) -> tuple[bytes, int, int]:
        """Whole batches from a batch boundary: (data, offset behind them, position behind them).

        Never beyond `limit_position` (a batch boundary) or the end of the segment; about `max_bytes`, but at
        least one batch. Nothing to read: (b"", the log end or -1, position). Raises StorageFailed.
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
        """(timestamp, offset, leader epoch) of the first record as late as this and below `upto_offset`.

        None when there is none. Raises CorruptBatch, StorageFailed.
        """
        for slot, segment in enumerate(self.segments):
            end = self.segments.end_of(slot, self.written_position) - segment.start
            found = segment.record_since(timestamp, self.log_start_offset, end)
            if found is not None:
                return found if found[1] < upto_offset else None
        return None

    # ---- truncation

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches to the offset or above; nothing if the log ends there or below.

        Only whole batches go, so the log end may come out below an offset inside of a batch. Segments go from
        the last, so that a crash in between leaves a log that only is not truncated far enough.
        """
        if offset >= self.log_end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self.flush()
        try:
            self._lower_checkpoints(self.segments.batch_begin(offset))
            while self.segments[-1].base_offset > offset:
                self._delete_segment(-1)
            segment = self.segments[-1]
            self.segments.forget_unsynced(segment)
            position, end_offset = segment.truncate(segment.find(offset, segment.file.size()))
            self._end_at(end_offset, segment.start + position)
            self._lower_checkpoints(end_offset)  # lower still, where the offset lay in a gap
            self.log_start_offset = min(self.log_start_offset, end_offset)
            self.epochs.truncate_from_end(end_offset)
            reload_producers(self.producers, self.segments, end_offset, self.position)
        except StorageFailed as failure:
            self._fail(failure)
            raise

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at the offset (R42)."""
        try:
            self._lower_checkpoints(offset)
            while self.segments:
                self._delete_segment(-1)
            self.pending = []
            self.segments.append(self._create_segment(offset))
            self.log_start_offset = self.recovery_point = offset
            self._end_at(offset, self.position)
            self.epochs.clear()
            self.producers.clear()
        except StorageFailed as failure:
            self._fail(failure)
            raise

    def _lower_checkpoints(self, offset: int) -> None:
        """Persist that nothing from this offset on is durable or compacted any more."""
        self.gaps.truncated(offset)
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self.before_truncation is not None:
                self.before_truncation()

    def _delete_segment(self, slot: int) -> None:
        self.layout_generation += 1
        self.segments.delete(slot)

    def advance_log_start_offset(self, offset: int) -> None:
        """Nothing below the offset (at most the log end) is readable any more; segments wholly below are deleted."""
        offset = min(offset, self.written_log_end_offset)
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            self._delete_segment(0)
        self.epochs.truncate_from_start(offset)
        self.producers.keep_snapshots({segment.base_offset for segment in self.segments})

    # ---- compaction

    def replace_segment(self, segment: Segment, cleaned_path: str) -> None:
        """Replace a sealed segment by the file at `cleaned_path`: the batches of it that a cleaner kept.

        Positions from the end of the segment on stay valid; the layout generation rises for those below. Raises
        CorruptBatch when the file is not whole, sound batches with rising offsets of this segment, StorageFailed.
        """
        slot = self.segments[:-1].index(segment)
        cleaned, size = segment.open_compacted(cleaned_path, self.segments[slot + 1].base_offset)
        if self.gaps.first_dirty_offset is None:
            self.gaps.mark(self.log_start_offset)
        try:
            cleaned.file.sync()
            segment.replace_files(cleaned, cleaned_path)
        except StorageFailed as failure:
            self._fail(failure)
            raise
        self.segments.replace(slot, cleaned, size)
        self.layout_generation += 1

    # ---- durability

    def sync(self) -> None:
        """fsync everything written; `recovery_point` moves to the log end. Raises StorageFailed."""
        self.flush()
        try:
            for segment in [*self.segments.unsynced, self._active]:
                segment.file.sync()
            self.epochs.sync()
            self.storage.sync_directory(self.directory)
        except StorageFailed as failure:
            self._fail(failure)
            raise
        self.segments.all_synced()
        self.recovery_point = self.log_end_offset

    def sealed_synced(self, count: int, removals: int) -> None:
        """Raise the recovery point: the first `count` of `segments.unsynced` are durable.

        `removals` is the value of `segments.removals` when their fsync began.
        """
        self.recovery_point = max(self.recovery_point, self.segments.synced(count, removals))

    def checkpoint_indexes(self) -> None:
        """Write the index files of the active segment, so that tools see them."""
        self._active.write_index_files(sealed=False)

    def close(self) -> None:
        """Make everything durable and give the files back. Raises StorageFailed; the files are closed then too."""
        try:
            self.flush()
            if self._active.is_made:  # a broker may have thousands that were never written to
                self._active.write_index_files(sealed=True)
                self.producers.snapshot(self.log_end_offset)
                self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the files back and leave them as they are, as a crash would."""
        for segment in self.segments:
            segment.close()

    def is_missing(self, offset: int) -> bool:
        """True if the log was found to have lost the record at this offset. Raises StorageFailed."""
        lost_from = self.gaps.lost_from
        if lost_from is None or not lost_from <= offset < self.written_log_end_offset:
            return False
        data, _, _ = self.read(self.locate(offset), self.written_position, HEADER_BYTES)
        return bool(_unpack_header(data)[BASE_OFFSET] > offset)

    def __repr__(self) -> str:
        span = f"{self.log_start_offset}..{self.log_end_offset}"
        return f"Log({self.tp}, {span}, segments={len(self.segments)})"
