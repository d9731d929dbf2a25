"""Events processed by the controller machine, with a healthy ZooKeeper in memory."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from support.controller_world import World, broker, image, state
from support.endpoints import endpoints

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    Broker,
    ControllerResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.controller.context import PartitionStatus, ReplicaStatus
from minikafka.controller.events import (
    AssignmentChanged,
    BrokersChanged,
    DeleteIsrChanges,
    DeleteLogDirEvents,
    DeletionsChanged,
    GiveTopicIds,
    IsrChanged,
    LeaderAndIsrAnswered,
    LeaderAndIsrWritten,
    LogDirsFailed,
    ReadElectionSettings,
    ReadLeaderAndIsr,
    SendRequest,
    StartChannel,
    StopChannel,
    TopicImage,
    TopicsChanged,
    WriteLeaderAndIsr,
)
from minikafka.controller.machine import ControllerMachine

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def leader(world: World, tp: TopicPartition = T0) -> tuple[int, tuple[int, ...], int]:
    node = world.nodes[tp]
    assert world.context.leadership[tp] == node, "the picture is not what ZooKeeper holds"
    return node.leader, node.isr, node.leader_epoch


# Topics.


@pytest.mark.row("F3", "J1")
def test_all_partitions_of_a_new_topic_share_one_leaderandisr_request_per_broker() -> None:
    world = World().create("t", [0, 1, 2], [1, 2, 0])
    assert leader(world, T0) == (0, (0, 1, 2), 0)
    assert leader(world, T1) == (1, (1, 2, 0), 0)
    for i in range(3):
        (request,) = world.sent_to(i, LeaderAndIsrRequest)
        assert [p.tp for p in request.partitions] == [T0, T1]
        assert all(p.is_new for p in request.partitions)
        assert world.context.replica_status(T0, i) is ReplicaStatus.ONLINE
    assert world.context.partition_status(T0) is PartitionStatus.ONLINE


@pytest.mark.row("F3")
def test_new_topic_with_dead_replicas_starts_with_the_live_replicas_in_the_isr() -> None:
    world = World().kill(0).create("t", [0, 1, 2])
    assert leader(world) == (1, (1, 2), 0)


@pytest.mark.row("F8")
def test_new_topic_without_a_live_replica_stays_new_until_a_broker_starts() -> None:
    world = World().kill(2).create("t", [2])
    assert world.context.partition_status(T0) is PartitionStatus.NEW
    world.register(2, epoch=5)
    assert leader(world) == (2, (2,), 0)


@pytest.mark.row("I9")
def test_added_partitions_are_created_without_changing_existing_partitions() -> None:
    world = World().create("t", [0, 1]).clear()
    world.handle(AssignmentChanged("t", image([0, 1], [1, 2]).assignment))
    assert leader(world, T1) == (1, (1, 2), 0)
    assert leader(world, T0)[2] == 0
    assert {p.tp for _, request in world.sent for p in request.partitions} == {T1}


def made_by_hand(*replica_lists: list[int]) -> TopicImage:
    return TopicImage(None, image(*replica_lists).assignment)


@pytest.mark.row("R69")
def test_topic_created_by_hand_gets_an_id_before_brokers_are_informed() -> None:
    world = World()
    world.topics["t"] = made_by_hand([0, 1])
    world.handle(TopicsChanged(dict(world.topics)))
    asked = [isinstance(effect, GiveTopicIds) for effect in world.effects]
    sent = [isinstance(e, SendRequest) and bool(e.request.partitions) for e in world.effects]
    assert asked.index(True) < sent.index(True)
    assert all(dict(r.topic_ids) == {"t": b"t".ljust(16)} for _, r in world.sent if r.partitions)


@pytest.mark.row("R69")
def test_topic_created_by_hand_without_a_controller_gets_its_id_at_failover() -> None:
    world = World()
    world.topics["t"] = made_by_hand([0, 1])
    world.start(2)
    assert world.context.topic_ids == {"t": b"t".ljust(16)}


@pytest.mark.row("R69")
def test_topic_with_partitions_but_no_id_stays_without_an_id() -> None:
    world = World().create("t", [0, 1])
    world.topics["t"] = made_by_hand([0, 1])
    world.start(2)
    assert world.context.topic_ids == {}


@pytest.mark.row("R69", "I9")
def test_topic_id_is_restored_after_partitions_were_added_by_hand_without_it() -> None:
    world = World().create("t", [0, 1])
    known = world.topics["t"].topic_id
    world.topics["t"] = made_by_hand([0, 1], [1, 2])
    world.handle(AssignmentChanged("t", world.topics["t"].assignment, has_id=False))
    assert world.topics["t"].topic_id == world.context.topic_ids["t"] == known
    assert leader(world, T1) == (1, (1, 2), 0)


@pytest.mark.row("R69")
def test_recreated_topic_keeps_no_leader_or_partition_of_the_deleted_one() -> None:
    world = World().create("t", [0, 1], [0, 1])
    world.nodes.clear()
    world.handle(TopicsChanged({"t": image([2])}, ("t",)))
    assert leader(world) == (2, (2,), 0)
    assert T1 not in world.context.assignments


# Brokers.


@pytest.mark.row("H1")
def test_dead_leader_is_replaced_in_one_write_that_also_shrinks_the_isr() -> None:
    world = World().create("t", [0, 1, 2], [1, 2, 0]).clear().kill(0)
    assert leader(world, T0) == (1, (1, 2), 1)
    assert leader(world, T1) == (1, (1, 2), 1)
    assert [set(write.states) for write in world.writes] == [{T0}, {T1}]
    assert world.effects[0] == StopChannel(0)
    assert not world.sent_to(0)


@pytest.mark.row("R20")
def test_metadata_is_sent_when_a_broker_without_leaderships_dies() -> None:
    world = World().create("t", [1]).clear().kill(2)
    assert [b.id for b in world.sent_to(1, UpdateMetadataRequest)[0].live_brokers] == [0, 1]
    assert not world.writes


def test_death_of_a_broker_sends_only_partitions_with_a_replica_on_it() -> None:
    world = World().create("t", [1, 2], [0, 1]).clear().kill(2)
    assert {p.tp for _, request in world.sent for p in request.partitions} == {T0}


@pytest.mark.row("H2", "T2", "T3")
def test_partition_without_a_live_isr_member_stays_offline_and_keeps_its_isr() -> None:
    world = World().create("t", [0, 1])
    world.kill(1)
    world.kill(0)
    node = world.nodes[T0]
    assert (node.leader, node.isr) == (-1, (0,))
    assert world.context.partition_status(T0) is PartitionStatus.OFFLINE
    world.register(1, epoch=9)
    assert world.nodes[T0].leader == -1, "broker 1 was not in sync"
    world.register(0, epoch=9)
    assert world.nodes[T0].leader == 0
    assert world.context.partition_status(T0) is PartitionStatus.ONLINE


@pytest.mark.row("H3", "H4", "X3")
def test_unclean_election_is_decided_per_topic_and_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World().create("t", [0, 1]).create("u", [0, 1])
    world.unclean = {"u"}
    world.kill(1)
    world.kill(0)
    world.register(1, epoch=9)
    assert leader(world, TopicPartition("u", 0))[:2] == (1, (1,))
    assert world.nodes[T0].leader == -1
    assert world.context.unclean_elections == 1
    assert "unclean" in caplog.text


def test_unclean_election_setting_is_not_read_when_the_isr_has_a_live_replica() -> None:
    world = World().create("t", [0, 1, 2]).clear().kill(0)
    assert not [effect for effect in world.effects if isinstance(effect, ReadElectionSettings)]


@pytest.mark.row("T2")
def test_isr_is_not_empty_after_all_brokers_died() -> None:
    world = World().create("t", [0, 1, 2]).kill(0, 1, 2)
    node = world.nodes[T0]
    assert node.leader == -1
    assert node.isr


@pytest.mark.row("R17", "R18")
def test_restarted_broker_gets_all_metadata_before_its_leaderandisr_request() -> None:
    world = World().create("t", [0, 1, 2], [1, 0]).kill(2).clear().register(2, epoch=7)
    mine = world.sent_to(2)
    assert isinstance(mine[0], UpdateMetadataRequest)
    assert len(mine[0].partitions) == 2
    assert isinstance(mine[1], LeaderAndIsrRequest)
    assert [p.tp for p in mine[1].partitions] == [T0]
    assert not mine[1].partitions[0].is_new
    assert world.sent_to(1)[0].partitions == ()
    assert world.effects[0] == StartChannel(broker(2, 7))


@pytest.mark.row("R19", "T20")
def test_bounced_broker_is_treated_as_a_failure_and_a_startup() -> None:
    world = World().create("t", [0, 1, 2]).clear()
    world.register(0, epoch=50)
    assert leader(world) == (1, (1, 2), 1)
    channels = [
        effect for effect in world.effects if isinstance(effect, StartChannel | StopChannel)
    ]
    assert channels == [StopChannel(0), StartChannel(broker(0, 50))]
    (request,) = world.sent_to(0, LeaderAndIsrRequest)
    assert request.broker_epoch == 50
    assert request.partitions[0].leader == 1


def test_sole_replica_leads_again_in_a_new_epoch_after_its_broker_bounced() -> None:
    world = World().create("t", [0]).register(0, epoch=50)
    assert leader(world)[:2] == (0, (0,))
    assert leader(world)[2] > 0


@pytest.mark.row("R22")
def test_changed_endpoints_of_a_registration_are_sent_to_every_broker() -> None:
    world = World().create("t", [0, 1]).clear()
    moved = Broker(2, endpoints("other", 1, "other", 2), 1)
    world.brokers[2] = moved
    world.handle(BrokersChanged(dict(world.brokers)))
    assert moved in world.sent_to(0, UpdateMetadataRequest)[0].live_brokers
    assert not world.writes
    assert StopChannel(2) not in world.effects


def test_dead_broker_is_not_elected_when_another_broker_starts_at_the_same_time() -> None:
    world = World(brokers=2).create("t", [0, 1])
    del world.brokers[0]
    world.register(2)
    assert leader(world)[:2] == (1, (1,))


# Conflicts and refusals.


@pytest.mark.row("D13", "R3")
def test_only_the_partition_with_a_version_conflict_is_elected_again() -> None:
    """Kafka 1.1 retried every partition instead (`electLeaderForPartitions`)."""
    world = World().create("t", [0, 1, 2], [0, 2, 1]).clear()

    def shrink_once(question: WriteLeaderAndIsr) -> None:
        if len(world.writes) == 1:
            world.shrink(T0, [0, 2])

    world.before_write = shrink_once
    world.kill(0)
    assert [set(write.states) for write in world.writes] == [{T0, T1}, {T0}]
    assert leader(world, T0) == (2, (2,), 1)
    assert leader(world, T1) == (2, (2, 1), 1)


@pytest.mark.row("D13", "R3")
def test_version_conflicts_are_retried_until_the_write_is_accepted() -> None:
    world = World().create("t", [0, 1, 2]).clear()
    isrs = [[0, 1], [0, 1, 2], [0, 2]]

    def shrink(question: WriteLeaderAndIsr) -> None:
        if isrs:
            world.shrink(T0, isrs.pop(0))

    world.before_write = shrink
    world.kill(0)
    assert leader(world) == (2, (2,), 1)


@pytest.mark.row("D13", "R3")
def test_election_uses_the_isr_that_a_dead_leader_did_not_announce() -> None:
    world = World().create("t", [0, 1])
    world.kill(1).register(1, epoch=2)
    world.shrink(T0, [0, 1])
    world.kill(0)
    assert leader(world) == (1, (1,), 2)


@pytest.mark.row("D13", "R3")
def test_controlled_shutdown_elects_a_follower_that_only_zookeeper_has_in_the_isr() -> None:
    world = World().create("t", [0, 1])
    world.kill(1).register(1, epoch=2)
    world.shrink(T0, [0, 1])
    assert world.shut_down(0).remaining == ()
    assert leader(world) == (1, (1,), 2)


def test_no_state_node_is_read_for_a_partition_without_a_live_replica() -> None:
    world = World().create("t", [0], [1])
    world.kill(0).clear()
    world.kill(2)
    assert [effect for effect in world.effects if isinstance(effect, ReadLeaderAndIsr)] == []


@pytest.mark.row("X23", "T7")
def test_leadership_does_not_change_before_its_write_is_answered() -> None:
    machine = World().create("t", [0, 1]).machine
    effects = machine.handle(BrokersChanged({1: broker(1), 2: broker(2)}), 1)
    assert isinstance(effects[-1], WriteLeaderAndIsr)
    assert machine.is_busy
    assert machine.context.leadership[T0].leader == 0
    machine.handle(LeaderAndIsrWritten({T0: 17}), 2)
    assert machine.context.leadership[T0].leader == 1
    assert machine.context.leadership[T0].state_version == 17, (
        "the version is ZooKeeper's, not a prediction"
    )


def test_controller_machine_raises_for_unexpected_events_and_write_outcomes() -> None:
    machine = World().create("t", [0, 1]).machine
    with pytest.raises(RuntimeError, match="no question"):
        machine.handle(LeaderAndIsrWritten({}), 1)
    machine.handle(BrokersChanged({1: broker(1)}), 2)
    with pytest.raises(RuntimeError, match="a question"):
        machine.handle(DeletionsChanged(frozenset()), 3)


@pytest.mark.row("R3")
def test_failed_write_leaves_only_its_partition_offline() -> None:
    world = World().create("t", [0, 1], [0, 1]).clear()
    world.before_write = lambda question: world.nodes.pop(T0, None) and None
    world.kill(0)
    assert world.context.partition_status(T0) is PartitionStatus.OFFLINE
    assert leader(world, T1) == (1, (1,), 1)


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


# Failover.


@pytest.mark.row("R18", "D16", "D17", "X7")
def test_failover_sends_updatemetadata_and_leaderandisr_and_then_holds_elections() -> None:
    world = World().create("t", [0, 1, 2], [1, 2, 0])
    del world.brokers[0]
    world.clear().start(epoch=2)
    assert leader(world, T0) == (1, (1, 2), 1)
    assert leader(world, T1) == (1, (1, 2), 1)
    kinds = [type(request) for request in world.sent_to(1)]
    assert kinds[:2] == [UpdateMetadataRequest, LeaderAndIsrRequest]
    assert len(world.sent_to(1, LeaderAndIsrRequest)[0].partitions) == 2
    assert world.nodes[T0].controller_epoch == 2
    assert world.context.replica_status(T0, 0) is ReplicaStatus.OFFLINE


@pytest.mark.row("D17", "C21")
def test_failover_elects_leaders_for_a_topic_created_just_before_it() -> None:
    world = World()
    world.topics["t"] = image([0, 1])
    world.start(epoch=2)
    assert leader(world) == (0, (0, 1), 0)
    assert world.sent_to(1, LeaderAndIsrRequest)


def test_failover_of_a_healthy_cluster_writes_nothing() -> None:
    world = World().create("t", [0, 1, 2])
    world.clear().start(epoch=2)
    assert not world.writes
    assert all(len(world.sent_to(i, LeaderAndIsrRequest)) == 1 for i in range(3))


def test_topics_marked_for_deletion_get_no_elections() -> None:
    world = World().create("t", [0, 1])
    world.handle(DeletionsChanged(frozenset({"t"})))
    assert world.sent_to(1, UpdateMetadataRequest)[-1].partitions[0].leader == -2
    world.clear().kill(0)
    assert not world.writes
    world.deletions = frozenset({"t"})
    world.clear().start(epoch=2)
    assert not world.writes


# Reports from leaders and brokers.


@pytest.mark.row("E6", "J3")
def test_isr_change_is_sent_to_all_brokers_and_its_notification_is_deleted() -> None:
    world = World().create("t", [0, 1, 2]).clear()
    world.shrink(T0, [0, 1])
    world.handle(IsrChanged(("isr_change_0000000001",), {T0: world.nodes[T0]}))
    assert world.context.leadership[T0].isr == (0, 1)
    assert [world.sent_to(i)[0].partitions[0].isr for i in range(3)] == [(0, 1)] * 3
    assert world.effects[-1] == DeleteIsrChanges(("isr_change_0000000001",))


def test_notification_of_an_older_isr_is_deleted_without_other_effects() -> None:
    world = World().create("t", [0, 1, 2])
    old = world.nodes[T0]
    world.kill(2).clear()
    world.handle(IsrChanged(("n",), {T0: old, TopicPartition("gone", 0): old}))
    assert world.effects == [DeleteIsrChanges(("n",))]


def test_notification_of_the_known_isr_is_deleted_without_other_effects() -> None:
    world = World().create("t", [0, 1, 2]).clear()
    world.handle(IsrChanged(("n",), {T0: world.nodes[T0]}))
    assert world.effects == [DeleteIsrChanges(("n",))]


@pytest.mark.row("R67", "R16")
def test_replica_in_a_failed_directory_is_offline_until_its_broker_restarts() -> None:
    world = World().create("t", [0, 1, 2], [0, 1, 2]).clear()
    world.handle(LogDirsFailed(("log_dir_event_0",), (0,)))
    assert [p.tp for p in world.sent_to(0, LeaderAndIsrRequest)[0].partitions] == [T0, T1]
    assert world.effects[-1] == DeleteLogDirEvents(("log_dir_event_0",))
    response = ControllerResponse(0, ((T0, int(ErrorCode.KAFKA_STORAGE_ERROR)), (T1, 0)))
    world.handle(LeaderAndIsrAnswered(0, 1, response))
    assert leader(world, T0) == (1, (1, 2), 1)
    assert leader(world, T1) == (0, (0, 1, 2), 0)
    assert world.sent_to(1, UpdateMetadataRequest)[-1].partitions[0].offline == (0,)
    world.clear().handle(LeaderAndIsrAnswered(0, 1, response))
    assert not world.effects, "the same answer again is no news"
    world.register(0, epoch=8)
    assert world.context.is_online(T0, 0)


def test_response_from_an_earlier_broker_registration_is_ignored() -> None:
    world = World().create("t", [0, 1]).register(0, epoch=8).clear()
    world.handle(
        LeaderAndIsrAnswered(
            0, 1, ControllerResponse(0, ((T0, int(ErrorCode.KAFKA_STORAGE_ERROR)),))
        )
    )
    assert not world.effects


# Controlled shutdown.


@pytest.mark.row("H7", "R23")
def test_controlled_shutdown_moves_leaders_and_removes_followers_from_isrs() -> None:
    world = World().create("t", [0, 1, 2], [1, 0, 2]).clear()
    answer = world.shut_down(0)
    assert (answer.error, answer.remaining) == (ErrorCode.NONE, ())
    assert leader(world, T0) == (1, (1, 2), 1)
    assert leader(world, T1) == (1, (1, 2), 1)
    (stop,) = world.sent_to(0, StopReplicaRequest)
    assert [p.tp for p in stop.partitions] == [T1]
    assert not stop.partitions[0].delete
    assert world.sent_to(0, LeaderAndIsrRequest)[0].partitions[0].leader == 1, (
        "it is still sent the current leader"
    )


@pytest.mark.row("R24")
def test_new_leader_gets_metadata_with_leaving_replica_offline_before_it_leads() -> None:
    world = World().create("t", [0, 1, 2]).clear()
    world.shut_down(0)
    first, second, *_ = world.sent_to(1)
    assert isinstance(first, UpdateMetadataRequest)
    assert first.partitions[0].offline == (0,)
    assert isinstance(second, LeaderAndIsrRequest)


@pytest.mark.row("R23")
def test_controlled_shutdown_names_partitions_that_no_other_replica_can_lead() -> None:
    world = World().create("t", [0, 1])
    world.shrink(T0, [0])
    world.handle(IsrChanged((), {T0: world.nodes[T0]}))
    assert world.shut_down(0).remaining == (T0,)
    assert world.nodes[T0].leader == 0


@pytest.mark.row("R23")
def test_controlled_shutdown_skips_partitions_with_one_replica() -> None:
    world = World().create("t", [0])
    assert world.shut_down(0).remaining == ()
    assert world.nodes[T0].leader == 0


@pytest.mark.row("R20", "T10")
def test_broker_in_controlled_shutdown_gets_no_leadership_until_it_registers_again() -> None:
    world = World().create("t", [1, 0])
    world.shut_down(0)
    world.kill(1)
    assert world.nodes[T0].leader == -1
    world.register(0, epoch=9)
    world.register(1, epoch=9)
    assert world.nodes[T0].leader == 1
    assert not world.context.shutting_down


def test_log_distinguishes_death_and_restart_and_shutdown_of_a_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World().create("t", [0, 1, 2])
    with caplog.at_level(logging.INFO, "minikafka.controller.machine"):
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


@pytest.mark.row("R23")
def test_controlled_shutdown_with_a_stale_epoch_or_unknown_broker_is_refused() -> None:
    world = World().create("t", [0, 1])
    assert world.shut_down(0, epoch=0).error is ErrorCode.STALE_BROKER_EPOCH
    assert world.shut_down(9).error is ErrorCode.BROKER_NOT_AVAILABLE
    assert not world.context.shutting_down


@pytest.mark.row("R24", "D13")
def test_follower_that_shuts_down_leaves_an_isr_that_the_leader_expands_meanwhile() -> None:
    """The leader adds the follower to the ISR before the controller writes the ISR without the follower (S24)."""
    world = World().create("t", [0, 1, 2])
    world.shrink(T0, [0, 1])
    world.handle(IsrChanged((), {T0: world.nodes[T0]})).clear()

    def expand_once(question: WriteLeaderAndIsr) -> None:
        if len(world.writes) == 1:
            world.shrink(T0, [0, 1, 2])

    world.before_write = expand_once
    world.shut_down(2)
    assert leader(world)[1] == (0, 1)


# Large, empty and inconsistent clusters.


def test_failure_of_a_broker_writes_no_state_of_partitions_on_other_brokers() -> None:
    world = World(brokers=6)
    world.create("big", *([[3, 4, 5]] * 2000)).create("t", [0, 1]).clear().kill(0)
    assert {tp for write in world.writes for tp in write.states} == {T0}
    assert max(len(request.partitions) for _, request in world.sent) == 1


def test_controller_machine_starts_without_any_registered_broker() -> None:
    assert World(brokers=0).context.brokers == {}
    assert isinstance(World().machine, ControllerMachine)


def test_failover_ignores_the_state_node_of_a_partition_without_an_assignment() -> None:
    world = World()
    world.nodes[T0] = state(0, [0])
    world.start(epoch=2)
    assert not world.context.leadership


@pytest.mark.row("R4", "D12")
def test_state_node_written_by_a_newer_controller_is_kept_when_a_replica_dies() -> None:
    world = World().create("t", [0, 1])
    world.nodes[T0] = replace(world.nodes[T0], controller_epoch=9, state_version=4)
    world.kill(1)
    assert world.nodes[T0].state_version == 4
    assert world.nodes[T0].isr == (0, 1)
