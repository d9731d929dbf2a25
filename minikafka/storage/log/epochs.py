"""Leader epochs of one log with their start offsets (KIP-101, KIP-279).

Invariant: epochs and start offsets both increase strictly from entry to entry, in memory and in the
file `leader-epoch-checkpoint`, which is rewritten at every change. The file is not created while the
only epoch starts at offset 0 and the log has no batches. If a log has no file, recovery reads the
epochs from the batches. If no file descriptor is free at a change, `catch_up` writes the file later;
after a crash before that, recovery compares the file with the batches.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import StorageFailed
from minikafka.base.names import parse_number
from minikafka.base.ports import Storage

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = (-1, -1)


class LeaderEpochs:
    """The leader epochs of one log. `latest`: the newest epoch, -1 if there is none.

    `is_new`: the file does not exist yet.
    """

    __slots__ = (
        "_epochs",
        "_is_behind",
        "_is_new",
        "_starts",
        "_storage",
        "_synced",
        "latest",
        "path",
    )

    def __init__(
        self, storage: Storage, path: str, entries: list[tuple[int, int]], *, is_new: bool = False
    ) -> None:
        self._is_new = is_new
        self._is_behind = False
        """True if the file lacks a change, because no descriptor was free."""
        self._storage = storage
        self.path = path
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self.latest = self._epochs[-1] if entries else -1
        self._synced = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) pairs in increasing order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that the epoch starts at the offset (R37).

        Remove entries with the same or a higher epoch, and entries with the same or a higher start offset.
        """
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, end offset of that epoch) (R38).

        Return (-1, -1) if `epoch` is negative or higher than the latest epoch.
        """
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def diverging(
        self, last_epoch: int, offset: int, log_end_offset: int
    ) -> tuple[int, int] | None:
        """Return (epoch, end offset) at which another log diverges from this log, None if the logs agree.

        The other log ends at `offset`; its last record is of `last_epoch`, -1 if it has none (KIP-595, R40).
        """
        if last_epoch < 0 or (last_epoch == self.latest and offset <= log_end_offset):
            return None
        epoch, end_offset = self.end_offset_for(last_epoch, log_end_offset)
        if epoch < last_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which the record at the offset was appended; -1 if unknown."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that start at the offset or later, after the log was truncated there."""
        if not self._starts or self._starts[-1] < end_offset:
            return
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end at or below the new log start offset; the first remaining epoch starts there.

        The file keeps the removed entries until the next change or `sync`. If the broker stops earlier,
        the next start removes these entries.
        """
        slot = bisect_right(self._starts, start_offset) - 1
        if slot < 0 or (slot == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:slot], self._starts[:slot]
        self._starts[0] = start_offset
        self._synced = False

    def forget_above(self, epoch: int) -> None:
        """Remove all epochs above `epoch`, the partition's current leader epoch: no leader has had higher epochs."""
        if self.latest > epoch:
            self.replace([entry for entry in self.entries if entry[0] <= epoch])

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Replace all epochs by `entries`, in memory and in the file."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self._changed()

    def clear(self) -> None:
        """Remove all epochs: the log is empty."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def ensure_file(self) -> None:
        """Write the file if it does not exist or lacks a change."""
        if self._is_new or self._is_behind:
            self._write(sync=False)

    def catch_up(self) -> None:
        """Write the file if it lacks a change."""
        if self._is_behind:
            self._write(sync=False)

    def sync(self) -> None:
        """Write and fsync the file if an epoch has changed. All other writes reach only the page cache."""
        if not self._synced and not (self._is_new and not self._epochs):
            self._write(sync=True)

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else -1
        self._synced = False
        if not self._is_new or any(self._starts):
            try:
                self._write(sync=False)
            except StorageFailed as failure:
                if not failure.lacks_descriptors:
                    raise
                self._is_behind = True

    def _write(self, *, sync: bool) -> None:
        self._synced = False
        self._storage.write_atomically(self.path, encode(self.entries), sync=sync)
        self._synced, self._is_new, self._is_behind = sync, False, False


def encode(entries: list[tuple[int, int]]) -> bytes:
    """Return the content of a `leader-epoch-checkpoint`: version 0, the count, one `epoch start_offset` per line."""
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs in the content of a `leader-epoch-checkpoint`.

    Raises ValueError if the content is invalid, or if epochs or start offsets do not increase.
    """
    lines = data.decode("ascii").split("\n")
    if lines[0] != "0" or lines[-1] != "" or parse_number(lines[1]) != len(lines) - 3:
        raise ValueError("it is not a leader epoch checkpoint of version 0")
    entries = []
    before = (-1, -1)
    for line in lines[2:-1]:
        first, second = line.split(" ")
        epoch, start = parse_number(first), parse_number(second, LONG_MAX)
        if epoch <= before[0] or start <= before[1]:
            raise ValueError("its leader epochs or start offsets do not rise")
        before = (epoch, start)
        entries.append(before)
    return entries
