"""The lag of a consumer group by partition, and its growth.

The lags at earlier times are computed from the commits in `__consumer_offsets` and the timestamps of the
records, so nothing has to be observed over time. The module does no I/O. Invariant: the lag at a time is the
log end offset at that time minus the committed offset at that time. If either offset is unknown, there is no
lag for that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition

WINDOW_MS: Final = 10 * 60_000
"""Maximum age of the commits that are read."""
SAMPLES: Final = 6
"""Maximum number of points in time whose lags are compared."""
QUIET_MS: Final = 30_000
"""A partition that has lag but no commit for this long is stuck. Consumers commit every 5 s by default."""
_TREND_MIN: Final = 3
"""Minimum number of known lags for a trend."""


class Commit(NamedTuple):
    """A commit for one partition: the time in Unix milliseconds, and the committed offset."""

    time: int
    offset: int


class Past(NamedTuple):
    """The lag in records at an earlier time (Unix milliseconds)."""

    time: int
    lag: int


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one partition. `past`: earlier lags, oldest first. Times are Unix milliseconds."""

    tp: TopicPartition
    committed: int
    committed_at: int
    end: int
    former_end: int
    """The log end offset QUIET_MS ago."""
    now: int
    past: tuple[Past, ...] = ()

    @property
    def records(self) -> int:
        """Number of offsets from the committed offset to the log end offset."""
        return max(self.end - self.committed, 0)

    @property
    def is_stuck(self) -> bool:
        """True if the partition had lag but no commit during the last QUIET_MS."""
        return self.former_end > self.committed and self.now - self.committed_at >= QUIET_MS

    @property
    def grows(self) -> bool:
        """True if every lag in the later half of `past` is larger than every lag in the earlier half."""
        if len(self.past) < _TREND_MIN:
            return False
        middle = len(self.past) // 2
        earlier, later = self.past[:middle], self.past[middle:]
        return min(each.lag for each in later) > max(each.lag for each in earlier)


def sample_times(commits: Mapping[TopicPartition, Sequence[Commit]]) -> dict[str, list[int]]:
    """Return the times (Unix ms) at which the lags of each topic are computed, at most SAMPLES per topic.

    The times are evenly spaced, from the topic's first commit to its last commit.
    """
    found = {}
    for topic in {tp.topic for tp in commits}:
        times = [
            commit.time for tp, some in commits.items() if tp.topic == topic for commit in some
        ]
        first, last = min(times), max(times)
        step = max((last - first) // (SAMPLES - 1), 1)
        found[topic] = [*[*range(first, last, step)][: SAMPLES - 1], last]
    return found


def past_lags(
    commits: Sequence[Commit], ends: Mapping[int, int], current_end: int
) -> tuple[Past, ...]:
    """Return the lags of a partition at the times in `ends`.

    `ends`: time → offset of the first record written at or after that time, -1 if there is no such record.
    """
    found = []
    for time, end in sorted(ends.items()):
        before = [commit.offset for commit in commits if commit.time <= time]
        if before:
            found.append(Past(time, max(end_at(end, current_end) - before[-1], 0)))
    return tuple(found)


def end_at(offset: int, current_end: int) -> int:
    """Return the log end offset that a partition had at an earlier time.

    `offset`: the offset of the first record written at or after that time, -1 if there is no such record.
    """
    return current_end if offset < 0 else offset
