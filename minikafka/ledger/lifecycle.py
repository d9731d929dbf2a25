"""The lifecycle of a state change as the leader-coordinated replication design lists it, six lines for
two followers: a view of the ledger (C38).

    controller, broker id 0, requested start-replica for topic foo partition 0, to broker id 1, at epoch 10
    follower, broker id 1, received start-replica for topic foo partition 0, from controller 0, at epoch 10
    follower, broker id 1, completed start-replica for topic foo partition 0, request from controller 0, at epoch 10

There the leader of a partition asks; here it is the controller. `start-replica` is a LeaderAndIsr,
`close-replica` a StopReplica. Pure. Invariant: every line comes from exactly one line of the ledger.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from minikafka.ledger.record import EFFECT, REQUEST

_OPERATIONS: Final = {"LeaderAndIsr": "start-replica", "StopReplica": "close-replica"}
Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of one state change: who did what, for which partition, with which peer, at which epoch."""

    time: int
    """Unix milliseconds."""
    cause: str
    role: str
    """`controller`, `leader` or `follower`; `replica` of what is stopped."""
    broker: int
    stage: str
    """`requested`, `received`, `completed` or `refused`."""
    op: str
    topic: str
    partition: int
    peer: int
    epoch: int | None
    """The leader epoch; None when the ledger does not say."""
    error: int = 0

    def __str__(self) -> str:
        about = f"{self.op} for topic {self.topic} partition {self.partition}"
        told = {
            "requested": f"to broker id {self.peer}",
            "received": f"from controller {self.peer}",
            "completed": f"request from controller {self.peer}",
            "refused": f"request from controller {self.peer} with error {self.error}",
        }[self.stage]
        epoch = "unknown" if self.epoch is None else self.epoch
        return (
            f"{self.role}, broker id {self.broker}, {self.stage} {about}, {told}, at epoch {epoch}"
        )


def lifecycle(lines: Iterable[Told], topic: str, partition: int) -> Iterator[Stage]:
    """The stages of every state change of a partition, in the order of the lines (`reader.merged`)."""
    asked: defaultdict[tuple[str, int, str], deque[tuple[str, int]]] = defaultdict(deque)
    """Requests of one cause to one broker are carried out in the order of sending."""
    for line in lines:
        if line.get("request") not in _OPERATIONS:
            continue
        if line["kind"] == REQUEST:
            for told in _naming(line["states"], topic, partition):
                role = _role(told, line["to"])
                asked[_which(line, line["to"])].append((role, told["leader_epoch"]))
                requested = ("controller", line["broker"], "requested")
                yield _stage(line, requested, topic, partition, line["to"], told["leader_epoch"])
        elif line["kind"] == EFFECT and line["phase"] == "received":
            if partition in line["partitions"].get(topic, ()):
                waiting = asked[_which(line, line["broker"])]
                role, epoch = waiting.popleft() if waiting else ("replica", None)
                received = (role, line["broker"], "received")
                yield _stage(line, received, topic, partition, line["from"], epoch)
        elif line["kind"] == EFFECT:
            for told in _naming(line.get("results", ()), topic, partition):
                stage = "refused" if told["error"] else "completed"
                done = (_role(told, line["broker"]), line["broker"], stage)
                epoch, error = told["leader_epoch"], told["error"]
                yield _stage(line, done, topic, partition, line["from"], epoch, error)


def _which(line: Told, to: int) -> tuple[str, int, str]:
    return line["cause"], to, line["request"]


def _naming(groups: Iterable[Told], topic: str, partition: int) -> Iterator[Told]:
    return (group for group in groups if partition in group["partitions"].get(topic, ()))


def _role(told: Told, broker: int) -> str:
    if "leader" not in told:
        return "replica"
    return "leader" if told["leader"] == broker else "follower"


def _stage(
    line: Told,
    who: tuple[str, int, str],
    topic: str,
    partition: int,
    peer: int,
    epoch: int | None,
    error: int = 0,
) -> Stage:
    op = _OPERATIONS[line["request"]]
    return Stage(line["time"], line["cause"], *who, op, topic, partition, peer, epoch, error)
