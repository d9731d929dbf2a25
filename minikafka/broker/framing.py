"""The receiving half of a Kafka connection: one buffer, whole frames out of it (`hot-path.md` §5, item 1).

Invariant: slices of the buffer that `parse` handed on live until `finish` returns, never longer. A length
prefix alone allocates at most 1 MiB; a larger frame's buffer grows with the bytes that really arrive.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer, Link
from minikafka.wire.frames import check_size

logger = logging.getLogger(__name__)

_CAPACITY: Final = 256 << 10
_COMPACT_BELOW: Final = 64 << 10
_EXACT_MAX: Final = 1 << 20


class FramedStream:
    """Base of a StreamHandler that speaks in length-prefixed frames of at most `frame_max` bytes.

    Subclasses implement `parse(buf, view, start, end) -> where the first partial frame begins` and
    `finish()`, called after every parse; both may raise ProtocolViolation, which closes the connection.
    """

    __slots__ = (
        "_big",
        "_big_end",
        "_big_size",
        "_big_view",
        "_buf",
        "_read",
        "_view",
        "_write",
        "frame_max",
        "link",
    )

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self._buf = bytearray(_CAPACITY)
        self._view = memoryview(self._buf)
        self._read = self._write = 0
        self._big: bytearray | None = None
        self._big_view = self._view
        self._big_end = self._big_size = 0

    link: Link

    def parse(self, buf: bytearray, view: memoryview, start: int, end: int) -> int:
        """Hand on every whole frame in [start, end)."""
        raise NotImplementedError

    def finish(self) -> None:
        """The buffer is about to be reused."""

    def get_buffer(self, hint: int) -> Buffer:
        """Where the next bytes go."""
        if self._big is not None:
            return self._big_view[self._big_end :]
        if _CAPACITY - self._write < _COMPACT_BELOW and self._read:
            size = self._write - self._read
            self._view[:size] = self._view[self._read : self._write]
            self._read, self._write = 0, size
        return self._view[self._write :]

    def buffer_updated(self, count: int) -> None:
        """One tick: parse every whole frame, finish, then reset the marks."""
        try:
            if self._big is not None:
                self._big_updated(count)
                return
            end = self._write = self._write + count
            read = self.parse(self._buf, self._view, self._read, end)
            self.finish()
            if read == end:
                self._read = self._write = 0
                return
            self._read = read
            if end - read >= 4:
                self._make_room(4 + check_size(self._buf, read, self.frame_max))
        except ProtocolViolation as violation:
            logger.info("closing connection from %s: %s", self.link.peer(), violation)
            self.finish()
            self.link.close()

    def _make_room(self, size: int) -> None:
        """A frame over half the buffer gets a buffer of its own."""
        if size <= _CAPACITY >> 1:
            return
        have = self._write - self._read
        self._big = bytearray(min(size, _EXACT_MAX))
        self._big_view = memoryview(self._big)
        self._big_view[:have] = self._view[self._read : self._write]
        self._big_end, self._big_size = have, size
        self._read = self._write = 0

    def _big_updated(self, count: int) -> None:
        assert self._big is not None
        self._big_end += count
        if self._big_end == self._big_size:
            buf, view = self._big, self._big_view
            self._big, self._big_view = None, self._view
            self.parse(buf, view, 0, len(buf))
            self.finish()
        elif self._big_end == len(self._big):
            grown = bytearray(min(self._big_size, 2 * len(self._big)))
            grown[: self._big_end] = self._big
            self._big, self._big_view = grown, memoryview(grown)
