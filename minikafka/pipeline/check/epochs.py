"""A text that shows the leader epochs around an anomaly."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def surrounding(starts: Sequence[tuple[int, int]], offset: int) -> str:
    """Return a text with the leader epoch at `offset`, the epoch before and the epoch after.

    Example: `3 from 0, 4 from 120, 7 from 300`. The number after `from` is the first offset of the epoch.
    `starts`: (epoch, first offset) for each leader epoch of the partition.
    """
    ordered = sorted(starts, key=lambda entry: (entry[1], entry[0]))
    at = bisect_right([start for _, start in ordered], offset)
    return ", ".join(f"{epoch} from {start}" for epoch, start in ordered[max(at - 2, 0) : at + 1])
