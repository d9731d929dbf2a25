"""Offset ranges, their division among tasks, and the report of ranges that are lost.

The options `minPartitions` and `maxRecordsPerPartition` split the ranges, and `maxTasks` puts several ranges
into one task. Invariant: neither step loses or repeats an offset, and each task has the ranges of a partition in
order.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition

logger = logging.getLogger(__name__)


class DataLost(MinikafkaError):
    """Requested offsets are not in the log. Raised if the option `failOnDataLoss` is true."""


def report_loss(text: str, *, fail: bool) -> None:
    """Report lost offsets: raise `DataLost` if `fail` (the option `failOnDataLoss`), else log a warning."""
    if fail:
        raise DataLost(f"{text}; set failOnDataLoss to false to read the rest")
    logger.warning("%s", text)


_FEW: Final = 50_000
"""Number of offsets per core below which each core gets one task."""
_WORTH_A_TASK: Final = 250_000
"""Number of offsets for which starting one more task costs little."""


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


Ranges: TypeAlias = tuple[OffsetRange, ...]
"""The work of one task."""


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


def default_tasks(ranges: Iterable[OffsetRange], cores: int) -> int:
    """Return the maximum number of tasks if the user sets none: two per core, one for few offsets, more for many.

    For few offsets, a second task per core would not even out the load. For many offsets, the number of tasks grows
    with the offsets, because `cores` may count only the driver and not the whole cluster.
    """
    size = sum(wanted.size for wanted in ranges)
    if size < _FEW * cores:
        return cores
    return max(2 * cores, size // _WORTH_A_TASK)


def grouped(ranges: Sequence[OffsetRange], tasks: int, max_records: int | None) -> list[Ranges]:
    """Divide ranges among at most `tasks` tasks of similar size. No task stays empty.

    If a task would have more than `max_records` offsets, there are more tasks. No range may be larger. The largest
    ranges come first, so that the small ones even out the sizes. The result depends only on the arguments, not on the
    leaders, so that a micro-batch that is planned again has the same tasks.
    """
    if len(ranges) <= tasks:
        return [(wanted,) for wanted in ranges]
    found: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    sizes = [(0, index) for index in range(tasks)]
    for wanted in sorted(ranges, key=_largest_first):
        size, index = sizes[0]
        if max_records is not None and size + wanted.size > max_records:
            index = len(found)
            found.append([])
            heapq.heappush(sizes, (wanted.size, index))
        else:
            heapq.heapreplace(sizes, (size + wanted.size, index))
        found[index].append(wanted)
    return sorted(
        (tuple(sorted(part, key=_place)) for part in found), key=lambda part: _place(part[0])
    )


def _largest_first(wanted: OffsetRange) -> tuple[int, TopicPartition, int]:
    return -wanted.size, wanted.tp, wanted.start


def _place(wanted: OffsetRange) -> tuple[TopicPartition, int]:
    return wanted.tp, wanted.start
