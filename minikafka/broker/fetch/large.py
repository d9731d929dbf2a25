"""A Fetch request of many partitions, decoded in steps. A follower's request is then carried out in steps too."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from minikafka.base.errors import ProtocolViolation
from minikafka.broker.fetch.consumer_fetch import ConsumerFetch
from minikafka.broker.fetch.consumer_fetches import ConsumerFetches
from minikafka.broker.turns.fair_queue import take_steps

LARGE_BYTES: Final = 8 << 10
"""A consumer's request of at least this many bytes (about 250 partitions) is decoded in steps."""
FOLLOWER_LARGE_BYTES: Final = 16 << 10
"""A follower's request of at least this many bytes (about 550 partitions) is handled in steps."""
Steps: TypeAlias = Generator[None, None, ConsumerFetch | None]
"""A generator that decodes a Fetch request. It returns a consumer's fetch; it handles a follower's fetch itself and
returns None."""


class LargeRequest:
    """A large Fetch request that is being decoded in steps.

    Until the last step, `ConsumerFetches.large` is this object. A follower's request is also handled in these steps.
    """

    __slots__ = ("_close", "_fetches", "_steps")

    has_work = True

    def __init__(
        self,
        fetches: ConsumerFetches,
        steps: Steps,
        close: Callable[[ProtocolViolation], None],
    ) -> None:
        self._fetches = fetches
        self._steps = steps
        self._close = close

    def work(self, until: int) -> None:
        """Continue to decode the request, until the end or until the time `until` (monotonic ms).

        When a consumer's request has been decoded, begin the fetch. If the request is malformed, close the
        connection.
        """
        try:
            take_steps(self._steps, self._fetches.clock, until)
        except StopIteration as done:
            self._fetches.large = None
            if done.value is not None:
                done.value.begin()
        except ProtocolViolation as violation:
            self._fetches.large = None
            self._close(violation)

    def forget(self) -> None:
        """Drop the request, because the connection has ended."""
        self._fetches.large = None
