"""The requests in a broker's queue and the scan of its replicas: fences, effects, and what is never deleted."""

from __future__ import annotations

import pytest
from support.leaders_views import EVERYONE, ID, OTHER_ID, T0, Bench, only, request, view

from minikafka.base.model import TopicPartition
from minikafka.leaders.events import (
    BecomeFollower,
    CloseReplica,
    Consume,
    GiveUpLeadership,
    RequestReceived,
    Scan,
    Scanned,
    StopLeading,
    TryToLead,
    Unwatch,
    WatchPartition,
)
from minikafka.leaders.model import Operation, PartitionView, ReplicaStatus, StateChange

CLOSE = Operation.CLOSE
CONSUME = Consume("q-1")
LED = view((0, 1), leader=(0, 7), isr=(0, 1))


# Start requests.


def test_start_request_makes_a_follower_of_a_new_replica() -> None:
    bench, seen = Bench(2), view((0, 1), leader=(0, 7), isr=(0, 1), target=(1, 2))
    assert bench.receive(request(epoch=7, sender=0), seen) == [
        WatchPartition(T0),
        BecomeFollower(T0, seen, True),
        CONSUME,
    ]


@pytest.mark.row("C8", "C14")
def test_start_request_without_a_leader_is_an_election() -> None:
    bench, seen = Bench(0), view((0, 1), target=(0, 1))
    assert bench.receive(request(), seen) == [
        WatchPartition(T0),
        TryToLead(T0, seen, 1, (0,)),
        CONSUME,
    ]


def test_start_request_before_the_replica_list_exists_waits() -> None:
    bench = Bench(0)
    seen = view(None, target=(0, 1))
    assert bench.receive(request(), seen) == [WatchPartition(T0), CONSUME]
    assert bench.kinds() == ["received", "move", "completed"]
    assert bench.machine.status(T0) is ReplicaStatus.WAITING


def test_repeated_start_request_changes_nothing() -> None:
    bench = Bench(1)
    bench.follow(LED)
    assert bench.receive(request(epoch=7, sender=0), LED) == [CONSUME]
    assert bench.kinds() == ["received", "completed"]


def test_administrators_start_request_is_accepted_with_a_leader() -> None:
    bench = Bench(1)
    assert only(bench.receive(request(), LED), BecomeFollower) != []


def test_replica_in_the_isr_is_not_new() -> None:
    bench = Bench(1)
    [role] = only(bench.receive(request(), LED), BecomeFollower)
    assert not role.is_new


@pytest.mark.row("C8", "C14", "C41")
@pytest.mark.parametrize(
    ("change", "seen", "reason"),
    [
        (request(epoch=6, sender=0), LED, "the partition has epoch 7"),
        (request(epoch=8, sender=0), LED, "the partition has epoch 7"),
        (request(epoch=7, sender=3), LED, "broker 0 leads in this epoch"),
        (request(epoch=-1, sender=0), LED, "the partition has epoch 7"),
        (request(topic_id=OTHER_ID), LED, "the topic has another id"),
        (request(topic_id=None), LED, "the topic has another id"),
        (request(), view(None, topic_id=None), "the topic does not exist"),
        (request(), view((0, 2), leader=(0, 7), isr=(0,)), "this broker is not in AR or RAR"),
        (request(), view((0, 1), isr=(0,), target=()), "the partition is being deleted"),
        (request(), view((0, 1), readable=False), "a node of the partition cannot be read"),
    ],
)
def test_start_request_that_the_fence_stops_is_noted_and_consumed(
    change: StateChange, seen: PartitionView, reason: str
) -> None:
    bench = Bench(1)
    assert bench.receive(change, seen) == [CONSUME]
    assert bench.kinds() == ["received", "refused"]
    assert bench.texts()[1].endswith(f": {reason}")
    assert bench.machine.status(T0) is ReplicaStatus.ABSENT


@pytest.mark.row("C8")
def test_stale_start_request_does_not_move_a_follower() -> None:
    bench = Bench(1)
    bench.follow(LED)
    newer = view((0, 1), leader=(0, 8), isr=(0, 1))
    assert bench.receive(request(epoch=7, sender=0), newer) == [CONSUME]
    assert bench.kinds() == ["received", "refused"]


def test_start_of_a_topic_created_again_moves_the_old_replica_aside() -> None:
    bench = Bench(1)
    bench.follow(LED)
    again = view((0, 1), leader=(0, 1), isr=(0,), topic_id=OTHER_ID)
    assert bench.receive(request(epoch=1, sender=0, topic_id=OTHER_ID), again) == [
        StopLeading(T0),
        Unwatch(T0),
        CloseReplica(T0, ID, is_stray=True),
        WatchPartition(T0),
        BecomeFollower(T0, again, True),
        CONSUME,
    ]


# Close requests.


@pytest.mark.row("C15")
def test_close_request_deletes_a_replica_that_is_in_no_list() -> None:
    bench = Bench(2)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    assert bench.receive(request(CLOSE, epoch=8, sender=0), LED) == [
        StopLeading(T0),
        Unwatch(T0),
        CloseReplica(T0, ID),
        CONSUME,
    ]
    assert bench.machine.status(T0) is ReplicaStatus.ABSENT


@pytest.mark.row("C7")
@pytest.mark.parametrize("epoch", [-1, 3, 7, 99])
def test_close_request_is_not_fenced_by_its_epoch(epoch: int) -> None:
    bench = Bench(1)
    bench.follow(LED)
    deleted = view((0, 1), leader=(0, 7), isr=(0, 1), target=())
    effects = bench.receive(request(CLOSE, epoch=epoch, sender=0), deleted)
    assert only(effects, CloseReplica) == [CloseReplica(T0, ID)]


def test_leader_that_closes_its_replica_deletes_its_node() -> None:
    bench = Bench(0)
    bench.lead(view((0, 1), leader=(0, 8), ours=True, isr=(0, 1)))
    deleted = view((0, 1), leader=(0, 8), ours=True, isr=(0, 1), target=())
    assert bench.receive(request(CLOSE, epoch=8, sender=0), deleted) == [
        StopLeading(T0),
        GiveUpLeadership(T0, deleted),
        Unwatch(T0),
        CloseReplica(T0, ID),
        CONSUME,
    ]


@pytest.mark.row("C6", "C7")
@pytest.mark.parametrize(
    "seen",
    [
        view(None, topic_id=None),
        view((0, 1), isr=(0,), topic_id=OTHER_ID),
        view(None),
        view((0, 2), isr=(0,)),
    ],
    ids=["topic is gone", "topic was created again", "partition is gone", "replica was moved"],
)
def test_close_request_before_the_scan_deletes_the_log_of_its_topic_id(
    seen: PartitionView,
) -> None:
    assert Bench(1).receive(request(CLOSE), seen) == [CloseReplica(T0, ID), CONSUME]


@pytest.mark.row("C7", "C41")
@pytest.mark.parametrize(
    ("change", "seen", "reason"),
    [
        (request(CLOSE, epoch=7, sender=0), LED, "this broker is in AR, RAR or the ISR"),
        (
            request(CLOSE),
            view((0, 2), isr=(0,), target=(1,)),
            "this broker is in AR, RAR or the ISR",
        ),
        (request(CLOSE), view((0, 2), isr=(0, 1)), "this broker is in AR, RAR or the ISR"),
        (
            request(CLOSE, topic_id=OTHER_ID),
            view(None, topic_id=None),
            "the replica has another topic id",
        ),
        (request(CLOSE, topic_id=None), view(None), "the request has no topic id"),
        (
            request(CLOSE),
            view(None, topic_id=None, readable=False),
            "a node of the partition cannot be read",
        ),
    ],
)
def test_close_request_that_the_fence_stops_keeps_the_files(
    change: StateChange, seen: PartitionView, reason: str
) -> None:
    bench = Bench(1)
    bench.follow(LED)
    assert bench.receive(change, seen) == [CONSUME]
    assert bench.texts()[1].endswith(f": {reason}")
    assert bench.machine.status(T0) is ReplicaStatus.FOLLOWING


def test_close_request_of_a_deleted_topic_spares_the_topic_created_again() -> None:
    bench = Bench(1)
    again = view((0, 1), leader=(0, 1), isr=(0, 1), topic_id=OTHER_ID)
    bench.scan(again, disk=OTHER_ID)
    assert bench.receive(request(CLOSE), again) == [CONSUME]
    assert bench.machine.status(T0) is ReplicaStatus.FOLLOWING


# Rescans and scans.


def test_rescan_request_repeats_the_scan() -> None:
    bench = Bench(1)
    change = StateChange(Operation.RESCAN, TopicPartition("", -1), None, -1, -1)
    event = RequestReceived("q-1", change, view(None, topic_id=None), EVERYONE)
    assert bench.handle(event) == [Scan(), CONSUME]


def test_scan_hosts_a_replica_without_a_log() -> None:
    bench = Bench(2)
    seen = view((0, 1), leader=(0, 7), isr=(0, 1), target=(2,))
    assert bench.handle(Scanned({T0: seen}, {}, EVERYONE)) == [
        WatchPartition(T0),
        BecomeFollower(T0, seen, True),
    ]


@pytest.mark.parametrize(
    ("seen", "disk"),
    [
        (view((0, 2), isr=(0,)), ID),
        (view((0, 2), isr=(0,)), None),
        (view(None, topic_id=None), ID),
        (view((0, 2), isr=(0,), topic_id=OTHER_ID), ID),
    ],
    ids=["not a replica", "log without an id", "topic is gone", "other topic"],
)
def test_scan_moves_a_replica_without_a_place_aside(
    seen: PartitionView, disk: bytes | None
) -> None:
    assert Bench(1).scan(seen, disk) == [CloseReplica(T0, disk, is_stray=True)]


def test_scan_of_a_topic_created_again_replaces_the_old_log() -> None:
    bench = Bench(1)
    again = view((0, 1), leader=(0, 1), isr=(0,), topic_id=OTHER_ID)
    assert bench.scan(again, ID) == [
        CloseReplica(T0, ID, is_stray=True),
        WatchPartition(T0),
        BecomeFollower(T0, again, False),
    ]


def test_scan_adopts_a_log_without_a_topic_id() -> None:
    bench = Bench(1)
    assert bench.scan(LED, None) == [WatchPartition(T0), BecomeFollower(T0, LED, False)]


def test_scan_keeps_a_replica_that_is_still_in_the_isr() -> None:
    bench = Bench(2)
    seen = view((0, 1), leader=(0, 7), isr=(0, 1, 2))
    assert bench.scan(seen) == [WatchPartition(T0)]
    assert bench.machine.status(T0) is ReplicaStatus.WAITING


def test_scan_creates_no_replica_of_a_partition_that_is_being_deleted() -> None:
    bench = Bench(1)
    seen = view((0, 1), leader=(0, 7), isr=(0,), target=())
    assert bench.handle(Scanned({T0: seen}, {}, EVERYONE)) == []
    assert bench.scan(seen) == [WatchPartition(T0), BecomeFollower(T0, seen, False)]


def test_rescan_closes_a_hosted_replica_without_a_place() -> None:
    bench = Bench(2)
    bench.follow(view(leader=(0, 7), isr=(0, 1)))
    assert bench.scan(LED) == [
        StopLeading(T0),
        Unwatch(T0),
        CloseReplica(T0, ID, is_stray=True),
    ]


def test_rescan_changes_nothing_about_known_replicas() -> None:
    bench = Bench(1)
    bench.follow(LED)
    assert bench.scan(LED) == []
