"""The periodic check of a leader: preferred replicas take over, late replicas are started again (C29)."""

from __future__ import annotations

import pytest
from support.leaders_views import EVERYONE, ID, T0, Bench, request, view

from minikafka.leaders.events import (
    BalanceDue,
    CaughtUp,
    ElectionWaitEnded,
    Enqueue,
    GiveUpLeadership,
    Registered,
    Scanned,
    StopLeading,
    WaitToElect,
)
from minikafka.leaders.model import PartitionView, Replicas, ReplicaStatus


def led(
    replicas: Replicas = (1, 0), isr: Replicas = (0, 1), target: Replicas | None = None
) -> PartitionView:
    return view(replicas, leader=(0, 8), ours=True, isr=isr, target=target)


def leader(seen: PartitionView) -> Bench:
    """Broker 0 leads, and is not preferred."""
    bench = Bench(0)
    bench.handle(Registered())
    before = view(seen.replicas, isr=(0, 1))
    bench.handle(Scanned({T0: before}, {T0: ID}, EVERYONE))
    bench.handle(ElectionWaitEnded(T0, before, EVERYONE))
    bench.read(seen)
    bench.handle(CaughtUp(T0, (0, 1)))
    assert bench.machine.status(T0) is ReplicaStatus.LEADING
    return bench


@pytest.mark.row("C29")
def test_leader_gives_up_for_the_preferred_replica_then_waits_its_turn() -> None:
    bench = leader(led())
    assert bench.handle(BalanceDue({T0: led()}, EVERYONE)) == [
        StopLeading(T0),
        GiveUpLeadership(T0, led()),
    ]
    assert bench.read(view((1, 0), isr=(0, 1), epoch=8)) == [WaitToElect(T0, is_for_preferred=True)]


@pytest.mark.row("C29")
@pytest.mark.parametrize(
    ("first", "seen", "live"),
    [
        (led((0, 1)), led((0, 1)), EVERYONE),
        (led(), led(isr=(0,)), EVERYONE),
        (led(), led(), frozenset({0})),
        (led(target=(1, 0, 2)), led(target=(1, 0, 2)), EVERYONE),
    ],
    ids=["it is preferred", "not in sync", "not registered", "reassignment"],
)
def test_leader_keeps_a_leadership_that_no_other_can_take(
    first: PartitionView, seen: PartitionView, live: frozenset[int]
) -> None:
    bench = leader(first)
    effects = bench.handle(BalanceDue({T0: seen}, live))
    assert StopLeading(T0) not in effects
    assert bench.machine.status(T0) is ReplicaStatus.LEADING


def test_leaderships_stay_if_the_balance_is_switched_off() -> None:
    bench = leader(led())
    assert bench.handle(BalanceDue({T0: led()}, EVERYONE, may_move=False)) == []


def test_leader_in_another_epoch_than_the_view_gives_nothing_up() -> None:
    bench = leader(led())
    raised = view((1, 0), leader=(0, 9), ours=True, isr=(0, 1), target=(1, 0, 2))
    effects = bench.handle(BalanceDue({T0: raised}, EVERYONE))
    assert StopLeading(T0) not in effects


def test_late_replica_of_a_reassignment_is_started_again_if_it_lives() -> None:
    seen = led(target=(1, 2, 3, 4))
    bench = leader(seen)
    synced = led(isr=(0, 1, 4), target=(1, 2, 3, 4))
    assert bench.handle(BalanceDue({T0: synced}, frozenset({0, 1, 2, 4}))) == [
        Enqueue(2, request(epoch=8, sender=0))
    ]


def test_follower_and_unknown_partition_are_not_balanced() -> None:
    bench = Bench(1)
    seen = view(leader=(0, 7), isr=(0, 1))
    assert bench.handle(BalanceDue({T0: seen}, EVERYONE)) == []
    bench.follow(seen)
    assert bench.handle(BalanceDue({T0: seen}, EVERYONE)) == []
