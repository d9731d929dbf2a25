"""What the ledgers say about the time of a test: about its topics, the brokers and the controller, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.broker.ledger.reader import read_all, read_group
from minikafka.broker.ledger.record import BROKER, ELECTION
from minikafka.tools.explain.groups.history import history
from minikafka.tools.explain.summary import Story
from minikafka.tools.explain.trace import Line, chains, describe

MOMENTS_MAX: Final = 40
"""Maximum number of rows in a report; the last ones are shown."""
PARTITIONS_MAX: Final = 20
"""Maximum number of partitions whose history is told."""


class Moment(NamedTuple):
    """A row of the report. `time`: Unix ms."""

    time: int
    text: str


def moments(
    ledgers: Sequence[Path],
    partitions: Iterable[TopicPartition],
    groups: Iterable[str],
    since_ms: int,
) -> list[str]:
    """Return rows with the time of day and a sentence each, oldest first.

    `partitions` and `groups`: those of the test. Without them, only the brokers and the controller are reported.
    """
    lines = read_all(ledgers)
    found = {*_of_cluster(lines)}
    for tp in islice(partitions, PARTITIONS_MAX):
        found |= {*_of_partition(lines, tp)}
    for group in groups:
        entries = history(read_group(ledgers, group))
        found |= {Moment(entry.time, f"group {group}: {entry.summary()}") for entry in entries}
    rows = [f"{_clock(one.time)}  {one.text}" for one in sorted(found) if one.time >= since_ms]
    more = len(rows) - MOMENTS_MAX
    return [f"… {more} earlier rows", *rows[-MOMENTS_MAX:]] if more > 0 else rows


def _of_partition(lines: Sequence[Line], tp: TopicPartition) -> Iterator[Moment]:
    history = chains(lines, tp)
    Story(lines, tp).summarize(history)
    for chain in history:
        if chain.summary:
            yield Moment(chain.time, f"{tp}: {chain.summary}")


def _of_cluster(lines: Sequence[Line]) -> Iterator[Moment]:
    for line in lines:
        if line["kind"] == ELECTION or (line["kind"] == BROKER and "lines" not in line):
            about = "" if line["kind"] == ELECTION else f"broker {line['broker']} "
            yield Moment(line["time"], f"{about}{describe(line)}")


def _clock(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
