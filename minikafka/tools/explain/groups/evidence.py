"""All data about one consumer group at one moment, as plain values.

Invariant: an unknown value is None or absent, never guessed. The lags at earlier times are computed from the commits
in `__consumer_offsets` and the timestamps of the records, so nothing has to be observed over time: a lag is the log
end offset minus the committed offset at that time. If either offset is unknown, there is no lag for that time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.explain.evidence import Answer, PartitionEvidence
from minikafka.tools.explain.groups.history import HistoryEntry
from minikafka.tools.explain.groups.words import count

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


class EarlierLag(NamedTuple):
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
    past: tuple[EarlierLag, ...] = ()

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
) -> tuple[EarlierLag, ...]:
    """Return the lags of a partition at the times in `ends`.

    `ends`: time → offset of the first record written at or after that time, -1 if there is no such record.
    """
    found = []
    for time, end in sorted(ends.items()):
        before = [commit.offset for commit in commits if commit.time <= time]
        if before:
            found.append(EarlierLag(time, max(end_at(end, current_end) - before[-1], 0)))
    return tuple(found)


def end_at(offset: int, current_end: int) -> int:
    """Return the log end offset that a partition had at an earlier time.

    `offset`: the offset of the first record written at or after that time, -1 if there is no such record.
    """
    return current_end if offset < 0 else offset


@dataclass(frozen=True)
class GroupEvidence:
    """All data about one consumer group. `wall_ms`: when the data was collected, in Unix milliseconds of the
    coordinator's clock, or of this machine's clock if no coordinator answers.

    `answers`: the brokers' answers to the call `explain_group`, by broker id. `history`: the group's history in
    the ledgers. `home`: the evidence of the partition of `__consumer_offsets` that holds the group. `home` is None
    if this partition is unknown, or if the coordinator answers and the group waits for no write and no transaction.
    `away`: evidence of the partitions that the group reads and that have no leader, or whose leader does not answer.
    `lags`: the lags of other partitions that the group reads; None if the lags were not read. `held`: the partitions
    that the group has read up to a last stable offset below the high watermark, with their evidence as far as they were
    collected. `finished`: the partitions with lag but without a committed record after the committed offset. `causes`:
    the root causes of the problems of the whole cluster.
    """

    group: str
    wall_ms: int
    answers: Mapping[int, Answer]
    history: Sequence[HistoryEntry]
    home: PartitionEvidence | None = None
    away: Mapping[TopicPartition, PartitionEvidence] = field(default_factory=dict)
    lags: Sequence[Lag] | None = None
    held: Mapping[TopicPartition, PartitionEvidence | None] = field(default_factory=dict)
    finished: Collection[TopicPartition] = ()
    causes: Sequence[Cause] = ()

    @cached_property
    def coordinator(self) -> int | None:
        """Id of the broker that coordinates the group; None if no broker that answered is the coordinator.

        A former coordinator may not know its successor yet. If several brokers claim to be the coordinator, the claim
        in the newest leader epoch counts.
        """
        epochs = {
            id_: answer.get("leader_epoch", NO_EPOCH)
            for id_, answer in self.answers.items()
            if not answer["error"]
        }
        return max(epochs, key=lambda id_: epochs[id_], default=None)

    @cached_property
    def loading(self) -> int | None:
        """Id of the broker that is loading the group; None if no answering broker is loading the group."""
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return next((id_ for id_, answer in self.answers.items() if answer["error"] == code), None)

    @property
    def report(self) -> Answer | None:
        """Return the coordinator's report of the group (`deciders/groups/report.py`); None without such a report."""
        if self.coordinator is None:
            return None
        found: Answer | None = self.answers[self.coordinator]["group"]
        return found

    @property
    def partition(self) -> int | None:
        """Number of the partition of `__consumer_offsets` that holds the group; None if no broker answers."""
        return next((answer["partition"] for answer in self.answers.values()), None)

    @property
    def has_sources(self) -> bool:
        """True if a broker has answered, so that it is known whether the group exists."""
        return bool(self.answers)

    @property
    def is_known(self) -> bool:
        """True if the group exists at the coordinator.

        If no answering broker is the coordinator, the result is true if a ledger contains lines about the group.
        """
        return self.report is not None or (self.coordinator is None and bool(self.history))

    def headline(self) -> str:
        """Return the group's state in one line."""
        report = self.report
        if report is None:
            state = "there is no such group" if self.coordinator is not None else "no coordinator"
            return f"group {self.group}: {state}"
        return (
            f"group {self.group}: {report['state']}, generation {report['generation']}, "
            f"{count(len(report['members']), 'member')}, coordinator {self.coordinator} "
            f"(__consumer_offsets-{self.partition})"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the group's state as JSON-able values. Unknown values are None."""
        report = self.report
        return {
            "group": self.group,
            "coordinator": self.coordinator,
            "offsets_partition": self.partition,
            "state": report["state"] if report else None,
            "generation": report["generation"] if report else None,
            "members": report["members"] if report else None,
            "lags": None if self.lags is None else [self._lag_as_json(lag) for lag in self.lags],
        }

    def _lag_as_json(self, lag: Lag) -> dict[str, Any]:
        owner = self.owner(lag.tp)
        return {
            "topic": lag.tp.topic,
            "partition": lag.tp.partition,
            "committed": lag.committed,
            "end": lag.end,
            "lag": lag.records,
            "grows": lag.grows,
            "stuck": lag.is_stuck,
            "member": owner["member"] if owner is not None else None,
        }

    def committed(self, tp: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition; None if it has committed no offset."""
        for topic, number, offset, _ in self.report["offsets"] if self.report else ():
            if (topic, number) == tp:
                found: int = offset
                return found
        return None

    def owner(self, tp: TopicPartition) -> Answer | None:
        """Return the member to which the partition is assigned; None if no member has the partition."""
        for member in self.report["members"] if self.report else ():
            if tp.partition in (member["assigned"] or {}).get(tp.topic, ()):
                found: Answer = member
                return found
        return None
