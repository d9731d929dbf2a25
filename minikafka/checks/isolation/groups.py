"""The check of consumer groups: together, the members must receive each visible record, and none below a commit.

A record that is received again before its group has committed an offset above it is no anomaly: Kafka promises that
each record is received at least once. Such records are counted as `redelivered`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import OPAQUE, READ, SEEK
from minikafka.checks.isolation.findings import Findings
from minikafka.checks.isolation.logs import VISIBLE, PartitionLog
from minikafka.checks.isolation.operations import Clients, Fate, OffsetCommit, Read
from minikafka.checks.isolation.writes import Logs

Reader: TypeAlias = tuple[str, TopicPartition]
"""The name of a group, and a partition that it reads."""
Step: TypeAlias = tuple[str, Read | OffsetCommit]
"""The client of a read or seek, "" for a commit, and the step."""
_FIRST: Final = -1.0


def check_groups(clients: Clients, logs: Logs, findings: Findings) -> None:
    """Report the records that groups passed over, or received again after a commit."""
    for (group, tp), steps in steps_of(clients).items():
        if (log := logs.get(tp)) is not None:
            _Group(group, tp, log, findings).check(steps)


def steps_of(clients: Clients) -> Mapping[Reader, list[Step]]:
    """Return the reads, seeks and commits of each group in each partition, in order of time."""
    steps: defaultdict[Reader, list[Step]] = defaultdict(list)
    for client, read in reads_of(clients):
        if read.group is not None:
            steps[read.group, read.tp].append((client, read))
    for commit in clients.committed:
        ended = commit.transaction
        if ended is None:
            steps[commit.group, commit.tp].append(("", commit))
        elif ended.fate is Fate.COMMITTED:
            steps[commit.group, commit.tp].append(("", commit._replace(time=ended.ended)))
    for found in steps.values():
        found.sort(key=lambda step: _FIRST if step[1].time is None else step[1].time)
    return steps


def reads_of(clients: Clients) -> Iterator[tuple[str, Read]]:
    """Yield the client and each of its reads and seeks."""
    for client, reads in clients.reads.items():
        for read in reads:
            yield client, read


class _Group:
    """One group in one partition."""

    def __init__(
        self, group: str, tp: TopicPartition, log: PartitionLog, findings: Findings
    ) -> None:
        self._name = f"group {group}"
        self._tp = tp
        self._log = log
        self._findings = findings
        self._received: set[int] = set()
        self._committed = -1
        self._positions: dict[str, int] = {}
        """By client, the offset behind its last read."""
        self._unwanted: list[range] = []
        """The offsets that a client passed over by its own wish."""

    def check(self, steps: Iterable[Step]) -> None:
        """Follow the steps, then report the records that no member received."""
        for client, step in steps:
            if isinstance(step, OffsetCommit):
                self._committed = step.offset
            elif step.kind == SEEK:
                self._unwanted.append(range(self._positions.get(client, 0), step.offset))
                self._positions[client] = step.offset
                self._committed = min(self._committed, step.offset)
            elif step.kind == READ:
                self._positions[client] = step.offset + 1
                self._read(client, step)
        self._report_skipped()

    def _read(self, client: str, step: Read) -> None:
        record = self._log.records.get(step.offset)
        if record is not None and step.digest not in (record.digest, OPAQUE):
            return  # it is `read_differs`
        if step.offset in self._received:
            self._findings.facts["redelivered"] += 1
            if step.offset < self._committed:
                text = f"read by {client}, but {self._name} had committed offset {self._committed}"
                self._findings.add("read_back", self._tp, step.offset, None, text, step)
        self._received.add(step.offset)

    def _report_skipped(self) -> None:
        if not self._received:
            return
        end = max(max(self._received) + 1, self._committed)
        for offset in range(min(self._received), end):
            is_missing = self._log.outcomes.get(offset) == VISIBLE and offset not in self._received
            if is_missing and not any(offset in unwanted for unwanted in self._unwanted):
                text = f"no member of {self._name} received it, but the group went on"
                record = self._log.records[offset]
                self._findings.add("skipped_read", self._tp, offset, None, text, record)
