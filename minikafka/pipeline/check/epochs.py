"""The leader epochs around an anomaly, in words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def surrounding(starts: Sequence[tuple[int, int]], offset: int) -> str:
    """Return the leader epoch of an offset, with the epochs before and after it, as a text.

    An example is `3 from 0, 4 from 120, 7 from 300`, in which the numbers after `from` are first offsets.
    `starts`: (epoch, first offset) for each leader epoch of the partition.
    """
    ordered = sorted(starts, key=lambda entry: (entry[1], entry[0]))
    at = bisect_right([start for _, start in ordered], offset)
    return ", ".join(f"{epoch} from {start}" for epoch, start in ordered[max(at - 2, 0) : at + 1])
