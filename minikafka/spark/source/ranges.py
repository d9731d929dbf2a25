"""Offset ranges, and their division among tasks.

The options `minPartitions` and `maxRecordsPerPartition` split the ranges, and `maxTasks` puts several ranges
into one task. Invariant: neither step loses or repeats an offset, and each task has the ranges of a partition in
order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from minikafka.base.model import TopicPartition

_FEW: Final = 5_000
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


@dataclass
class _Task:
    """A task to which ranges are being added."""

    size: int = 0
    ranges: list[OffsetRange] = field(default_factory=list)


def grouped(
    ranges: Sequence[OffsetRange],
    tasks: int,
    max_records: int | None,
    leader: Callable[[TopicPartition], Hashable],
) -> list[Ranges]:
    """Divide ranges among at most `tasks` tasks of similar size. Each task reads from few leaders.

    If a task would have more than `max_records` offsets, there are more tasks. No range may be larger.
    Each range is added to a task of its leader as long as the task has less than its share, otherwise to the
    smallest task. The largest ranges come first, so that the small ones even out the sizes. No task stays empty.
    """
    if len(ranges) <= tasks:
        return [(wanted,) for wanted in ranges]
    share = -(-sum(wanted.size for wanted in ranges) // tasks)
    found = [_Task() for _ in range(tasks)]
    smallest = [(0, index) for index in range(tasks)]
    of_leader: dict[Hashable, list[tuple[int, int]]] = {}
    empty = tasks
    for left, wanted in zip(
        range(len(ranges), 0, -1), sorted(ranges, key=_largest_first), strict=True
    ):
        own = of_leader.setdefault(leader(wanted.tp), [])
        index = _least(own, found)
        most = min(share, max_records or share)
        if index is None or found[index].size + wanted.size > most or left <= empty:
            index = _least(smallest, found)
        assert index is not None
        if max_records is not None and found[index].size + wanted.size > max_records:
            index = len(found)
            found.append(_Task())
        task = found[index]
        empty -= not task.ranges and index < tasks
        task.ranges.append(wanted)
        task.size += wanted.size
        for heap in (own, smallest):
            heapq.heappush(heap, (task.size, index))
    kept = [tuple(sorted(task.ranges, key=_place)) for task in found if task.ranges]
    return sorted(kept, key=lambda one: _place(one[0]))


def _least(heap: list[tuple[int, int]], tasks: Sequence[_Task]) -> int | None:
    """Return the index of the smallest task in a heap of (size, index). Remove entries with a former size."""
    while heap and tasks[heap[0][1]].size != heap[0][0]:
        heapq.heappop(heap)
    return heap[0][1] if heap else None


def _largest_first(wanted: OffsetRange) -> tuple[int, TopicPartition, int]:
    return -wanted.size, wanted.tp, wanted.start


def _place(wanted: OffsetRange) -> tuple[TopicPartition, int]:
    return wanted.tp, wanted.start
