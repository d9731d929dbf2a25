"""Length-prefixed request frames, cut out of a receive buffer as they arrive.

Invariant: only whole frames are handled, and a length that no request may have is a ProtocolViolation before
anything is allocated for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct
from typing import Final, Literal, TypeAlias

from minikafka.base.errors import ProtocolViolation

HEADER: Final = Struct(">ihhih")
"""size, api key, api version, correlation id, length of the client id (-1: null)."""
CLIENT_ID: Final = 12
"""Position of the client id's length, from the first byte of the frame."""
SIZE: Final = Struct(">i")
_SIZE_MIN: Final = 10
OTHER_SIZE_MAX: Final = 8 << 20
"""Bytes of the largest request of an API without a route."""

_unpack = HEADER.unpack_from


class Again(Enum):
    """An enum with the single member `AGAIN`, which type checkers tell from True, False and None."""

    AGAIN = "again"


AGAIN: Final = Again.AGAIN
"""Returned by a route that has not handled the request: stop parsing now, and resume with this request."""
Route: TypeAlias = Callable[
    [bytearray, memoryview, int, int, int, int, int], bool | Literal[Again.AGAIN] | None
]
"""Handles a whole request: (buf, view, version, correlation id, start, body, end). The frame is [start, end), and
`body` the first byte after the client id. True: parse no further request for now."""
Other: TypeAlias = Callable[[memoryview, int, int, int, int, int, int], bool | None]
"""Handles a request of an API without a route: (view, api, version, correlation id, start, body, end).
True: parse no further request for now."""


def frames(
    buf: bytearray,
    view: memoryview,
    start: int,
    end: int,
    routes: Mapping[int, Route],
    other: Other,
    size_max: int,
) -> int:
    """Call the route of every whole frame in [start, end), in order; return the position of the next frame to read.

    That is the first partial frame, the frame after a route that returned True, or the frame whose route
    returned AGAIN.
    Raises ProtocolViolation for a size or a client id length that is not valid.
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
                f"request frame of {size} bytes has a client id of {client} bytes"
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
    """Return the length prefix of the frame at `start`. Raises ProtocolViolation if it is out of bounds."""
    size: int = SIZE.unpack_from(buf, start)[0]
    if size < _SIZE_MIN or size > size_max:
        raise ProtocolViolation(
            f"request size must be from {_SIZE_MIN} to {size_max} bytes, got {size}"
        )
    return size
