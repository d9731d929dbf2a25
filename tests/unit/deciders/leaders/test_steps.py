"""The named steps: which commands of a broker's machine perform one, and that each can be held."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.broker.step_gate import NAMES
from minikafka.deciders.leaders.commands import (
    BecomeLeader,
    CloseReplica,
    CompleteReassignment,
    Consume,
    Enqueue,
    GiveUpLeadership,
    Open,
    RaiseEpoch,
    TryToLead,
)
from minikafka.deciders.leaders.model import (
    IsrNode,
    LeaderNode,
    Operation,
    PartitionView,
    StateChange,
)
from minikafka.deciders.leaders.steps import STEPS, step_of

TP: Final = TopicPartition("t", 0)
ID: Final = bytes(16)
VIEW: Final = PartitionView(
    ID, (1, 0), 0, LeaderNode(0, 3, 0, is_ours=True), IsrNode((0, 1), 3, 0), None
)


def request(operation: Operation) -> StateChange:
    return StateChange(operation, TP, ID, 3, 0)


def test_each_command_with_a_name_performs_a_step_that_exists() -> None:
    commands = {
        TryToLead(TP, VIEW, 4, (0,)): ("election", "lead"),
        BecomeLeader(TP, VIEW, is_new=False): ("election", "follow"),
        Open(TP): ("election", "open"),
        RaiseEpoch(TP, VIEW, 4, (0,)): ("reassignment", "epoch"),
        Enqueue(1, request(Operation.START)): ("reassignment", "start"),
        Enqueue(1, request(Operation.CLOSE)): ("deletion", "close"),
        CompleteReassignment(TP, VIEW, 4, ()): ("reassignment", "complete"),
        CloseReplica(TP, ID): ("deletion", "replica"),
    }
    for command, (operation, step) in commands.items():
        assert step_of(command) == (operation, step)
        assert step in STEPS[operation]
    assert step_of(Consume("q-1")) is None


def test_leader_outside_the_replicas_gives_up_for_a_reassignment_else_for_the_balance() -> None:
    assert step_of(GiveUpLeadership(TP, VIEW)) == ("balance", "give-up")
    moved = replace(VIEW, replicas=(1, 2))
    assert step_of(GiveUpLeadership(TP, moved)) == ("reassignment", "leave")


def test_every_step_can_be_held() -> None:
    names = {f"{operation}.{step}" for operation, steps in STEPS.items() for step in steps}
    assert names <= NAMES
