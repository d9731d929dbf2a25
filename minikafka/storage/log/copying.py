"""The copy of a replica's log to another log directory: which bytes are read next, and when both logs are equal.

The copy follows the replica as a follower follows its leader: it takes whole batches with their offsets and leader
epochs, and it is truncated where the leader epochs of the two logs diverge. Invariant: `agree` is called before bytes
are copied after a change of the replica's layout, so the copy never mixes batches that replaced each other.
"""

from __future__ import annotations

import errno
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch, StorageFailed
from minikafka.base.ports import Storage
from minikafka.kafka.records.batch import whole_batches
from minikafka.kafka.records.header import OVERHEAD
from minikafka.storage.log.log import Log
from minikafka.storage.log.producers import SUFFIX as SNAPSHOT
from minikafka.storage.log.segments.segment import LOG

_NONE: Final = -1
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8


class ByteRange(NamedTuple):
    """A range of bytes in a segment file that begins with a batch. `size_max`: up to the end of the segment."""

    path: str
    position: int
    size: int
    size_max: int


def read_range(storage: Storage, wanted: ByteRange) -> bytes:
    """Return the bytes of the range, or of its first batch if that is larger. May run in any thread.

    Return b"" if the file has been renamed or deleted. Raises StorageFailed.
    """
    try:
        file = storage.open(wanted.path)
    except StorageFailed as failure:
        if failure.cause.errno == errno.ENOENT:
            return b""
        raise
    try:
        first = _first_batch_size(file.pread(OVERHEAD, wanted.position))
        size = first if wanted.size < first <= wanted.size_max else wanted.size
        return file.pread(size, wanted.position)
    finally:
        file.close()


def _first_batch_size(data: bytes) -> int:
    """Return the size of the batch at the begin of the data, 0 if its length is not in the data."""
    return OVERHEAD + _LENGTH.unpack_from(data, _LENGTH_AT)[0] if len(data) >= OVERHEAD else 0


class LogCopy:
    """The copy of `replica` in `future`."""

    def __init__(self, replica: Log, future: Log) -> None:
        self.replica = replica
        self.future = future
        self._generation = _NONE
        self._position = 0
        self.unsynced = 0
        """Number of bytes that the caller has not fsynced yet."""

    @property
    def is_agreed(self) -> bool:
        """True if the layout of the replica's log has not changed since the last `agree`."""
        return self._generation == self.replica.layout_generation

    @property
    def lag(self) -> int:
        """Number of bytes that the copy lacks, if both logs agree."""
        return self.replica.written_position - self._position

    def agree(self) -> None:
        """Truncate the copy to what the replica has too. Raises StorageFailed.

        If the copy cannot be continued, because it lacks records at the replica's begin, it begins again.
        """
        replica, future = self.replica, self.future
        start = replica.segments[0].base_offset
        end = self._agreed_end()
        if end <= start or future.log_start_offset > replica.log_start_offset:
            future.truncate_fully_and_start_at(start)
        elif end < future.log_end_offset:
            future.truncate_to(end)
        future.epochs.truncate_from_end(future.log_end_offset)
        if replica.gaps.first_dirty_offset is not None and future.gaps.first_dirty_offset is None:
            future.gaps.mark(future.log_start_offset)  # batches of a compacted log follow
        self._generation = replica.layout_generation
        self._position = replica.locate(future.log_end_offset)
        self.raise_start()

    def _agreed_end(self) -> int:
        """Return the offset after the last record of the copy that the replica has too (KIP-101, KIP-595)."""
        mine, theirs = self.future.epochs, self.replica.epochs
        end, replica_end = self.future.log_end_offset, self.replica.written_log_end_offset
        while end > self.future.log_start_offset:
            epoch = mine.epoch_of(end - 1)
            found = theirs.diverging(epoch, end, replica_end)
            if found is None:
                return min(end, replica_end)
            common, common_end = found
            if common == epoch:
                end = min(end, common_end)
            else:  # the replica has no record of `epoch`
                before = mine.end_offset_for(epoch - 1, self.future.log_end_offset)[1]
                end = min(before, common_end) if common_end >= 0 else before
        return min(end, replica_end)

    def next_range(self, max_bytes: int) -> ByteRange | None:
        """Return the next bytes to copy, at most `max_bytes`; None if the copy has all that is written."""
        log = self.replica
        found = log.segments.at(self._position, log.written_position)
        if found is None:
            return None
        segment, end = found
        left = end - self._position
        if left <= 0:
            return None
        return ByteRange(
            segment.path(LOG), self._position - segment.start, min(left, max_bytes), left
        )

    def append(self, data: bytes, high_watermark: int = 0) -> int:
        """Append the whole batches in `data`, the bytes of `next_range`; return their number of bytes.

        `high_watermark`: of the replica. The copy need not remember the transactions that ended below it. Raises
        StorageFailed, and CorruptBatch for a damaged batch.
        """
        size, _ = whole_batches(data, len(data))
        if not size:
            at = self.future.log_end_offset
            raise CorruptBatch(f"{self.replica.directory}: the batch at offset {at} is damaged")
        buffer = bytearray(data)
        self.future.append_replicated(buffer, memoryview(buffer), 0, size)
        self._position += size
        self.unsynced += size
        self.future.producers.first_unstable_offset(high_watermark)
        self.raise_start()
        return size

    def raise_start(self) -> None:
        """Delete from the copy what was deleted from the begin of the replica."""
        self.future.advance_log_start_offset(self.replica.log_start_offset)

    def is_complete(self) -> bool:
        """True if the copy has every record of the replica, and begins where the replica begins."""
        replica, future = self.replica, self.future
        return (
            self.is_agreed
            and future.log_end_offset == replica.log_end_offset
            and future.log_start_offset == replica.log_start_offset
            and replica.gaps.first_dirty_offset in (None, future.gaps.first_dirty_offset)
        )

    def save_producers(self) -> None:
        """Write the replica's producers to the copy, if it is complete. Raises StorageFailed.

        The batches in the log do not show all of them, because earlier batches may be deleted.
        """
        if self.is_complete():
            end = self.future.log_end_offset
            path = f"{self.future.directory}/{end:020d}{SNAPSHOT}"
            self.future.storage.write_atomically(path, self.replica.producers.encode(), sync=False)

    def equalize(self) -> None:
        """Give the copy, which is complete, what its batches do not show: leader epochs without records, producers.

        Also make it as durable as the replica. The replica must not be used after this. Raises StorageFailed.
        """
        replica, future = self.replica, self.future
        if future.epochs.entries != replica.epochs.entries:
            future.epochs.replace(replica.epochs.entries)
        if future.recovery_point < replica.recovery_point:
            future.sync()
        future.producers.adopt(replica.producers)
