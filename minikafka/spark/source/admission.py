"""How much of the available records the next micro-batch takes (Spark's admission control).

Pure: the ends of the partitions and the time are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from minikafka.base.model import TopicPartition
from minikafka.spark.source.positions import Positions
from minikafka.spark.wire.leaders import Position


def waiting(start: Mapping[TopicPartition, Position], end: Positions) -> dict[TopicPartition, int]:
    """Return the number of offsets from `start` to `end` of each partition that has any.

    `start` holds every partition of `end`.
    """
    sizes = {tp: position.offset - start[tp].offset for tp, position in end.items()}
    return {tp: size for tp, size in sizes.items() if size > 0}


def limited(start: Mapping[TopicPartition, Position], end: Positions, most: int) -> Positions:
    """Return ends that take about `most` offsets, in proportion to the unread offsets of each partition.

    A partition with records gets at least one offset, as in Spark's own source, so that none starves;
    therefore the sum may exceed `most`.
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
    """`minOffsetsPerTrigger`: batches wait for enough offsets, but not longer than `maxTriggerDelay`."""

    def __init__(self, least: int, longest_ms: int) -> None:
        self._least = least
        self._longest_ms = longest_ms
        self._last_ms: int | None = None
        """Time at which the last batch was taken; before the first batch, the time of the first call."""

    def is_over(self, offsets: int, now_ms: int) -> bool:
        """True if a batch of this many offsets may be taken now."""
        if self._last_ms is None:
            self._last_ms = now_ms
        if offsets < self._least and now_ms - self._last_ms < self._longest_ms:
            return False
        self._last_ms = now_ms
        return True
