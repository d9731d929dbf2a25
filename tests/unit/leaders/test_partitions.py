"""The decision about one partition that was read, also if another program has changed its nodes."""

from __future__ import annotations

from support.leaders_views import EVERYONE, T0, Bench, only, view

from minikafka.leaders.events import (
    BecomeFollower,
    BecomeLeader,
    CaughtUp,
    CloseReplica,
    ElectionWaitEnded,
    GiveUpLeadership,
    IsrConflict,
    Open,
    RaiseEpoch,
    StopLeading,
    TryToLead,
    WaitToElect,
    WatchPartition,
)
from minikafka.leaders.model import ReplicaStatus


def test_leader_node_of_a_former_session_is_no_leadership() -> None:
    bench = Bench(0)
    former = view(leader=(0, 8), isr=(0, 1))
    assert bench.scan(former) == [WatchPartition(T0)]
    assert bench.machine.status(T0) is ReplicaStatus.WAITING
    gone = view(isr=(0, 1), epoch=8)
    assert bench.read(gone) == [TryToLead(T0, gone, 9, (0, 1))]


def test_leader_node_of_a_former_session_ends_a_leadership() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    assert bench.read(view(leader=(0, 8), isr=(0, 1))) == [StopLeading(T0)]


def test_leadership_that_the_replica_did_not_ask_for_is_given_up() -> None:
    bench = Bench(0)
    ours = view(leader=(0, 8), ours=True, isr=(0, 1))
    assert bench.scan(ours) == [WatchPartition(T0), GiveUpLeadership(T0, ours)]
    assert bench.machine.status(T0) is ReplicaStatus.WAITING


def test_torn_nodes_of_another_leader_are_not_followed_but_read_again() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    torn = view(leader=(0, 9), isr=(0, 1), epoch=7)
    assert bench.read(torn) == [WaitToElect(T0)]
    assert bench.kinds() == ["refuse"]
    assert bench.machine.status(T0) is ReplicaStatus.FOLLOWING
    assert bench.read(torn) == []
    assert bench.texts() == []


def test_lower_epoch_is_not_followed() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    assert bench.read(view(leader=(2, 6), isr=(1, 2))) == []
    assert bench.kinds() == ["refuse"]


def test_second_leader_of_one_epoch_is_not_followed() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    assert bench.read(view(leader=(2, 7), isr=(1, 2))) == []
    assert bench.texts() == ["partition t-0: epoch 7 has had another leader, broker 0"]


def test_epoch_of_an_election_is_above_every_epoch_of_the_replica() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    forged = view((1, 0), isr=(0, 1), epoch=3)
    assert bench.read(forged) == [TryToLead(T0, forged, 8, (0, 1))]


def test_partition_that_has_lost_its_isr_node_elects_nobody() -> None:
    bench = Bench(0)
    bench.follow(view((0, 1), leader=(1, 7), isr=(0, 1)))
    gone = view((0, 1))
    assert bench.read(gone) == [WaitToElect(T0)]
    assert bench.kinds() == ["move", "refuse"]
    repaired = view((0, 1), isr=(0, 1))
    assert bench.handle(ElectionWaitEnded(T0, repaired, EVERYONE)) == [
        TryToLead(T0, repaired, 8, (0, 1))
    ]


def test_leader_repairs_an_isr_node_of_another_epoch_by_a_higher_one() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    torn = view(leader=(0, 8), ours=True, isr=(0, 1), epoch=12)
    assert bench.read(torn) == [RaiseEpoch(T0, torn, 13, (0, 1))]
    assert bench.kinds() == ["refuse"]


def test_leader_outside_the_isr_leads_on_with_itself_as_the_isr() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    forged = view(leader=(0, 8), ours=True, isr=(1,))
    assert bench.read(forged) == [RaiseEpoch(T0, forged, 9, (0,))]


def test_leader_without_an_isr_node_leads_on() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    assert bench.read(view(leader=(0, 8), ours=True)) == []
    assert bench.kinds() == ["refuse"]
    assert bench.machine.status(T0) is ReplicaStatus.LEADING


def test_unreadable_partition_changes_nothing_and_is_read_again() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    odd = view(None, topic_id=None, readable=False)
    assert bench.read(odd) == [WaitToElect(T0)]
    assert bench.read(odd) == []
    assert bench.handle(ElectionWaitEnded(T0, odd, EVERYONE)) == [WaitToElect(T0)]
    assert bench.machine.status(T0) is ReplicaStatus.LEADING


def test_partition_that_the_scan_could_not_read_is_read_until_it_can() -> None:
    bench = Bench(1)
    odd, good = view(readable=False), view(leader=(0, 8), isr=(0, 1))
    assert bench.scan(odd) == [WaitToElect(T0)]
    assert bench.handle(ElectionWaitEnded(T0, odd, EVERYONE)) == [WaitToElect(T0)]
    [*_, follow] = bench.handle(ElectionWaitEnded(T0, good, EVERYONE))
    assert follow == BecomeFollower(T0, good, is_new=False)


def test_leader_is_elected_while_the_reassignment_is_unreadable() -> None:
    bench = Bench(0)
    bench.follow(view((0, 1), leader=(1, 7), isr=(0, 1)))
    odd = view((0, 1), isr=(0, 1), readable=False, has_roles=True)
    assert bench.read(odd) == [WaitToElect(T0), TryToLead(T0, odd, 8, (0, 1))]
    won = view((0, 1), leader=(0, 8), ours=True, isr=(0, 1), readable=False, has_roles=True)
    assert only(bench.read(won), BecomeLeader) == [BecomeLeader(T0, won, is_new=False)]
    assert bench.handle(CaughtUp(T0, (0, 1))) == [Open(T0, (0, 1))]
    assert bench.machine.status(T0) is ReplicaStatus.LEADING


def test_assigned_replica_starts_although_the_reassignment_is_unreadable() -> None:
    odd = view((0, 1), leader=(0, 8), isr=(0, 1), readable=False, has_roles=True)
    started = [WatchPartition(T0), WaitToElect(T0), BecomeFollower(T0, odd, is_new=False)]
    assert Bench(1).scan(odd) == started
    assert Bench(1).scan(odd, disk=b"o" * 16) == [WaitToElect(T0)]
    assert Bench(2).scan(odd) == [WaitToElect(T0)]


def test_leader_closes_no_replica_while_the_reassignment_is_unreadable() -> None:
    """Brokers 2 and 3 are in the ISR, and only the reassignment says that they host the partition."""
    bench = Bench(0)
    bench.lead(view((0, 1), leader=(0, 8), ours=True, isr=(0, 2, 3), target=(2, 3, 4)))
    odd = view((0, 1), leader=(0, 8), ours=True, isr=(0, 2, 3), readable=False, has_roles=True)
    assert bench.read(odd) == [WaitToElect(T0)]
    assert bench.handle(IsrConflict(T0, odd, EVERYONE)) == []


def test_replica_outside_the_list_keeps_its_role_while_the_reassignment_is_unreadable() -> None:
    bench = Bench(2)
    bench.follow(view((0, 1), leader=(0, 8), isr=(0, 2), target=(0, 2)))
    odd = view((0, 1), isr=(0, 2), readable=False, has_roles=True)
    assert bench.read(odd) == [WaitToElect(T0)]
    assert bench.machine.status(T0) is ReplicaStatus.FOLLOWING


def test_own_leader_node_with_the_id_of_another_broker_is_given_up() -> None:
    bench = Bench(0)
    bench.lead(view(leader=(0, 8), ours=True, isr=(0, 1)))
    forged = view(leader=(1, 9), ours=True, isr=(0, 1), epoch=8)
    assert bench.read(forged) == [StopLeading(T0), GiveUpLeadership(T0, forged)]


def test_topic_with_another_id_ends_the_role_and_keeps_the_files() -> None:
    bench = Bench(1)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    assert bench.read(view(leader=(0, 1), isr=(0, 1), topic_id=b"o" * 16)) == [StopLeading(T0)]
    assert bench.machine.status(T0) is ReplicaStatus.WAITING


def test_removed_replica_ends_its_role_and_keeps_its_files() -> None:
    bench = Bench(2)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    assert bench.read(view((0, 1), leader=(0, 8), isr=(0, 1))) == [StopLeading(T0)]
    assert only(bench.effects, CloseReplica) == []
