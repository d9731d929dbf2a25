"""What the ledgers say of one partition: the lines that an explanation refers to, and the last known state.

Pure over the lines of `ledger.reader`. Invariant: a reference names a line that is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.explain.trace import names_partition
from minikafka.ledger.reader import name_of
from minikafka.ledger.record import (
    BROKER,
    DECISION,
    EVENT,
    ISR,
    REQUEST,
    RESPONSE,
    STEP,
    WRITE,
)

Line = Mapping[str, Any]
_DELETED: Final = "NonExistentReplica"
_TELL_MARKS: Final = {"ControllerElected": "deletions", "DeletionsChanged": "topics"}
"""Events that tell which topics are marked for deletion, and the field that does."""


class Reference(NamedTuple):
    """A line of a ledger: the event that led to it ("" if none), and its name, BROKER#N."""

    cause: str
    line: str

    def __str__(self) -> str:
        return f"{self.cause} {self.line}".strip()


def reference(line: Line) -> Reference:
    """The line's."""
    return Reference(line["cause"], name_of(line))


@dataclass(frozen=True, slots=True)
class Written:
    """A state of the partition that ZooKeeper accepted."""

    zxid: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    line: Line


class Past:
    """The history of one partition."""

    def __init__(self, lines: Sequence[Line], tp: TopicPartition) -> None:
        self._tp = tp
        self._events = [line for line in lines if line["kind"] == EVENT]
        self._facts = [line for line in lines if line["kind"] == BROKER]
        self._own = [
            line
            for line in lines
            if line["kind"] in (DECISION, ISR, REQUEST, STEP, WRITE) and names_partition(line, tp)
        ]
        self._responses = [line for line in lines if line["kind"] == RESPONSE]
        self.states = sorted(_written(self._own, tp), key=attrgetter("zxid"))
        """What was written, in ZooKeeper's order."""

    @property
    def is_empty(self) -> bool:
        """Whether no line names the partition."""
        return not self._own

    def replicas(self) -> tuple[int, ...]:
        """The brokers that hold a replica by the last decisions, sorted: the order is not told."""
        known = {broker for broker, state in self.replica_states().items() if state != _DELETED}
        return tuple(sorted(known.union(self.states[-1].isr if self.states else ())))

    def replica_states(self) -> dict[int, str]:
        """The state that each replica was decided to be in last, by broker."""
        states: dict[int, str] = {}
        for line in self._own:
            if line["kind"] == DECISION and line["machine"] == "replica" and "to" in line:
                states[line["replica"]] = line["to"]
        return states

    def assignment(self) -> ReplicaAssignment | None:
        """The replicas by the last write of the topic's node; None if no line has its data."""
        path = f"/brokers/topics/{self._tp.topic}"
        for line in reversed(self._own):
            if line["kind"] != WRITE or line["outcome"] != "ok":
                continue
            for operation in line["operations"]:
                if operation["path"] == path:
                    return _assigned(operation["data"], self._tp.partition)
        return None

    def deleted(self) -> list[Reference]:
        """The write that removed the topic, if it is the last that the ledger has of it."""
        for line in reversed(self._own):
            if line["kind"] != WRITE or line["outcome"] != "ok":
                continue
            ops = {(operation["op"], operation["path"]) for operation in line["operations"]}
            return (
                [reference(line)] if ("delete", f"/brokers/topics/{self._tp.topic}") in ops else []
            )
        return []

    def left_isr(self, broker: int) -> list[Reference]:
        """The write that took the broker out of the ISR last."""
        for before, after in zip(reversed(self.states[:-1]), reversed(self.states), strict=False):
            if broker in before.isr and broker not in after.isr:
                return [reference(after.line)]
        return []

    def joined_isr(self, broker: int) -> list[Reference]:
        """The write since which the broker is in the ISR; none if it is not."""
        since: list[Reference] = []
        for state in reversed(self.states):
            if broker not in state.isr:
                break
            since = [reference(state.line)]
        return since

    def led_since(self) -> list[Reference]:
        """The write that began the leader epoch of now."""
        for state in self.states:
            if state.leader_epoch == self.states[-1].leader_epoch:
                return [reference(state.line)]
        return []

    def gone(self, broker: int) -> list[Reference]:
        """The event by which a controller learned that the broker is gone; none if it came back."""
        found: list[Reference] = []
        for line in reversed(self._events):
            if "brokers" not in line:
                continue
            if str(broker) in line["brokers"]:
                break
            found = [reference(line)]
        return found

    def directory_failed(self, broker: int) -> list[Reference]:
        """The broker's own word that it lost the directory of the replica."""
        return [
            reference(line)
            for line in self._facts
            if line["broker"] == broker
            and line["fact"] == "log directory failed"
            and self._tp.partition in line["partitions"].get(self._tp.topic, ())
        ][-1:]

    def marked(self) -> list[Reference]:
        """The event that told a controller last of the topic's deletion mark."""
        return self._last_event(lambda line: self._tp.topic in (line.get("topics") or ()))

    def is_marked(self) -> bool:
        """Whether the topic was marked for deletion when a controller looked last."""
        cause = None
        for line in reversed(self._events):
            if cause is None and line["event"] in _TELL_MARKS:
                cause = line["cause"]
            if line["cause"] == cause and self._tp.topic in line[_TELL_MARKS[line["event"]]]:
                return not self.deleted()
        return False

    def asked_to_move(self) -> list[Reference]:
        """The event that asked last for the partition to be reassigned."""
        mine = list(self._tp)
        return self._last_event(
            lambda line: any(target[:2] == mine for target in line.get("targets") or ())
        )

    def _last_event(self, is_it: Any) -> list[Reference]:
        return [reference(line) for line in self._events if is_it(line)][-1:]

    def last_step(self, operation: str) -> Line | None:
        """The step that the operation reached last for the partition."""
        steps = (line for line in reversed(self._own) if line["kind"] == STEP)
        return next((line for line in steps if line["operation"] == operation), None)

    def refused(self) -> list[Line]:
        """The last decision about the partition, if it was a refusal."""
        for line in reversed(self._own):
            if line["kind"] == DECISION and line["machine"] == "partition":
                return [line] if line["verdict"] == "refuse" else []
        return []

    def unanswered(self, broker: int) -> list[Reference]:
        """The oldest request about the partition that the broker has not answered, by the last controller."""
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


def _epoch(line: Line) -> int:
    epoch = line["cause"].partition("-")[0]
    return int(epoch) if epoch else 0


def _assigned(data: str | None, partition: int) -> ReplicaAssignment | None:
    node = json.loads(data) if data else {}
    names = ("partitions", "adding_replicas", "removing_replicas")
    lists = [tuple(node.get(name, {}).get(str(partition), ())) for name in names]
    return ReplicaAssignment(*lists) if lists[0] else None


def _written(lines: Iterable[Line], tp: TopicPartition) -> Iterable[Written]:
    path = re.compile(rf"/brokers/topics/{re.escape(tp.topic)}/partitions/{tp.partition}/state")
    for line in lines:
        if line.get("outcome") != "ok" or line.get("zxid") is None:
            continue
        if line["kind"] == ISR:
            isr = tuple(line["isr"])
            yield Written(line["zxid"], line["broker"], line["leader_epoch"], isr, line)
        elif line["kind"] == WRITE:
            for operation in line["operations"]:
                if operation["data"] and path.fullmatch(operation["path"]):
                    state = json.loads(operation["data"])
                    told = state["leader"], state["leader_epoch"], tuple(state["isr"])
                    yield Written(line["zxid"], *told, line)
