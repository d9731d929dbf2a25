"""All data about one partition at one moment, as plain values from several sources.

Invariant: an unknown value is None or absent, never guessed. If two sources disagree, the order of precedence
is: ZooKeeper, the controller, the replicas, the ledger. For `deletion`, the controller comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.base.model import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.explain.open_transactions import OpenTransaction, open_transactions
from minikafka.tools.explain.past import Past
from minikafka.tools.explain.trace import ids

UP: Final = "up"
SILENT: Final = "silent"
PAUSED: Final = "paused"
DOWN: Final = "down"
UNREACHABLE: Final = "unreachable"
UNTOLD: Final = "unknown"
BEING_DELETED: Final = ("ReplicaDeletionStarted", "ReplicaDeletionIneligible")
"""Replica states of replicas that must be deleted but still exist."""
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerEvidence:
    """One broker. `process`: up, silent, paused or down; elsewhere up, unreachable or unknown.

    `answer`: the answer to the `explain` call, if any.
    """

    id: int
    process: str
    answer: Answer | None = None

    @property
    def replica(self) -> Answer | None:
        """Return the broker's report about its replica; None without a replica or without an answer."""
        return self.answer["replica"] if self.answer else None


@dataclass(frozen=True, slots=True)
class Nodes:
    """ZooKeeper's data about the partition and the cluster."""

    controller: int | None
    brokers: tuple[int, ...]
    assignment: ReplicaAssignment | None
    state: LeaderAndIsr | None
    is_marked: bool
    """True if the topic is marked for deletion."""
    target: tuple[int, ...] | None
    """Target replicas in `/admin/reassign_partitions`; None if the partition is not listed."""
    coordination: str = CONTROLLER
    is_being_created: bool = False
    """True in the mode leaders if the partition has a request for its first replicas, but no replica list yet."""
    backlog: Mapping[int, int] = field(default_factory=dict)
    """Number of requests in the queue of each broker, only in the mode leaders."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """The nodes that cannot be parsed, only in the mode leaders: path -> fault."""


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """A replica's offsets on disk. A value is None if no readable file contains it.

    `high_watermark`: the value in the last checkpoint. `log_end_offset`: the end of the log.
    """

    high_watermark: int | None
    log_end_offset: int | None


@dataclass(frozen=True)
class PartitionEvidence:
    """All data about one partition. `nodes` is None if ZooKeeper does not answer. `coordination`: the cluster's mode.

    `files`: offsets on disk of the brokers that do not answer, by broker id. `causes`: the root causes of the problems
    of the whole cluster. `where`: the options that name the cluster in commands, with a space in front.
    """

    tp: TopicPartition
    brokers: Mapping[int, BrokerEvidence]
    nodes: Nodes | None
    past: Past
    files: Mapping[int, ReplicaFiles] = field(default_factory=dict)
    causes: Sequence[Cause] = ()
    coordination: str = CONTROLLER
    where: str = ""

    @property
    def has_controller(self) -> bool:
        """True if the cluster's mode has a controller, whether it answers or not."""
        return self.coordination != LEADERS

    @cached_property
    def controller(self) -> Answer | None:
        """Return the active controller's view of the partition; None if no controller answers.

        If several brokers claim to be the controller: the one that ZooKeeper names, else the one in the newest epoch.
        """
        if not self.has_controller:
            return None
        views = [
            b.answer["controller"]
            for b in self.brokers.values()
            if b.answer and b.answer["controller"]
        ]
        newest: Answer | None = max(views, key=lambda view: view["epoch"], default=None)
        elected = self.nodes.controller if self.nodes else None
        if elected is None:
            return newest
        return next((view for view in views if view["broker"] == elected), None)

    @cached_property
    def controller_answer(self) -> Answer | None:
        """Return the `explain` answer of the broker that is the active controller; None if none answers."""
        if self.controller is None:
            return None
        return self.brokers[self.controller["broker"]].answer

    @cached_property
    def leader_replica(self) -> Answer | None:
        """Return the current leader's report about its replica; None if the leader does not answer."""
        leaders = [
            b.replica for b in self.brokers.values() if b.replica and b.replica["role"] == "leader"
        ]
        found = max(leaders, key=lambda replica: replica["leader_epoch"], default=None)
        if found is None or found["leader_epoch"] < self.leader_epoch:
            return None
        return found

    @cached_property
    def _known(self) -> tuple[int, int, tuple[int, ...], str]:
        """Return (leader, leader epoch, ISR, name of the source) from the best source.

        The sources are, from best to worst: ZooKeeper, the controller, the replicas, the ledger.
        """
        if self.nodes is not None:
            state = self.nodes.state
            if state is None:
                return NO_LEADER, -1, (), "ZooKeeper"
            return state.leader, state.leader_epoch, state.isr, "ZooKeeper"
        view = self.controller["partition"] if self.controller else None
        if view and view["leader"] is not None:
            return view["leader"], view["leader_epoch"], tuple(view["isr"]), "the controller"
        replicas = [b.replica for b in self.brokers.values() if b.replica and b.replica["isr"]]
        best = max(replicas, key=lambda r: (r["leader_epoch"], r["role"] == "leader"), default=None)
        if best is not None:
            return best["leader"], best["leader_epoch"], tuple(best["isr"]), "its replicas"
        if led := self.past.leadership():
            isrs = [state.isr for state in self.past.states if state.leader_epoch == led[1]]
            return *led, isrs[-1] if isrs else (), "the ledger"
        if self.past.states:
            last = self.past.states[-1]
            return last.leader, last.leader_epoch, last.isr, "the ledger"
        return NO_LEADER, -1, (), "nobody"

    @property
    def leader(self) -> int:
        """Id of the current or last leader; -1 if there is none."""
        return self._known[0]

    @property
    def leader_epoch(self) -> int:
        """Leader epoch; -1 if unknown."""
        return self._known[1]

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that was written last."""
        return self._known[2]

    @property
    def source(self) -> str:
        """Name of the source of `leader`, `leader_epoch` and `isr`."""
        return self._known[3]

    @cached_property
    def assignment(self) -> ReplicaAssignment:
        """The assigned replicas, the preferred replica first.

        The replicas are sorted by id if the ledger's replica states are the only source.
        """
        if self.nodes is not None and self.nodes.assignment is not None:
            return self.nodes.assignment
        view = self.controller["partition"] if self.controller else None
        if view:
            lists = (tuple(view[name]) for name in ("replicas", "adding", "removing"))
            return ReplicaAssignment(*lists)
        for broker in self.brokers.values():
            if broker.replica and broker.replica["replicas"]:
                return ReplicaAssignment(tuple(broker.replica["replicas"]))
        return self.past.assignment() or ReplicaAssignment(self.past.replicas())

    @cached_property
    def deletion(self) -> Answer | None:
        """Progress of the topic's deletion; None if the topic is not being deleted.

        The source is the controller, or ZooKeeper and the ledger if no controller answers.
        """
        if self.controller is not None:
            found: Answer | None = self.controller["deletion"]
            return found
        if not (self.past.is_marked() if self.nodes is None else self.nodes.is_marked):
            return None
        moving = self.assignment.is_being_reassigned
        states = self.past.replica_states().items()
        left = [[id_, self.tp.partition, state] for id_, state in states if state in BEING_DELETED]
        return {
            "waits_for": None,
            "replicas": left,
            "reassigning": [self.tp.partition] if moving else [],
        }

    @property
    def is_known(self) -> bool:
        """True if the partition exists. Without an answer from ZooKeeper, other sources are used."""
        if self.nodes is not None:
            return self.nodes.assignment is not None or self.nodes.is_being_created
        if self.past.topic_deleted():
            return False
        return bool(self.assignment.replicas) or not self.past.is_empty

    def is_registered(self, broker: int) -> bool | None:
        """True if the broker is registered in ZooKeeper; None if this is not known.

        If ZooKeeper does not answer, the result is true if the controller lists the broker as alive.
        """
        if self.nodes is not None:
            return broker in self.nodes.brokers
        if self.controller is not None:
            return broker in self.controller["live_brokers"]
        return None

    def headline(self) -> str:
        """Return the partition's state in one line."""
        leader = "none" if self.leader == NO_LEADER else self.leader
        return (
            f"{self.tp}: leader {leader}, epoch {self.leader_epoch}, ISR {ids(self.isr)}, "
            f"replicas {ids(self.assignment.replicas)} (source: {self.source})"
        )

    @cached_property
    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that have no marker in the partition yet; [] if the leader does not answer."""
        answers = {b.id: b.answer for b in self.brokers.values() if b.answer}
        return open_transactions(self.leader_replica, answers)

    def silent_coordinators(self) -> list[int]:
        """Return the brokers that may coordinate a transaction, but do not answer or are still loading."""
        return [
            broker.id
            for broker in self.brokers.values()
            if broker.answer is None or broker.answer.get("transactions", {}).get("loading")
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the partition's state as JSON-able values. Offsets are null if the leader does not answer."""
        leader = self.leader_replica or {}
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "leader": None if self.leader == NO_LEADER else self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
            "replicas": list(self.assignment.replicas),
            "source": self.source,
            "high_watermark": leader.get("high_watermark"),
            "last_stable_offset": leader.get("last_stable_offset"),
            "open_transactions": [one._asdict() for one in self.open_transactions],
        }

    @property
    def has_sources(self) -> bool:
        """True if a broker or ZooKeeper has answered, so that it is known whether the partition exists."""
        return self.nodes is not None or any(b.answer for b in self.brokers.values())

    def setting(self, name: str) -> Any:
        """Return the value of a setting, preferably from the controller; None if no broker knows the value."""
        answers = [self.controller_answer, *(b.answer for b in self.brokers.values())]
        found = (answer["settings"].get(name) for answer in answers if answer)
        return next((value for value in found if value is not None), None)

    def follower(self, broker: int) -> Answer | None:
        """Return the leader's data about a follower; None if the leader does not answer or has no such data."""
        leader = self.leader_replica
        if leader is None:
            return None
        return next((f for f in leader["followers"] if f["broker"] == broker), None)

    def replica_status(self, broker: int) -> Answer | None:
        """Return what the broker's coordination knows about its replica in the mode leaders, else None."""
        found = self.brokers.get(broker)
        if self.has_controller or found is None or found.answer is None:
            return None
        status: Answer | None = found.answer["controller"]
        return status

    def backlog(self, broker: int) -> int:
        """Return the number of controller requests that the broker has not answered yet; 0 if unknown.

        In the mode leaders: the number of requests in the broker's queue.
        """
        if not self.has_controller:
            return self.nodes.backlog.get(broker, 0) if self.nodes else 0
        answer = self.controller_answer
        return answer["backlog"].get(str(broker), 0) if answer else 0
