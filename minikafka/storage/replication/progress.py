"""The leader's view of one follower: how far it has fetched, and when it was last caught up."""

from __future__ import annotations

from typing import Final, Protocol

from minikafka.base.model import BrokerId
from minikafka.storage.log.log import Log

UNKNOWN: Final = -1
"""An offset or position before the follower's first fetch in the leader's epoch."""


class SessionItem(Protocol):
    """One partition in a follower's fetch session: the interface that `FollowerProgress.item` must have."""

    def mark_dirty(self) -> None:
        """Record that the session has something to send for the partition."""

    def mark_changed(self) -> None:
        """Send the high watermark and log start offset in the next response, even if there are no records to send."""

    def last_fetch(self) -> int:
        """Return the time (monotonic ms) of the session's last fetch, whether or not it listed this partition."""

    def unbind(self) -> None:
        """Drop the reference to the follower's progress; the next fetch of the partition finds the progress again."""

    def supersede(self) -> None:
        """Drop the reference, because another session of the follower fetches the partition."""


class FollowerProgress:
    """The leader's knowledge of one follower since the leader's epoch began.

    `offset` and `log_start_offset` are the end and start offset of the follower's log. `position` is the byte
    position of `offset` in the leader's log. `next_offset` and `next_position` are the end of the last response to
    the follower, so that its next fetch needs no search. Both positions are valid only in layout generation
    `generation` of the log. `caught_up_to` is the leader's written log end at the last fetch. `last_caught_up` is the
    last time (monotonic ms) at which the follower had every record, as Kafka defines it for the ISR (R30).
    """

    __slots__ = (
        "broker_id",
        "caught_up_to",
        "generation",
        "item",
        "last_caught_up",
        "last_fetch",
        "log",
        "log_start_offset",
        "next_offset",
        "next_position",
        "offset",
        "position",
    )

    def __init__(self, log: Log, broker_id: BrokerId, now: int) -> None:
        self.log = log
        self.broker_id = broker_id
        self.item: SessionItem | None = None
        self.restart(now)

    def restart(self, now: int) -> None:
        """Reset everything but the session when a leader epoch begins.

        The time for which the follower lags is counted from `now` (X17).
        """
        self.offset = self.position = self.next_offset = self.next_position = UNKNOWN
        self.caught_up_to = self.log_start_offset = UNKNOWN
        self.generation = self.log.layout_generation
        self.last_fetch = self.last_caught_up = now

    def release(self) -> None:
        """Detach this progress from the fetch session that uses it, if there is one."""
        if self.item is not None:
            self.item.unbind()
            self.item = None

    def has_fetched(self, since: int) -> bool:
        """True if the partition is in a fetch session whose last fetch was at `since` (monotonic ms) or later."""
        return self.item is not None and self.item.last_fetch() >= since

    def current_position(self) -> int:
        """Return the byte position of `offset` in the leader's log. Raises StorageFailed."""
        if self.generation != self.log.layout_generation:
            self.locate()
        return self.position

    def locate(self) -> None:
        """Look up the byte position of `offset` in the leader's log. Raises StorageFailed."""
        self.position = self.log.locate(self.offset)
        self.next_offset = UNKNOWN  # `next_position` is of the former layout
        self.generation = self.log.layout_generation
