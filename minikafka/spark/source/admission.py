"""The size of the next micro-batch (Spark's admission control).

This code does no I/O: the ends of the partitions and the time are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from minikafka.base.model import TopicPartition
from minikafka.spark.source.positions import Positions
from minikafka.spark.wire.leaders import Position


def waiting(start: Mapping[TopicPartition, Position], end: Positions) -> dict[TopicPartition, int]:
    """Return the number of offsets from `start` to `end` for each partition with unread offsets.

    `start` must contain every partition of `end`.
    """
    sizes = {tp: position.offset - start[tp].offset for tp, position in end.items()}
    return {tp: size for tp, size in sizes.items() if size > 0}


def limited(start: Mapping[TopicPartition, Position], end: Positions, most: int) -> Positions:
    """Return partition ends for a micro-batch of about `most` offsets.

    Each partition gets a share in proportion to its unread offsets, but at least one offset if any is unread,
    as in Spark's own source. The sum may therefore exceed `most`.
    """
    sizes = waiting(start, end)
    total = sum(sizes.values())
    if total <= most:
        return end
    shares = {tp: max(math.floor(most * size / total), 1) for tp, size in sizes.items()}
    return end | {
        tp: end[tp]._replace(offset=start[tp].offset + share) for tp, share in shares.items()
    }


class Patience:
    """Implements `minOffsetsPerTrigger`: a batch waits for enough offsets, at most `maxTriggerDelay`."""

    def __init__(self, least: int, longest_ms: int) -> None:
        self._least = least
        self._longest_ms = longest_ms
        self._last_ms: int | None = None
        """Time of the last batch. Before the first batch, the time of the first call of `is_over`."""

    def is_over(self, offsets: int, now_ms: int) -> bool:
        """True if a batch with this number of offsets may start now."""
        if self._last_ms is None:
            self._last_ms = now_ms
        if offsets < self._least and now_ms - self._last_ms < self._longest_ms:
            return False
        self._last_ms = now_ms
        return True
