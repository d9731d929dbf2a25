"""Reassignments by the controller machine. ZooKeeper is a dict, and each test adds followers to the ISR."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.controller_world import World

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    LeaderAndIsrRequest,
    ReplicaAssignment,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.controller.context import ReplicaStatus
from minikafka.controller.events import (
    ReassignmentsRequested,
    ReassignmentsSubmitted,
    TopicsChanged,
    UnwatchStates,
    WatchStates,
)
from minikafka.controller.state_change_log import REFUSE, Decision
from minikafka.controller.steps import REASSIGNMENT, STEPS

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def six() -> World:
    return World(brokers=7).create("t", [1, 2, 3]).clear()


@pytest.mark.row("I5", "I6", "X11")
def test_reassignment_from_1_2_3_to_4_5_6_passes_the_states_of_kip_455():
    """Assignment, leader and ISR in ZooKeeper are checked after every write (I5)."""
    world = six()
    trace = []

    def note(_: object) -> None:
        trace.append((world.topics["t"].assignment[0], world.nodes[T0].leader, world.nodes[T0].isr))

    world.before_write = note
    assert world.reassign({T0: [4, 5, 6]})[T0].code is ErrorCode.NONE
    on_the_way = ReplicaAssignment((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3))
    assert world.topics["t"].assignment[0] == on_the_way
    assert (world.nodes[T0].leader, world.nodes[T0].isr) == (1, (1, 2, 3))
    world.expand(T0, [1, 2, 3, 4, 5, 6])
    note(None)
    assert trace == [
        (on_the_way, 1, (1, 2, 3)),  # before A1
        (on_the_way, 1, (1, 2, 3, 4, 5, 6)),  # before B3
        (on_the_way, 4, (1, 2, 3, 4, 5, 6)),  # before B4
        (on_the_way, 4, (2, 3, 4, 5, 6)),
        (on_the_way, 4, (3, 4, 5, 6)),
        (ReplicaAssignment((4, 5, 6)), 4, (4, 5, 6)),
    ]
    assert world.context.assignments[T0] == ReplicaAssignment((4, 5, 6))
    assert not world.context.reassigning


@pytest.mark.row("K4", "R56")
def test_controller_announces_the_steps_of_a_new_reassignment_in_order():
    world = six()
    world.reassign({T0: [4, 5, 6]})
    world.expand(T0, [1, 2, 3, 4, 5, 6])
    expected = [f"{REASSIGNMENT}.{step}" for step in STEPS[REASSIGNMENT] if step != "U3"]
    assert world.steps == expected


@pytest.mark.row("R56", "G13")
def test_new_replicas_become_followers_and_all_replicas_get_the_new_epoch():
    world = six()
    epoch = world.nodes[T0].leader_epoch
    world.reassign({T0: [4, 5, 6]})
    for broker in (1, 2, 3, 4, 5, 6):
        (first, *_) = world.sent_to(broker, LeaderAndIsrRequest)
        (state,) = first.partitions
        assert (state.leader, state.leader_epoch) == (1, epoch + 1)
        assert state.adding == (4, 5, 6)
        assert state.removing == (1, 2, 3)
    for broker in (4, 5, 6):
        assert world.sent_to(broker, LeaderAndIsrRequest)[-1].partitions[0].is_new
        assert world.context.replica_status(T0, broker) is ReplicaStatus.NEW


@pytest.mark.row("L5", "I10", "C30")
def test_removed_replicas_are_stopped_deleted_and_forgotten():
    world = six()
    world.reassign({T0: [4, 5, 6]})
    world.expand(T0, [1, 2, 3, 4, 5, 6])
    for broker in (1, 2, 3):
        stops = [r.partitions[0].delete for r in world.sent_to(broker, StopReplicaRequest)]
        assert stops == [False, True]
        assert world.context.replica_status(T0, broker) is ReplicaStatus.NON_EXISTENT
    for broker in range(7):
        (state,) = world.sent_to(broker, UpdateMetadataRequest)[-1].partitions
        assert (state.replicas, state.isr, state.leader) == ((4, 5, 6), (4, 5, 6), 4)


@pytest.mark.row("T6", "X14")
def test_reassignment_waits_until_the_isr_contains_every_target():
    world = six()
    world.reassign({T0: [3, 4]})
    world.expand(T0, [1, 2, 3])
    assert T0 in world.context.reassigning
    world.expand(T0, [1, 2, 3, 4])
    assert T0 not in world.context.reassigning
    assert world.nodes[T0].isr == (3, 4)
    assert world.nodes[T0].leader == 3


@pytest.mark.row("R58")
def test_leader_that_is_a_target_replica_keeps_leading_in_a_new_epoch():
    world = six()
    world.reassign({T0: [4, 1]})
    before = world.nodes[T0].leader_epoch
    world.expand(T0, [1, 2, 3, 4])
    assert world.nodes[T0].leader == 1
    assert world.nodes[T0].leader_epoch > before


@pytest.mark.row("X13")
def test_reassignment_that_only_reorders_the_replicas_completes_at_once():
    world = six()
    assert world.reassign({T0: [3, 2, 1]})[T0].code is ErrorCode.NONE
    assert world.topics["t"].assignment[0] == ReplicaAssignment((3, 2, 1))
    assert world.nodes[T0].leader == 1
    assert not world.context.reassigning


@pytest.mark.row("X13", "K12")
def test_reassignment_to_the_current_assignment_changes_nothing():
    world = six()
    assert world.reassign({T0: [1, 2, 3]})[T0].code is ErrorCode.NONE
    assert world.writes == []
    assert world.sent == []


@pytest.mark.row("K12", "R57", "X12")
@pytest.mark.parametrize(
    ("tp", "target", "code"),
    [
        (TopicPartition("none", 0), [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("t", 9), [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, [-1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, [1, 99], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_impossible_reassignment_is_refused_with_a_specific_error(
    tp: TopicPartition, target: list[int] | None, code: ErrorCode
):
    world = six()
    assert world.reassign({tp: target})[tp].code is code
    assert not world.context.reassigning
    assert world.writes == []


def test_reassignment_goes_on_when_another_partition_of_the_request_is_refused():
    world = World(brokers=5).create("t", [1, 2], [1, 2])
    results = world.reassign({T0: [3, 4], T1: []})
    assert (results[T0].code, results[T1].code) == (
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    )
    assert list(world.context.reassigning) == [T0]


@pytest.mark.row("X12")
def test_reassignment_in_the_admin_node_waits_for_a_dead_broker():
    world = World(brokers=3).create("t", [0, 1]).clear()
    world.submit({T0: [1, 9]})
    assert T0 in world.context.reassigning
    world.register(9)
    assert world.sent_to(9, LeaderAndIsrRequest)
    world.expand(T0, [0, 1, 9])
    assert world.nodes[T0].isr == (1, 9)
    assert world.submitted == {}


def test_reassignment_to_a_broker_that_never_returns_blocks_nothing_else():
    u0 = TopicPartition("u", 0)
    world = World(brokers=4).create("t", [0, 1], [0, 1]).create("u", [0, 1]).clear()
    world.submit({T0: [1, 9]})
    world.submit({T0: [1, 9], T1: [1, 2]})
    world.expand(T1, [0, 1, 2])
    assert world.context.assignments[T1] == ReplicaAssignment((1, 2))
    assert world.submitted == {T0: (1, 9)}
    world.mark("u").deleted(0, u0).deleted(1, u0)
    assert "u" not in world.topics
    assert world.reassign({T0: None})[T0].code is ErrorCode.NONE
    assert world.submitted == {}
    world.submit({T0: [1, 2]}).expand(T0, [0, 1, 2])
    assert world.context.assignments[T0] == ReplicaAssignment((1, 2))


@pytest.mark.row("A11", "K12")
def test_impossible_reassignments_are_removed_from_the_admin_node():
    world = World(brokers=3).create("t", [0, 1]).clear()
    world.submit({TopicPartition("none", 3): [1], T0: [1, 2]})
    assert world.submitted == {T0: (1, 2)}


def test_refused_target_in_the_admin_node_is_a_decision_for_the_ledger():
    world = World(brokers=3).create("t", [0, 1])
    world.machine.drain_decisions()
    world.submit({T0: [1, 1]})
    decisions = world.machine.drain_decisions()
    reason = "Duplicate replica ids in partition reassignment replica list: 1,1"
    assert decisions == {Decision(REFUSE, REASSIGNMENT, reason=reason): [T0]}


def test_second_read_of_the_admin_node_does_not_restart_its_reassignment():
    world = World(brokers=3).create("t", [0, 1])
    world.submit({T0: [1, 2]})
    epoch = world.nodes[T0].leader_epoch
    world.handle(ReassignmentsSubmitted(dict(world.submitted)))
    assert world.nodes[T0].leader_epoch == epoch


@pytest.mark.row("R57", "T19")
def test_cancelling_a_reassignment_deletes_added_replicas_in_a_new_epoch():
    world = six()
    world.reassign({T0: [4, 5, 6]})
    epoch = world.nodes[T0].leader_epoch
    world.expand(T0, [1, 2, 3, 4]).clear()
    assert world.reassign({T0: None})[T0].code is ErrorCode.NONE
    assert world.topics["t"].assignment[0] == ReplicaAssignment((1, 2, 3))
    assert set(world.nodes[T0].isr) == {1, 2, 3}
    for broker in (4, 5, 6):
        stop = world.sent_to(broker, StopReplicaRequest)[-1].partitions[0]
        assert stop.delete
        assert stop.leader_epoch > epoch
    assert not world.context.reassigning


@pytest.mark.row("R57")
def test_replacing_a_reassignment_deletes_unwanted_replicas_at_once():
    world = six()
    world.reassign({T0: [4, 5, 6]}).clear()
    world.clear()
    world.reassign({T0: [0, 5, 6]})
    assert f"{REASSIGNMENT}.U3" in world.steps
    assert world.sent_to(4, StopReplicaRequest)[-1].partitions[0].delete
    assert world.context.assignments[T0] == ReplicaAssignment(
        (0, 5, 6, 1, 2, 3), adding=(0, 5, 6), removing=(1, 2, 3)
    )
    world.expand(T0, [1, 2, 3, 0, 5, 6])
    assert world.nodes[T0].isr == (0, 5, 6)


@pytest.mark.row("R56", "R57", "I6")
@pytest.mark.parametrize("step", ["U3", "U1", "U2"])
@pytest.mark.parametrize("target", [None, [0, 5, 6]])
def test_topic_node_lists_all_replicas_after_a_crash_during_a_reassignment_change(
    step: str, target: list[int] | None
):
    """The topic node names every broker that may hold a replica until that broker is told to delete the replica."""
    world = six()
    world.reassign({T0: [4, 5, 6]})
    world.expand(T0, [1, 2, 3, 4]).clear()
    world.crash_at = f"{REASSIGNMENT}.{step}"
    world.handle(ReassignmentsRequested(5, {T0: tuple(target) if target else None}))
    assert not world.crash_at
    deleted = {to for to, sent in world.sent if isinstance(sent, StopReplicaRequest)}
    assert 4 in (*deleted, *world.topics["t"].assignment[0].replicas)
    world.start(epoch=2)
    assert set(world.nodes[T0].isr) <= set(world.topics["t"].assignment[0].replicas)


@pytest.mark.row("R57")
@pytest.mark.parametrize("target", [None, [1, 2, 7]])
def test_replaced_or_cancelled_reassignment_is_removed_from_the_admin_node(target):
    """Otherwise the admin node would start the replaced reassignment of the partition again."""
    world = World(brokers=8).create("t", [1, 2, 3], [1, 2, 3]).clear()
    world.submit({T0: [4, 5, 6], T1: [4, 5, 6]})
    world.reassign({T0: target})
    assert world.submitted == {T1: (4, 5, 6)}


def test_cancelling_is_refused_when_it_would_remove_every_replica_in_sync():
    world = World(brokers=3).create("t", [0])
    world.reassign({T0: [1, 2]})
    world.shrink(T0, [0, 1])
    world.context.set_leadership(T0, world.nodes[T0])
    world.kill(0)
    assert world.nodes[T0].leader == 1
    assert world.nodes[T0].isr == (1,)
    assert world.reassign({T0: None})[T0].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.context.assignments[T0].adding == (1, 2)


def test_cancelling_is_refused_when_the_only_replica_in_sync_is_dead():
    """The cancellation would delete broker 1's replica, the only replica that has every record.

    With a leader, the election of another leader would fail and thereby stop the cancellation. Here no replica leads.
    """
    world = World(brokers=3).create("t", [0])
    world.reassign({T0: [1, 2]})
    world.shrink(T0, [0, 1])
    world.context.set_leadership(T0, world.nodes[T0])
    world.kill(0)
    world.kill(1)
    assert (world.nodes[T0].leader, world.nodes[T0].isr) == (-1, (1,))
    before = world.context.assignments[T0]
    assert world.reassign({T0: None})[T0].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.context.assignments[T0] == before


def test_reassignment_keeps_waiting_when_its_target_died_before_it_could_lead():
    """The target dies. Only then the controller reads the leader's last ISR write, which contains the target."""
    world = World(brokers=2).create("t", [0])
    world.reassign({T0: [1]})
    before = world.context.assignments[T0]
    world.kill(1)
    world.expand(T0, [0, 1])
    assert world.nodes[T0].leader == 0
    assert world.context.assignments[T0] == before
    assert T0 in world.context.reassigning


def test_reassignment_keeps_the_leader_epoch_written_by_a_newer_controller():
    world = World(brokers=3).create("t", [0])
    world.context.set_leadership(T0, replace(world.context.leadership[T0], controller_epoch=9))
    world.reassign({T0: [1, 2]})
    assert world.nodes[T0].leader_epoch == 0


def led_by_an_added_replica() -> World:
    """Return a cluster in which replica 3 is being replaced by replicas 1 and 2, and replica 1 already leads."""
    world = World(brokers=5).create("t", [3])
    world.reassign({T0: [1, 2]})
    world.expand(T0, [3, 1])
    world.elect([T0])
    assert world.nodes[T0].leader == 1
    return world.clear()


@pytest.mark.row("R57")
def test_old_replica_leads_when_the_leader_is_removed_and_no_target_is_in_sync():
    world = led_by_an_added_replica()
    assert world.reassign({T0: [4]})[T0].code is ErrorCode.NONE
    assert (world.nodes[T0].leader, world.nodes[T0].isr) == (3, (3,))
    assert world.sent_to(1, StopReplicaRequest)[-1].partitions[0].delete
    world.expand(T0, [3, 4])
    assert world.context.assignments[T0] == ReplicaAssignment((4,))
    assert world.nodes[T0].leader == 4


def test_leader_is_not_stopped_when_no_replica_can_succeed_it():
    """The leader has shrunk the ISR to itself, but the controller has not read this ISR yet."""
    world = led_by_an_added_replica()
    world.unclean.add("t")
    world.shrink(T0, [1])
    assert world.reassign({T0: [4]})[T0].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (world.nodes[T0].leader, world.nodes[T0].isr) == (1, (1,))
    assert world.sent_to(1, StopReplicaRequest) == []
    assert world.topics["t"].assignment[0] == ReplicaAssignment((1, 2, 3), (1, 2), (3,))
    world.expand(T0, [1, 2])
    assert world.context.assignments[T0] == ReplicaAssignment((1, 2))


def test_refused_replacement_of_a_reassignment_does_not_stay_in_the_admin_node():
    """Otherwise the command that wrote it would wait for ever, and every later one be refused."""
    world = led_by_an_added_replica()
    world.shrink(T0, [1])
    world.submit({T0: [4]})
    assert T0 in world.context.reassigning
    assert world.submitted == {}


def test_request_whose_topic_node_cannot_be_written_does_not_stay_in_the_admin_node():
    world = six()
    del world.topics["t"]
    world.submit({T0: [4, 5, 6]})
    assert T0 not in world.context.reassigning
    assert world.submitted == {}


@pytest.mark.row("E4")
def test_reassignment_of_a_topic_deleted_by_hand_leaves_no_admin_entry_or_watch():
    world = World(brokers=3).create("t", [0], [0]).create("u", [0])
    u0 = TopicPartition("u", 0)
    world.submit({T0: [1], u0: [1]}).clear()
    del world.topics["t"]
    world.handle(TopicsChanged({}, ("t",)))
    assert world.submitted == {u0: (1,)}
    assert [e for e in world.effects if isinstance(e, UnwatchStates)] == [UnwatchStates((T0,))]
    assert list(world.context.reassigning) == [u0]


@pytest.mark.row("E10")
def test_partition_state_nodes_are_watched_only_during_a_reassignment():
    world = six()
    world.reassign({T0: [4, 5, 6]})
    assert [e.partitions for e in world.effects if isinstance(e, WatchStates)] == [(T0,)]
    assert not [e for e in world.effects if isinstance(e, UnwatchStates)]
    world.expand(T0, [1, 2, 3, 4, 5, 6])
    assert [e.partitions for e in world.effects if isinstance(e, UnwatchStates)] == [(T0,)]


def test_reassignment_waits_when_no_target_can_lead():
    world = World(brokers=3).create("t", [0])
    world.reassign({T0: [1]})
    world.shrink(T0, [0, 1])
    world.context.set_leadership(T0, world.nodes[T0])
    world.kill(1)
    assert world.nodes[T0].isr == (0,)
    assert T0 in world.context.reassigning
    world.register(1, epoch=2)
    world.expand(T0, [0, 1])
    assert world.nodes[T0].isr == (1,)
    assert world.topics["t"].assignment[0] == ReplicaAssignment((1,))


@pytest.mark.row("J4")
def test_partitions_reassigned_together_share_one_request_per_broker_and_step():
    world = World(brokers=6).create("t", *([0, 1, 2] for _ in range(50))).clear()
    partitions = [TopicPartition("t", p) for p in range(50)]
    world.reassign({tp: [3, 4, 5] for tp in partitions})
    assert len(world.writes) == 1
    assert len(world.sent_to(0, LeaderAndIsrRequest)) == 1
    assert len(world.sent_to(3, LeaderAndIsrRequest)) == 2  # A1 and A2


@pytest.mark.row("I5")
def test_reassignment_whose_topic_node_cannot_be_written_is_not_begun():
    """Otherwise the next controller would not know the replicas that brokers have started (U1)."""
    world = six()
    del world.topics["t"]
    assert world.reassign({T0: [4, 5, 6]})[T0].code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.context.assignments[T0] == ReplicaAssignment((1, 2, 3))
    assert T0 not in world.context.reassigning
    assert [sent for to, sent in world.sent if isinstance(sent, LeaderAndIsrRequest)] == []
