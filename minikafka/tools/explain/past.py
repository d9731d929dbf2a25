"""The history of one partition: the ledger lines that explain its state, and its last known state.

The input is the lines from `broker.ledger.reader`. The module does no I/O. Invariant: each reference is to an existing
line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.base.names import parse_json
from minikafka.broker.ledger.reader import name_of
from minikafka.broker.ledger.record import (
    BROKER,
    DECISION,
    EVENT,
    ISR,
    REQUEST,
    RESPONSE,
    STATE_CHANGE,
    STEP,
    WRITE,
)
from minikafka.tools.explain.trace import Line, names_partition, refusal_of

_DELETED: Final = "NonExistentReplica"
_MARK_FIELDS: Final = {"ControllerElected": "deletions", "DeletionsChanged": "topics"}
"""The events that list the topics marked for deletion: class name of the event -> field with the topics."""


class Reference(NamedTuple):
    """A reference to a ledger line. `cause`: id of the causing event, "" if none. `line`: the line's name, BROKER#N."""

    cause: str
    line: str

    def __str__(self) -> str:
        return f"{self.cause} {self.line}".strip()


def reference(line: Line) -> Reference:
    """Return a `Reference` to a ledger line: its name (broker#number, such as 2#417) and the id of its cause."""
    return Reference(line["cause"], name_of(line))


@dataclass(frozen=True, slots=True)
class WrittenState:
    """A partition state whose write ZooKeeper accepted, with the ledger line about the write."""

    zxid: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    line: Line


class Past:
    """The history of one partition according to the ledgers of all brokers.

    Methods that return `list[Reference]` return one reference to a line, or [] if there is no such line.
    """

    def __init__(self, lines: Sequence[Line], tp: TopicPartition) -> None:
        self._tp = tp
        self._events = [line for line in lines if line["kind"] == EVENT]
        self._facts = [line for line in lines if line["kind"] == BROKER]
        self._own = [
            line
            for line in lines
            if line["kind"] in (DECISION, ISR, REQUEST, STATE_CHANGE, STEP, WRITE)
            and names_partition(line, tp)
        ]
        self._refused = {line["cause"] for line in lines if refusal_of(line, tp)}
        self._responses = [line for line in lines if line["kind"] == RESPONSE]
        self.states = sorted(written_states(self._own, tp), key=attrgetter("zxid"))
        """The written states of the partition, in the order of ZooKeeper's transactions."""

    @property
    def is_empty(self) -> bool:
        """True if no ledger line names the partition."""
        return not self._own

    def replicas(self) -> tuple[int, ...]:
        """Return the sorted ids of the brokers with a replica, according to the last decisions in the ledgers."""
        if moves := self._moves():
            return tuple(sorted(id_ for id_, line in moves.items() if line["target"] != "absent"))
        known = {broker for broker, state in self.replica_states().items() if state != _DELETED}
        return tuple(sorted(known.union(self.states[-1].isr if self.states else ())))

    def leadership(self) -> tuple[int, int] | None:
        """Return the last leader that served clients in the mode leaders, and its last epoch; None if no leader did.

        A leader that leads on with other replicas raises its epoch, which its requests to other brokers then have.
        """
        found: tuple[int, int] | None = None
        for line in self._own:
            if line["kind"] != STATE_CHANGE:
                continue
            if line["fact"] == "move" and line["target"] == "leading":
                found = line["broker"], line["epoch"]
            elif line["fact"] == "requested" and found and line["sender"] == found[0]:
                found = found[0], max(found[1], line["epoch"])
        return found

    def _moves(self) -> dict[int, Line]:
        """Return the last move of each broker's replica in the mode leaders."""
        moves = (line for line in self._own if line["kind"] == STATE_CHANGE)
        return {line["broker"]: line for line in moves if line["fact"] == "move"}

    def replica_states(self) -> dict[int, str]:
        """Return the states of the replicas by broker id, according to the controller's last decisions."""
        states: dict[int, str] = {}
        for line in self._own:
            if line["kind"] == DECISION and line["machine"] == "replica" and "to" in line:
                states[line["replica"]] = line["to"]
        return states

    def assignment(self) -> ReplicaAssignment | None:
        """Return the assignment in the last write of the topic node; None if no ledger contains this data."""
        path = f"/brokers/topics/{self._tp.topic}"
        for line in reversed(self._own):
            if line["kind"] != WRITE or line["outcome"] != "ok":
                continue
            for operation in line["operations"]:
                if operation["path"] == path:
                    return _decode_assignment(operation["data"], self._tp.partition)
        return None

    def topic_deleted(self) -> list[Reference]:
        """Return the write that deleted the topic; [] if a later write concerns the topic."""
        for line in reversed(self._own):
            if line["kind"] != WRITE or line["outcome"] != "ok":
                continue
            ops = {(operation["op"], operation["path"]) for operation in line["operations"]}
            return (
                [reference(line)] if ("delete", f"/brokers/topics/{self._tp.topic}") in ops else []
            )
        return []

    def left_isr(self, broker: int) -> list[Reference]:
        """Return the last write that removed the broker from the ISR."""
        for before, after in zip(reversed(self.states[:-1]), reversed(self.states), strict=False):
            if broker in before.isr and broker not in after.isr:
                return [reference(after.line)]
        return []

    def joined_isr(self, broker: int) -> list[Reference]:
        """Return the write that last added the broker to the ISR; [] if the broker is outside the ISR."""
        since: list[Reference] = []
        for state in reversed(self.states):
            if broker not in state.isr:
                break
            since = [reference(state.line)]
        return since

    def led_since(self) -> list[Reference]:
        """Return the first write of a partition state with the current leader epoch.

        In the mode leaders, return the last line about a broker that has become the leader.
        """
        for line in reversed(self._own):
            if line["kind"] == STATE_CHANGE and became_leader(line):
                return [reference(line)]
        for state in self.states:
            if state.leader_epoch == self.states[-1].leader_epoch:
                return [reference(state.line)]
        return []

    def broker_lost(self, broker: int) -> list[Reference]:
        """Return the event in which a controller suspected the broker, or learned that its registration has ended.

        Return [] if the latest list of live brokers contains the broker and the broker is no suspect. In the mode
        leaders, return the first line about a follower that lost its connection to the broker since its last start.
        """
        if not self._events:
            return self._connection_lost(broker)
        found: list[Reference] = []
        for line in reversed(self._events):
            if line["event"] == "SuspicionEnded" and line["of"] == broker:
                break
            if broker in suspects_of(line):
                found = [reference(line)]
            elif str(broker) in line.get("brokers", ()):
                break
            elif "brokers" in line:
                found = [reference(line)]
        return found

    def _connection_lost(self, broker: int) -> list[Reference]:
        found: list[Reference] = []
        for line in self._facts:
            if line["broker"] == broker and line["fact"] in ("started", "registered"):
                found = []
            elif line["fact"] == "connection lost" and line["to"] == broker and not found:
                found = [reference(line)]
        return found

    def directory_failed(self, broker: int) -> list[Reference]:
        """Return the broker's last line about a failure of the log directory that holds the partition's replica."""
        return [
            reference(line)
            for line in self._facts
            if line["broker"] == broker
            and line["fact"] == "log directory failed"
            and self._tp.partition in line["partitions"].get(self._tp.topic, ())
        ][-1:]

    def deletion_marked(self) -> list[Reference]:
        """Return the last event that lists the topic among the topics marked for deletion."""
        return self._last_event(self._lists_mark)

    def is_marked(self) -> bool:
        """True if the topic still exists, and a controller's latest list of topics marked for deletion has it."""
        cause = None
        for line in reversed(self._events):
            if cause is None and line["event"] in _MARK_FIELDS:
                cause = line["cause"]
            if line["cause"] == cause and self._lists_mark(line):
                return not self.topic_deleted()
        return False

    def _lists_mark(self, line: Line) -> bool:
        field = _MARK_FIELDS.get(line["event"])
        return field is not None and self._tp.topic in line[field]

    def reassignment_requested(self) -> list[Reference]:
        """Return the last event that requested a reassignment of the partition and was not refused."""
        mine = list(self._tp)
        return self._last_event(
            lambda line: (
                line["cause"] not in self._refused
                and any(target[:2] == mine for target in line.get("targets") or ())
            )
        )

    def _last_event(self, matches: Any) -> list[Reference]:
        return [reference(line) for line in self._events if matches(line)][-1:]

    def last_step(self, operation: str) -> Line | None:
        """Return the ledger line about the last step of this controller operation; None if there is no such line."""
        steps = (line for line in reversed(self._own) if line["kind"] == STEP)
        return next((line for line in steps if line["operation"] == operation), None)

    def last_refusal(self) -> list[Line]:
        """Return the last decision of the partition's state machine if this decision is a refusal, else []."""
        for line in reversed(self._own):
            if line["kind"] == DECISION and line["machine"] == "partition":
                return [line] if line["verdict"] == "refuse" else []
        return []

    def oldest_unanswered(self, broker: int) -> list[Reference]:
        """Return the latest controller's oldest unanswered request to the broker about the partition."""
        answered = [
            (line["cause"], line["request"]) for line in self._responses if line["from"] == broker
        ]
        for line in self._own:
            if line["kind"] == REQUEST and line["to"] == broker:
                key = (line["cause"], line["request"])
                if key not in answered and _epoch(line) == self._newest_epoch():
                    return [reference(line)]
        return []

    def _newest_epoch(self) -> int:
        return max((_epoch(line) for line in self._events), default=0)


def became_leader(line: Line) -> bool:
    """True if this line of the mode leaders says that a broker has been elected the leader of a partition."""
    return bool(line["fact"] == "move" and line["target"] == "opening")


def suspects_of(event: Line) -> list[int]:
    """Return the brokers that the event shows to be suspected of having died."""
    if event["event"] == "BrokerSuspected":
        return [event["of"]]
    return sorted(map(int, event.get("suspects", ())))


def _epoch(line: Line) -> int:
    epoch = line["cause"].partition("-")[0]
    return int(epoch) if epoch else 0


def _decode_assignment(data: str | None, partition: int) -> ReplicaAssignment | None:
    """Return the replicas of a partition in a topic's node; None if the data was not recorded or is damaged."""
    return assignments_in(data).get(partition)


def assignments_in(data: str | None) -> dict[int, ReplicaAssignment]:
    """Return the replicas by partition in the data of a topic's node; {} if it was not recorded or is damaged."""
    names = ("partitions", "adding_replicas", "removing_replicas")
    try:
        fields = parse_json(data or "")
        lists = [{int(key): _ids(row) for key, row in fields.get(one, {}).items()} for one in names]
    except (ValueError, TypeError, AttributeError):
        return {}
    return {
        partition: ReplicaAssignment(*(found.get(partition, ()) for found in lists))
        for partition, replicas in lists[0].items()
        if replicas
    }


def leadership_in(data: str | None) -> tuple[int, int, tuple[int, ...]] | None:
    """Return leader, leader epoch and ISR in the data of a state node; None if it was not recorded or is damaged."""
    with suppress(ValueError, TypeError, KeyError):
        fields = parse_json(data or "")
        leader, epoch = _ids([fields["leader"], fields["leader_epoch"]])
        return leader, epoch, _ids(fields["isr"])
    return None


def _ids(row: list[Any]) -> tuple[int, ...]:
    """Return a list of numbers. Raises TypeError for anything else."""
    if type(row) is not list or any(type(one) is not int for one in row):
        raise TypeError("not a list of numbers")
    return tuple(row)


def written_states(lines: Iterable[Line], tp: TopicPartition) -> Iterable[WrittenState]:
    """Yield the partition states that were written to ZooKeeper successfully, according to these ledger lines."""
    path = re.compile(rf"/brokers/topics/{re.escape(tp.topic)}/partitions/{tp.partition}/state")
    for line in lines:
        if line.get("outcome") != "ok" or line.get("zxid") is None:
            continue
        if line["kind"] == ISR:
            isr = tuple(line["isr"])
            yield WrittenState(line["zxid"], line["broker"], line["leader_epoch"], isr, line)
        elif line["kind"] == WRITE:
            for operation in line["operations"]:
                is_state = path.fullmatch(operation["path"])
                if is_state and (leadership := leadership_in(operation["data"])):
                    yield WrittenState(line["zxid"], *leadership, line)
