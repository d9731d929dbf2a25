"""Topic deletion by the controller machine; each test sends the brokers' responses itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.controller_world import DEFAULTS, World, image

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    LEADER_DURING_DELETE,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.controller.context import PartitionStatus, ReplicaStatus
from minikafka.controller.events import (
    AssignmentChanged,
    DeletionsChanged,
    StopReplicaAnswered,
    TopicsChanged,
)
from minikafka.controller.steps import DELETION, STEPS

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def two() -> World:
    return World(brokers=3).create("t", [0, 1], [1, 2]).clear()


def finish(world: World) -> None:
    for broker, partitions in ((0, [T0]), (1, [T0, T1]), (2, [T1])):
        if broker in world.brokers:
            world.deleted(broker, *partitions)


@pytest.mark.row("L1", "G8")
def test_replicas_pass_all_deletion_states_before_the_nodes_are_deleted():
    world = two().mark("t")
    assert world.context.partition_status(T0) is PartitionStatus.NON_EXISTENT
    assert world.context.replica_status(T0, 0) is ReplicaStatus.DELETION_STARTED
    world.deleted(0, T0)
    assert world.context.replica_status(T0, 0) is ReplicaStatus.DELETION_SUCCESSFUL
    world.deleted(1, T0, T1)
    assert "t" in world.topics
    world.deleted(2, T1)
    assert "t" not in world.topics
    assert "t" not in world.context.topics
    assert world.nodes == {}
    assert world.deletions == frozenset()
    assert not any(world.context.replica_statuses.values())


def test_controller_announces_every_step_of_a_topic_deletion_in_order():
    world = two().mark("t")
    finish(world)
    seen = list(dict.fromkeys(world.steps))
    assert seen == [f"{DELETION}.{step}" for step in STEPS[DELETION]]


@pytest.mark.row("R64")
def test_metadata_of_every_broker_shows_leader_minus_2_during_deletion():
    world = two().mark("t")
    for broker in range(3):
        sent = world.sent_to(broker, UpdateMetadataRequest)[-1].partitions
        assert {state.leader for state in sent} == {LEADER_DURING_DELETE}


@pytest.mark.row("J4")
def test_each_broker_gets_one_stop_request_and_one_delete_request():
    world = two().mark("t")
    kinds = [[p.delete for p in r.partitions] for r in world.sent_to(1, StopReplicaRequest)]
    assert kinds == [[False, False], [True, True]]


@pytest.mark.row("L2", "R64", "X24")
def test_deletion_waits_for_a_dead_broker_until_it_restarts():
    world = two()
    world.kill(2)
    world.mark("t")
    finish(world)
    assert "t" in world.topics
    assert world.context.ineligible["t"] == "offline replicas"
    assert world.context.replica_status(T1, 2) is ReplicaStatus.DELETION_INELIGIBLE
    world.clear().register(2, epoch=2)
    assert world.sent_to(2, StopReplicaRequest)[-1].partitions[0].delete
    world.deleted(2, T1)
    assert "t" not in world.topics


@pytest.mark.row("L2")
def test_delete_request_is_sent_again_after_a_broker_dies_while_deleting():
    world = two().mark("t")
    world.deleted(0, T0)
    world.deleted(1, T0, T1)
    world.kill(2)
    assert world.context.replica_status(T1, 2) is ReplicaStatus.DELETION_INELIGIBLE
    world.register(2, epoch=2).deleted(2, T1)
    assert "t" not in world.topics


def test_delete_request_for_deleted_replicas_is_not_repeated_to_a_bounced_broker():
    world = two().mark("t")
    world.deleted(0, T0)
    world.clear().register(0, epoch=2)
    assert world.context.replica_status(T0, 0) is ReplicaStatus.DELETION_SUCCESSFUL
    assert world.sent_to(0, StopReplicaRequest) == []


@pytest.mark.row("G9", "L2", "J5")
def test_topic_deletion_is_halted_until_a_broker_that_failed_to_delete_restarts():
    world = two().mark("t")
    world.deleted(0, T0, error=ErrorCode.KAFKA_STORAGE_ERROR)
    world.deleted(1, T0, T1).deleted(2, T1)
    assert world.context.ineligible["t"] == "replica deletion failure"
    assert world.context.replica_status(T0, 0) is ReplicaStatus.DELETION_INELIGIBLE
    assert "t" in world.topics
    world.register(0, epoch=2).deleted(0, T0)
    assert "t" not in world.topics


def test_response_from_an_earlier_broker_registration_is_ignored():
    world = two().mark("t")
    world.register(0, epoch=2)
    world.brokers[0] = replace(world.brokers[0], epoch=1)
    world.deleted(0, T0)
    assert world.context.replica_status(T0, 0) is ReplicaStatus.DELETION_STARTED


@pytest.mark.row("R65")
def test_deletion_mark_of_an_unknown_topic_is_removed():
    world = two().mark("none")
    assert world.deletions == frozenset()


@pytest.mark.row("R65")
def test_deletion_mark_is_removed_and_the_topic_kept_when_deletion_is_disabled():
    world = World(settings=replace(DEFAULTS, delete_topic_enable=False)).create("t", [0, 1])
    world.mark("t")
    assert world.deletions == frozenset()
    assert world.context.partition_status(T0) is PartitionStatus.ONLINE


@pytest.mark.row("R59")
def test_topic_marked_for_deletion_is_deleted_only_after_its_reassignment():
    world = World(brokers=3).create("t", [0, 1])
    world.reassign({T0: [1, 2]})
    world.mark("t")
    assert world.context.ineligible["t"] == "topic reassignment in progress"
    assert world.context.partition_status(T0) is PartitionStatus.ONLINE
    world.expand(T0, [0, 1, 2])
    assert world.context.replica_status(T0, 2) is ReplicaStatus.DELETION_STARTED
    world.deleted(1, T0).deleted(2, T0)
    assert "t" not in world.topics


@pytest.mark.row("R59", "L6")
def test_new_controller_elects_a_leader_when_topic_deletion_awaits_a_reassignment():
    world = World(brokers=4).create("t", [3])
    former = world.brokers[3]
    world.kill(3).reassign({T0: [1]})
    world.mark("t")
    # The broker restarts, and the controller dies before it reads the brokers.
    world.brokers[3] = replace(former, epoch=2)
    world.start(epoch=2)
    assert world.nodes[T0].leader == 3
    world.expand(T0, [3, 1])
    assert world.context.replica_status(T0, 1) is ReplicaStatus.DELETION_STARTED


@pytest.mark.row("R59")
def test_new_controller_sends_no_leader_minus_2_while_deletion_awaits_reassignment():
    world = World(brokers=4).create("t", [3])
    world.reassign({T0: [1]})
    world.mark("t").clear()
    world.start(epoch=2)
    sent = [
        partition.leader
        for request in world.sent_to(0, UpdateMetadataRequest)
        for partition in request.partitions
    ]
    assert sent
    assert LEADER_DURING_DELETE not in sent


@pytest.mark.row("R59")
def test_topic_to_be_deleted_accepts_no_reassignment_except_a_cancellation():
    world = World(brokers=3).create("t", [0, 1]).create("u", [0, 1])
    u0 = TopicPartition("u", 0)
    world.reassign({u0: [1, 2]})
    world.mark("t", "u")
    assert world.reassign({T0: [1, 2]})[T0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.reassign({u0: [0, 2]})[u0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.reassign({u0: None})[u0].code is ErrorCode.NONE
    assert world.context.replica_status(u0, 0) is ReplicaStatus.DELETION_STARTED


@pytest.mark.row("R65")
def test_partitions_added_during_a_deletion_are_removed():
    world = two().mark("t")
    grown = {**world.topics["t"].assignment, 2: world.topics["t"].assignment[0]}
    world.topics["t"] = image([0, 1], [1, 2], [0, 1])
    world.handle(AssignmentChanged("t", grown))
    assert sorted(world.topics["t"].assignment) == [0, 1]


def test_removing_a_deletion_mark_after_the_deletion_began_changes_nothing():
    world = two().mark("t")
    world.deletions = frozenset()
    world.handle(DeletionsChanged(frozenset()))
    finish(world)
    assert "t" not in world.topics


def test_removing_a_deletion_mark_before_the_deletion_began_cancels_the_deletion():
    world = World(brokers=3).create("t", [0, 1])
    world.reassign({T0: [1, 2]})
    world.mark("t")
    world.deletions = frozenset()
    world.handle(DeletionsChanged(frozenset()))
    world.expand(T0, [0, 1, 2])
    assert world.context.partition_status(T0) is PartitionStatus.ONLINE
    assert world.topics["t"].assignment[0].replicas == (1, 2)


def test_deletion_mark_is_removed_when_the_topic_node_is_deleted_by_hand():
    world = two().mark("t")
    del world.topics["t"]
    world.handle(TopicsChanged({}, ("t",)))
    assert world.deletions == frozenset()
    assert world.context.deletions == frozenset()


@pytest.mark.row("L4", "F8")
def test_other_topics_get_elections_during_a_deletion():
    world = World(brokers=3).create("t", [0, 1]).create("u", [0, 1]).mark("t")
    world.kill(0)
    assert world.nodes[TopicPartition("u", 0)].leader == 1
    assert world.context.partition_status(T0) is PartitionStatus.NON_EXISTENT


def test_stop_replica_response_for_a_topic_not_being_deleted_changes_nothing(caplog):
    """Such a response belongs to an earlier topic of the same name, which was deleted."""
    world = World(brokers=2).create("t", [0, 1])
    broker = world.brokers[0]
    world.clear().handle(StopReplicaAnswered(broker.id, broker.epoch, {T0: 0}))
    assert world.context.replica_status(T0, broker.id) is ReplicaStatus.ONLINE
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
