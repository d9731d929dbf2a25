"""The log of one replica: record batches in segment files, with leader epochs, producer state and indexes.

Byte positions count from the first segment that this process opened; a segment begins at `segment.start`.
`log_end_offset` and `position` include pending batches, which are not written yet. `written_log_end_offset` and
`written_position` are the end of the file, and only records below them may be served or acknowledged.
Invariant: `written_*` advances only after a write that succeeded. After a write or fsync that failed, the
active file refuses every further call until the broker restarts (S37). An operation that found no free file
descriptor has changed nothing, and can be tried again.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import CorruptBatch, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Storage
from minikafka.kafka.records.batch import (
    base_offset_below,
    end_of_transaction,
    has_gap,
    stamp,
    unsound_error,
    valid_run,
)
from minikafka.kafka.records.header import (
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
from minikafka.storage.log.epochs import FILE_NAME as EPOCHS
from minikafka.storage.log.gaps import Gaps
from minikafka.storage.log.log_end import LogEnd
from minikafka.storage.log.recovery import load
from minikafka.storage.log.replay import reload_producers
from minikafka.storage.log.segments.index_files import sync_files
from minikafka.storage.log.segments.segment import RECORD_OFFSET, RELATIVE_OFFSET_MAX, Segment

_Run = tuple[list[Header], int]
"""The headers of valid batches, and the offset after the last batch."""
_unpack_header: Final = HEADER.unpack_from


class Log(LogEnd):
    """The log of one replica.

    `write_checkpoints` makes recovery point and log start offset durable, and `lower_high_watermark` a lower high
    watermark; both are called before records are truncated.
    `before_removal` is called before segments are truncated or removed; a `Replacement` in progress sets it.
    `layout_generation` increases when truncation, deletion or compaction makes byte positions invalid. A caller that
    keeps a position also keeps this number, and looks up the position again when the number has changed.
    """

    __slots__ = ()

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
            # Before any change: if the file of a new segment cannot be created, nothing is appended.
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
            if header[ATTRIBUTES] & CONTROL:
                self._note_marker(header, base_offset, batch)
            else:
                self.producers.update(header, base_offset)
        self.log_end_offset = last_offset + 1
        self.position = end_position
        return base_offset

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
        if self.pending:  # from its time as leader, in the same tick
            self.flush()
        if (
            accept_gaps
            and gaps.first_dirty_offset is None
            and has_gap(headers, self.log_end_offset)
        ):
            gaps.mark(
                self.log_start_offset
            )  # durable before the gap is: recovery would cut the log at it
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
                if attributes & CONTROL:
                    first = start + position - self.position
                    self._note_marker(header, base, view[first : first + OVERHEAD + length])
                else:
                    self.producers.update(header, base)
            position += OVERHEAD + length

    def _note_marker(self, header: Header, base_offset: int, batch: memoryview) -> None:
        """Update the producer with its marker; add an aborted transaction to the index of the active segment."""
        kind, coordinator_epoch = end_of_transaction(batch)
        aborted = self.producers.end_transaction(header, base_offset, kind, coordinator_epoch)
        if aborted is not None:
            with self.failing_for_good():
                self._active.transactions.add(aborted)

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

    def aborted_transactions(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with batches from `offset` to below `end`.

        `end` must be at most the last stable offset.
        """
        return self.segments.aborted_transactions(offset, end)

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
            # First, and durable: after a crash, no checkpoint may lie above the log end.
            self._lower_checkpoints(self.segments.batch_begin(offset))
        with self.failing_for_good():
            while self.segments[-1].base_offset > offset:
                self._delete_segment(-1)
                # Else a power loss could bring it back behind a gap, which a compacted log accepts.
                self.storage.sync_directory(self.directory)
            segment = self.segments[-1]
            self.segments.forget_unsynced(segment)
            position, end_offset = segment.truncate(segment.find(offset, segment.file.size()))
            self._end_at(end_offset, segment.start + position)
            self._lower_checkpoints(end_offset)  # `end_offset` < `offset` if `offset` lies in a gap
            self.epochs.truncate_from_end(end_offset)
            reload_producers(self.producers, self.segments, end_offset, self.position)
        # A checkpoint above the log end would count later records as durable, or hide them.
        assert self.recovery_point <= self.log_end_offset, (self.recovery_point, self)
        assert self.log_start_offset <= self.log_end_offset <= offset, (offset, self)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int = -1) -> None:
        """Remove every record; the empty log then begins and ends at the offset (R42). Raises StorageFailed.

        `log_start_offset`: a log start offset above `offset`. The caller must then append a batch that holds it.
        """
        with self.failing_for_good(is_repeatable=True):
            self._lower_checkpoints(offset)
        with self.failing_for_good():
            while self.segments:
                self._delete_segment(-1)
            # Else these segments could be back below a later recovery point, and would not be checked.
            self.storage.sync_directory(self.directory)
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
        """Limit recovery point, log start, first dirty offset and high watermark to this offset, and persist them."""
        if self.before_removal is not None:
            self.before_removal()
        self.gaps.truncated(offset)
        self.lower_high_watermark(offset)
        before = self.recovery_point, self.log_start_offset
        if offset < max(before):
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            try:
                self.write_checkpoints()
            except StorageFailed:
                self.recovery_point, self.log_start_offset = before
                raise

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

    def synced(self, end_offset: int, layout_generation: int) -> None:
        """Raise the recovery point to `end_offset` after an fsync of all files.

        `end_offset`, `layout_generation`: the written log end and `Log.layout_generation` at the start of the fsync.
        If truncation, deletion or compaction has changed `Log.layout_generation` since then, the recovery point stays
        the same.
        """
        if layout_generation == self.layout_generation:
            assert end_offset <= self.written_log_end_offset, (end_offset, self)
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

    def renamed(self, directory: str) -> None:
        """Use the new path of the log's directory, whose name is not durable yet."""
        self.directory = self.producers.directory = directory
        self.epochs.path = f"{directory}/{EPOCHS}"
        for segment in self.segments:
            segment.renamed(directory)
        self.has_durable_name = False

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
