"""The waits of a client's calls, for a user interface that shows them. The module changes no behaviour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call that has not returned. `about`: what it waits for. `since`: when it began, monotonic ms.

    `tp`: the partition whose leader must answer, if there is one. `error`: the last error after which the call was
    repeated.
    """

    about: str
    since: int
    tp: TopicPartition | None = None
    error: KafkaError | None = None


class Waits:
    """The calls of one client that are waiting for brokers."""

    def __init__(self) -> None:
        self._current: dict[PendingCall, None] = {}

    def begin(self, about: str, since: int, tp: TopicPartition | None = None) -> PendingCall:
        """Add a wait; the caller ends it with `end`."""
        wait = PendingCall(about, since, tp)
        self._current[wait] = None
        return wait

    def end(self, wait: PendingCall) -> None:
        """Remove a wait; a second call has no effect."""
        self._current.pop(wait, None)

    @contextmanager
    def during(
        self, about: str, since: int, tp: TopicPartition | None = None
    ) -> Iterator[PendingCall]:
        """Add a wait for the time of a `with` block."""
        wait = self.begin(about, since, tp)
        try:
            yield wait
        finally:
            self.end(wait)

    def oldest(self) -> PendingCall | None:
        """Return the wait that began first; None if the client waits for nothing."""
        return min(self._current, key=lambda wait: wait.since, default=None)
