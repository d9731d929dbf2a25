"""The leader selectors, called with plain lists (H1-H9)."""

from __future__ import annotations

import itertools

import pytest

from minikafka.deciders.controller.elections import (
    ChosenLeader,
    Refusal,
    controlled_shutdown,
    offline,
    preferred,
    reassigned,
)


@pytest.mark.row("H1", "X4")
def test_offline_election_chooses_the_first_live_replica_in_the_isr() -> None:
    assert offline([4, 1, 2], [2, 1], {1, 2, 4}, unclean=False) == ChosenLeader(
        1, (2, 1), (4, 1, 2)
    )


@pytest.mark.row("H1")
def test_offline_election_removes_dead_members_from_the_isr() -> None:
    assert offline([0, 1, 2], [0, 1, 2], {1, 2}, unclean=False) == ChosenLeader(1, (1, 2), (1, 2))


@pytest.mark.row("H2")
def test_offline_election_fails_without_a_live_isr_member() -> None:
    assert offline([0, 1, 2], [0], {1, 2}, unclean=False) is Refusal.NO_REPLICA_ONLINE


@pytest.mark.row("H3", "X3")
def test_offline_election_chooses_outside_the_isr_if_unclean_election_is_allowed() -> None:
    assert offline([0, 1, 2], [0], {2, 1}, unclean=True) == ChosenLeader(
        1, (1,), (1, 2), unclean=True
    )


@pytest.mark.row("H3")
def test_offline_election_prefers_a_live_isr_member_when_unclean_is_allowed() -> None:
    assert offline([0, 1, 2], [2], {1, 2}, unclean=True) == ChosenLeader(2, (2,), (1, 2))


@pytest.mark.row("H3")
@pytest.mark.parametrize("unclean", [False, True])
def test_offline_election_fails_without_a_live_replica(unclean: bool) -> None:
    assert offline([0, 1], [0, 1], set(), unclean=unclean) is Refusal.NO_REPLICA_ONLINE


@pytest.mark.row("H9")
@pytest.mark.parametrize("unclean", [False, True])
def test_offline_election_fails_without_assigned_replicas(unclean: bool) -> None:
    assert offline([], [0], {0}, unclean=unclean) is Refusal.NO_REPLICAS_ASSIGNED


@pytest.mark.row("H5")
def test_reassignment_election_chooses_first_live_target_replica_and_keeps_the_isr() -> None:
    assert reassigned([4, 5, 6], [1, 5, 6], {1, 5, 6}) == ChosenLeader(5, (1, 5, 6), (4, 5, 6))


@pytest.mark.row("H5", "X5")
def test_reassignment_election_chooses_no_live_target_replica_outside_the_isr() -> None:
    assert reassigned([4, 5], [1, 2], {1, 2, 4, 5}) is Refusal.NO_REASSIGNED_REPLICA_IN_SYNC


@pytest.mark.row("H5")
def test_reassignment_election_fails_without_target_replicas() -> None:
    assert reassigned([], [1], {1}) is Refusal.NO_REASSIGNED_REPLICAS


@pytest.mark.row("H6")
def test_preferred_election_chooses_the_first_replica() -> None:
    assert preferred([1, 2, 3], [3, 1], {1, 3}, leader=3) == ChosenLeader(1, (3, 1), (1, 2, 3))


@pytest.mark.row("H6")
def test_preferred_election_is_not_needed_when_the_first_replica_leads() -> None:
    assert preferred([1, 2], [1, 2], {1, 2}, leader=1) is Refusal.ELECTION_NOT_NEEDED


@pytest.mark.row("H6")
@pytest.mark.parametrize(("isr", "live"), [([2], {1, 2}), ([1, 2], {2})])
def test_preferred_election_fails_when_the_first_replica_is_dead_or_out_of_sync(
    isr: list[int], live: set[int]
) -> None:
    assert preferred([1, 2], isr, live, leader=2) is Refusal.PREFERRED_NOT_AVAILABLE


@pytest.mark.row("H7", "X6")
def test_controlled_shutdown_elects_a_remaining_replica_and_shrinks_the_isr() -> None:
    choice = controlled_shutdown([0, 1, 2], [0, 1, 2], {0, 1, 2}, {0, 1})
    assert choice == ChosenLeader(2, (2,), (0, 1, 2))


@pytest.mark.row("H7")
def test_controlled_shutdown_chooses_no_replica_outside_the_isr() -> None:
    assert controlled_shutdown([0, 1], [0], {0, 1}, {0}) is Refusal.NO_OTHER_REPLICA_IN_SYNC


def test_every_elected_leader_is_in_the_isr_and_every_isr_in_the_assignment() -> None:
    subsets = [s for n in range(4) for s in itertools.combinations(range(3), n)]
    for replicas, isr, live, going in itertools.product(
        itertools.permutations(range(3)), subsets[1:], subsets, subsets
    ):
        verdicts = [
            offline(replicas, isr, live, unclean=False),
            offline(replicas, isr, live, unclean=True),
            reassigned(replicas, isr, live),
            preferred(replicas, isr, live, isr[0]),
            controlled_shutdown(replicas, isr, live, going),
        ]
        for verdict in verdicts:
            if isinstance(verdict, ChosenLeader):
                assert verdict.leader in verdict.isr
                assert verdict.leader in live
                assert set(verdict.isr) <= set(replicas)
                assert verdict.unclean or set(verdict.isr) <= set(isr)
