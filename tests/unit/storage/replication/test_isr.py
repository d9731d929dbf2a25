"""The invariants that a partition asserts at each change of its ISR, its role and its log start."""

from __future__ import annotations

import pytest
from support.storage.replication import LAG_MS, Replicas

from minikafka.base.model import NO_LEADER
from minikafka.storage.replication.isr import Committed, PendingExpand, PendingShrink


def test_shrink_for_which_the_high_watermark_does_not_wait_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PendingShrink, "maximal", PendingShrink.proposed)
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    r.now += LAG_MS + 1
    with pytest.raises(AssertionError, match="leaving"):
        r[0].partition.maybe_shrink_isr(r.now)


def test_second_isr_change_is_refused_while_one_is_pending() -> None:
    r = Replicas((0, 1, 2), isr=(0,))
    r.elect(0)
    r[0].partition.expand_isr(1)
    with pytest.raises(AssertionError, match="joining"):
        r[0].partition.expand_isr(2)
    assert r[0].partition.isr_state == PendingExpand((0,), 1)


def test_isr_is_committed_only_once() -> None:
    r = Replicas((0, 1), isr=(0,))
    r.elect(0)
    r[0].partition.expand_isr(1)
    r.commit_isr(0)
    with pytest.raises(AssertionError):
        r.commit_isr(0)


def test_role_for_another_broker_is_refused() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    with pytest.raises(AssertionError):
        r[1].partition.become_leader(r.state(), r.now)
    with pytest.raises(AssertionError):
        r[0].partition.become_follower(r.state())


def test_log_start_above_the_high_watermark_is_refused() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r.produce(0, b"m1")
    with pytest.raises(AssertionError):
        r[0].partition.advance_log_start_offset(1)


def test_follower_whose_role_has_ended_remembers_its_leader_until_it_is_stopped() -> None:
    """It may follow that leader again in the same epoch."""
    r = Replicas((0, 1))
    r.elect(0)
    follower = r[1].partition
    follower.end_role()
    follower.end_role()
    assert (follower.leader, follower.followed_before) == (NO_LEADER, 0)
    follower.stop()
    assert follower.followed_before == NO_LEADER


def test_leader_whose_role_has_ended_remembers_no_leader() -> None:
    r = Replicas((0, 1))
    r.elect(0)
    r[0].partition.end_role()
    assert r[0].partition.followed_before == NO_LEADER


def test_leader_outside_the_stored_isr_leads_and_lets_followers_join() -> None:
    """A tool has written such a state node; the controller sends it as it is."""
    r = Replicas((0, 1, 2), isr=(2,))
    r.elect(0)
    assert r[0].partition.is_open
    r[0].partition.expand_isr(1)
    assert r[0].partition.proposed_state().isr == (2, 1)


def test_leader_with_an_empty_stored_isr_leads_and_lets_followers_join() -> None:
    r = Replicas((0, 1), isr=())
    r.elect(0)
    r[0].partition.expand_isr(1)
    r.commit_isr(0)
    assert r[0].partition.isr == (1,)


@pytest.mark.parametrize(
    ("min_isr", "suspects", "leaving"),
    [
        (1, {1, 2}, {1, 2}),
        (2, {1, 2}, None),
        (2, {2}, {2}),
        (3, {2}, None),
        (9, {2}, None),
        (1, {7}, None),
        (1, {0}, None),
    ],
)
def test_leader_removes_suspects_only_where_min_insync_replicas_stay(
    min_isr: int, suspects: set[int], leaving: set[int] | None
) -> None:
    r = Replicas((0, 1, 2))
    r.elect(0)
    partition = r[0].partition
    partition.min_isr = min_isr
    assert partition.maybe_shrink_isr(r.now, suspects) is (leaving is not None)
    isr = (0, 1, 2)
    assert partition.isr_state == (
        PendingShrink(isr, frozenset(leaving)) if leaving else Committed(isr)
    )


def test_lagging_follower_leaves_the_isr_even_where_a_suspect_has_to_stay() -> None:
    isr, lagging = (0, 1, 2), frozenset({1})
    assert Committed(isr).without(lagging, {2}, 2) == PendingShrink(isr, lagging)
    assert Committed(isr).without(lagging, {2}, 1) == PendingShrink(isr, frozenset({1, 2}))
    assert Committed(isr).without(lagging, set(), 3) == PendingShrink(isr, lagging)


def test_high_watermark_waits_for_a_suspect_until_the_isr_without_it_is_stored() -> None:
    """The stored ISR could otherwise elect the suspect, which may lack the record."""
    r = Replicas((0, 1, 2))
    r.elect(0)
    partition = r[0].partition
    r.produce(0, b"m1")
    r.sync(0, 1)
    assert partition.maybe_shrink_isr(r.now, {2})
    r.sync(0, 1)
    assert r[0].hw == 0
    assert partition.isr_committed(2, r.now)
    assert r[0].hw == 1


def short_of_followers() -> Replicas:
    """Return a leader whose only follower lags. The ISR without it is proposed, but not stored."""
    r = Replicas((0, 1))
    r.elect(0)
    r[0].partition.min_isr = 2
    r.produce(0, b"m1")
    r.now += LAG_MS + 1
    assert r[0].partition.maybe_shrink_isr(r.now)
    return r


def test_acks_all_is_refused_before_the_isr_that_is_too_small_is_stored() -> None:
    """A leader without ZooKeeper cannot store it."""
    r = short_of_followers()
    partition = r[0].partition
    assert (partition.refuses_acks_all, partition.under_min_isr) == (True, False)
    partition.isr_not_written()
    assert partition.refuses_acks_all
    assert partition.maybe_shrink_isr(r.now)
    assert partition.refuses_acks_all


def test_acks_all_is_accepted_again_when_the_follower_has_caught_up() -> None:
    r = short_of_followers()
    partition = r[0].partition
    partition.isr_not_written()
    r.sync(0, 1)
    assert partition.high_watermark == 1
    assert not partition.refuses_acks_all
