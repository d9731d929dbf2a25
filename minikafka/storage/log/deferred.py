"""Fetched records that are read from the segment file only when the socket can send more bytes.

A fetch request of a few bytes can ask for 55 MiB of records, and its client may never read the response.
Invariant: a `Deferred` returns the bytes that the log had when the `Deferred` was made. If these bytes were
changed or removed meanwhile, `read` raises RecordsGone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.errors import RecordsGone, StorageFailed
from minikafka.storage.log.log import Log
from minikafka.storage.log.segments.segment import Segment

EAGER_BYTES: Final = 64 * 1024
"""Maximum total size of records that are read at once, because deferring so few bytes would cost more."""


class Deferred:
    """A byte range of a segment file, read in pieces from front to back; implements the port DeferredBytes.

    `failed(failure)` is called when a read of the file fails.
    """

    __slots__ = ("_failed", "_position", "_segment", "_size", "_version", "left")

    def __init__(
        self, segment: Segment, position: int, size: int, failed: Callable[[StorageFailed], None]
    ) -> None:
        self._failed = failed
        self._segment = segment
        self._version = segment.version
        self._position = position
        self._size = self.left = size

    def __len__(self) -> int:
        return self._size

    def read(self, max_bytes: int) -> bytes:
        segment = self._segment
        if segment.version != self._version:
            raise RecordsGone("its records were deleted or truncated before they were sent")
        count = min(self.left, max_bytes)
        try:
            data = segment.file.pread(count, self._position)
        except StorageFailed as failure:
            self._failed(failure)
            raise RecordsGone(str(failure)) from failure
        if len(data) < count:
            raise RecordsGone(f"{segment.file.path} is shorter than its records")
        self._position += count
        self.left -= count
        return data


def read_or_defer(
    log: Log,
    position: int,
    limit_position: int,
    max_bytes: int,
    even_few: bool,
    failed: Callable[[StorageFailed], None],
) -> tuple[Deferred | bytes, int, int]:
    """Return (data, next offset, next position) as `Log.read` does, but return large data as a `Deferred`.

    Data of more than `EAGER_BYTES` is large. `even_few`: return smaller data as a Deferred too.
    `failed(failure)` is called when the disk fails while a Deferred is read. Raises StorageFailed.
    """
    if limit_position - position <= EAGER_BYTES and not even_few:
        return log.read(position, limit_position, max_bytes)
    segment, end = log.segments[-1], log.written_position
    if position < segment.start:
        found = log.segments.at(position, end)
        if found is None:
            return log.read(position, limit_position, max_bytes)
        segment, end = found
    end = min(limit_position, end)
    if end <= position:
        return log.read(position, limit_position, max_bytes)
    start = segment.start
    size, next_offset = end - position, log.written_log_end_offset
    if size > max_bytes:
        size, next_offset = segment.extent(position - start, end - start, max_bytes)
    elif end != log.written_position:
        next_offset = segment.offset_at(end - start)
    data: Deferred | bytes
    if size > EAGER_BYTES or even_few:
        data = Deferred(segment, position - start, size, failed)
    else:
        data = segment.file.pread(size, position - start)
    return data, next_offset, position + size
