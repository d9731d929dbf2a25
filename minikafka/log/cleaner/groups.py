"""The choice of neighbouring segments that a cleaning joins to one segment, as in Kafka.

Without joining, the segments would become smaller with every cleaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minikafka.log.segments.segment import RELATIVE_OFFSET_MAX


class Size(NamedTuple):
    """One segment: its base offset, and the sizes (in bytes) of its records and of its two indexes."""

    base_offset: int
    records: int
    offset_index: int
    time_index: int


def grouped(
    sizes: Sequence[Size], segment_bytes: int, index_bytes: int, end_offset: int
) -> list[list[int]]:
    """Return the base offsets in groups. The segments of a group fit into one segment even before cleaning.

    `end_offset` is the offset after the last segment.
    """
    groups: list[list[int]] = []
    records = index = times = 0
    for slot, size in enumerate(sizes):
        records, index, times = (
            records + size.records,
            index + size.offset_index,
            times + size.time_index,
        )
        last_offset = (sizes[slot + 1].base_offset if slot + 1 < len(sizes) else end_offset) - 1
        if (
            groups
            and records <= segment_bytes
            and index <= index_bytes
            and times <= index_bytes
            and (not size.records or last_offset - groups[-1][0] <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(size.base_offset)
        else:
            groups.append([size.base_offset])
            _, records, index, times = size
    return groups
