"""The reasons why a connection does not read its socket.

A connection reads until there is a reason not to. Each reason has a name, and the set of reasons is the whole state.
The gate is closed at the end of the tick in which there is a reason, so a reason that is over before more bytes
arrive costs nothing. When the last reason is over, the connection waits for a turn (`Reason.TURN`), in which it
handles the requests left in its buffer. Only then does it read again: each pass of the event loop thus serves few of
the connections that had stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto

from minikafka.base.ports import Link


class Reason(IntEnum):
    """A reason why a connection must not handle further requests."""

    UNANSWERED = auto()
    """Too many requests wait for their responses."""
    UNSENT = auto()
    """A response is sent in pieces, because its records are read when the client can receive them."""
    UNRECEIVED = auto()
    """More than `QUEUE_MARK_BYTES` of responses were sent, but not yet received by the client."""
    COLD = auto()
    """Too many cold requests wait."""
    FETCHES = auto()
    """A large fetch is in progress, too many fetches wait, or too many bytes of records are unsent."""
    PRODUCE = auto()
    """A Produce request is handled in steps, or its records are checked in steps."""
    ROOM = auto()
    """A large request waits for memory."""
    TURN = auto()
    """The requests that were left in the buffer wait for a turn of the scheduler. No other reason holds."""


class ReadingGate:
    """The gate that decides whether one connection reads.

    `ask()` asks the scheduler for a turn; in its turn, the connection calls `open`. Invariant: while the gate is
    closed, either a reason holds, or a turn was asked for.
    """

    __slots__ = ("_ask", "is_closed", "link", "reasons")

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.is_closed = False
        self.reasons: set[Reason] = set()

    link: Link

    def hold(self, reason: Reason, holds: bool = True) -> None:
        """Add the reason to the reasons for not reading; remove it if `holds` is false."""
        if holds:
            self.reasons.add(reason)
        else:
            self.reasons.discard(reason)

    def close(self) -> None:
        """Stop reading until no reason holds."""
        self.is_closed = True
        self.link.pause_reading()

    def open_soon(self) -> None:
        """Ask for a turn if the gate is closed and no reason holds any longer."""
        if self.is_closed and not self.reasons:
            self.reasons.add(Reason.TURN)
            self._ask()

    def open(self) -> None:
        """Open the gate for the requests in the buffer. The caller resumes reading if it stays open."""
        self.reasons.discard(Reason.TURN)
        self.is_closed = False
