"""What a leader does about a reassignment, its completion or cancellation, and a deletion (C9, C10, C30, C31)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from support.leaders_views import T0, Bench, only, request, view

from minikafka.leaders.events import (
    BecomeLeader,
    CaughtUp,
    CompleteReassignment,
    Effect,
    ElectionWaitEnded,
    Enqueue,
    GiveUpLeadership,
    IsrConflict,
    RaiseEpoch,
    StopLeading,
    WaitToElect,
    WatchReassignments,
)
from minikafka.leaders.model import Operation, PartitionView, Replicas, ReplicaStatus, StateChange

CLOSE = Operation.CLOSE


def led(
    epoch: int,
    isr: Replicas,
    target: Replicas | None = None,
    replicas: Iterable[int] = (0, 1, 2),
) -> PartitionView:
    return view(replicas, leader=(0, epoch), ours=True, isr=isr, target=target)


def leader(seen: PartitionView) -> Bench:
    bench = Bench(0)
    bench.lead(seen)
    return bench


def closes(epoch: int, *receivers: int) -> tuple[tuple[int, StateChange], ...]:
    return tuple((id_, request(CLOSE, epoch=epoch, sender=0)) for id_ in receivers)


def starts(epoch: int, *receivers: int) -> list[Enqueue]:
    return [Enqueue(id_, request(epoch=epoch, sender=0)) for id_ in receivers]


@pytest.mark.row("C9")
def test_added_replicas_are_started_in_a_higher_epoch() -> None:
    bench = leader(led(7, (0, 1, 2)))
    asked = led(7, (0, 1, 2), (0, 3, 4))
    assert bench.read(asked) == [RaiseEpoch(T0, asked, 8, (0, 1, 2))]
    raised = led(8, (0, 1, 2), (0, 3, 4))
    assert bench.read(raised) == [
        BecomeLeader(T0, raised, False, is_renewal=True),
        *starts(8, 3, 4),
    ]
    assert bench.texts() == [
        "leader, broker id 0, requested start-replica for topic t partition 0, "
        f"to broker id {id_}, at epoch 8"
        for id_ in (3, 4)
    ]
    assert bench.read(raised) == []


def test_opening_leader_starts_added_replicas_after_it_has_opened() -> None:
    bench = Bench(0)
    seen = led(7, (0, 1), (0, 3))
    effects = bench.lead(seen, is_open=False)
    assert effects == [BecomeLeader(T0, seen, False), WatchReassignments("t")]
    assert only(bench.handle(CaughtUp(T0, (0, 1))), Enqueue) == starts(7, 3)


def test_start_requests_are_sent_again_in_the_next_epoch() -> None:
    bench = leader(led(7, (0, 1), (0, 3)))
    changed = led(7, (0,), (0, 3))
    assert bench.handle(IsrConflict(T0, changed, frozenset())) == [RaiseEpoch(T0, changed, 8, (0,))]
    assert only(bench.read(led(8, (0,), (0, 3))), Enqueue) == starts(8, 3)


@pytest.mark.row("C30", "C31")
def test_reassignment_completes_in_one_multi_when_its_replicas_are_in_sync() -> None:
    bench = leader(led(7, (0, 1, 2)))
    bench.read(led(7, (0, 1, 2), (0, 3, 4)))
    bench.read(led(8, (0, 1, 2), (0, 3, 4)))
    ready = led(8, (0, 1, 2, 3, 4), (0, 3, 4))
    assert bench.read(ready) == [CompleteReassignment(T0, ready, 9, closes(9, 1, 2))]
    done = led(9, (0, 3, 4), replicas=(0, 3, 4))
    assert bench.read(done) == [BecomeLeader(T0, done, False, is_renewal=True)]
    assert bench.texts() == [
        "leader, broker id 0, requested close-replica for topic t partition 0, "
        f"to broker id {id_}, at epoch 9"
        for id_ in (1, 2)
    ]
    assert bench.read(done) == []


@pytest.mark.row("C31")
def test_leader_outside_the_new_replicas_closes_itself_and_gives_up() -> None:
    bench = leader(led(7, (0, 1), (1, 3)))
    ready = led(7, (0, 1, 3), (1, 3))
    assert bench.read(ready) == [CompleteReassignment(T0, ready, 8, closes(8, 0, 2))]
    done = view((1, 3), leader=(0, 8), ours=True, isr=(1, 3))
    assert bench.read(done) == [StopLeading(T0), GiveUpLeadership(T0, done)]
    assert bench.kinds() == ["requested", "requested", "refuse", "move"]
    assert bench.machine.status(T0) is ReplicaStatus.WAITING


def test_leader_that_is_only_in_the_next_reassignment_gives_up() -> None:
    """It left the ISR with the completed reassignment: with itself as the ISR it would lose the other replicas."""
    bench = leader(led(7, (0, 1), (1,)))
    done = view((1,), leader=(0, 8), ours=True, isr=(1,), target=(0, 1))
    assert bench.read(done) == [StopLeading(T0), GiveUpLeadership(T0, done)]


def test_reassignment_to_fewer_replicas_completes_at_once() -> None:
    bench = leader(led(7, (0, 1, 2)))
    asked = led(7, (0, 1, 2), (1, 0))
    assert bench.read(asked) == [CompleteReassignment(T0, asked, 8, closes(8, 2))]


def test_reassignment_to_the_same_replicas_is_only_removed() -> None:
    bench = leader(led(7, (0, 1, 2)))
    asked = led(7, (0, 1, 2), (0, 1, 2))
    assert bench.read(asked) == [CompleteReassignment(T0, asked, 8, ())]


def test_refused_completion_is_repeated_after_a_wait() -> None:
    bench = leader(led(7, (0, 1, 2)))
    asked = led(7, (0, 1, 2), (1, 0))
    bench.read(asked)
    assert bench.read(asked) == [WaitToElect(T0)]
    assert bench.handle(ElectionWaitEnded(T0, asked, frozenset())) == [
        CompleteReassignment(T0, asked, 8, closes(8, 2))
    ]


def test_cancelled_reassignment_closes_its_replicas_when_they_leave_the_isr() -> None:
    bench = leader(led(7, (0, 1), (0, 3, 4)))
    cancelled = led(7, (0, 1, 3))
    assert bench.read(cancelled) == [RaiseEpoch(T0, cancelled, 8, (0, 1), closes(8, 3, 4))]
    assert bench.texts() == []
    raised = led(8, (0, 1))
    assert bench.read(raised) == [BecomeLeader(T0, raised, False, is_renewal=True)]
    assert bench.kinds() == ["requested", "requested"]


def test_replaced_reassignment_closes_the_old_and_starts_the_new_replicas() -> None:
    bench = leader(led(7, (0, 1), (0, 3)))
    replaced = led(7, (0, 1), (0, 4))
    assert bench.read(replaced) == [RaiseEpoch(T0, replaced, 8, (0, 1), closes(8, 3))]
    assert only(bench.read(led(8, (0, 1), (0, 4))), Enqueue) == starts(8, 4)


def test_reassignment_that_changes_while_the_epoch_rises_closes_what_it_added() -> None:
    bench = leader(led(7, (0, 1)))
    bench.read(led(7, (0, 1), (0, 3)))
    cancelled = led(8, (0, 1))
    assert only(bench.read(cancelled), RaiseEpoch) == [
        RaiseEpoch(T0, cancelled, 9, (0, 1), closes(9, 3))
    ]


def test_successor_of_a_leader_closes_members_of_the_isr_without_a_place() -> None:
    bench = Bench(0)
    seen = led(7, (0, 1, 4))
    assert only(bench.lead(seen), RaiseEpoch) == [RaiseEpoch(T0, seen, 8, (0, 1), closes(8, 4))]


def test_replica_without_a_place_is_closed_although_it_leaves_the_isr_first() -> None:
    bench = Bench(0)
    bench.lead(led(7, (0, 1, 4)))  # the write of this epoch meets the write of the smaller ISR
    shrunk = led(7, (0,))
    assert only(bench.read(shrunk), RaiseEpoch) == [RaiseEpoch(T0, shrunk, 8, (0,), closes(8, 4))]


@pytest.mark.row("C10")
def test_deletion_is_requested_from_every_replica_once() -> None:
    bench = leader(led(7, (0, 1)))
    deleted = led(7, (0, 1), ())
    requests = [Enqueue(*close) for close in closes(7, 0, 1, 2)]
    assert bench.read(deleted) == requests
    assert bench.kinds() == ["requested"] * 3
    assert bench.read(deleted) == []


def test_deletion_in_a_reassignment_closes_the_added_replicas_too() -> None:
    bench = leader(led(7, (0, 1), (0, 3)))
    effects = bench.read(led(7, (0, 1), ()))
    assert effects == [Enqueue(*close) for close in closes(7, 0, 1, 2, 3)]


@pytest.mark.row("C10")
def test_next_leader_requests_the_deletion_again() -> None:
    bench = leader(led(7, (0, 1)))
    bench.read(led(7, (0, 1), ()))
    gone = view(isr=(0, 1), target=())
    bench.read(gone)
    bench.handle(ElectionWaitEnded(T0, gone, frozenset()))
    effects = bench.read(led(8, (0, 1), ()))
    assert only(effects, Enqueue) == [Enqueue(*close) for close in closes(8, 0, 1, 2)]


@pytest.mark.row("C9")
def test_follower_leaves_a_reassignment_to_its_leader() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    effects: list[Effect] = []
    for target in ((0, 3), (0, 1), ()):
        effects += bench.read(view(leader=(0, 7), isr=(0, 1), target=target))
    assert effects == []


@pytest.mark.row("C31")
def test_leader_gives_up_for_the_preferred_replica_after_a_reassignment() -> None:
    bench = leader(led(7, (0, 1, 3), (3, 0)))
    completed = led(8, (3, 0), replicas=(3, 0))
    assert bench.read(completed) == [StopLeading(T0), GiveUpLeadership(T0, completed)]


@pytest.mark.row("C31")
@pytest.mark.parametrize(
    ("replicas", "live"), [((0, 3), frozenset({0, 3})), ((3, 0), frozenset({0, 1}))]
)
def test_leader_stays_after_a_reassignment_if_no_better_one_is_alive(
    replicas: Replicas, live: frozenset[int]
) -> None:
    bench = leader(led(7, (0, 1, 3), replicas))
    completed = led(8, replicas, replicas=replicas)
    assert bench.read(completed, live) == [BecomeLeader(T0, completed, False, is_renewal=True)]


@pytest.mark.row("C30")
def test_replaced_reassignment_closes_the_replica_that_only_the_former_one_has_added() -> None:
    bench = leader(led(7, (0, 1), (0, 2), (0, 1)))
    replaced = led(7, (0, 1), (1, 0), (0, 1))
    assert bench.read(replaced) == [CompleteReassignment(T0, replaced, 8, closes(8, 2))]


def test_member_of_the_isr_that_is_in_no_list_leaves_it_and_closes() -> None:
    bench = leader(led(7, (0, 1), replicas=(0, 1)))
    written = led(7, (0, 1, 2), replicas=(0, 1))
    assert bench.read(written) == [RaiseEpoch(T0, written, 8, (0, 1), closes(8, 2))]
