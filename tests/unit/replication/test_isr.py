"""The invariants that a partition asserts at each change of its ISR, its role and its log start."""

from __future__ import annotations

import pytest
from support.replication import LAG_MS, Replicas

from minikafka.replication.isr import PendingExpand, PendingShrink


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
