"""The history of one partition: the ledger lines that explain its state, and its last known state.

Pure over the lines that `ledger.reader` returns. Invariant: a reference names an existing line.
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
_MARK_FIELDS: Final = {"ControllerElected": "deletions", "DeletionsChanged": "topics"}
"""Events that contain the topics marked for deletion, and the name of the field that lists them."""


class Reference(NamedTuple):
    """A reference to a ledger line: the id of the causing event ("" if none) and the line's name,
    BROKER#N.
    """

    cause: str
    line: str

    def __str__(self) -> str:
        return f"{self.cause} {self.line}".strip()


def reference(line: Line) -> Reference:
    """Return the reference to a ledger line."""
    return Reference(line["cause"], name_of(line))


@dataclass(frozen=True, slots=True)
class Written:
    """A state of the partition that ZooKeeper accepted, with the ledger line that reports it."""

    zxid: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    line: Line


class Past:
    """The history of one partition, as the ledgers of all brokers tell it."""

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
        self.states = sorted(written_states(self._own, tp), key=attrgetter("zxid"))
        """Written states in the order of ZooKeeper's transactions."""

    @property
    def is_empty(self) -> bool:
        """True if no line names the partition."""
        return not self._own

    def replicas(self) -> tuple[int, ...]:
        """Return the brokers with a replica according to the last decisions, sorted by id."""
        known = {broker for broker, state in self.replica_states().items() if state != _DELETED}
        return tuple(sorted(known.union(self.states[-1].isr if self.states else ())))

    def replica_states(self) -> dict[int, str]:
        """Return broker id -> state of its replica according to the last decision."""
        states: dict[int, str] = {}
        for line in self._own:
            if line["kind"] == DECISION and line["machine"] == "replica" and "to" in line:
                states[line["replica"]] = line["to"]
        return states

    def assignment(self) -> ReplicaAssignment | None:
        """Return the assignment in the last write of the topic node; None if no line has its data."""
        path = f"/brokers/topics/{self._tp.topic}"
        for line in reversed(self._own):
            if line["kind"] != WRITE or line["outcome"] != "ok":
                continue
            for operation in line["operations"]:
                if operation["path"] == path:
                    return _decode_assignment(operation["data"], self._tp.partition)
        return None

    def topic_deleted(self) -> list[Reference]:
        """Return the write that deleted the topic, if no later write concerns the topic."""
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
        """Return the write that began the current leader epoch."""
        for state in self.states:
            if state.leader_epoch == self.states[-1].leader_epoch:
                return [reference(state.line)]
        return []

    def broker_lost(self, broker: int) -> list[Reference]:
        """Return a reference to the event by which a controller noticed that the broker is gone.

        Return [] if the latest list of live brokers contains the broker.
        """
        found: list[Reference] = []
        for line in reversed(self._events):
            if "brokers" not in line:
                continue
            if str(broker) in line["brokers"]:
                break
            found = [reference(line)]
        return found

    def directory_failed(self, broker: int) -> list[Reference]:
        """Return the broker's own line about the failure of the replica's log directory."""
        return [
            reference(line)
            for line in self._facts
            if line["broker"] == broker
            and line["fact"] == "log directory failed"
            and self._tp.partition in line["partitions"].get(self._tp.topic, ())
        ][-1:]

    def deletion_marked(self) -> list[Reference]:
        """Return the last event that told a controller about the topic's deletion mark."""
        return self._last_event(lambda line: self._tp.topic in (line.get("topics") or ()))

    def is_marked(self) -> bool:
        """True if the topic was marked for deletion when a controller last read the marks."""
        cause = None
        for line in reversed(self._events):
            if cause is None and line["event"] in _MARK_FIELDS:
                cause = line["cause"]
            if line["cause"] == cause and self._tp.topic in line[_MARK_FIELDS[line["event"]]]:
                return not self.topic_deleted()
        return False

    def reassignment_requested(self) -> list[Reference]:
        """Return the last event that requested a reassignment of the partition."""
        mine = list(self._tp)
        return self._last_event(
            lambda line: any(target[:2] == mine for target in line.get("targets") or ())
        )

    def _last_event(self, matches: Any) -> list[Reference]:
        return [reference(line) for line in self._events if matches(line)][-1:]

    def last_step(self, operation: str) -> Line | None:
        """Return the line of the last step that the controller's operation reached; None if there is none."""
        steps = (line for line in reversed(self._own) if line["kind"] == STEP)
        return next((line for line in steps if line["operation"] == operation), None)

    def last_refusal(self) -> list[Line]:
        """Return the line of the last decision about the partition if that was a refusal, else []."""
        for line in reversed(self._own):
            if line["kind"] == DECISION and line["machine"] == "partition":
                return [line] if line["verdict"] == "refuse" else []
        return []

    def oldest_unanswered(self, broker: int) -> list[Reference]:
        """Return the oldest unanswered request about the partition from the last controller to the broker."""
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


def _decode_assignment(data: str | None, partition: int) -> ReplicaAssignment | None:
    node = json.loads(data) if data else {}
    names = ("partitions", "adding_replicas", "removing_replicas")
    lists = [tuple(node.get(name, {}).get(str(partition), ())) for name in names]
    return ReplicaAssignment(*lists) if lists[0] else None


def written_states(lines: Iterable[Line], tp: TopicPartition) -> Iterable[Written]:
    """Yield the states of the partition that these lines report as written."""
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
                    leadership = state["leader"], state["leader_epoch"], tuple(state["isr"])
                    yield Written(line["zxid"], *leadership, line)
