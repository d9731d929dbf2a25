"""Responses that wait for their client to receive them, the order of sending, and the budget for records.

Invariant: of the records that its client has not received, a connection has at most `QUEUE_MARK_BYTES` and
one piece in memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Final

from minikafka.base.ports import QUEUE_MARK_BYTES, Buffer, Clock, Link, Slice
from minikafka.log.deferred import Deferred
from minikafka.replication.purgatory import Purgatory

BUDGET_BYTES: Final = 64 << 20
"""Budget for records read but not yet received by clients; the less is left, the smaller the pieces."""
PIECE_MAX: Final = 256 << 10
PIECE_MIN: Final = 16 << 10
"""Size of a piece even when the budget is used up, so that slow clients never stop the others."""
_SHARES: Final = 8
"""A piece takes at most 1 / `_SHARES` of what is left of the budget."""
CONSUMER_TURN_BYTES: Final = 128 << 10
"""Bytes sent to one consumer before the others have their turn."""
SHORT_TURN_BYTES: Final = 16 << 10
PRODUCE_MS: Final = 10
"""For this many ms after a Produce request was answered, a consumer's turn sends only `SHORT_TURN_BYTES`."""
FOLLOWER_TURN_BYTES: Final = 1 << 20
"""Bytes sent to one follower in a turn: producers wait for followers anyway."""
LONG_YIELD_NS: Final = 500_000
HELD_TURNS: Final = 256
"""After a yield of the processor that took longer than `LONG_YIELD_NS`, this many turns do not yield: another
process is using the processor."""
_SLICES_MAX: Final = 64


class ReadAhead:
    """The count of bytes that were read for the clients of one broker and not yet received by them."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0

    def piece_bytes(self) -> int:
        """Return the maximum size of the next piece of a response; it falls when `used` grows."""
        return max(PIECE_MIN, min(PIECE_MAX, (BUDGET_BYTES - self.used) // _SHARES))


class SendTurns:
    """The consumers with an unsent response: each turn of the event loop sends to one of them.

    Between two turns the event loop reads other sockets. Produce requests and followers therefore wait while
    about `SHORT_TURN_BYTES` are sent, however many consumers read old records. Each turn yields the processor
    first. Otherwise the kernel would often let a follower or producer that the broker has just woken wait for
    the broker's processor.
    """

    __slots__ = (
        "_clock",
        "_give_way",
        "_held",
        "_is_due",
        "_now",
        "_produced_at",
        "_produces",
        "_purgatory",
        "_queue",
    )

    def __init__(
        self,
        clock: Clock,
        purgatory: Purgatory,
        now: Callable[[], int] = perf_counter_ns,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._clock = clock
        self._purgatory = purgatory
        self._now = now
        self._give_way = give_way
        self._held = 0
        self._produces = purgatory.finished_produces
        self._produced_at = clock.now() - PRODUCE_MS
        self._queue: deque[Callable[[], None]] = deque()
        self._is_due = False

    def ask(self, send: Callable[[], None]) -> None:
        """Call `send` once, in a turn of its own, after the calls that were asked for earlier."""
        self._queue.append(send)
        if not self._is_due:
            self._is_due = True
            self._clock.call_later(0, self._turn)

    def turn_bytes(self) -> int:
        """Return how many bytes a consumer may receive in this turn."""
        now, produces = self._clock.now(), self._purgatory.finished_produces
        if produces != self._produces:
            self._produces, self._produced_at = produces, now
        return SHORT_TURN_BYTES if now - self._produced_at < PRODUCE_MS else CONSUMER_TURN_BYTES

    def _turn(self) -> None:
        send = self._queue.popleft()
        self._is_due = bool(self._queue)
        if self._is_due:
            self._clock.call_later(0, self._turn)
        self._yield()
        send()

    def _yield(self) -> None:
        """Yield the processor, except in the `HELD_TURNS` turns after a long yield."""
        if self._held:
            self._held -= 1
            return
        before = self._now()
        self._give_way()
        if self._now() - before > LONG_YIELD_NS:
            self._held = HELD_TURNS


class Outbox:
    """The unsent responses of one connection, beginning with one that has deferred records; mostly empty."""

    __slots__ = ("_ahead", "_counted", "slices")

    def __init__(self, ahead: ReadAhead) -> None:
        self._ahead = ahead
        self._counted = 0
        self.slices: deque[Slice] = deque()

    def add(self, slices: Sequence[Slice]) -> None:
        """Append a response."""
        self.slices.extend(slices)

    def clear(self) -> None:
        """Drop everything: the connection has ended."""
        self.slices.clear()
        self._count(0)

    def send(self, link: Link, most: int) -> bool:
        """Send about `most` bytes if the client can receive them.

        Return True if more is left, and the client can receive more now. Raises RecordsGone.
        """
        slices, left = self.slices, most
        while slices and left > 0 and link.queued_bytes() <= QUEUE_MARK_BYTES:
            piece = self._next_piece(left)
            left -= sum(map(len, piece))
            link.send(piece)
        queued = link.queued_bytes()
        self._count(queued if slices else 0)
        return bool(slices) and queued <= QUEUE_MARK_BYTES

    def _next_piece(self, most: int) -> list[Buffer]:
        slices, left = self.slices, min(most, self._ahead.piece_bytes())
        piece: list[Buffer] = []
        while slices and left > 0 and len(piece) < _SLICES_MAX:
            first = slices[0]
            if isinstance(first, bytes | bytearray | memoryview):
                data: Buffer = first
                slices.popleft()
            else:
                data = first.read(left)
                if not first.left:
                    slices.popleft()
            left -= len(data)
            piece.append(data)
        return piece

    def _count(self, queued: int) -> None:
        self._ahead.used += queued - self._counted
        self._counted = queued


def has_deferred(slices: Sequence[Slice]) -> bool:
    """True if a response must go through the outbox, because some of its records are not read yet."""
    for piece in slices:  # noqa: SIM110  `any` with a generator costs 0.5 µs more
        if type(piece) is Deferred:
            return True
    return False
