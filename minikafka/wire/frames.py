"""Length-prefixed request frames, cut incrementally out of a receive buffer (`hot-path.md` §5, item 2).

Invariant: a frame is handed on only when it is whole, and a length that no request of ours can have
ends the connection before anything is allocated for it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol

from minikafka.base.errors import ProtocolViolation

HEADER: Final = Struct(">ihhih")
"""size, api key, api version, correlation id, length of the client id (-1: null)."""
CLIENT_ID: Final = 12
"""Where the client id begins, counted from the frame's first byte."""
SIZE: Final = Struct(">i")
_SIZE_MIN: Final = 10

_unpack = HEADER.unpack_from


class Receiver(Protocol):
    """Takes whole requests, one call each, in order."""

    def on_request(
        self, api: int, version: int, correlation: int, start: int, body: int, end: int
    ) -> None:
        """The frame is [start, end) of the buffer; `body` is the first byte after the client id."""


def frames(buf: bytearray, start: int, end: int, receiver: Receiver, size_max: int) -> int:
    """Call `receiver.on_request` for every whole frame in [start, end); where the first partial one begins.

    Raises ProtocolViolation for a size or a client id that cannot be.
    """
    on_request = receiver.on_request
    while end - start >= 14:
        size, api, version, correlation, client = _unpack(buf, start)
        stop = start + 4 + size
        if stop > end:
            if size > size_max:
                raise ProtocolViolation(f"request of {size} bytes exceeds socket.request.max.bytes")
            break
        body = start + 14 + client if client > 0 else start + 14
        if size < _SIZE_MIN or body > stop or client < -1:
            raise ProtocolViolation(f"request frame of {size} bytes is malformed")
        on_request(api, version, correlation, start, body, stop)
        start = stop
    if end - start >= 4:
        check_size(buf, start, size_max)
    return start


def check_size(buf: bytearray, start: int, size_max: int) -> int:
    """The size of the frame that begins at `start`, in bytes after the prefix. Raises ProtocolViolation."""
    size: int = SIZE.unpack_from(buf, start)[0]
    if size < _SIZE_MIN or size > size_max:
        raise ProtocolViolation(f"request size {size} is not in {_SIZE_MIN}..{size_max}")
    return size
