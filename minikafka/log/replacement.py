"""The replacement of neighbouring segments of a log by their compacted copy, in steps with fsyncs in between.

The steps are `begin`, `sync`, `complete`, `sync`, `end`. The log may be used between the steps, so `sync` can
run outside the event loop. Invariant: no segment is truncated or removed while the names of the copy's files
are not durable. The log therefore calls `undo_if_incomplete` before it truncates or removes a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from minikafka.base.errors import StorageFailed
from minikafka.log.log import Log
from minikafka.log.segments import swap
from minikafka.log.segments.segment import Segment


class Replacement:
    """The replacement of `segments` by their compacted copy, `<first base offset>.log.cleaned`.

    `log/cleaner` writes the copy, which must be valid and durable before `begin`.
    """

    def __init__(self, log: Log, segments: Sequence[Segment]) -> None:
        self._log = log
        self._segments = list(segments)
        self._is_complete = False

    def begin(self) -> None:
        """Rename the copy's files to `….swap`. Raises StorageFailed.

        Raises ValueError if the segments are not sealed segments of the log.
        """
        log = self._log
        self._slot()
        if log.gaps.first_dirty_offset is None:
            log.gaps.mark(log.log_start_offset)
        with log.failing_for_good():
            swap.begin(self._segments[0])
        log.before_removal = self.undo_if_incomplete

    def sync(self) -> None:
        """Fsync the directory, so that the renames are durable. May run in any thread. Raises StorageFailed."""
        self._log.storage.sync_directory(self._log.directory)

    def complete(self) -> None:
        """Replace the segments by the copy. Call `sync` before this, so that the renames of `begin` are durable.

        The log's `layout_generation` increases. Byte positions after the replaced segments stay valid. Raises
        StorageFailed, and ValueError if the segments are no longer sealed segments of the log or if the
        replacement was undone.
        """
        log = self._log
        if log.before_removal != self.undo_if_incomplete:
            raise ValueError(f"the replacement in {log} was undone")
        slot = self._slot()
        copy = swap.open_copy(self._segments[0])
        with log.failing_for_good():
            cleaned = swap.complete(self._segments, copy)
            log.segments.replace(slot, len(self._segments), cleaned)
            for segment in self._segments:
                log.retired.add(segment, log.config.file_delete_delay_ms)
        log.layout_generation += 1
        self._is_complete = True
        with log.failing_for_good(is_repeatable=True):
            log.producers.keep_snapshots({segment.base_offset for segment in log.segments})

    def end(self) -> None:
        """Finish the replacement. Call `sync` before this, so that the renames of `complete` are durable."""
        if self._log.before_removal == self.undo_if_incomplete:
            self._log.before_removal = None

    def undo_if_incomplete(self) -> None:
        """Undo the replacement if it is not complete, and make the renames durable. Raises StorageFailed."""
        self.end()
        if not self._is_complete:
            swap.undo(self._segments[0])
        self.sync()

    def abort(self) -> None:
        """Undo the replacement if it is not complete. If the disk fails, the next start undoes the replacement."""
        if self._log.before_removal == self.undo_if_incomplete:
            with suppress(StorageFailed):
                self.undo_if_incomplete()

    def _slot(self) -> int:
        sealed = self._log.segments[:-1]
        slot = sealed.index(self._segments[0])
        if sealed[slot : slot + len(self._segments)] != self._segments:
            raise ValueError(f"the segments to replace are not consecutive in {self._log}")
        return slot
