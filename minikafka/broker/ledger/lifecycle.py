"""The lifecycle of state changes in the words of Kafka's replication design, computed from the ledger (C38).

A state change has three lines per replica, for example:

    controller, broker id 0, requested start-replica for topic foo partition 0, to broker id 1, at epoch 10
    follower, broker id 1, received start-replica for topic foo partition 0, from controller 0, at epoch 10
    follower, broker id 1, completed start-replica for topic foo partition 0, request from controller 0, at epoch 10

In Kafka's replication design the partition's leader sends the requests, as it does in the mode leaders; there the
ledger has the lines themselves. In the mode controller the controller sends them: `start-replica` stands for
LeaderAndIsr, `close-replica` for StopReplica. Invariant: each line is computed from one line of the ledger.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from minikafka.base.errors import code_name
from minikafka.broker.ledger.record import EFFECT, REQUEST, STATE_CHANGE

_OPERATIONS: Final = {"LeaderAndIsr": "start-replica", "StopReplica": "close-replica"}
_STAGES: Final = ("requested", "received", "completed", "refused")
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a state change: an action of `broker` for one partition.

    `peer`: in the stage `requested`, the broker to which the request is sent; in other stages, the controller or leader
    that sent the request. An administrator, who sends requests in the mode leaders, has the id -1.
    """

    time: int
    """Unix milliseconds."""
    cause: str
    role: str
    """Role of `broker`: `controller`, `leader`, `follower`, `administrator`, or `replica` if the replica is stopped."""
    broker: int
    stage: str
    """`requested`, `received`, `completed` or `refused`."""
    op: str
    topic: str
    partition: int
    peer: int
    epoch: int | None
    """The leader epoch; None if the ledger does not contain it."""
    error: int = 0
    sentence: str = ""
    """The text of the ledger's own line in the mode leaders."""

    def __str__(self) -> str:
        if self.sentence:
            return self.sentence
        what = f"{self.op} for topic {self.topic} partition {self.partition}"
        peer = {
            "requested": f"to broker id {self.peer}",
            "received": f"from controller {self.peer}",
            "completed": f"request from controller {self.peer}",
            "refused": f"request from controller {self.peer} with error {code_name(self.error)}",
        }[self.stage]
        epoch = "unknown" if self.epoch is None else self.epoch
        return (
            f"{self.role}, broker id {self.broker}, {self.stage} {what}, {peer}, at epoch {epoch}"
        )


def lifecycle(lines: Iterable[Fields], topic: str, partition: int) -> Iterator[Stage]:
    """Yield the stages of all state changes of a partition. `lines`: the merged ledgers (`reader.merged`)."""
    requested_roles: defaultdict[tuple[str, int, str], deque[tuple[str, int]]] = defaultdict(deque)
    """Role and leader epoch of the requests not yet received, which brokers receive in the order of sending."""
    for line in lines:
        if line["kind"] == STATE_CHANGE:
            if line["fact"] in _STAGES and (line["topic"], line["partition"]) == (topic, partition):
                yield _noted(line)
            continue
        if line.get("request") not in _OPERATIONS:
            continue
        if line["kind"] == REQUEST:
            for group in _with_partition(line["states"], topic, partition):
                role = _role(group, line["to"])
                requested_roles[_request_key(line, line["to"])].append(
                    (role, group["leader_epoch"])
                )
                requested = ("controller", line["broker"], "requested")
                yield _stage(line, requested, topic, partition, line["to"], group["leader_epoch"])
        elif line["kind"] == EFFECT and line["phase"] == "received":
            if partition in line["partitions"].get(topic, ()):
                waiting = requested_roles[_request_key(line, line["broker"])]
                role, epoch = waiting.popleft() if waiting else ("replica", None)
                received = (role, line["broker"], "received")
                yield _stage(line, received, topic, partition, line["from"], epoch)
        elif line["kind"] == EFFECT:
            for group in _with_partition(line.get("results", ()), topic, partition):
                stage = "refused" if group["error"] else "completed"
                done = (_role(group, line["broker"]), line["broker"], stage)
                epoch, error = group["leader_epoch"], group["error"]
                yield _stage(line, done, topic, partition, line["from"], epoch, error)


def _noted(line: Fields) -> Stage:
    """Return the stage that a line of the mode leaders states."""
    fact, sender, receiver = line["fact"], line["sender"], line["receiver"]
    who = ("follower", receiver, fact)
    if fact == "requested":
        who = ("administrator" if sender < 0 else "leader", sender, fact)
    return Stage(
        line["time"],
        f"{line['broker']}#{line['n']}",
        *who,
        line["operation"],
        line["topic"],
        line["partition"],
        receiver if fact == "requested" else sender,
        line["epoch"],
        sentence=line["text"],
    )


def _request_key(line: Fields, to: int) -> tuple[str, int, str]:
    return line["cause"], to, line["request"]


def _with_partition(groups: Iterable[Fields], topic: str, partition: int) -> Iterator[Fields]:
    return (group for group in groups if partition in group["partitions"].get(topic, ()))


def _role(group: Fields, broker: int) -> str:
    if "leader" not in group:
        return "replica"
    return "leader" if group["leader"] == broker else "follower"


def _stage(
    line: Fields,
    who: tuple[str, int, str],
    topic: str,
    partition: int,
    peer: int,
    epoch: int | None,
    error: int = 0,
) -> Stage:
    op = _OPERATIONS[line["request"]]
    return Stage(line["time"], line["cause"], *who, op, topic, partition, peer, epoch, error)
