"""The requests in a stream of Kafka's protocol: where each one begins and ends, and its API. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

_HEADER: Final = 6
"""Bytes of a request's length and API key."""
_SIZE: Final = 4


class RequestMark(NamedTuple):
    """A place in a piece of a stream: a request begins before this byte, or has ended before it.

    A request that began in an earlier piece, which did not have its API key, begins at byte 0.
    """

    at: int
    api: int
    is_end: bool = False


class RequestScanner:
    """Finds the requests in the bytes that one client sends. A piece may have any part of any number of requests."""

    def __init__(self) -> None:
        self._header = b""
        self._api = -1
        self._left = 0
        """Bytes of the current request that are still to come after its API key."""

    def feed(self, piece: bytes) -> list[RequestMark]:
        """Return the marks of the next piece of the stream, in order."""
        marks: list[RequestMark] = []
        at, size = 0, len(piece)
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                at, self._left = at + step, self._left - step
            else:
                begin = at - len(self._header)
                self._header += piece[at : at + _HEADER - len(self._header)]
                at = begin + len(self._header)
                if len(self._header) < _HEADER:
                    break
                length = int.from_bytes(self._header[:_SIZE])
                self._api = int.from_bytes(self._header[_SIZE:], signed=True)
                self._header = b""
                self._left = max(length - (_HEADER - _SIZE), 0)
                marks.append(RequestMark(max(begin, 0), self._api))
            if not self._left:
                marks.append(RequestMark(at, self._api, is_end=True))
        return marks


class RequestCount:
    """A count of the requests of one API, up to a number: later ones must wait until the watch ends.

    A request counts for it when it begins, and has passed when it ends.
    """

    def __init__(self, api: int, number: int) -> None:
        self.api = api
        self.number = number
        self.begun = 0
        self.passed = 0

    @property
    def is_full(self) -> bool:
        """True if the number of requests has begun: another one must wait."""
        return self.begun >= self.number

    @property
    def is_reached(self) -> bool:
        """True if the number of requests has passed."""
        return self.passed >= self.number
