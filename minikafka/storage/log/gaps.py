"""Missing offsets in a log: accepted where compaction left them, reported where a segment file is gone.

A compacted log has an entry in `cleaner-offset-checkpoint`, Kafka's file of the offsets at which the next compaction
begins. The entry is written before the log gets its first gap. The entry stays when `compact` is removed from the
topic's `cleanup.policy`, because the gaps stay too. Recovery runs before the settings of the topic are known, so it
decides by this entry and the broker's `log.cleanup.policy`.

A log that accepts gaps takes a batch above the expected offset, and a read in a gap returns the next batch. In any
other log a gap means that a segment file is missing, and the loss must not spread without a report: a follower
truncates its log to the first missing offset and fetches again. A leader serves consumers, but answers a follower
that fetches a missing offset with CORRUPT_MESSAGE.
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.config import TopicConfig
from minikafka.base.errors import StorageFailed


class Gaps:
    """The gaps of one log: whether the log accepts gaps, and if not, the first gap that was found.

    `accepted`: the topic is or was compacted. `first_dirty_offset`: where the next compaction begins; None if the
    log was never compacted. `lost_from`: the first missing offset of a log that accepts no gaps, None without a gap.
    `on_marked` is called to persist a new `first_dirty_offset`; it may raise StorageFailed.
    """

    __slots__ = ("accepted", "first_dirty_offset", "lost_from", "on_marked")

    def __init__(self, config: TopicConfig, first_dirty_offset: int | None) -> None:
        self.first_dirty_offset = first_dirty_offset
        self.lost_from: int | None = None
        self.on_marked: Callable[[], None] | None = None
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Accept gaps if these settings compact the topic, or the log was compacted before."""
        self.accepted = self.first_dirty_offset is not None or "compact" in config.cleanup_policy
        if self.accepted:
            self.lost_from = None

    def mark(self, first_dirty_offset: int) -> None:
        """Persist that the log is compacted below this offset, and let the log accept gaps.

        Raises StorageFailed, and then changes nothing.
        """
        before = self.first_dirty_offset, self.accepted, self.lost_from
        self.accept(first_dirty_offset)
        if self.on_marked is not None:
            try:
                self.on_marked()
            except StorageFailed:
                self.first_dirty_offset, self.accepted, self.lost_from = before
                raise

    def accept(self, first_dirty_offset: int) -> None:
        """Record in memory that the log is compacted below this offset; the caller must persist the offset."""
        self.first_dirty_offset = first_dirty_offset
        self.accepted = True
        self.lost_from = None

    def truncated(self, end_offset: int) -> None:
        """Adapt the gaps to a truncation of the log at `end_offset`.

        The first dirty offset becomes at most `end_offset`. A missing offset at or above `end_offset` is forgotten.
        """
        if self.lost_from is not None and end_offset <= self.lost_from:
            self.lost_from = None
        if self.first_dirty_offset is not None and end_offset < self.first_dirty_offset:
            self.mark(end_offset)
