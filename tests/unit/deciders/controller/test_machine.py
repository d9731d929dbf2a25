"""The controller's machine where a transcript does not show it: its questions, its log, its steps and parameters."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from support.deciders.controller_world import DEFAULTS, World, broker

from minikafka.base.model import StopReplicaRequest, TopicPartition
from minikafka.deciders.controller.commands import WriteLeaderAndIsr, WrittenStates
from minikafka.deciders.controller.events import (
    BrokersChanged,
    DeletionsChanged,
    ReassignmentsRequested,
    RebalanceDue,
)
from minikafka.deciders.controller.state_change_log import REFUSE, Decision
from minikafka.deciders.controller.steps import DELETION, REASSIGNMENT, STEPS
from minikafka.deciders.decider import Outcome

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.row("X23", "T7")
def test_leadership_does_not_change_before_its_write_is_answered() -> None:
    machine = World().create("t", [0, 1]).machine
    *_, question = machine.handle(BrokersChanged({1: broker(1), 2: broker(2)}), 1)
    assert isinstance(question, WriteLeaderAndIsr)
    assert machine.is_busy
    assert machine.context.leadership[T0].leader == 0
    machine.handle(Outcome(question.token, WrittenStates({T0: 17})), 2)
    assert machine.context.leadership[T0].leader == 1
    assert machine.context.leadership[T0].state_version == 17, (
        "the version is ZooKeeper's, not a prediction"
    )


def test_controller_machine_raises_for_unexpected_events_and_write_outcomes() -> None:
    machine = World().create("t", [0, 1]).machine
    with pytest.raises(RuntimeError, match="no question"):
        machine.handle(Outcome(1, WrittenStates({})), 1)
    machine.handle(BrokersChanged({1: broker(1)}), 2)
    with pytest.raises(RuntimeError, match="a question"):
        machine.handle(DeletionsChanged(frozenset()), 3)


def test_state_changes_of_a_partition_are_returned_in_order() -> None:
    world = World().create("t", [0, 1]).kill(0)
    story = "\n".join(world.machine.state_changes(T0))
    words = [
        "NewPartition with assigned replicas 0,1",
        "to OnlinePartition",
        "to OfflinePartition",
        "leaderEpoch=1",
    ]
    assert [story.index(word) for word in words] == sorted(story.index(word) for word in words)
    assert world.machine.state_changes(T1) == []


def test_state_changes_are_logged_in_the_same_words_as_in_kafka(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "state-change"):
        World(epoch=3).create("t", [0, 1])
    assert (
        "[Controller id=0 epoch=3] Changed partition t-0 state from NewPartition to OnlinePartition "
        "with state LeaderAndIsr(leader=0, leaderEpoch=0, isr=List(0, 1), zkVersion=0)"
    ) in caplog.text
    assert (
        "Changed state of replica 1 for partition t-0 from NewReplica to OnlineReplica"
        in caplog.text
    )


def test_log_distinguishes_death_and_restart_and_shutdown_of_a_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World().create("t", [0, 1, 2])
    with caplog.at_level(logging.INFO, "minikafka.deciders.controller.machine"):
        world.kill(2)
        world.register(1, epoch=50)
        world.shut_down(0)
        world.kill(0)
    words = {
        (r.levelname, r.getMessage())
        for r in caplog.records
        if r.getMessage().startswith("broker ")
    }
    assert words == {
        ("WARNING", "broker 2 died: session expired"),
        ("WARNING", "broker 1 died and has started again"),
        ("INFO", "broker 0 has shut down"),
    }


def test_refused_target_in_the_admin_node_is_a_decision_for_the_ledger():
    world = World(brokers=3).create("t", [0, 1])
    world.machine.drain_decisions()
    world.submit({T0: [1, 1]})
    decisions = world.machine.drain_decisions()
    reason = "Duplicate replica ids in partition reassignment replica list: 1,1"
    assert decisions == {Decision(REFUSE, REASSIGNMENT, reason=reason): [T0]}


@pytest.mark.row("K4", "R56")
def test_controller_announces_every_step_of_a_reassignment_in_order() -> None:
    world = World(brokers=7).create("t", [1, 2, 3]).clear()
    world.reassign({T0: [4, 5, 6]})
    world.expand(T0, [1, 2, 3, 4, 5, 6])
    expected = [f"{REASSIGNMENT}.{step}" for step in STEPS[REASSIGNMENT] if step != "U3"]
    assert world.steps == expected


def test_controller_announces_every_step_of_a_topic_deletion_in_order() -> None:
    world = World(brokers=3).create("t", [0, 1]).clear().mark("t").deleted(0, T0).deleted(1, T0)
    assert list(dict.fromkeys(world.steps)) == [f"{DELETION}.{step}" for step in STEPS[DELETION]]


@pytest.mark.row("R56", "R57", "I6")
@pytest.mark.parametrize("step", ["U3", "U1", "U2"])
@pytest.mark.parametrize("target", [None, [0, 5, 6]])
def test_topic_node_lists_all_replicas_after_a_crash_during_a_reassignment_change(
    step: str, target: list[int] | None
):
    """The topic node names every broker that may hold a replica until that broker is told to delete the replica."""
    world = World(brokers=7).create("t", [1, 2, 3])
    world.reassign({T0: [4, 5, 6]})
    world.expand(T0, [1, 2, 3, 4]).clear()
    world.crash_at = f"{REASSIGNMENT}.{step}"
    world.handle(ReassignmentsRequested(5, {T0: tuple(target) if target else None}))
    assert not world.crash_at
    deleted = {to for to, sent in world.sent if isinstance(sent, StopReplicaRequest)}
    assert 4 in (*deleted, *world.topics["t"].assignment[0].replicas)
    world.start(epoch=2)
    assert set(world.nodes[T0].isr) <= set(world.topics["t"].assignment[0].replicas)


@pytest.mark.row("R62", "X20")
@pytest.mark.key("leader.imbalance.per.broker.percentage")
@pytest.mark.parametrize(("percentage", "leader"), [(49, 0), (50, 1), (51, 1)])
def test_leader_imbalance_of_exactly_the_ratio_is_not_corrected(percentage: int, leader: int):
    world = World(
        settings=replace(DEFAULTS, leader_imbalance_per_broker_percentage=percentage)
    ).create("t", [0, 1], [0, 1])
    world.kill(0).register(0, epoch=2)
    t1 = TopicPartition("t", 1)
    world.expand(T0, [1, 0]).expand(t1, [1, 0])
    world.elect([T0])
    world.handle(RebalanceDue())
    assert world.nodes[t1].leader == leader
