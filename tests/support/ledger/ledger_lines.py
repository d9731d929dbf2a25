"""Test data about one partition: ledger lines and brokers' reports. Together they make a `PartitionEvidence`."""

from __future__ import annotations

import itertools
import json
from typing import Any

from minikafka.base.model import TopicPartition
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.explain.evidence import (
    DOWN,
    UP,
    BrokerEvidence,
    Nodes,
    PartitionEvidence,
    ReplicaFiles,
)
from minikafka.tools.explain.past import Past

TP = TopicPartition("t", 0)
NAMES = {"t": [0]}


class Lines:
    """A list of ledger lines. Every method adds one line, written by broker 1 by default, and returns the line."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    def add(self, kind: str, cause: str = "1-1", broker: int = 1, **fields: Any) -> dict[str, Any]:
        n = next(self._numbers)
        line = {"time": 1_000 + n, "broker": broker, "n": n, "kind": kind, "cause": cause, **fields}
        self.lines.append(line)
        return line

    def event(self, name: str, cause: str, **fields: Any) -> dict[str, Any]:
        return self.add("event", cause, event=name, **fields)

    def live(self, cause: str, *brokers: int) -> dict[str, Any]:
        """Add the controller's event BrokersChanged, which lists these live brokers."""
        return self.event("BrokersChanged", cause, brokers={str(id_): 7 for id_ in brokers})

    def state(self, cause: str, zxid: int, leader: int, epoch: int, *isr: int) -> dict[str, Any]:
        """Add the controller's write of the partition's state."""
        data = {"leader": leader, "leader_epoch": epoch, "isr": isr, "controller_epoch": 1}
        operation = {"op": "set", "path": "/brokers/topics/t/partitions/0/state", "expected": zxid}
        operation |= {"actual": zxid + 1, "data": json.dumps(data)}
        check = {"path": "/controller_epoch", "version": 1}
        return self.add(
            "write", cause, check=check, outcome="ok", zxid=zxid, operations=[operation]
        )

    def assignment(self, cause: str, zxid: int, **lists: list[int]) -> dict[str, Any]:
        """Add the controller's write of the topic node, with these lists of brokers for partition 0."""
        data = {name: {"0": brokers} for name, brokers in lists.items()}
        operation = {"op": "set", "path": "/brokers/topics/t", "expected": 1, "actual": 2}
        operation["data"] = json.dumps({"version": 3, **data})
        return self.add("write", cause, outcome="ok", zxid=zxid, operations=[operation])

    def replica(self, cause: str, broker: int, state: str) -> dict[str, Any]:
        """Add the controller's decision that moves the replica to this state."""
        decided = {"verdict": "move", "machine": "replica", "replica": broker, "to": state}
        return self.add("decision", cause, **decided, partitions=NAMES)

    def isr(self, zxid: int, leader: int, epoch: int, before: list[int], isr: list[int]) -> Any:
        """Add the ledger line of a leader that has removed a replica from the ISR."""
        fields = {"topic": "t", "partition": 0, "change": "shrink", "leader_epoch": epoch}
        fields |= {"before": before, "isr": isr, "expected": 1, "actual": 2, "zxid": zxid}
        return self.add("isr", "", leader, **fields, outcome="ok", error="")

    def request(self, cause: str, to: int, name: str = "LeaderAndIsr", **state: Any) -> Any:
        sent = {"leader": 1, "leader_epoch": 1, "isr": [1], "partitions": NAMES, **state}
        return self.add("request", cause, to=to, request=name, queued=1, states=[sent])


def follower(
    broker: int, end: int | None, *, fetched_ms: int | None = 100, caught_up_ms: int = 100
) -> dict[str, Any]:
    """Return a leader's report about a follower."""
    known = {"broker": broker, "log_end_offset": end, "last_fetch_ms": fetched_ms}
    return {**known, "last_caught_up_ms": caught_up_ms}


def replica(role: str, leader: int, epoch: int, isr: list[int], **more: Any) -> dict[str, Any]:
    """Return a broker's report about its replica. By default the log has offsets 0 to 9 and high watermark 10."""
    return {
        "role": role,
        "leader": leader,
        "leader_epoch": epoch,
        "replicas": [1, 2, 3],
        "isr": isr,
        "pending_isr": None,
        "min_isr": 1,
        "log_start_offset": 0,
        "log_end_offset": 10,
        "high_watermark": 10,
        "last_stable_offset": 10,
        "open_transactions": [],
        "epoch_start_offset": 0,
        "waiting_connections": 0,
        "followers": [follower(b, 10) for b in (1, 2, 3) if b != leader],
        "lag_max_ms": 30_000,
        **more,
    }


def controller(**more: Any) -> dict[str, Any]:
    """Return the active controller's report: broker 1 is the controller in epoch 4."""
    partition = {
        "status": "OnlinePartition",
        "replicas": [1, 2, 3],
        "adding": [],
        "removing": [],
        "reassigning": False,
        "replica_states": {},
        "lost_directories": [],
        "leader": 1,
        "leader_epoch": 1,
        "isr": [1, 2, 3],
        "zk_version": 3,
    }
    partition |= more.pop("partition", {})
    return {
        "broker": 1,
        "epoch": 4,
        "state": "Idle",
        "queue_size": 0,
        "live_brokers": [1, 2, 3],
        "shutting_down": [],
        "topic_known": True,
        "partition": partition,
        "deletion": None,
        "state_changes": [],
        **more,
    }


def answer(broker: int, **more: Any) -> dict[str, Any]:
    """Return a broker's answer to the `explain` call."""
    settings = {"unclean.leader.election.enable": False, "auto.leader.rebalance.enable": True}
    settings |= {"delete.topic.enable": True, "leader.imbalance.check.interval.seconds": 300}
    return {
        "broker_id": broker,
        "session_state": "connected",
        "controller_id": 1,
        "replica": None,
        "settings": settings | more.pop("settings", {}),
        "controller": None,
        "held_at": "",
        "transactions": {"open": [], "loading": False},
        "backlog": {},
        **more,
    }


class Scene:
    """The reports of three brokers with partition t-0: broker 1 leads in epoch 1, and all replicas are in sync."""

    def __init__(self) -> None:
        self.ledger = Lines()
        self.isr = [1, 2, 3]
        self.nodes: Nodes | None = None
        self.files: dict[int, ReplicaFiles] = {}
        self.causes: list[Cause] = []
        self.coordination = "controller"
        self.processes = {1: UP, 2: UP, 3: UP}
        self.answers: dict[int, dict[str, Any]] = {
            id_: answer(id_, replica=replica("follower", 1, 1, self.isr)) for id_ in (2, 3)
        }
        self.answers[1] = answer(
            1, replica=replica("leader", 1, 1, self.isr), controller=controller()
        )

    @property
    def view(self) -> dict[str, Any]:
        """The part of broker 1's `explain` answer that describes the controller. Tests may change it."""
        view: dict[str, Any] = self.answers[1]["controller"]
        return view

    @property
    def leader(self) -> dict[str, Any]:
        """The leader's report about its replica. Tests may change it."""
        found: dict[str, Any] = self.answers[1]["replica"]
        return found

    def in_sync(self, *isr: int) -> Scene:
        """Set the ISR in the reports of the three replicas and of the controller."""
        self.isr[:] = isr
        self.view["partition"]["isr"] = list(isr)
        return self

    def down(self, broker: int, process: str = DOWN) -> Scene:
        """Remove the broker's `explain` answer, and set the state of the broker's process (UP, PAUSED or DOWN).

        If the state is DOWN, also remove the broker from the controller's live brokers.
        """
        self.processes[broker] = process
        self.answers.pop(broker, None)
        if process == DOWN and 1 in self.answers:
            self.view["live_brokers"].remove(broker)
        return self

    def all_dead(self) -> Scene:
        """Remove every broker's answer, and set the state of every broker's process to DOWN."""
        self.answers.clear()
        self.processes = dict.fromkeys(self.processes, DOWN)
        return self

    def evidence(self) -> PartitionEvidence:
        brokers = {
            id_: BrokerEvidence(id_, process, self.answers.get(id_))
            for id_, process in self.processes.items()
        }
        past = Past(self.ledger.lines, TP)
        mode = self.coordination
        return PartitionEvidence(TP, brokers, self.nodes, past, self.files, self.causes, mode)
