"""The parser of length-prefixed request frames in a receive buffer.

Invariant: only whole frames are handled. An invalid length raises ProtocolViolation before memory is allocated
for the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct
from typing import Final, Literal, TypeAlias

from minikafka.base.errors import ProtocolViolation

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
Route: TypeAlias = Callable[
    [bytearray, memoryview, int, int, int, int, int], bool | Literal[Again.AGAIN] | None
]
"""Handler of a whole request: (buf, view, version, correlation id, start, body, end). The frame is [start, end), and
`body` is the first byte after the client id. Returns True to stop parsing after this request."""
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
