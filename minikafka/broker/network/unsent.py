"""Unsent responses with many records: the order in which they are sent, and the memory budget for records.

Deferred records are read from the log in pieces, just before they are sent. Invariant: for each connection, the
deferred records that were read but not yet received by the client take at most `QUEUE_MARK_BYTES` plus one piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from minikafka.base.ports import QUEUE_MARK_BYTES, Buffer, Clock, Link, Processor, Slice
from minikafka.broker.turns import Rotation
from minikafka.storage.log.deferred import Deferred
from minikafka.storage.replication.purgatory import Purgatory

BUDGET_BYTES: Final = 64 << 20
"""Budget for records that were read but not yet received by clients. The pieces get smaller as it is used up."""
PIECE_MAX: Final = 256 << 10
PIECE_MIN: Final = 16 << 10
"""Size of a piece when the budget is used up, so that slow clients never block other clients."""
_SHARES: Final = 8
"""A piece takes at most 1 / `_SHARES` of the unused budget."""
CONSUMER_TURN_BYTES: Final = 128 << 10
"""Bytes sent to one consumer in a turn, if no producer is active (see `PRODUCE_MS`)."""
SHORT_TURN_BYTES: Final = 16 << 10
PRODUCE_MS: Final = 10
"""During this many ms after a Produce request was answered, a consumer's turn sends only `SHORT_TURN_BYTES`."""
FOLLOWER_TURN_BYTES: Final = 1 << 20
"""Bytes sent to one follower in a turn: many, because producers wait for the followers."""
LONG_YIELD_NS: Final = 500_000
HELD_TURNS: Final = 256
"""After a yield of the processor that took longer than `LONG_YIELD_NS`, this many turns do not yield, because
another process is using the processor."""
_SLICES_MAX: Final = 64


class ReadAhead:
    """The count of bytes that were read for the clients of one broker but not yet received by the clients."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0

    def piece_bytes(self) -> int:
        """Return the maximum size of the next piece of a response. The size falls as `used` grows."""
        return max(PIECE_MIN, min(PIECE_MAX, (BUDGET_BYTES - self.used) // _SHARES))


class SendTurns:
    """The consumers that have an unsent response. Each turn of the scheduler sends to one consumer.

    Between two turns the event loop reads other sockets. While producers are active, a turn sends only about
    `SHORT_TURN_BYTES`, so Produce requests and followers wait for only one such turn, however many consumers there
    are. Each turn first yields the processor, because a follower or producer that the broker has just woken would
    otherwise often wait until the broker's processor is free. If a yield takes long, the next `HELD_TURNS` turns do
    not yield.
    """

    __slots__ = (
        "_clock",
        "_held",
        "_processor",
        "_produced_at",
        "_produces",
        "_purgatory",
        "_queue",
    )

    def __init__(
        self, queue: Rotation, clock: Clock, purgatory: Purgatory, processor: Processor
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._purgatory = purgatory
        self._processor = processor
        self._held = 0
        self._produces = purgatory.finished_produces
        self._produced_at = clock.now() - PRODUCE_MS

    def ask(self, send: Callable[[], None]) -> None:
        """Queue one call of `send`. Each turn makes one queued call, the oldest first."""
        self._queue.ask(partial(self._send, send))

    def turn_bytes(self) -> int:
        """Return the maximum number of bytes to send to a consumer in this turn of the event loop."""
        now, produces = self._clock.now(), self._purgatory.finished_produces
        if produces != self._produces:
            self._produces, self._produced_at = produces, now
        return SHORT_TURN_BYTES if now - self._produced_at < PRODUCE_MS else CONSUMER_TURN_BYTES

    def _send(self, send: Callable[[], None]) -> None:
        """Yield the processor, then send. After a yield that took long, the next `HELD_TURNS` calls do not yield."""
        if self._held:
            self._held -= 1
        elif self._processor.yield_ns() > LONG_YIELD_NS:
            self._held = HELD_TURNS
        send()


class UnsentResponses:
    """The unsent responses of one connection, beginning with a response that has deferred (not yet read) records.

    Most connections have none.
    """

    __slots__ = ("_ahead", "_counted", "slices")

    def __init__(self, ahead: ReadAhead) -> None:
        self._ahead = ahead
        self._counted = 0
        self.slices: deque[Slice] = deque()

    def add(self, slices: Sequence[Slice]) -> None:
        """Append a response."""
        self.slices.extend(slices)

    def clear(self) -> None:
        """Drop all responses, because the connection has ended."""
        self.slices.clear()
        self._count(0)

    def send(self, link: Link, most: int) -> bool:
        """Send up to about `most` bytes, as long as the client can receive bytes.

        Return True if unsent bytes are left and the client can receive more now. Raises RecordsGone.
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
    """True if a response must wait among the unsent responses, because some of its records are not read yet."""
    for piece in slices:  # noqa: SIM110  `any` with a generator costs 0.5 µs more
        if type(piece) is Deferred:
            return True
    return False
