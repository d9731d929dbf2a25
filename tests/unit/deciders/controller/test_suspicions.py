"""Suspicions: elections with suspects as pure functions, and generated schedules."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from support.deciders.controller_world import World

from minikafka.base.model import (
    LeaderAndIsr,
    TopicPartition,
)
from minikafka.deciders.controller.elections import (
    ChosenLeader,
    Refusal,
    controlled_shutdown,
    offline,
    suspected,
)
from minikafka.deciders.controller.events import (
    ControlledShutdownRequested,
)

# The selectors.


@pytest.mark.parametrize(
    ("isr", "candidates", "min_isr", "verdict"),
    [
        ((0, 1, 2), (1, 2), 1, ChosenLeader(1, (1, 2), (0, 1, 2))),
        ((0, 1, 2), (1, 2), 2, ChosenLeader(1, (1, 2), (0, 1, 2))),
        ((0, 1, 2), (1, 2), 3, ChosenLeader(1, (0, 1, 2), (0, 1, 2))),
        ((0, 1, 2), (1, 2), 9, ChosenLeader(1, (0, 1, 2), (0, 1, 2))),
        ((0, 2), (1, 2), 1, ChosenLeader(2, (2,), (0, 1, 2))),
        ((0, 2), (1, 2), 2, ChosenLeader(2, (0, 2), (0, 1, 2))),
        ((0, 1, 2), (2,), 2, ChosenLeader(2, (0, 1, 2), (0, 1, 2))),
        ((0, 1, 2), (2,), 1, ChosenLeader(2, (2,), (0, 1, 2))),
        ((0,), (1, 2), 1, Refusal.ONLY_SUSPECTS_IN_SYNC),
        ((0, 1), (2,), 1, Refusal.ONLY_SUSPECTS_IN_SYNC),
        ((0, 1, 2), (), 1, Refusal.ONLY_SUSPECTS_IN_SYNC),
    ],
)
def test_suspect_leaves_the_isr_only_where_min_insync_replicas_stay(
    isr: tuple[int, ...], candidates: tuple[int, ...], min_isr: int, verdict: ChosenLeader | Refusal
) -> None:
    assert suspected((0, 1, 2), isr, candidates, (0, 1, 2), min_isr) == verdict


def test_suspected_election_fails_without_assigned_replicas() -> None:
    assert suspected((), (0,), (1,), (1,), 1) is Refusal.NO_REPLICAS_ASSIGNED


def test_live_suspect_in_the_isr_forbids_an_unclean_election() -> None:
    only = Refusal.ONLY_SUSPECTS_IN_SYNC
    assert offline([0, 1], [0], {0, 1}, {0}, unclean=True) is only
    assert offline([0, 1], [0, 1], {0, 1}, {0, 1}, unclean=True) is only
    assert offline([0, 1], [0], {1}, (), unclean=True) == ChosenLeader(1, (1,), (1,), unclean=True)


def test_offline_election_never_chooses_a_suspect() -> None:
    assert offline([0, 1], [0, 1], {0, 1}, {0}, unclean=False) == ChosenLeader(1, (0, 1), (0, 1))
    chosen = offline([0, 1, 2], [3], {0, 1, 2}, {0}, unclean=True)
    assert chosen == ChosenLeader(1, (1,), (0, 1, 2), unclean=True)
    assert offline([0], [3], {0}, {0}, unclean=True) is Refusal.NO_REPLICA_ONLINE


def test_controlled_shutdown_never_hands_over_to_a_suspect() -> None:
    refused = Refusal.NO_OTHER_REPLICA_IN_SYNC
    assert controlled_shutdown([0, 1], [0, 1], {0, 1}, {0}, {1}) is refused
    assert controlled_shutdown([0, 1, 2], [0, 1, 2], {0, 1, 2}, {0}, {1}) == ChosenLeader(
        2, (1, 2), (0, 1, 2)
    )


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
