"""What a line of the ledger is: its kinds, and what each holds. docs/ledger.md tells it to people.

One line is one JSON object. Every line has

    time     Unix milliseconds of the broker that wrote it
    broker   that broker's id
    n        number of the line at that broker, +1 per line and through restarts: (broker, n) names a line
    kind     one of the kinds below
    cause    id of the controller event behind it, EPOCH-NUMBER; "" for what no event caused

Partitions are a mapping of topic to partition numbers, `{"t": [0, 1]}`, and those that fared alike stand
together. A line names at most `PARTITIONS_MAX` of them: what concerns more is told in several lines, alike
but for `partitions` (or what stands for it), each with `part` (1 …) and `parts`. Invariant: a line is written
after the fact it tells, except `event`, `step` and the decision `choose`, which are written before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.base.model import TopicPartition

EVENT: Final = "event"
"""The controller begins with an event: `event` (its class name) and what it carries
(`broker/zk_controller/lines.py`)."""
STEP: Final = "step"
"""An operation reached a named step (`controller/steps.py`): `operation`, `step`, `partitions`."""
DECISION: Final = "decision"
"""A state machine decided: `verdict` (choose, move, refuse, illegal), `machine` (partition, replica),
`replica` (the broker that holds them), `from`, `to`, `election`, `leader`, `leader_epoch`, `isr`, `reason`,
`partitions`; a field that does not apply is left out."""
WRITE: Final = "write"
"""A multi of the controller, or of an administrator's request (it has no cause), was answered: `check`
(path, version) as its first operation, `outcome` (ok; conflict: another version or node was there; fenced:
another controller epoch was; failed: refused, or never sent; unknown: the connection was lost before the
answer, and the nodes are read again next), `error`, `zxid` (null if not known) and `operations`: each `op`
(create, set, delete), `path`, `expected` version (null: none, -1: any), `actual` version (null if not known,
or deleted), `data` (the node's text, null for a deletion or when longer than `DATA_MAX`). `failed` is the
index of the operation that was refused; `read_back`: the answer had been lost, and the nodes were found
written."""
REQUEST: Final = "request"
"""A request was handed to the channel of a broker: `to`, `request` (LeaderAndIsr, UpdateMetadata,
StopReplica), `broker_epoch`, `queued` (requests in that channel now, this one included), and `states`: what
is told, with the partitions it is told of (`ledger/requests.py`)."""
RETRY: Final = "retry"
"""A broker gave no answer: `to`, `request`, `attempt`, `error`; told at attempts 1, 2, 4, 8, …"""
RESPONSE: Final = "response"
"""A broker answered: `from`, `request`, `error` (Kafka's code), `errors`: code -> partitions (others are 0)."""
ANSWER: Final = "answer"
"""An administrator, or a broker that shuts down, got its answer: `ticket`, `results`: each `code`,
`message`, `partitions`."""
EFFECT: Final = "effect"
"""A broker got a request of the controller (`phase` received) and carried it out (`phase` completed):
`request`, `from`, `controller_epoch`, `error`, and when received `partitions`, when completed `results`: each
`became` (leader, follower, stopped, deleted, refused), `error`, `leader`, `leader_epoch`, `isr`,
`partitions`. UpdateMetadata has one line: `partition_count`, `live_brokers`."""
ISR: Final = "isr"
"""A leader's change of its ISR was answered: `topic`, `partition`, `change` (expand, shrink),
`leader_epoch`, `before`, `isr`, `expected` and `actual` version, `zxid`, `outcome` (ok, conflict, unknown,
failed), `error`."""
ELECTION: Final = "election"
"""A candidate won, lost or resigned the office of controller: `outcome`, `epoch`, `zk_version` (of
`/controller_epoch`), `controller` (who rules as far as known), `reason`."""
BROKER: Final = "broker"
"""What a broker did by itself: `fact` (started, registered, session lost, log directory failed, controlled
shutdown asked, controlled shutdown answered, stopped) and what belongs to it."""
LOST: Final = "lost"
"""So many lines before this one could not be written: `lines`, `error`."""

WRITTEN_THROUGH: Final = frozenset({EVENT, STEP, LOST})
"""Kinds that are in the file when `record` returns: they announce what comes next."""
PARTITIONS_MAX: Final = 500
DATA_MAX: Final = 32 * 1024
"""Room for the node of a topic with 500 partitions that are all being reassigned: `why` reads
assignments from it when all brokers are dead."""

Item = TypeVar("Item")
Partitions: TypeAlias = dict[str, list[int]]
"""As a line holds them: topic -> partition numbers."""


class Nothing:
    """The ledger that keeps no record."""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Do nothing."""


NOTHING: Final = Nothing()


def by_topic(partitions: Iterable[TopicPartition]) -> Partitions:
    """The partitions as a line holds them."""
    grouped: Partitions = {}
    for topic, number in partitions:
        numbers = grouped.get(topic)
        if numbers is None:
            grouped[topic] = [number]
        else:
            numbers.append(number)
    return grouped


def partitions_of(held: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
    """The partitions that a line holds."""
    return [TopicPartition(topic, number) for topic, numbers in held.items() for number in numbers]


def in_parts(items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], dict[str, int]]]:
    """The items in runs that one line may hold, each with the fields that number it; one run if there are none."""
    parts = max(1, -(-len(items) // PARTITIONS_MAX))
    if parts == 1:
        yield items, {}
        return
    for part in range(parts):
        run = items[part * PARTITIONS_MAX : (part + 1) * PARTITIONS_MAX]
        yield run, {"part": part + 1, "parts": parts}
