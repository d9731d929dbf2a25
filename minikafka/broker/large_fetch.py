"""A Fetch request of many partitions while it is decoded in steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from minikafka.base.errors import ProtocolViolation
from minikafka.broker.consumer_fetch import ConsumerFetch, ConsumerFetches
from minikafka.wire.fetch import decode_in_steps

LARGE_BYTES: Final = 8 << 10
"""Bytes from which on a request is decoded in later turns: that of about 250 partitions."""


class LargeRequest:
    """Stands in `ConsumerFetches.large` for its fetch until that begins. `body` begins after the client id."""

    __slots__ = ("_begin", "_close", "_fetches", "_steps")

    has_work = True

    def __init__(
        self,
        fetches: ConsumerFetches,
        body: bytearray,
        version: int,
        correlation: int,
        close: Callable[[ProtocolViolation], None],
    ) -> None:
        self._fetches = fetches
        self._close = close
        self._steps = decode_in_steps(body, memoryview(body), 0, len(body), version)
        now = fetches.clock.now()
        self._begin = partial(
            ConsumerFetch, fetches, correlation=correlation, version=version, now=now
        )

    def work(self, until: int) -> None:
        """Take steps of the decoding until `until`; then begin the fetch, or close the connection if malformed."""
        clock = self._fetches.clock
        try:
            next(self._steps)
            while clock.now() < until:
                next(self._steps)
        except StopIteration as done:
            self._fetches.large = None
            self._begin(done.value).begin()
        except ProtocolViolation as violation:
            self._fetches.large = None
            self._close(violation)

    def forget(self) -> None:
        """Drop the request: the connection has ended."""
        self._fetches.large = None
