"""The machine of one broker in the leader-coordinated mode: roles from the start to the end of a session."""

from __future__ import annotations

import pytest
from support.leaders_views import ID, T0, Bench, only, view

from minikafka.leaders.events import (
    BecomeFollower,
    BecomeLeader,
    CaughtUp,
    ElectionWaitEnded,
    GiveUpLeadership,
    IsrConflict,
    LeaseEnded,
    Note,
    Open,
    PartitionRead,
    RaiseEpoch,
    Registered,
    ReplicasOffline,
    Scanned,
    StopLeading,
    TryToLead,
    WaitToElect,
    WatchPartition,
    WatchReassignments,
)
from minikafka.leaders.model import ReplicaStatus


def test_preferred_replica_writes_its_leadership_at_once() -> None:
    bench, seen = Bench(0), view(isr=(0, 1))
    assert bench.scan(seen) == [WatchPartition(T0), TryToLead(T0, seen, 8, (0, 1))]
    assert bench.machine.status(T0) is ReplicaStatus.ELECTING


@pytest.mark.row("C17", "C18")
def test_won_election_opens_when_the_replicas_have_caught_up() -> None:
    bench = Bench(0)
    bench.scan(view(isr=(0, 1, 2)))
    won = view(leader=(0, 8), ours=True, isr=(0, 1, 2))
    assert bench.read(won) == [BecomeLeader(T0, won, False), WatchReassignments("t")]
    assert bench.machine.status(T0) is ReplicaStatus.OPENING
    assert bench.read(won) == []
    assert bench.handle(CaughtUp(T0, (0, 2))) == [Open(T0, (0, 2))]
    assert bench.machine.status(T0) is ReplicaStatus.LEADING
    assert bench.read(won) == []


@pytest.mark.row("C38")
def test_moves_into_a_role_carry_the_epoch_of_the_role() -> None:
    bench = Bench(0)
    bench.scan(view(isr=(0, 1, 2)))
    noted = list(bench.effects)
    bench.read(view(leader=(0, 8), ours=True, isr=(0, 1, 2)))
    noted += bench.effects
    bench.handle(CaughtUp(T0, (0, 2)))
    noted += bench.effects
    bench.read(view(leader=(1, 9), isr=(1, 2)))
    noted += bench.effects
    fields = [note.fields for note in only(noted, Note) if note.fields["kind"] == "move"]
    moves = {field["target"]: field["epoch"] for field in fields}
    assert moves.pop("waiting") == 8, "the role that ended"
    assert moves == {"electing": 8, "opening": 8, "leading": 8, "following": 9}


@pytest.mark.row("C3")
def test_loser_of_an_election_follows_the_winner() -> None:
    bench = Bench(0)
    bench.scan(view(isr=(0, 1)))
    lost = view(leader=(1, 8), isr=(0, 1))
    assert bench.read(lost) == [BecomeFollower(T0, lost, False)]
    assert bench.machine.status(T0) is ReplicaStatus.FOLLOWING


def test_follower_takes_no_second_role_in_one_epoch() -> None:
    bench = Bench(1)
    seen = view(leader=(0, 7), isr=(0, 1, 2))
    bench.follow(seen)
    assert bench.read(seen) == []
    newer = view(leader=(0, 8), isr=(0, 1, 2))
    assert bench.read(newer) == [BecomeFollower(T0, newer, False)]


@pytest.mark.row("C4")
def test_follower_waits_for_the_preferred_replica_then_elects_itself() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(2, 7), isr=(0, 1, 2)))
    alone = view(isr=(0, 1, 2))
    assert bench.read(alone) == [WaitToElect(T0, is_for_preferred=True)]
    assert bench.read(alone) == []
    assert bench.handle(ElectionWaitEnded(T0, alone, frozenset())) == [
        TryToLead(T0, alone, 8, (0, 1, 2))
    ]


def test_refused_leadership_is_written_again_at_another_view_at_once() -> None:
    bench = Bench(0)
    bench.scan(view(isr=(0, 1)))
    changed = view(isr=(0,), epoch=9)
    assert bench.read(changed) == [TryToLead(T0, changed, 10, (0,))]


def test_refused_leadership_is_written_again_at_the_same_view_after_a_wait() -> None:
    bench, seen = Bench(0), view(isr=(0, 1))
    bench.scan(seen)
    assert bench.read(seen) == [WaitToElect(T0)]
    assert bench.handle(ElectionWaitEnded(T0, seen, frozenset())) == [
        TryToLead(T0, seen, 8, (0, 1))
    ]


@pytest.mark.row("C4")
def test_leader_stops_when_another_broker_leads() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    lost = view(leader=(1, 9), isr=(0, 1))
    assert bench.read(lost) == [StopLeading(T0), BecomeFollower(T0, lost, False)]


def test_leader_whose_node_was_deleted_stops_before_it_is_elected_again() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    gone = view(isr=(0, 1), epoch=8)
    assert bench.read(gone) == [StopLeading(T0), TryToLead(T0, gone, 9, (0, 1))]


def test_leadership_without_a_replica_is_given_up() -> None:
    ours = view(leader=(0, 8), ours=True, isr=(0, 1))
    assert Bench(0).read(ours) == [GiveUpLeadership(T0, ours)]


@pytest.mark.row("C42")
def test_partition_that_is_not_hosted_here_is_ignored() -> None:
    bench = Bench(1)
    assert bench.read(view(leader=(0, 8), isr=(0, 1))) == []
    assert bench.machine.status(T0) is ReplicaStatus.ABSENT


def test_leader_raises_the_epoch_after_a_conflict_of_its_isr_write() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    changed = view(leader=(0, 8), ours=True, isr=(0,))
    assert bench.handle(IsrConflict(T0, changed, frozenset())) == [RaiseEpoch(T0, changed, 9, (0,))]
    raised = view(leader=(0, 9), ours=True, isr=(0,))
    assert bench.read(raised) == [BecomeLeader(T0, raised, False, is_renewal=True)]
    assert bench.machine.status(T0) is ReplicaStatus.LEADING


def test_conflict_of_a_deposed_leader_makes_it_a_follower() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    lost = view(leader=(1, 9), isr=(1,))
    effects = bench.handle(IsrConflict(T0, lost, frozenset()))
    assert effects == [StopLeading(T0), BecomeFollower(T0, lost, False)]


def test_opening_leader_whose_epoch_rises_stays_closed() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)), is_open=False)
    raised = view(leader=(0, 9), ours=True, isr=(0, 1))
    assert only(bench.read(raised), BecomeLeader) == [BecomeLeader(T0, raised, False)]
    assert bench.machine.status(T0) is ReplicaStatus.OPENING


def test_partition_that_the_scan_could_not_read_is_scanned_later() -> None:
    bench = Bench(1)
    assert bench.scan(view(None, topic_id=None, readable=False)) == [WaitToElect(T0)]
    seen = view(leader=(0, 8), isr=(0, 1))
    assert bench.read(seen) == [WatchPartition(T0), BecomeFollower(T0, seen, False)]


def test_end_of_the_lease_stops_leaders_and_keeps_followers() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    assert bench.handle(LeaseEnded()) == [StopLeading(T0)]
    follower = Bench(1)
    seen = view(leader=(0, 7), isr=(0, 1))
    follower.follow(seen)
    assert follower.handle(LeaseEnded()) == []
    assert follower.scan(seen) == [WatchPartition(T0), BecomeFollower(T0, seen, False)]


def test_next_era_writes_at_once_what_the_last_one_may_not_have_written() -> None:
    bench, seen = Bench(0), view(isr=(0, 1))
    for _ in range(3):
        assert only(bench.scan(seen), TryToLead) == [TryToLead(T0, seen, 8, (0, 1))]
        bench.handle(LeaseEnded())


def test_next_era_leaves_the_election_to_the_preferred_replica_again() -> None:
    bench, seen = Bench(1), view(isr=(0, 1))
    for _ in range(3):
        waiting = [WatchPartition(T0), WaitToElect(T0, is_for_preferred=True)]
        assert bench.scan(seen) == waiting
        bench.handle(ElectionWaitEnded(T0, seen, frozenset()))
        bench.handle(LeaseEnded())


def test_scan_after_the_end_of_the_lease_waits_for_the_former_session() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    bench.handle(LeaseEnded())
    assert bench.scan(view(leader=(0, 8), isr=(0, 1))) == [WatchPartition(T0)]
    gone = view(isr=(0, 1), epoch=8)
    assert bench.read(gone) == [TryToLead(T0, gone, 9, (0, 1))]


def test_brokers_count_as_dead_only_after_the_own_registration() -> None:
    bench, seen = Bench(1), view(isr=(0, 1))
    nobody: frozenset[int] = frozenset()
    assert bench.scan(seen, live=nobody) == [
        WatchPartition(T0),
        WaitToElect(T0, is_for_preferred=True),
    ]
    bench.handle(Registered())
    assert bench.read(seen, live=frozenset({1})) == [TryToLead(T0, seen, 8, (0, 1))]


def test_replica_in_a_failed_log_directory_gives_up_and_stays() -> None:
    bench = Bench(0)
    led = view(leader=(0, 8), ours=True, isr=(0, 1))
    bench.lead(led)
    failed = bench.handle(ReplicasOffline(frozenset({T0})))
    assert failed == [StopLeading(T0), GiveUpLeadership(T0, led)]
    assert bench.read(view(isr=(0, 1), epoch=8)) == []


def test_caught_up_without_an_opening_leader_has_no_effect() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    assert bench.handle(CaughtUp(T0, (0, 1))) == []
    assert Bench(1).handle(CaughtUp(T0, (0, 1))) == []


def test_scan_treats_each_partition() -> None:
    bench = Bench(1)
    other = T0._replace(partition=1)
    seen = view(leader=(0, 7), isr=(0, 1))
    event = Scanned({T0: seen, other: seen}, {T0: ID}, frozenset())
    roles = only(bench.handle(event), BecomeFollower)
    assert [(role.tp, role.is_new) for role in roles] == [(T0, False), (other, False)]


def test_events_about_unknown_partitions_have_no_effect() -> None:
    bench, seen = Bench(1), view(isr=(1,))
    assert bench.handle(ElectionWaitEnded(T0, seen, frozenset())) == []
    assert bench.handle(IsrConflict(T0, seen, frozenset())) == []
    assert bench.handle(PartitionRead(T0, seen, frozenset())) == []
