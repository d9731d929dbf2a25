"""The named steps of the operations of the leader-coordinated mode.

A test or a user can hold or kill a broker at a step. A broker announces a step before it performs the step. The broker
that received an administrator's request performs the steps of a creation, a deletion and a controlled shutdown, and
the first step of a reassignment. The partition's leader performs the other steps, and those in `step_of`. Invariant:
the names never change, because the ledger and the step gate use them.
"""

from __future__ import annotations

from typing import Final

from minikafka.deciders.leaders.commands import (
    BecomeLeader,
    CloseReplica,
    Command,
    CompleteReassignment,
    Enqueue,
    GiveUpLeadership,
    Open,
    RaiseEpoch,
    TryToLead,
)
from minikafka.deciders.leaders.model import Operation

CREATION: Final = "creation"
DELETION: Final = "deletion"
REASSIGNMENT: Final = "reassignment"
ELECTION: Final = "election"
BALANCE: Final = "balance"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"

STEPS: Final[dict[str, dict[str, str]]] = {
    CREATION: {
        "cleanup": "remove what a failed creation of the same topic has left",
        "topic": "write the topic's node and its settings",
        "request": "write the request of a partition, with its replicas",
        "start": "send the start requests to the replicas",
        "wait": "wait until the live replicas have carried out their start requests",
        "replicas": "write the replica list and remove the request",
    },
    DELETION: {
        "request": "write the request of each partition, without replicas",
        "close": "send the close requests; the administrator's side and the leader do it",
        "wait": "wait until the live replicas have carried out their close requests",
        "partition": "remove the nodes of a partition and its request",
        "topic": "remove the topic's node and its settings",
        "replica": "delete the files of one replica, on its own broker",
    },
    REASSIGNMENT: {
        "request": "write, replace or remove the request of a partition",
        "epoch": "raise the epoch for other replicas, and close those of a cancelled reassignment",
        "start": "send start requests to the adding replicas",
        "complete": "make the new replicas, which are all in sync, the assigned ones, and close the others",
        "leave": "give up the leadership, because the leader is not among the new replicas",
    },
    ELECTION: {
        "lead": "write the node of the leader and the epoch",
        "follow": "become leader, serve followers and wait until they have caught up",
        "open": "write the ISR and serve clients",
    },
    BALANCE: {
        "give-up": "give up the leadership for the preferred replica",
    },
    CONTROLLED_SHUTDOWN: {
        "batch": "remove the broker from the ISRs and leaderships of some partitions",
        "answered": "answer which partitions the broker still leads",
    },
}
"""Operation -> step -> description of the step, in the order of the steps."""


def step_of(command: Command) -> tuple[str, str] | None:
    """Return the operation and the step that a command of the machine performs, None if it has no name."""
    match command:
        case TryToLead():
            return ELECTION, "lead"
        case BecomeLeader():
            return ELECTION, "follow"
        case Open():
            return ELECTION, "open"
        case RaiseEpoch():
            return REASSIGNMENT, "epoch"
        case CompleteReassignment():
            return REASSIGNMENT, "complete"
        case CloseReplica():
            return DELETION, "replica"
        case Enqueue():
            is_start = command.request.operation is Operation.START
            return (REASSIGNMENT, "start") if is_start else (DELETION, "close")
        case GiveUpLeadership():
            leader, assigned = command.view.leader, command.view.replicas or ()
            stays = leader is not None and leader.broker_id in assigned
            return (BALANCE, "give-up") if stays else (REASSIGNMENT, "leave")
        case _:
            return None
