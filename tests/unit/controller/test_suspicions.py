"""Suspicions: the leaderships of a broker that has probably died move, and nothing else is lost or changed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.controller_world import World, state
from support.endpoints import endpoints

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    Broker,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.controller.context import PartitionStatus, ReplicaStatus
from minikafka.controller.elections import (
    Choice,
    Refusal,
    controlled_shutdown,
    offline,
    suspected,
)
from minikafka.controller.events import (
    BrokersChanged,
    BrokerSuspected,
    ControlledShutdownRequested,
    RebalanceDue,
    SuspicionEnded,
    UncleanElectionEnabled,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def leader(world: World, tp: TopicPartition = T0) -> tuple[int, tuple[int, ...], int]:
    node = world.nodes[tp]
    assert world.context.leadership[tp] == node
    return node.leader, node.isr, node.leader_epoch


def suspects_told(world: World) -> list[tuple[int, ...]]:
    """Return the suspects in the latest metadata of each registered broker."""
    return [world.sent_to(id_, UpdateMetadataRequest)[-1].suspects for id_ in world.brokers]


# The selectors.


@pytest.mark.parametrize(
    ("isr", "candidates", "min_isr", "verdict"),
    [
        ((0, 1, 2), (1, 2), 1, Choice(1, (1, 2), (0, 1, 2))),
        ((0, 1, 2), (1, 2), 2, Choice(1, (1, 2), (0, 1, 2))),
        ((0, 1, 2), (1, 2), 3, Choice(1, (0, 1, 2), (0, 1, 2))),
        ((0, 1, 2), (1, 2), 9, Choice(1, (0, 1, 2), (0, 1, 2))),
        ((0, 2), (1, 2), 1, Choice(2, (2,), (0, 1, 2))),
        ((0, 2), (1, 2), 2, Choice(2, (0, 2), (0, 1, 2))),
        ((0, 1, 2), (2,), 2, Choice(2, (0, 1, 2), (0, 1, 2))),
        ((0, 1, 2), (2,), 1, Choice(2, (2,), (0, 1, 2))),
        ((0,), (1, 2), 1, Refusal.ONLY_SUSPECTS_IN_SYNC),
        ((0, 1), (2,), 1, Refusal.ONLY_SUSPECTS_IN_SYNC),
        ((0, 1, 2), (), 1, Refusal.ONLY_SUSPECTS_IN_SYNC),
    ],
)
def test_suspect_leaves_the_isr_only_where_min_insync_replicas_stay(
    isr: tuple[int, ...], candidates: tuple[int, ...], min_isr: int, verdict: Choice | Refusal
) -> None:
    assert suspected((0, 1, 2), isr, candidates, (0, 1, 2), min_isr) == verdict


def test_suspected_election_fails_without_assigned_replicas() -> None:
    assert suspected((), (0,), (1,), (1,), 1) is Refusal.NO_REPLICAS_ASSIGNED


def test_live_suspect_in_the_isr_forbids_an_unclean_election() -> None:
    only = Refusal.ONLY_SUSPECTS_IN_SYNC
    assert offline([0, 1], [0], {0, 1}, {0}, unclean=True) is only
    assert offline([0, 1], [0, 1], {0, 1}, {0, 1}, unclean=True) is only
    assert offline([0, 1], [0], {1}, (), unclean=True) == Choice(1, (1,), (1,), unclean=True)


def test_offline_election_never_chooses_a_suspect() -> None:
    assert offline([0, 1], [0, 1], {0, 1}, {0}, unclean=False) == Choice(1, (0, 1), (0, 1))
    chosen = offline([0, 1, 2], [3], {0, 1, 2}, {0}, unclean=True)
    assert chosen == Choice(1, (1,), (0, 1, 2), unclean=True)
    assert offline([0], [3], {0}, {0}, unclean=True) is Refusal.NO_REPLICA_ONLINE


def test_controlled_shutdown_never_hands_over_to_a_suspect() -> None:
    refused = Refusal.NO_OTHER_REPLICA_IN_SYNC
    assert controlled_shutdown([0, 1], [0, 1], {0, 1}, {0}, {1}) is refused
    assert controlled_shutdown([0, 1, 2], [0, 1, 2], {0, 1, 2}, {0}, {1}) == Choice(
        2, (1, 2), (0, 1, 2)
    )


# The beginning of a suspicion.


def test_leaderships_of_a_suspect_move_and_it_leaves_their_isrs() -> None:
    world = World().create("t", [0, 1, 2], [1, 0, 2]).clear().suspect(0)
    assert leader(world) == (1, (1, 2), 1)
    assert leader(world, T1) == (1, (1, 0, 2), 0), "its leader proposes this ISR"
    assert [set(write.states) for write in world.writes] == [{T0}]
    assert suspects_told(world) == [(0,)] * 3
    assert world.context.suspicions == 1


def test_brokers_learn_of_a_suspect_before_they_become_leader() -> None:
    world = World().create("t", [0, 1, 2]).clear().suspect(0)
    first, second, third = world.sent_to(1)
    assert isinstance(first, UpdateMetadataRequest)
    assert (first.suspects, first.partitions) == ((0,), ())
    assert isinstance(second, LeaderAndIsrRequest)
    assert isinstance(third, UpdateMetadataRequest)
    assert [p.tp for p in third.partitions] == [T0]


def test_suspect_that_may_be_alive_is_told_to_follow_and_keeps_its_replicas() -> None:
    world = World().create("t", [0, 1, 2]).clear().suspect(0)
    (request,) = world.sent_to(0, LeaderAndIsrRequest)
    assert (request.partitions[0].leader, request.partitions[0].leader_epoch) == (1, 1)
    assert not [request for _, request in world.sent if isinstance(request, StopReplicaRequest)]
    assert world.context.replica_status(T0, 0) is ReplicaStatus.ONLINE
    (metadata,) = {
        replace(request, broker_epoch=1)
        for _, request in world.sent
        if isinstance(request, UpdateMetadataRequest) and request.partitions
    }
    assert 0 in {broker.id for broker in metadata.live_brokers}
    assert metadata.partitions[0].offline == ()


def test_suspect_stays_in_the_isr_where_min_insync_replicas_would_not_hold() -> None:
    world = World().create("t", [0, 1], [0, 1, 2])
    world.min_isr["t"] = 2
    world.suspect(0)
    assert leader(world) == (1, (0, 1), 1)
    assert leader(world, T1) == (1, (1, 2), 1)


@pytest.mark.parametrize("unclean", [False, True])
def test_leadership_stays_where_no_other_isr_member_can_lead(unclean: bool) -> None:
    world = World()
    world.unclean = {"t"} if unclean else set()
    world.create("t", [0], [0, 1]).expand(T1, [0])
    before = dict(world.nodes)
    world.clear().suspect(0)
    world.handle(UncleanElectionEnabled(None))
    assert dict(world.nodes) == before
    assert not world.writes
    assert not world.context.unavailable
    assert world.context.unclean_elections == 0
    assert not [request for _, request in world.sent if isinstance(request, LeaderAndIsrRequest)]


def test_isr_that_the_suspect_wrote_last_is_read_before_the_leadership_stays() -> None:
    world = World().create("t", [0, 1, 2]).kill(1)
    world.register(1, epoch=5)
    world.kill(2)
    assert leader(world)[1] == (0,)
    world.shrink(T0, [0, 1])
    world.suspect(0)
    assert leader(world)[:2] == (1, (1,))


def test_leadership_moves_to_a_member_of_the_isr_that_an_alive_suspect_writes() -> None:
    world = World().create("t", [0, 1, 2])

    def shrink_once(question: object) -> None:
        world.before_write = lambda question: None
        world.shrink(T0, [0, 2])

    world.before_write = shrink_once
    world.clear().suspect(0)
    assert leader(world) == (2, (2,), 1)
    assert len(world.writes) == 2


def test_leadership_stays_when_an_alive_suspect_has_just_shrunk_the_isr_to_itself() -> None:
    world = World().create("t", [0, 1, 2])
    world.before_write = lambda question: world.shrink(T0, [0])
    world.unclean = {"t"}
    world.suspect(0)
    assert leader(world) == (0, (0,), 0)
    assert world.context.partition_status(T0) is PartitionStatus.ONLINE


@pytest.mark.parametrize(
    "event", [BrokerSuspected(0, 7, ""), BrokerSuspected(9, 1, ""), SuspicionEnded(0, 1)]
)
def test_suspicion_of_another_registration_changes_nothing(event: object) -> None:
    world = World().create("t", [0, 1, 2]).clear().handle(event)
    assert not world.effects
    assert (world.context.suspicions, world.context.false_suspicions) == (0, 0)


def test_second_report_about_a_suspect_changes_nothing() -> None:
    world = World().create("t", [0, 1, 2]).suspect(0).clear().suspect(0)
    assert not world.effects
    assert world.context.suspicions == 1


def test_broker_that_is_shutting_down_is_not_suspected() -> None:
    world = World().create("t", [0, 1, 2])
    world.shut_down(0)
    world.clear().suspect(0)
    assert not world.effects
    assert not world.context.suspects


# Elections during a suspicion.


def test_no_election_gives_a_suspect_a_leadership(caplog: pytest.LogCaptureFixture) -> None:
    world = World().create("t", [0, 1, 2]).suspect(0)
    world.expand(T0, [1, 2, 0])
    world.handle(RebalanceDue())
    assert leader(world)[0] == 1
    assert "Failed to change state" not in caplog.text, "the rebalance tried to elect the suspect"
    unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.elect([T0])[T0].code is unavailable
    world.reassign({T0: [0, 2, 1]})
    assert leader(world)[0] == 1
    assert world.shut_down(1).remaining == ()
    assert leader(world)[0] == 2
    assert world.shut_down(2).remaining == (T0,)
    world.kill(1, 2)
    assert (world.nodes[T0].leader, world.nodes[T0].isr) == (-1, (0,))
    assert world.elect([T0], unclean=True)[T0].code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    world.clear_of_suspicion(0)
    assert leader(world)[:2] == (0, (0,))


def test_unclean_election_waits_while_the_only_isr_member_is_a_suspect() -> None:
    world = World().create("t", [0, 1, 2])
    world.unclean = {"t"}
    world.suspect(0).expand(T0, [1, 2, 0]).kill(1, 2)
    world.register(1, epoch=5)
    assert world.nodes[T0].leader == -1
    assert world.context.unclean_elections == 0
    world.kill(0)
    assert leader(world)[:2] == (1, (1,))
    assert world.context.unclean_elections == 1


def test_new_partition_is_led_by_another_broker_and_its_replica_on_the_suspect_starts() -> None:
    world = World().suspect(0).clear().create("t", [0, 1, 2], [0])
    assert leader(world) == (1, (1, 2), 0)
    assert T1 not in world.nodes
    (state_sent,) = world.sent_to(0, LeaderAndIsrRequest)[0].partitions
    assert (state_sent.tp, state_sent.leader, state_sent.is_new) == (T0, 1, True)
    world.clear_of_suspicion(0)
    assert leader(world, T1) == (0, (0,), 0)


def test_second_suspect_in_the_isr_is_skipped_and_both_leave_it() -> None:
    world = World(brokers=4).create("t", [0, 1, 2, 3], [1, 0])
    world.suspect(1).suspect(0)
    assert leader(world) == (2, (2, 3), 1)
    assert leader(world, T1)[:2] == (0, (0,)), (
        "it moved once, to the broker that was no suspect yet"
    )


def test_reassignment_waits_for_the_suspect_and_continues_when_it_is_alive() -> None:
    world = World(brokers=4).create("t", [1, 2])
    world.suspect(3)
    world.reassign({T0: [3]})
    world.expand(T0, [1, 2, 3])
    assert leader(world)[0] == 1
    assert T0 in world.context.reassigning
    world.clear_of_suspicion(3)
    assert leader(world)[:2] == (3, (3,))
    assert world.topics["t"].assignment[0].replicas == (3,)


def test_topic_is_deleted_when_its_leader_was_suspected_and_is_alive() -> None:
    world = World().create("t", [0, 1]).mark("t").suspect(0)
    world.deleted(1, T0)
    assert "t" in world.topics
    world.deleted(0, T0)
    assert "t" not in world.topics
    assert not world.deletions


def test_deletion_waits_for_a_suspect_that_died_until_it_starts_again() -> None:
    world = World().create("t", [0, 1]).suspect(0).mark("t")
    world.deleted(1, T0).kill(0)
    assert world.context.ineligible == {"t": "offline replicas"}
    world.register(0, epoch=5)
    world.deleted(0, T0)
    assert "t" not in world.topics


# The end of a suspicion.


def test_false_suspicion_ends_and_the_preferred_leader_returns() -> None:
    world = World().create("t", [0, 1, 2]).suspect(0).clear().clear_of_suspicion(0)
    assert leader(world) == (1, (1, 2), 1)
    assert not world.writes
    assert suspects_told(world) == [()] * 3
    assert world.context.false_suspicions == 1
    world.expand(T0, [1, 2, 0]).handle(RebalanceDue())
    assert leader(world) == (0, (1, 2, 0), 2)


def test_end_of_one_suspicion_moves_the_leaderships_of_the_other_suspect() -> None:
    world = World().create("t", [0, 1]).suspect(1).suspect(0)
    assert leader(world) == (0, (0, 1), 0)
    world.clear_of_suspicion(1)
    assert leader(world) == (1, (1,), 1)


def test_leadership_moves_only_once_when_the_session_of_the_suspect_ends() -> None:
    world = World().create("t", [0, 1, 2], [0]).suspect(0)
    moved = leader(world)
    world.clear().kill(0)
    assert leader(world) == moved
    assert (world.nodes[T1].leader, world.nodes[T1].isr) == (-1, (0,))
    assert suspects_told(world) == [()] * 2
    assert world.context.false_suspicions == 0


def test_suspect_that_stayed_in_the_isr_leaves_it_when_its_session_ends() -> None:
    world = World().create("t", [0, 1])
    world.min_isr["t"] = 2
    world.suspect(0).kill(0)
    assert leader(world)[:2] == (1, (1,))


def test_suspect_that_starts_again_can_be_elected_in_its_new_registration() -> None:
    world = World().create("t", [0, 1, 2], [0]).suspect(0)
    world.clear().register(0, epoch=50)
    assert leader(world)[0] == 1
    assert leader(world, T1)[:2] == (0, (0,))
    assert suspects_told(world) == [()] * 3
    world.handle(SuspicionEnded(0, 1))
    assert world.context.false_suspicions == 0
    world.suspect(0)
    assert world.context.suspects == {0: 50}


def test_suspicion_survives_new_endpoints_of_the_same_registration() -> None:
    world = World().create("t", [0, 1]).suspect(0)
    world.brokers[0] = Broker(0, endpoints("other", 1, "other", 2), 1)
    world.handle(BrokersChanged(dict(world.brokers)))
    assert world.context.suspects == {0: 1}
    assert suspects_told(world) == [(0,)] * 3


def test_suspect_can_shut_down_and_answer_afterwards() -> None:
    world = World().create("t", [0, 1, 2], [1, 0]).suspect(0)
    assert world.shut_down(0).remaining == ()
    assert leader(world, T1)[1] == (1,)
    world.clear_of_suspicion(0)
    assert 0 in world.context.shutting_down
    assert leader(world)[0] == 1


# A new controller.


def test_new_controller_moves_leaderships_of_brokers_that_refused_its_probe() -> None:
    world = World().create("t", [0, 1, 2], [0], [2, 0])
    world.clear().start(2, {0: 1, 1: 99})
    assert world.context.suspects == {0: 1}
    assert leader(world) == (1, (1, 2), 1)
    assert leader(world, T1) == (0, (0,), 0)
    assert not world.context.unavailable
    assert suspects_told(world) == [(0,)] * 3


def test_new_controller_elects_no_suspect_for_a_partition_that_is_offline() -> None:
    world = World().create("t", [0, 1, 2])
    world.nodes[T0] = state(-1, [0, 2], epoch=4, version=7)
    world.start(2, {0: 1})
    assert leader(world) == (2, (0, 2), 5)


# Generated schedules.


class Schedule:
    """Random events during suspicions, with checks after each event."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(brokers=4)
        self.world.min_isr["t"] = self.chance.choice([1, 2, 3])
        self.world.unclean = self.chance.choice([set(), {"t"}])
        lists = [self.chance.sample(range(4), self.chance.choice([1, 2, 3])) for _ in range(6)]
        self.world.create("t", *lists)
        self.epochs = 10
        self.moved: dict[int, set[TopicPartition]] = {}
        """Suspect -> partitions that this suspicion has moved."""

    def run(self, events: int) -> None:
        for _ in range(events):
            before = dict(self.world.nodes)
            self.step()
            self.check(before)

    def step(self) -> None:
        world, chance = self.world, self.chance
        id_ = chance.randrange(4)
        tp = chance.choice(list(world.nodes))
        node = world.nodes[tp]
        replicas = world.context.replicas(tp)
        event = chance.choice(
            ["suspect"] * 4 + ["end", "end", "stop", "start", "isr", "isr", "new"]
        )
        if event == "suspect" and id_ in world.brokers:
            world.suspect(id_)
        elif event == "end" and id_ in world.brokers:
            world.clear_of_suspicion(id_)
        elif event == "stop" and id_ in world.brokers:
            if chance.random() < 0.3:
                world.handle(ControlledShutdownRequested(7, id_, world.brokers[id_].epoch))
            world.kill(id_)
        elif event == "start":
            self.epochs += 1
            world.register(id_, self.epochs)
        elif event == "isr" and node.leader >= 0:
            members = [r for r in replicas if r == node.leader or chance.random() < 0.7]
            world.shrink(tp, [r for r in members if r in world.brokers] or list(node.isr))
        elif event == "new":
            world.start(world.context.epoch + 1, dict(world.context.suspects))
        else:
            world.elect([tp], unclean=chance.random() < 0.1)

    def check(self, before: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        context = self.world.context
        self.moved = {id_: self.moved.get(id_, set()) for id_ in context.suspects}
        for tp, node in self.world.nodes.items():
            old = before.get(tp, node)
            assert node.leader_epoch >= old.leader_epoch
            if node.leader == old.leader:
                continue
            assert node.leader_epoch > old.leader_epoch
            assert context.suspects.get(node.leader) is None, (tp, old, node)
            if old.leader in context.suspects:
                assert node.leader in old.isr, "an unclean election by suspicion"
                assert tp not in self.moved[old.leader], "leadership flaps"
                self.moved[old.leader].add(tp)
        for broker_id, epoch in context.suspects.items():
            assert context.brokers[broker_id].epoch == epoch
            for tp in context.led.get(broker_id, ()):
                assert tp not in context.unavailable, "a suspicion took the partition offline"


@pytest.mark.parametrize("seed", range(40))
def test_generated_suspicions_never_flap_elect_a_suspect_or_lose_the_isr(seed: int) -> None:
    Schedule(seed).run(40)
