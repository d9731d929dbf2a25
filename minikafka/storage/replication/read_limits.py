"""How far a replica can be read: its high watermark and last stable offset, with their byte positions in the log.

`Waiter` and `ConsumerItem` are the interfaces of those who wait for the limits to move.

Invariant: neither offset lies above the log end, or below the log start offset.
"""

from __future__ import annotations

from typing import Final, Protocol

from minikafka.storage.log.log import Log

UNKNOWN_OFFSET: Final = -1
_NO_GENERATION: Final = -1
"""Layout generation of byte positions that have not been looked up yet."""


class ReadLimits:
    """The limits of reads from one log, and those who wait for the limits to move."""

    __slots__ = (
        "_high_watermark_position",
        "_last_stable_position",
        "_positions_generation",
        "high_watermark",
        "last_stable_offset",
        "log",
        "readers",
        "waiting",
    )

    def __init__(self, log: Log) -> None:
        self.log = log
        self.high_watermark = self.last_stable_offset = log.log_start_offset
        self._high_watermark_position = self._last_stable_position = UNKNOWN_OFFSET
        self._positions_generation = _NO_GENERATION
        self.waiting: dict[Waiter, None] = {}
        self.readers: dict[ConsumerItem, None] = {}
        """Consumer sessions to mark dirty, and remove, when the next fetch of the partition may have a new result."""

    def read_limit(self, read_committed: bool) -> tuple[int, int]:
        """Return the offset at which a consumer's read ends, and its byte position in the log.

        The offset is the last stable offset for `read_committed`, else the high watermark. Raises StorageFailed.
        """
        if self._positions_generation != self.log.layout_generation:
            self._locate_limits()
        if read_committed:
            return self.last_stable_offset, self._last_stable_position
        return self.high_watermark, self._high_watermark_position

    def _locate_limits(self) -> None:
        log = self.log
        self._high_watermark_position = log.locate(self.high_watermark)
        self._last_stable_position = (
            self._high_watermark_position
            if self.last_stable_offset == self.high_watermark
            else log.locate(self.last_stable_offset)
        )
        self._positions_generation = log.layout_generation

    def _set_high_watermark(self, offset: int) -> None:
        """Set high watermark and last stable offset; their byte positions are looked up at the next read."""
        log = self.log
        assert log.log_start_offset <= offset <= log.log_end_offset, (offset, log)
        self._move_high_watermark(offset, UNKNOWN_OFFSET, _NO_GENERATION)
        self.wake_readers()

    def _move_high_watermark(self, offset: int, position: int, generation: int) -> None:
        """Set the high watermark to `offset`, which is at byte position `position` of the log.

        The position is valid while `log.layout_generation` is `generation`. The last stable offset becomes the start
        of the first unstable transaction below the high watermark; without one, it becomes the high watermark.
        """
        self.high_watermark = self.last_stable_offset = offset
        self._high_watermark_position = self._last_stable_position = position
        self._positions_generation = generation
        log = self.log
        if log.producers.transactions:
            first = log.producers.first_unstable_offset(offset)
            if first is not None and first < offset:
                # DeleteRecords may have removed the beginning of the transaction.
                self.last_stable_offset = max(first, log.log_start_offset)
                self._positions_generation = _NO_GENERATION

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """Advance the follower's high watermark to the leader's, but at most to the written log end (R33, T15).

        Call this after the records of the leader's Fetch response are appended. Return True if the high watermark moved
        and a consumer waits for the partition.
        """
        end = self.log.written_log_end_offset
        high_watermark = min(end, leader_high_watermark)
        if high_watermark > self.high_watermark:
            self._move_high_watermark(high_watermark, UNKNOWN_OFFSET, _NO_GENERATION)
            return bool(self.readers or self.waiting)
        return False

    def truncate_to(self, offset: int) -> None:
        """Remove the batches with records at the offset or above; limit the high watermark to the new log end.

        Raises StorageFailed.
        """
        self.log.truncate_to(offset)
        self._set_high_watermark(min(self.high_watermark, self.log.log_end_offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove every record; log, high watermark and last stable offset begin at the offset (R42).

        Raises StorageFailed.
        """
        self.log.truncate_fully_and_start_at(offset)
        self._set_high_watermark(offset)

    def wake_readers(self) -> None:
        """Mark the partition dirty in the sessions of consumers, so that their fetches read it again."""
        # A new dictionary, because a reader that is marked may add itself again.
        readers, self.readers = self.readers, {}
        for reader in readers:
            reader.mark_dirty()


class Waiter(Protocol):
    """A request that waits until a partition changes: the high watermark, the role, or a replica's log start offset."""

    def attempt(self) -> None:
        """Send the response if the request need not wait any longer."""


class ConsumerItem(Protocol):
    """A partition in a consumer's fetch session. `mark_dirty` is called when the replica has something new to read."""

    def mark_dirty(self) -> None:
        """Record that the session must read the partition again.

        The caller has already removed this reader from `Partition.readers`.
        """
