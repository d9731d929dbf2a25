"""The lines of the ledger and their kinds. `forms.py` has the fields of each kind, and docs/ledger.md describes them.

One line is one JSON object. Every line has

    time     Unix milliseconds at which the line was written, by the clock of the broker that wrote it
    broker   id of the broker that wrote the line
    n        number of the line at this broker, which continues after restarts: (broker, n) identifies a line
    kind     one of the kinds below
    cause    id of the controller event that caused the line, EPOCH-NUMBER; "" if there is no such event

A field `partitions` maps topics to partition numbers, for example `{"t": [0, 1]}`. Partitions with the same
outcome share an entry. A line contains at most `PARTITIONS_MAX` partitions. More partitions are split over
several lines with the fields `part` (from 1) and `parts`. Invariant: a line is written after the fact that it
records. Only three sorts of lines are written before the fact: lines of the kind `event`, lines of the kind `step`,
and decisions with the verdict `choose`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.base.model import TopicPartition

EVENT: Final = "event"
"""The controller starts to process an event. The value of `event` is the class name of the event."""
STEP: Final = "step"
"""An operation reached a named step (`deciders/controller/steps.py`)."""
DECISION: Final = "decision"
"""A state machine made a decision, refused one, or found an illegal one. Fields that do not apply are omitted."""
WRITE: Final = "write"
"""ZooKeeper answered a multi of the controller, or of an administrator's request (then `cause` is empty).

`failed`: index of the refused operation. `read_back`: the answer was lost, but reading the nodes showed that the multi
was executed. `data` is null for a deletion, if it is longer than `DATA_MAX`, or if it has secrets.
"""
REQUEST: Final = "request"
"""The controller queued a request to a broker. `states`: see `broker/ledger/requests.py`."""
RETRY: Final = "retry"
"""A broker did not answer a request. Written at attempts 1, 2, 4, 8, …"""
RESPONSE: Final = "response"
"""A broker answered a request. `errors`: partitions by code."""
ANSWER: Final = "answer"
"""The controller answered an administrator, or a broker that shuts down."""
EFFECT: Final = "effect"
"""A broker received, executed or could not execute a request of the controller (`phase`)."""
ISR: Final = "isr"
"""ZooKeeper answered a leader's write of a changed ISR."""
ELECTION: Final = "election"
"""A broker won or lost the controller election, took over, or resigned as controller."""
BROKER: Final = "broker"
"""The state of a broker changed (`fact`)."""
STATE_CHANGE: Final = "state-change"
"""In the mode leaders, a broker decided about a replica of its own, or a request between brokers went on.

`text` is the sentence for people.
"""
GROUP: Final = "group"
"""An event of a consumer group, written by the group's coordinator (`deciders/groups/commands.py`)."""
LOST: Final = "lost"
"""Earlier lines could not be written."""

WRITTEN_THROUGH: Final = frozenset({EVENT, STEP, LOST})
"""Kinds of line that are written to the file before `record` returns: `event` and `step` precede an action."""
PARTITIONS_MAX: Final = 500
DATA_MAX: Final = 32 * 1024
"""Maximum length of a node's text in a line; enough for the assignment of a topic with 500 partitions in
reassignment. `minikafka why` reads the assignments from this text when all brokers are down."""

Item = TypeVar("Item")
Partitions: TypeAlias = dict[str, list[int]]
"""The partitions in a line: topic → partition numbers."""


class Nothing:
    """A ledger that discards every line."""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Discard the line."""


NOTHING: Final = Nothing()


def by_topic(partitions: Iterable[TopicPartition]) -> Partitions:
    """Return the partitions in the form of the ledger: partition numbers by topic."""
    grouped: Partitions = {}
    for topic, number in partitions:
        numbers = grouped.get(topic)
        if numbers is None:
            grouped[topic] = [number]
        else:
            numbers.append(number)
    return grouped


def partitions_of(held: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
    """Return the partitions in a mapping of topic to partition numbers. The inverse of `by_topic`."""
    return [TopicPartition(topic, number) for topic, numbers in held.items() for number in numbers]


def in_parts(items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], dict[str, int]]]:
    """Split the items into parts of at most PARTITIONS_MAX. Yield each part with the fields `part` and `parts`.

    If there is only one part, the fields are omitted. An empty sequence gives one empty part.
    """
    parts = max(1, -(-len(items) // PARTITIONS_MAX))
    if parts == 1:
        yield items, {}
        return
    for part in range(parts):
        run = items[part * PARTITIONS_MAX : (part + 1) * PARTITIONS_MAX]
        yield run, {"part": part + 1, "parts": parts}
