"""The lines of the ledger: their kinds and their fields (docs/ledger.md describes them for users).

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
"""The controller starts to process an event: `event` (the event's class name), and the event's fields
(`broker/modes/controller/terms/lines.py`)."""
STEP: Final = "step"
"""An operation reached a named step (`controller/steps.py`): `operation`, `step`, `partitions`."""
DECISION: Final = "decision"
"""A state machine made a decision: `verdict` (choose, move, refuse, illegal), `machine` (partition, replica, or
reassignment for a refused target in `/admin/reassign_partitions`), `replica` (id of the broker that holds the
replicas), `from`, `to`, `election`, `leader`, `leader_epoch`, `isr`, `reason`, `partitions`. Fields that do not
apply are omitted."""
WRITE: Final = "write"
"""ZooKeeper answered a multi of the controller, or of an administrator's request (then `cause` is empty).

Fields: `check` (path and version of the first operation); `outcome` (ok; conflict: a node has another version;
fenced: the controller epoch has changed; failed: refused or not sent; unknown: the connection was lost
before the answer, and the nodes are read next); `error`; `zxid` (null if unknown); `operations`, each with
`op` (create, set, delete), `path`, `expected` version (null: none, -1: any), `actual` version (null if
unknown or deleted) and `data` (the node's text; null for a deletion, or if longer than `DATA_MAX`).
`failed`: index of the refused operation. `read_back`: the answer was lost, but reading the nodes showed
that the multi was executed."""
REQUEST: Final = "request"
"""The controller queued a request to a broker: `to`, `request` (LeaderAndIsr, UpdateMetadata, StopReplica),
`broker_epoch`, `queued` (number of queued requests, including this request), `states`: the states in the
request, each with its partitions (`ledger/requests.py`), and `live_brokers` (only for UpdateMetadata)."""
RETRY: Final = "retry"
"""A broker did not answer a request: `to`, `request`, `attempt`, `error`. Written at attempts 1, 2, 4, 8, …"""
RESPONSE: Final = "response"
"""A broker answered a request: `from`, `request`, `error` (Kafka's code), `errors` (partitions by code)."""
ANSWER: Final = "answer"
"""The controller answered an administrator, or a broker that shuts down: `ticket`, and `results`, each with
`code`, `message`, `partitions`."""
EFFECT: Final = "effect"
"""A broker handled a request of the controller. `phase`: received, completed (executed) or failed.

Fields of every line: `request`, `from`, `controller_epoch`. A received line has `partitions`. A completed line
has `error` and `results`, each with `became` (leader, follower, stopped, deleted, refused), `error`, `leader`,
`leader_epoch`, `isr`, `partitions`. A failed line has `error`. UpdateMetadata has no received line, and its
completed line has `partition_count` and `live_brokers` instead of `results`."""
ISR: Final = "isr"
"""ZooKeeper answered a leader's write of a changed ISR: `topic`, `partition`, `change` (expand, shrink),
`leader_epoch`, `before`, `isr`, `expected` and `actual` version, `zxid`, `outcome` (ok, conflict, unknown,
failed), `error`."""
ELECTION: Final = "election"
"""A broker won or lost the controller election, or resigned as controller: `outcome`, `epoch`,
`zk_version` (of `/controller_epoch`), `controller` (id of the active controller, if known), `reason`."""
BROKER: Final = "broker"
"""An event of a broker: `fact` (started, registered, session lost, log directory failed, controlled shutdown
asked, controlled shutdown answered, stopping, stopped, connection lost, probed), and the fields of this fact. For
`connection lost`, `to` is the leader from which the broker was fetching. For `probed`, written by the controller, `to`
is a broker whose control listener did not answer."""
STATE_CHANGE: Final = "state-change"
"""In the leader-coordinated mode, a broker decided about a replica of its own, or a request between brokers went on.

`fact`: move, refuse, illegal (of a replica; with `source`, `target`, `reason`), or requested, received, completed,
refused (of a request; with `operation`, `sender`, `receiver`), `topic`, `partition`, `epoch`, and `text`, the sentence
for people."""
GROUP: Final = "group"
"""An event of a consumer group, written by the group's coordinator: `fact` (a kind of `groups/messages/commands.py`),
`group`, `generation`, and the fields of this fact."""
LOST: Final = "lost"
"""Earlier lines could not be written: `lines` (the number of lost lines), `error`."""

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
