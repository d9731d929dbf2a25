"""Offset ranges, one per task. The options `minPartitions` and `maxRecordsPerPartition` split the ranges.

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
        """Return the number of offsets. A compacted log may have fewer records."""
        return self.end - self.start


def split(
    ranges: Iterable[OffsetRange], max_records: int | None, min_partitions: int | None
) -> list[OffsetRange]:
    """Split ranges into parts of at most `max_records` offsets. Empty ranges are left out.

    If there are fewer than `min_partitions` parts, split further, into about `min_partitions` parts.
    """
    found = [wanted for wanted in ranges if wanted.size > 0]
    if max_records is not None:
        found = [part for one in found for part in _cut(one, -(-one.size // max_records))]
    if min_partitions is not None and min_partitions > len(found):
        found = _spread(found, min_partitions)
    return found


def _spread(ranges: Sequence[OffsetRange], parts: int) -> list[OffsetRange]:
    """Split the large ranges so that there are about `parts` ranges of similar size.

    Small ranges are not split, and are ignored when the sizes of the parts are computed.
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
    """Split a range into `parts` pieces, or into pieces of one offset if the range has fewer offsets.

    The sizes differ by at most one, and smaller pieces come first, as in Spark's own source.
    """
    parts = min(parts, wanted.size)
    size, larger = divmod(wanted.size, parts)
    borders = [
        wanted.start + size * index + max(index - (parts - larger), 0) for index in range(parts + 1)
    ]
    return [OffsetRange(wanted.tp, start, end) for start, end in pairwise(borders)]
