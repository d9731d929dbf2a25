"""Preferred and unclean elections, and the balance of leaders."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.controller_world import DEFAULTS, World

from minikafka.base.errors import ErrorCode
from minikafka.base.model import LeaderAndIsrRequest, TopicPartition, UpdateMetadataRequest
from minikafka.controller.events import (
    IsrChanged,
    PreferredElectionSubmitted,
    RebalanceDue,
    UncleanElectionEnabled,
)

T0 = TopicPartition("t", 0)


def moved() -> World:
    """Return a cluster in which broker 0 is the preferred leader of t-0, and broker 1 leads t-0."""
    world = World(brokers=3).create("t", [0, 1, 2])
    world.kill(0)
    world.register(0, epoch=2)
    return world.expand(T0, [1, 2, 0]).clear()


@pytest.mark.row("I7")
def test_preferred_election_moves_the_leadership_to_the_preferred_replica():
    world = moved()
    assert world.nodes[T0].leader == 1
    assert world.elect([T0])[T0].code is ErrorCode.NONE
    assert (world.nodes[T0].leader, world.nodes[T0].isr) == (0, (1, 2, 0))
    for broker in range(3):
        assert world.sent_to(broker, LeaderAndIsrRequest)


@pytest.mark.row("R61")
def test_preferred_election_is_not_needed_when_the_preferred_replica_leads():
    world = World().create("t", [0, 1])
    assert world.elect([T0])[T0].code is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.row("D13", "R61")
def test_preferred_replica_is_elected_when_only_zookeepers_isr_contains_it():
    world = World().create("t", [0, 1])
    world.kill(0).register(0, epoch=2)
    world.shrink(T0, [1, 0])
    assert world.elect([T0])[T0].code is ErrorCode.NONE
    assert world.nodes[T0].leader == 0


@pytest.mark.row("D13", "R61")
def test_isr_that_is_read_during_a_failed_election_is_sent_to_all_brokers():
    world = World().create("t", [0, 1, 2])
    world.kill(0, 2).register(0, epoch=2).register(2, epoch=2).clear()
    world.shrink(T0, [1, 2])
    assert world.elect([T0])[T0].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    (sent,) = world.sent_to(0, UpdateMetadataRequest)
    assert [state.isr for state in sent.partitions] == [(1, 2)]


@pytest.mark.row("R61")
def test_preferred_election_fails_when_the_preferred_replica_is_out_of_sync():
    world = World().create("t", [0, 1])
    world.kill(0)
    world.register(0, epoch=2)
    assert world.elect([T0])[T0].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.nodes[T0].leader == 1


@pytest.mark.row("R61")
def test_election_fails_for_an_unknown_partition_and_for_a_topic_being_deleted():
    world = World().create("t", [0, 1]).create("u", [0, 1]).mark("u")
    u0, n0 = TopicPartition("u", 0), TopicPartition("none", 0)
    results = world.elect([u0, n0])
    assert results[u0].code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert results[n0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_election_request_without_partitions_covers_all_partitions():
    world = moved()
    world.create("u", [1, 2])
    results = world.elect(None)
    assert results[T0].code is ErrorCode.NONE
    assert results[TopicPartition("u", 0)].code is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.row("R61", "X3")
def test_unclean_election_elects_a_leader_outside_the_isr_and_is_counted():
    world = World().create("t", [0, 1])
    world.shrink(T0, [0])
    world.handle(IsrChanged((), {T0: world.nodes[T0]}))
    world.kill(0)
    assert world.nodes[T0].leader == -1
    assert world.elect([T0])[T0].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.elect([T0], unclean=True)[T0].code is ErrorCode.NONE
    assert (world.nodes[T0].leader, world.nodes[T0].isr) == (1, (1,))
    assert world.context.unclean_elections == 1


def test_unclean_election_is_not_needed_when_there_is_a_leader():
    world = World().create("t", [0, 1])
    assert world.elect([T0], unclean=True)[T0].code is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.row("R61")
def test_unclean_election_fails_without_a_live_replica():
    world = World(brokers=3).create("t", [0, 1])
    world.kill(0, 1)
    result = world.elect([T0], unclean=True)[T0]
    assert result.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@pytest.mark.row("X26")
def test_election_requested_in_the_admin_node_is_held_and_the_node_is_deleted():
    world = moved()
    world.elections = (T0, TopicPartition("none", 0))
    world.handle(PreferredElectionSubmitted(world.elections))
    assert world.nodes[T0].leader == 0
    assert world.elections is None


def test_election_node_is_deleted_each_time_although_the_preferred_broker_never_returns():
    u0 = TopicPartition("u", 0)
    world = moved().create("u", [1, 2])
    world.kill(0)
    for _ in range(2):
        world.elections = (T0, u0)
        world.handle(PreferredElectionSubmitted(world.elections))
        assert world.elections is None
        assert (world.nodes[T0].leader, world.nodes[u0].leader) == (1, 1)
    world.register(0, epoch=3)
    world.expand(T0, [1, 2, 0])
    world.elections = (T0,)
    world.handle(PreferredElectionSubmitted(world.elections))
    assert (world.nodes[T0].leader, world.elections) == (0, None)


@pytest.mark.row("D18")
def test_next_controller_holds_the_election_requested_in_the_admin_node():
    world = moved()
    world.elections = (T0,)
    world.start(epoch=2)
    assert world.nodes[T0].leader == 0
    assert world.elections is None


@pytest.mark.row("R62", "X20", "C29")
def test_leader_imbalance_above_the_ratio_is_corrected():
    world = moved()
    assert world.machine.preferred_imbalance_count() == 1
    world.handle(RebalanceDue())
    assert world.nodes[T0].leader == 0
    assert world.machine.preferred_imbalance_count() == 0


@pytest.mark.row("R62", "X20")
@pytest.mark.key("leader.imbalance.per.broker.percentage")
def test_leader_imbalance_within_the_ratio_is_not_corrected():
    world = World(settings=replace(DEFAULTS, leader_imbalance_per_broker_percentage=50))
    world.create("t", [0, 1], [0, 1], [0, 1])
    world.kill(0)
    world.register(0, epoch=2)
    for p in range(3):
        tp = TopicPartition("t", p)
        world.expand(tp, [1, 0])
    world.elect([TopicPartition("t", 0), TopicPartition("t", 1)])
    world.handle(RebalanceDue())
    assert world.nodes[TopicPartition("t", 2)].leader == 1


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


@pytest.mark.row("R62")
def test_leader_rebalancing_skips_only_the_partition_under_reassignment():
    world = World(brokers=3).create("t", [0, 1], [0, 1])
    world.kill(0)
    world.register(0, epoch=2)
    t1 = TopicPartition("t", 1)
    world.expand(T0, [1, 0])
    world.expand(t1, [1, 0])
    world.reassign({t1: [0, 2]})
    world.handle(RebalanceDue())
    assert world.nodes[T0].leader == 0
    assert world.nodes[t1].leader == 1


@pytest.mark.row("R63")
def test_enabling_unclean_election_elects_leaders_only_in_the_enabled_topics():
    world = World().create("t", [0, 1]).create("u", [0, 1])
    u0 = TopicPartition("u", 0)
    for tp in (T0, u0):
        world.shrink(tp, [0])
        world.handle(IsrChanged((), {tp: world.nodes[tp]}))
    world.kill(0)
    world.unclean = {"t", "u"}
    world.handle(UncleanElectionEnabled(("t",)))
    assert (world.nodes[T0].leader, world.nodes[u0].leader) == (1, -1)
    world.handle(UncleanElectionEnabled(None))
    assert world.nodes[u0].leader == 1
