"""The receiving half of a Kafka connection: one buffer, whole frames out of it.

Invariant: slices of the buffer that `parse` handed on live until `finish` returns, never longer. A length
prefix alone allocates at most the large buffer of 256 KiB; that of a frame which does not fit into half of it
begins with 64 KiB, and grows with the bytes that really arrive.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer, Link
from minikafka.wire.frames import check_size

logger = logging.getLogger(__name__)

_CAPACITY_MIN: Final = 16 << 10
_CAPACITY_MAX: Final = 256 << 10
"""Fits the L2 cache; a connection that never fills the small buffer keeps it."""
_BUSY: Final = 8 << 10
"""A peer that sends so much at once gets the large buffer."""
_FIRST_MAX: Final = 64 << 10
_GROWTH: Final = 4
"""A large frame's buffer is so many times what has come of it: few copies, and little for a peer that only promises."""


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
        "_capacity",
        "_read",
        "_view",
        "_write",
        "frame_max",
        "link",
    )

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self._take_buffer(_CAPACITY_MIN)
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
        if not self._write:
            return self._view
        capacity = self._capacity
        if capacity - self._write < capacity >> 2:
            if capacity < _CAPACITY_MAX:
                self._move_to(_CAPACITY_MAX)
            elif self._read:
                self._move_to(capacity)
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
                if end > _BUSY and self._capacity < _CAPACITY_MAX:
                    self._take_buffer(_CAPACITY_MAX)
                return
            self._read = read
            if end - read >= 4:
                self._make_room(4 + check_size(self._buf, read, self.frame_max))
        except ProtocolViolation as violation:
            logger.info("closing connection from %s: %s", self.link.peer(), violation)
            self.finish()
            self.link.close()

    def _take_buffer(self, capacity: int) -> None:
        self._capacity = capacity
        self._buf = bytearray(capacity)
        self._view = memoryview(self._buf)

    def _move_to(self, capacity: int) -> None:
        """Bring the partial frame to the front of the buffer, of a larger one if that is asked."""
        partial = self._view[self._read : self._write]
        if capacity > self._capacity:
            self._take_buffer(capacity)
        self._view[: len(partial)] = partial
        self._read, self._write = 0, len(partial)

    def release(self) -> None:
        """The connection is over: give the memory back without waiting for the collector."""
        self._buf = bytearray()
        self._big = None
        self._view = self._big_view = memoryview(self._buf)

    def _make_room(self, size: int) -> None:
        """A frame over half the largest buffer gets a buffer of its own."""
        if size <= self._capacity >> 1:
            return
        if size <= _CAPACITY_MAX >> 1:
            self._move_to(_CAPACITY_MAX)
            return
        have = self._write - self._read
        self._big = bytearray(min(size, max(_GROWTH * have, _FIRST_MAX)))
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
            grown = bytearray(min(self._big_size, _GROWTH * len(self._big)))
            grown[: self._big_end] = self._big
            self._big, self._big_view = grown, memoryview(grown)
