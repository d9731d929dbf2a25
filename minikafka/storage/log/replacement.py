"""The replacement of neighbouring segments of a log by their compacted copy, in steps with fsyncs in between.

The steps are `begin`, `sync`, `replace`, `sync`, `complete`. The log may be used between the steps, so `sync` can
run outside the event loop. Invariant: no segment is truncated or removed while the names of the copy's files
are not durable. The log therefore calls `end` before it truncates or removes a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import File
from minikafka.storage.log.log import Log
from minikafka.storage.log.segments import swap
from minikafka.storage.log.segments.segment import Segment


class Replacement:
    """The replacement of `segments` by their compacted copy, `<first base offset>.log.cleaned`.

    `storage/log/cleaner` writes the copy, which must be valid and durable before `begin`.
    """

    def __init__(self, log: Log, segments: Sequence[Segment]) -> None:
        self._log = log
        self._segments = list(segments)
        self._copy: File | None = None
        self._is_replaced = False

    def begin(self) -> None:
        """Rename the copy's files to `….swap`. Raises StorageFailed.

        Raises ValueError if the segments are not sealed segments of the log.
        """
        log = self._log
        self._slot()
        if log.gaps.first_dirty_offset is None:
            log.gaps.mark(log.log_start_offset)
        # The renames are half done after any failure, so the log is not used again before the next start.
        with log.failing_for_good():
            swap.begin(self._segments[0])
        log.before_removal = self.end

    def sync(self) -> None:
        """Fsync the directory, so that the renames are durable. May run in any thread. Raises StorageFailed."""
        self._log.storage.sync_directory(self._log.directory)

    def replace(self) -> None:
        """Replace the segments by the copy. Call `sync` before this, so that the renames of `begin` are durable.

        The log's `layout_generation` increases. Byte positions after the replaced segments stay valid. Raises
        StorageFailed, and ValueError if the segments are no longer sealed segments of the log or if the
        replacement was undone.
        """
        log = self._log
        if log.before_removal != self.end:
            raise ValueError(f"the replacement in {log} was undone")
        slot = self._slot()
        copy = self._copy = swap.open_copy(self._segments[0])
        with log.failing_for_good():
            cleaned = swap.replace(self._segments, copy)
            log.segments.replace(slot, len(self._segments), cleaned)
            for segment in self._segments:
                log.retired.add(segment, log.config.file_delete_delay_ms)
        log.layout_generation += 1
        self._is_replaced = True
        with log.failing_for_good(is_repeatable=True):
            log.producers.keep_snapshots({segment.base_offset for segment in log.segments})

    def complete(self) -> None:
        """Give the copy its final name. Call `sync` before this, so that the renames of `replace` are durable.

        No effect if the log had to end the replacement earlier. Raises StorageFailed.
        """
        if self._log.before_removal == self.end:
            self._log.before_removal = None
            assert self._copy is not None
            swap.complete(self._segments[0], self._copy)

    def end(self) -> None:
        """Complete the replacement if the copy has replaced the segments, else undo it; make the renames durable.

        Raises StorageFailed.
        """
        if self._is_replaced:
            self.sync()
            self.complete()
        else:
            self._log.before_removal = None
            swap.undo(self._segments[0])
        self.sync()

    def abort(self) -> None:
        """End the replacement unless it has ended. If the disk fails, the next start ends the replacement."""
        if self._log.before_removal == self.end:
            with suppress(StorageFailed):
                self.end()

    def _slot(self) -> int:
        sealed = self._log.segments[:-1]
        slot = sealed.index(self._segments[0])
        if sealed[slot : slot + len(self._segments)] != self._segments:
            raise ValueError(f"the segments to replace are not consecutive in {self._log}")
        return slot
