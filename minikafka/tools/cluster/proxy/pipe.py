"""One direction of a connection through the proxy: bytes wait here while faults hold or delay them.

Invariant: what passes, passes in the order in which it was sent, and so does the end of the connection. Nothing is sent
to the receiver while a cut holds the direction, not even that the sender has closed the connection or has died.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from minikafka.tools.cluster.proxy.requests import RequestCount, RequestMark, RequestScanner
from minikafka.tools.cluster.proxy.rules import NO_EFFECT, Effect, Way

WAITING_MAX_BYTES: Final = 4 * 1024 * 1024
"""When more bytes wait in a direction, no more are read: they stay with the sender, as those of a full TCP window."""


class End(NamedTuple):
    """The end of what a peer sends. `is_reset`: the connection broke."""

    is_reset: bool


class _Waiting(NamedTuple):
    """A piece of the stream, or its end. `at`: when it came (time of the event loop)."""

    at: float
    item: bytes | End
    marks: list[RequestMark]


class RequestCounts(Protocol):
    """The watches that concern a pipe."""

    def current(self) -> Iterable[RequestCount]:
        """Return the watches in effect."""

    def passed(self, watch: RequestCount) -> None:
        """Note that a request that counts for the watch has passed."""


class Pipe:
    """The bytes that one end of a connection sends to the other.

    `send(item)` passes an item on. `hold_reading(bool)` stops and continues the reading from the sender.
    `note(effect, bytes, requests)` counts what faults hit. `scanner`: for a stream of Kafka's requests.
    """

    def __init__(
        self,
        way: Way,
        *,
        send: Callable[[bytes | End], None],
        hold_reading: Callable[[bool], None],
        note: Callable[[Effect, int, int], None],
        watches: RequestCounts,
        scanner: RequestScanner | None,
    ) -> None:
        self.way = way
        self.effect = NO_EFFECT
        self.is_lossy = False
        """True if bytes of this direction were lost."""
        self.is_ready = False
        """True if the receiver is connected."""
        self._send = send
        self._hold_reading = hold_reading
        self._note = note
        self._watches = watches
        self._scanner = scanner
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._is_receiver_full = False
        self._counted: list[RequestCount] = []
        """The watches that count the request that is passing."""
        self._timer: asyncio.TimerHandle | None = None

    def receive(self, item: bytes | End) -> None:
        """Take what the sender has sent."""
        marks = self._scan(item)
        size = 0 if isinstance(item, End) else len(item)
        if self.effect.rules:
            self._note(self.effect, size, sum(not mark.is_end for mark in marks))
        if self.effect.is_dropped:
            self.is_lossy = True
            return
        if self._queue or not self._is_free():
            self._queue.append(_Waiting(asyncio.get_running_loop().time(), item, marks))
            self._bytes += size
            self.flush()
        else:
            self._pass(item, marks)

    def _scan(self, item: bytes | End) -> list[RequestMark]:
        if self._scanner is None or isinstance(item, End):
            return []
        return self._scanner.feed(item)

    def _is_free(self) -> bool:
        return self.is_ready and not self.effect.is_held and not self.effect.delay_ms

    def flush(self) -> None:
        """Pass on everything that need not wait any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and self.is_ready and not self.effect.is_held:
            first = self._queue[0]
            due = first.at + self.effect.delay_ms / 1000
            if self.effect.delay_ms and due > (loop := asyncio.get_running_loop()).time():
                self._timer = loop.call_at(due, self.flush)
                break
            self._queue.popleft()
            self._bytes -= 0 if isinstance(first.item, End) else len(first.item)
            if not self._pass(first.item, first.marks, first.at):
                break
        self._settle_reading()

    def set_receiver_full(self, is_full: bool) -> None:
        """Note that the receiver takes no more bytes, or takes them again."""
        self._is_receiver_full = is_full
        self._settle_reading()

    def close(self) -> None:
        """Forget everything that waits."""
        self._queue.clear()
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle_reading(self) -> None:
        self._hold_reading(self._is_receiver_full or self._bytes > WAITING_MAX_BYTES)

    def _pass(self, item: bytes | End, marks: list[RequestMark], at: float | None = None) -> bool:
        """Send an item. Return False if a watch stops a request in it: the rest stays in the queue."""
        if isinstance(item, End) or not marks:
            self._send(item)
            return True
        ended, stop = self._count(marks)
        if stop is None:
            self._send(item)
        elif stop.at:
            self._send(item[: stop.at])
        for watch in ended:
            self._watches.passed(watch)
        if stop is None:
            return True
        rest = [mark._replace(at=mark.at - stop.at) for mark in marks[marks.index(stop) :]]
        time = asyncio.get_running_loop().time() if at is None else at
        self._queue.appendleft(_Waiting(time, item[stop.at :], rest))
        self._bytes += len(item) - stop.at
        return False

    def _count(self, marks: list[RequestMark]) -> tuple[list[RequestCount], RequestMark | None]:
        """Count requests for the watches, up to the first one that must wait.

        Return the watch of each counted request that ends before, and the mark of the one that must wait.
        """
        ended: list[RequestCount] = []
        for mark in marks:
            if mark.is_end:
                ended += self._counted
                self._counted = []
                continue
            watches = [watch for watch in self._watches.current() if watch.api == mark.api]
            if any(watch.is_full for watch in watches):
                return ended, mark
            for watch in watches:
                watch.begun += 1
            self._counted = watches
        return ended, None
