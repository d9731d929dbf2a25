"""The elections agree with truth tables over all orders of three replicas, all ISRs and all sets of live brokers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from minikafka.deciders.controller.elections import (
    ChosenLeader,
    Refusal,
    controlled_shutdown,
    offline,
    preferred,
    reassigned,
)

Brokers = tuple[int, ...]
SUBSETS: list[Brokers] = [s for n in range(4) for s in itertools.combinations(range(3), n)]


def situations() -> Iterator[tuple[Brokers, Brokers, Brokers]]:
    """Yield (assignment, ISR, live brokers); the ISR is never empty."""
    orders = itertools.permutations(range(3))
    return itertools.product(orders, SUBSETS[1:], SUBSETS)


@pytest.mark.row("H1", "H2", "X4")
def test_offline_election_chooses_the_first_live_replica_in_the_isr() -> None:
    for replicas, isr, live in situations():
        members = [r for r in replicas if r in isr and r in live]
        verdict = offline(replicas, isr, live, unclean=False)
        if not members:
            assert verdict is Refusal.NO_REPLICA_ONLINE
            continue
        assert isinstance(verdict, ChosenLeader)
        assert verdict.leader == members[0]
        assert verdict.isr == tuple(r for r in isr if r in live)
        assert set(verdict.recipients) == {r for r in replicas if r in live}
        assert not verdict.unclean


@pytest.mark.row("H3", "X3")
def test_unclean_election_chooses_outside_the_isr_only_when_the_whole_isr_is_dead() -> None:
    for replicas, isr, live in situations():
        clean = offline(replicas, isr, live, unclean=False)
        verdict = offline(replicas, isr, live, unclean=True)
        living = [r for r in replicas if r in live]
        if clean is not Refusal.NO_REPLICA_ONLINE or not living:
            assert verdict == clean
            continue
        assert isinstance(verdict, ChosenLeader)
        assert (verdict.leader, verdict.isr) == (living[0], (living[0],))
        assert verdict.unclean


@pytest.mark.row("H5", "X5")
def test_reassignment_election_chooses_the_first_live_target_in_the_isr() -> None:
    for target, isr, live in situations():
        members = [r for r in target if r in isr and r in live]
        verdict = reassigned(target, isr, live)
        if not members:
            assert verdict is Refusal.NO_REASSIGNED_REPLICA_IN_SYNC
            continue
        assert isinstance(verdict, ChosenLeader)
        assert (verdict.leader, verdict.isr) == (members[0], isr)
        assert set(verdict.recipients) <= set(target)
    assert reassigned((), (0,), (0,)) is Refusal.NO_REASSIGNED_REPLICAS


@pytest.mark.row("H6")
def test_preferred_election_chooses_the_first_replica_or_fails() -> None:
    for (replicas, isr, live), leader in itertools.product(situations(), range(-1, 3)):
        verdict = preferred(replicas, isr, live, leader)
        first = replicas[0]
        if leader == first:
            assert verdict is Refusal.ELECTION_NOT_NEEDED
        elif first in isr and first in live:
            assert isinstance(verdict, ChosenLeader)
            assert (verdict.leader, verdict.isr) == (first, isr)
        else:
            assert verdict is Refusal.PREFERRED_NOT_AVAILABLE


@pytest.mark.row("H7", "X6")
def test_controlled_shutdown_election_chooses_the_first_isr_member_that_stays_up() -> None:
    for (replicas, isr, live), going in itertools.product(situations(), SUBSETS):
        verdict = controlled_shutdown(replicas, isr, live, going)
        staying = [r for r in replicas if r in isr and r in live and r not in going]
        if not staying:
            assert verdict is Refusal.NO_OTHER_REPLICA_IN_SYNC
            continue
        assert isinstance(verdict, ChosenLeader)
        assert verdict.leader == staying[0]
        assert verdict.isr == tuple(r for r in isr if r not in going)
        assert set(verdict.recipients) == {r for r in replicas if r in live}


@pytest.mark.row("H9")
def test_election_is_refused_when_the_partition_has_no_assigned_replicas() -> None:
    assert offline((), (0,), (0,), unclean=True) is Refusal.NO_REPLICAS_ASSIGNED
    assert Refusal.NO_REPLICAS_ASSIGNED.value == "doesn't have replicas assigned to it"
