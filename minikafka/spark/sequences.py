"""Comparison of two sequences of lines: the lines sent to a topic, and the lines read from the topic.

Invariant: `lost + kept == len(sent)` and `kept + duplicated + foreign == len(read)` for any input.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Difference(NamedTuple):
    """Counts of the differences between sent and read lines. All counts are zero for equal sequences."""

    lost: int
    """Lines sent but not read. A line that was sent three times and read once counts as two."""
    duplicated: int
    """Extra copies of sent lines. A line that was sent once and read three times counts as two."""
    foreign: int
    """Lines read but never sent."""
    reordered: int
    """Minimum number of lines to move to restore the order in which the lines were sent."""


def compare(sent: Sequence[bytes], read: Sequence[bytes]) -> Difference:
    """Return the differences between two sequences of lines. Lines are compared by content and may repeat."""
    sent_counts, read_counts = Counter(sent), Counter(read)
    kept = (sent_counts & read_counts).total()
    foreign = sum(count for line, count in read_counts.items() if line not in sent_counts)
    return Difference(
        lost=len(sent) - kept,
        duplicated=len(read) - kept - foreign,
        foreign=foreign,
        reordered=kept - _in_order(sent, read),
    )


def _in_order(sent: Sequence[bytes], read: Sequence[bytes]) -> int:
    """Return the length of the longest common subsequence of two lists of lines. Fast if few lines are out of order."""
    first, last = 0, 0
    shorter = min(len(sent), len(read))
    while first < shorter and sent[first] == read[first]:
        first += 1
    while last < shorter - first and sent[-1 - last] == read[-1 - last]:
        last += 1
    sent, read = sent[first : len(sent) - last], read[first : len(read) - last]
    if _is_subsequence(sent, read) or _is_subsequence(read, sent):
        return first + last + min(len(sent), len(read))
    return first + last + _longest_common(sent, read)


def _is_subsequence(short: Sequence[bytes], long: Sequence[bytes]) -> bool:
    rest = iter(long)
    return all(line in rest for line in short)


def _longest_common(sent: Sequence[bytes], read: Sequence[bytes]) -> int:
    """Return the length of the longest common subsequence (algorithm of Hunt and Szymanski)."""
    places = defaultdict(list)
    for index in reversed(range(len(sent))):
        places[sent[index]].append(index)
    ends: list[int] = []
    for line in read:
        for place in places.get(line, ()):
            at = bisect_left(ends, place)
            ends[at : at + 1] = [place]
    return len(ends)
