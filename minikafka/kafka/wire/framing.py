"""The receiving half of a Kafka connection: one buffer that is cut into complete frames.

Invariant: slices of the buffer given to `parse` are valid until `finish` returns. If `parse` leaves a complete
frame in the buffer, slices of that frame are valid until the frame is handled. A length prefix alone
allocates at most 256 KiB. A frame larger than 128 KiB gets a buffer of its own. This buffer has 64 KiB at
first and grows as bytes arrive. The number of large receive buffers is limited (`LargeBuffers`). A connection
without a large buffer has 16 KiB, and also gets an own buffer for each frame that is larger than 8 KiB.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct
from typing import Final, Literal, TypeAlias

from minikafka.base.errors import ProtocolViolation
from minikafka.base.ports import Buffer, Link

logger = logging.getLogger(__name__)

_CAPACITY_MIN: Final = 16 << 10
_CAPACITY_MAX: Final = 256 << 10
"""Size of the large buffer, which fits into the L2 cache: requests of 16 KiB are 33 % faster than with 1 MiB.
Connections that receive little keep a small buffer."""
_BUSY: Final = 8 << 10
"""A connection that receives more bytes than this in one tick gets the large buffer."""
_FIRST_MAX: Final = 64 << 10
_GROWTH: Final = 4
"""Growth factor of a large frame's buffer. Few copies are made, and a length prefix alone takes little memory."""


class LargeBuffers:
    """The number of large receive buffers that the connections of a broker may still get: at most 64 MiB together."""

    __slots__ = ("left",)

    def __init__(self, left: int = 256) -> None:
        self.left = left


_HEADER_BYTES: Final = 14
"""Number of bytes at the start of a frame that include its API key. Until these bytes have arrived, the frame
gets no buffer of its own."""


class FramedStream:
    """Base class of stream handlers that receive length-prefixed frames of at most `frame_max` bytes.

    Subclasses implement `parse(buf, view, start, end)`, which returns the position of the first frame that it
    did not handle, and `finish()`, which is called after every `parse`. Both may raise ProtocolViolation, which
    closes the connection. A subclass whose `parse` can leave a complete frame in the buffer implements
    `stopped()`, which stops reading; the subclass calls `buffer_updated(0)` to continue. A subclass whose
    `may_receive` returns False must also stop reading, and call `buffer_updated(0)` later.
    """

    __slots__ = (
        "_big",
        "_big_end",
        "_big_size",
        "_big_view",
        "_buf",
        "_buffers",
        "_capacity",
        "_read",
        "_view",
        "_write",
        "frame_max",
        "link",
    )

    def __init__(self, frame_max: int, buffers: LargeBuffers | None = None) -> None:
        self.frame_max = frame_max
        self._buffers = LargeBuffers() if buffers is None else buffers
        self._capacity = 0
        self._allocate(_CAPACITY_MIN)
        self._read = self._write = 0
        self._big: bytearray | None = None
        self._big_view = self._view
        self._big_end = self._big_size = 0

    link: Link

    def parse(self, buf: bytearray, view: memoryview, start: int, end: int) -> int:
        """Handle complete frames in [start, end); return the position of the first unhandled frame."""
        raise NotImplementedError

    def stopped(self) -> None:
        """Stop reading. Called after `finish` when `parse` has left a complete frame in the buffer."""
        raise NotImplementedError

    def may_receive(self, size: int, start: int) -> bool:
        """Return True if the frame at position `start` may get a buffer of its own now.

        `size`: number of bytes of the frame, including its length field.
        """
        return True

    def own_buffer_handled(self) -> None:
        """Called after a frame with a buffer of its own was handled. The buffer may still be in use."""

    def received(self) -> int | None:
        """Return how many bytes of an incomplete frame with its own buffer have arrived; None without such a frame."""
        return None if self._big is None or self._big_end == self._big_size else self._big_end

    def finish(self) -> None:
        """Finish the work that uses slices of the buffer, because the buffer is reused after this call."""

    @property
    def has_own_buffer(self) -> bool:
        """True if the frame given to `parse` has a buffer of its own, which is not reused."""
        return self._big is not None

    def get_buffer(self, hint: int) -> Buffer:
        """Return the free part of the buffer, into which the next bytes are received."""
        if self._big is not None:
            return self._big_view[self._big_end :]
        if not self._write:
            return self._view
        capacity = self._capacity
        if capacity - self._write < capacity >> 2:
            if capacity < _CAPACITY_MAX and self._buffers.left > 0:
                self._move_to(_CAPACITY_MAX)
            elif self._read:
                self._move_to(capacity)
        return self._view[self._write :]

    def buffer_updated(self, count: int) -> None:
        """Handle `count` new bytes: parse complete frames, call `finish`, and update the positions in the buffer."""
        try:
            if self._big is not None:
                self._big_updated(count)
                return
            end = self._write = self._write + count
            read = self.parse(self._buf, self._view, self._read, end)
            self.finish()
            if read == end:
                self._read = self._write = 0
                if end > _BUSY and self._capacity < _CAPACITY_MAX and self._buffers.left > 0:
                    self._allocate(_CAPACITY_MAX)
                return
            self._read = read
            if end - read >= 4:
                size = 4 + check_size(self._buf, read, self.frame_max)
                if size <= end - read:
                    self.stopped()
                elif size <= self._shared_max() or (
                    end - read >= _HEADER_BYTES and self.may_receive(size, read)
                ):
                    self._make_room(size)
        except ProtocolViolation as violation:
            logger.info("closing connection from %s: %s", self.link.peer(), violation)
            self._read = self._write = 0
            self.finish()
            self.link.close()

    def _shared_max(self) -> int:
        """Return the largest size of a frame that needs no buffer of its own."""
        may_grow = self._capacity == _CAPACITY_MAX or self._buffers.left > 0
        return (_CAPACITY_MAX if may_grow else self._capacity) >> 1

    def shrink(self) -> None:
        """Replace an empty large buffer by a small one, because the connection is idle."""
        if self._capacity == _CAPACITY_MAX and not self._write:
            self._allocate(_CAPACITY_MIN)

    def _allocate(self, capacity: int) -> None:
        self._buffers.left += (self._capacity == _CAPACITY_MAX) - (capacity == _CAPACITY_MAX)
        self._capacity = capacity
        self._buf = bytearray(capacity)
        self._view = memoryview(self._buf)

    def _move_to(self, capacity: int) -> None:
        """Move the unparsed bytes to the start of the buffer.

        If `capacity` is larger than the buffer, move them to a new buffer of this size.
        """
        rest = self._view[self._read : self._write]
        if capacity > self._capacity:
            self._allocate(capacity)
        self._view[: len(rest)] = rest
        self._read, self._write = 0, len(rest)

    def release(self) -> None:
        """Free the buffers of a connection that has ended, without waiting for the garbage collector."""
        self._allocate(0)
        self._read = self._write = 0
        self._big = None
        self._view = self._big_view = memoryview(self._buf)

    def _make_room(self, size: int) -> None:
        """Prepare the buffer for an incomplete frame of `size` bytes.

        A frame that is too large for the buffer gets a larger buffer, or a buffer of its own that grows later.
        """
        if size <= self._capacity >> 1:
            return
        if size <= self._shared_max():
            self._move_to(_CAPACITY_MAX)
            return
        have = self._write - self._read
        self._big = bytearray(min(size, max(_GROWTH * have, _FIRST_MAX)))
        self._big_view = memoryview(self._big)
        self._big_view[:have] = self._view[self._read : self._write]
        self._big_end, self._big_size = have, size
        self._read = self._write = 0
        self._allocate(_CAPACITY_MIN)

    def _big_updated(self, count: int) -> None:
        assert self._big is not None
        self._big_end += count
        if self._big_end == self._big_size:
            is_handled = self.parse(self._big, self._big_view, 0, self._big_size) == self._big_size
            self.finish()
            if is_handled:
                self._big, self._big_view = None, self._view
                self.own_buffer_handled()
            else:
                self.stopped()
        elif self._big_end == len(self._big):
            grown = bytearray(min(self._big_size, _GROWTH * len(self._big)))
            grown[: self._big_end] = self._big
            self._big, self._big_view = grown, memoryview(grown)


HEADER: Final = Struct(">ihhih")
"""Fields: size, api key, api version, correlation id, length of the client id (-1: null)."""
CLIENT_ID: Final = 12
"""Position of the client id's length, counted from the first byte of the frame."""
SIZE: Final = Struct(">i")
_SIZE_MIN: Final = 10
OTHER_SIZE_MAX: Final = 8 << 20
"""Maximum size (bytes) of a request whose API has no route."""

_unpack = HEADER.unpack_from


class Again(Enum):
    """The type of `AGAIN`, the result of a handler that has not handled the request.

    The type is an enum, so that type checkers tell `AGAIN` from True, False and None.
    """

    AGAIN = "again"


AGAIN: Final = Again.AGAIN
"""Result of a route that has not handled the request. Parsing stops, and later resumes with the same request."""
Frame: TypeAlias = tuple[bytearray, memoryview, int, int, int, int, int]
"""A whole request: (buf, view, version, correlation id, start, body, end). The frame is [start, end), and `body` is
the first byte after the client id."""
Route: TypeAlias = Callable[[*Frame], bool | Literal[Again.AGAIN] | None]
"""Handler of a whole request. Returns True to stop parsing after this request."""
Other: TypeAlias = Callable[[memoryview, int, int, int, int, int, int], bool | None]
"""Handler of a request whose API has no route: (view, api, version, correlation id, start, body, end).
Returns True to stop parsing after this request."""


def frames(
    buf: bytearray,
    view: memoryview,
    start: int,
    end: int,
    routes: Mapping[int, Route],
    other: Other,
    size_max: int,
) -> int:
    """Call a handler for every whole frame in [start, end), in order. Return the position of the next frame to read.

    `routes`: the handlers by API key. `other`: the handler for all other APIs. The function stops before the first
    partial frame, after a frame whose handler returned True, or before a frame whose handler returned AGAIN.
    Raises ProtocolViolation for an invalid size or client id length.
    """
    large = min(size_max, OTHER_SIZE_MAX)
    while end - start >= 14:
        size, api, version, correlation, client = _unpack(buf, start)
        stop = start + 4 + size
        if stop > end or size > large:
            if size > size_max:
                raise ProtocolViolation(f"request of {size} bytes exceeds socket.request.max.bytes")
            if size > large and api not in routes:
                raise ProtocolViolation(
                    f"a request of API {api} must have at most {OTHER_SIZE_MAX} bytes, got {size}"
                )
            if stop > end:
                break
        body = start + 14 + client if client > 0 else start + 14
        if size < _SIZE_MIN or body > stop or client < -1:
            raise ProtocolViolation(
                f"request frame of {size} bytes cannot hold a client id of {client} bytes"
            )
        route = routes.get(api)
        if route is not None:
            is_enough = route(buf, view, version, correlation, start, body, stop)
        else:
            is_enough = other(view, api, version, correlation, start, body, stop)
        if is_enough:
            return start if is_enough is AGAIN else stop
        if stop == end:
            return end
        start = stop
    if end - start >= 4:
        check_size(buf, start, size_max)
    return start


def check_size(buf: bytearray, start: int, size_max: int) -> int:
    """Return the length prefix of the frame at `start`. Raises ProtocolViolation if the length is invalid."""
    size: int = SIZE.unpack_from(buf, start)[0]
    if size < _SIZE_MIN or size > size_max:
        raise ProtocolViolation(
            f"request size must be from {_SIZE_MIN} to {size_max} bytes, got {size}"
        )
    return size
