"""Length-prefixed request frames, cut incrementally out of a receive buffer.

Invariant: a frame is handed on only when it is whole, and a length that no request of ours can have
ends the connection before anything is allocated for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, TypeAlias

from minikafka.base.errors import ProtocolViolation

HEADER: Final = Struct(">ihhih")
"""size, api key, api version, correlation id, length of the client id (-1: null)."""
CLIENT_ID: Final = 12
"""Where the client id begins, counted from the frame's first byte."""
SIZE: Final = Struct(">i")
_SIZE_MIN: Final = 10

_unpack = HEADER.unpack_from


Route: TypeAlias = Callable[[bytearray, memoryview, int, int, int, int, int], None]
"""Takes a whole request: (buf, view, version, correlation id, start, body, end), the frame being [start, end)
and `body` the first byte after the client id."""
Other: TypeAlias = Callable[[memoryview, int, int, int, int, int, int], None]
"""Takes a request that has no route of its own: (view, api, version, correlation id, start, body, end)."""


def frames(
    buf: bytearray,
    view: memoryview,
    start: int,
    end: int,
    routes: Mapping[int, Route],
    other: Other,
    size_max: int,
) -> int:
    """Hand every whole frame in [start, end) to its API's route, in order; where the first partial one begins.

    Raises ProtocolViolation for a size or a client id that cannot be.
    """
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
        route = routes.get(api)
        if route is not None:
            route(buf, view, version, correlation, start, body, stop)
        else:
            other(view, api, version, correlation, start, body, stop)
        if stop == end:
            return end
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
