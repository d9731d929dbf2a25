"""Everything that is known of one partition at one moment, for `why`: plain values, whoever supplied them.

Invariant: what nobody knows is None or absent, never guessed; of two sources the one nearer to ZooKeeper is
believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from minikafka.base.model import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.explain.past import Past

UP: Final = "up"
SILENT: Final = "silent"
PAUSED: Final = "paused"
DOWN: Final = "down"
GOING: Final = ("ReplicaDeletionStarted", "ReplicaDeletionIneligible")
"""States of replicas that are to be deleted and are not."""
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerPicture:
    """One broker: its process (up, silent, paused, down) and its answer to `explain`, if it gave one."""

    id: int
    process: str
    answer: Answer | None = None

    @property
    def replica(self) -> Answer | None:
        """What it says of its replica."""
        return self.answer["replica"] if self.answer else None


@dataclass(frozen=True, slots=True)
class Nodes:
    """What ZooKeeper says."""

    controller: int | None
    brokers: tuple[int, ...]
    assignment: ReplicaAssignment | None
    state: LeaderAndIsr | None
    is_marked: bool
    """Whether the topic is marked for deletion."""
    target: tuple[int, ...] | None
    """What `/admin/reassign_partitions` asks for."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What a replica left on disk: high watermark of the last checkpoint and end of the log, None if not there."""

    high_watermark: int | None
    log_end_offset: int | None


@dataclass(frozen=True)
class Picture:
    """One partition. `nodes` is None when ZooKeeper does not answer."""

    tp: TopicPartition
    brokers: Mapping[int, BrokerPicture]
    nodes: Nodes | None
    past: Past
    remains: Mapping[int, Remains] = field(default_factory=dict)

    @cached_property
    def controller(self) -> Answer | None:
        """The view of the active controller, None when none answers."""
        views = (b.answer["controller"] for b in self.brokers.values() if b.answer)
        return max(filter(None, views), key=lambda view: view["epoch"], default=None)

    @cached_property
    def controller_answer(self) -> Answer | None:
        """The whole answer of the broker that rules."""
        return next(
            (b.answer for b in self.brokers.values() if b.answer and b.answer["controller"]), None
        )

    @cached_property
    def leader_replica(self) -> Answer | None:
        """The replica of the leader of now, by its own word; None when it does not answer."""
        leaders = [
            b.replica for b in self.brokers.values() if b.replica and b.replica["role"] == "leader"
        ]
        found = max(leaders, key=lambda replica: replica["leader_epoch"], default=None)
        if found is None or found["leader_epoch"] < self.leader_epoch:
            return None
        return found

    @cached_property
    def _known(self) -> tuple[int, int, tuple[int, ...], str]:
        """(leader, leader epoch, ISR, who says so)."""
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
        if self.past.states:
            last = self.past.states[-1]
            return last.leader, last.leader_epoch, last.isr, "the ledger"
        return NO_LEADER, -1, (), "nobody"

    @property
    def leader(self) -> int:
        """Who leads, or led last; -1 if nobody."""
        return self._known[0]

    @property
    def leader_epoch(self) -> int:
        """-1 when not known."""
        return self._known[1]

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR as last written."""
        return self._known[2]

    @property
    def source(self) -> str:
        """Who says so."""
        return self._known[3]

    @cached_property
    def assignment(self) -> ReplicaAssignment:
        """The replicas; where the ledger alone tells them, and not the topic's node, they come sorted."""
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
        """How far the topic's deletion is, by the controller's word; when none answers, by the ledger's."""
        if self.controller is not None:
            found: Answer | None = self.controller["deletion"]
            return found
        if not (self.past.is_marked() if self.nodes is None else self.nodes.is_marked):
            return None
        moving = self.assignment.is_being_reassigned
        states = self.past.replica_states().items()
        left = [[id_, self.tp.partition, state] for id_, state in states if state in GOING]
        return {
            "waits_for": None,
            "replicas": left,
            "reassigning": [self.tp.partition] if moving else [],
        }

    @property
    def is_known(self) -> bool:
        """Whether anybody knows the partition."""
        if self.nodes is not None:
            return self.nodes.assignment is not None
        if self.past.deleted():
            return False
        return bool(self.assignment.replicas) or not self.past.is_empty

    def is_registered(self, broker: int) -> bool:
        """Whether the broker counts as alive in ZooKeeper, as far as is known."""
        if self.nodes is not None:
            return broker in self.nodes.brokers
        if self.controller is not None:
            return broker in self.controller["live_brokers"]
        found = self.brokers.get(broker)
        return found is not None and found.process == UP

    def setting(self, name: str) -> Any:
        """A setting, by the word of the controller first; None when nobody says."""
        answers = [self.controller_answer, *(b.answer for b in self.brokers.values())]
        found = (answer["settings"].get(name) for answer in answers if answer)
        return next((value for value in found if value is not None), None)

    def follower(self, broker: int) -> Answer | None:
        """What the leader knows of a follower."""
        leader = self.leader_replica
        if leader is None:
            return None
        return next((f for f in leader["followers"] if f["broker"] == broker), None)

    def backlog(self, broker: int) -> int:
        """Requests of the controller that wait for the broker's answer."""
        answer = self.controller_answer
        return answer["backlog"].get(str(broker), 0) if answer else 0
