"""Ranges of offsets, one per task: `minPartitions` and `maxRecordsPerPartition` split them.

Invariant: splitting neither loses nor repeats an offset, and keeps the order within a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from minikafka.base.model import TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Return the number of offsets; a compacted log may hold fewer records."""
        return self.end - self.start


def split(
    ranges: Iterable[OffsetRange], max_records: int | None, min_partitions: int | None
) -> list[OffsetRange]:
    """Return the ranges that are not empty, cut into parts of at most `max_records` offsets.

    If these are fewer than `min_partitions`, cut them further, into about that many parts.
    """
    found = [wanted for wanted in ranges if wanted.size > 0]
    if max_records is not None:
        found = [part for one in found for part in _cut(one, -(-one.size // max_records))]
    if min_partitions is not None and min_partitions > len(found):
        found = _spread(found, min_partitions)
    return found


def _spread(ranges: Sequence[OffsetRange], parts: int) -> list[OffsetRange]:
    """Cut the large ranges so that there are about `parts` tasks of about the same size.

    Each small range stays whole, as one task. Its size does not count when the number of cuts is computed.
    """
    total = sum(wanted.size for wanted in ranges)
    large = {one for one in ranges if _share(one.size, total, parts) > 1}
    total = sum(one.size for one in large)
    parts = max(parts - (len(ranges) - len(large)), 1)
    return [
        part
        for one in ranges
        for part in (_cut(one, _share(one.size, total, parts)) if one in large else [one])
    ]


def _share(size: int, total: int, parts: int) -> int:
    return max((2 * size * parts + total) // (2 * total), 1)


def _cut(wanted: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cut a range into pieces whose sizes differ by at most one, smaller ones first, as in Spark's own
    source; never more pieces than offsets.
    """
    parts = min(parts, wanted.size)
    size, larger = divmod(wanted.size, parts)
    borders = [
        wanted.start + size * index + max(index - (parts - larger), 0) for index in range(parts + 1)
    ]
    return [OffsetRange(wanted.tp, start, end) for start, end in pairwise(borders)]
