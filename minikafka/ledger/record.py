"""The lines of the ledger: their kinds and their fields (docs/ledger.md describes them for users).

One line is one JSON object. Every line has

    time     Unix milliseconds of the broker that wrote it
    broker   that broker's id
    n        number of the line at that broker, which continues after restarts: (broker, n) identifies a line
    kind     one of the kinds below
    cause    id of the controller event that caused it, EPOCH-NUMBER; "" if no event caused it

Partitions are a mapping of topic to partition numbers, `{"t": [0, 1]}`; partitions with the same outcome
share an entry. A line names at most `PARTITIONS_MAX` of them. More are split over several lines with the
fields `part` (from 1) and `parts`. Invariant: a line is written after the fact that it records, except
`event`, `step` and the decision `choose`, which are written before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.base.model import TopicPartition

EVENT: Final = "event"
"""The controller starts to process an event: `event` (its class name) and its fields
(`broker/zk_controller/lines.py`)."""
STEP: Final = "step"
"""An operation reached a named step (`controller/steps.py`): `operation`, `step`, `partitions`."""
DECISION: Final = "decision"
"""A state machine made a decision: `verdict` (choose, move, refuse, illegal), `machine` (partition, replica),
`replica` (id of the broker that holds the replicas), `from`, `to`, `election`, `leader`, `leader_epoch`,
`isr`, `reason`, `partitions`. Fields that do not apply are omitted."""
WRITE: Final = "write"
"""ZooKeeper answered a multi of the controller, or of an administrator's request (with an empty `cause`).

Fields: `check` (path, version), the first operation; `outcome` (ok; conflict: a node has another version;
fenced: the controller epoch has changed; failed: refused or not sent; unknown: the connection was lost
before the answer, and the nodes are read next); `error`; `zxid` (null if unknown); `operations`, each with
`op` (create, set, delete), `path`, `expected` version (null: none, -1: any), `actual` version (null if
unknown or deleted) and `data` (the node's text; null for a deletion, or if longer than `DATA_MAX`).
`failed`: index of the refused operation. `read_back`: the answer was lost, but reading the nodes showed
that they were written."""
REQUEST: Final = "request"
"""A request was put into the queue of a broker: `to`, `request` (LeaderAndIsr, UpdateMetadata,
StopReplica), `broker_epoch`, `queued` (length of the queue, with this request), and `states`: the states
sent, each with its partitions (`ledger/requests.py`)."""
RETRY: Final = "retry"
"""A broker did not answer: `to`, `request`, `attempt`, `error`; written at attempts 1, 2, 4, 8, …"""
RESPONSE: Final = "response"
"""A broker answered: `from`, `request`, `error` (Kafka's code), `errors`: code → partitions (0 omitted)."""
ANSWER: Final = "answer"
"""The controller answered an administrator, or a broker that shuts down: `ticket`, and `results` with
`code`, `message`, `partitions` each."""
EFFECT: Final = "effect"
"""A broker handled a request of the controller; `phase` is received, completed (executed) or failed.

Fields: `request`, `from`, `controller_epoch`, `error`; `partitions` when received; `results` when
completed, each with `became` (leader, follower, stopped, deleted, refused), `error`, `leader`,
`leader_epoch`, `isr`, `partitions`. UpdateMetadata has one line: `partition_count`, `live_brokers`."""
ISR: Final = "isr"
"""ZooKeeper answered a leader's change of its ISR: `topic`, `partition`, `change` (expand, shrink),
`leader_epoch`, `before`, `isr`, `expected` and `actual` version, `zxid`, `outcome` (ok, conflict, unknown,
failed), `error`."""
ELECTION: Final = "election"
"""A broker won or lost the controller election, or resigned as controller: `outcome`, `epoch`,
`zk_version` (of `/controller_epoch`), `controller` (id of the active controller, if known), `reason`."""
BROKER: Final = "broker"
"""An event in the life of a broker: `fact` (started, registered, session lost, log directory failed,
controlled shutdown asked, controlled shutdown answered, stopped, connection lost) and the fields of that
fact. In connection lost, `to` is the leader from which this broker was fetching."""
GROUP: Final = "group"
"""An event in the life of a consumer group, written by its coordinator: `fact` (a kind of `groups/commands.py`),
`group`, `generation` and the fields of that fact."""
LOST: Final = "lost"
"""Lines before this one could not be written: `lines` (their number), `error`."""

WRITTEN_THROUGH: Final = frozenset({EVENT, STEP, LOST})
"""Kinds that are written to the file before `record` returns: `event` and `step` announce an action."""
PARTITIONS_MAX: Final = 500
DATA_MAX: Final = 32 * 1024
"""Maximum length of a node's text in a line. When all brokers are down, `minikafka why` reads the
assignments from this text; a topic with 500 partitions in reassignment fits."""

Item = TypeVar("Item")
Partitions: TypeAlias = dict[str, list[int]]
"""The partitions in a line: topic → partition numbers."""


class Nothing:
    """A ledger that discards every line."""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Discard the line."""


NOTHING: Final = Nothing()


def by_topic(partitions: Iterable[TopicPartition]) -> Partitions:
    """Return partitions in the form that a line contains: partition numbers by topic."""
    grouped: Partitions = {}
    for topic, number in partitions:
        numbers = grouped.get(topic)
        if numbers is None:
            grouped[topic] = [number]
        else:
            numbers.append(number)
    return grouped


def partitions_of(held: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
    """Return the partitions in a mapping of topic to partition numbers, the reverse of `by_topic`."""
    return [TopicPartition(topic, number) for topic, numbers in held.items() for number in numbers]


def in_parts(items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], dict[str, int]]]:
    """Split items into parts of at most PARTITIONS_MAX; yield each with the fields `part` and `parts`.

    A single part is yielded without these fields. Without items there is a single, empty part.
    """
    parts = max(1, -(-len(items) // PARTITIONS_MAX))
    if parts == 1:
        yield items, {}
        return
    for part in range(parts):
        run = items[part * PARTITIONS_MAX : (part + 1) * PARTITIONS_MAX]
        yield run, {"part": part + 1, "parts": parts}
