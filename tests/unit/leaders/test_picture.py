"""What one broker knows about its replicas: hosting, roles, and writes that are tried again."""

from __future__ import annotations

import logging

import pytest
from support.leaders_views import ID, T0, view

from minikafka.leaders.events import (
    BecomeFollower,
    GiveUpLeadership,
    Note,
    StopLeading,
    Unwatch,
    WaitToElect,
    WatchPartition,
)
from minikafka.leaders.model import ReplicaStatus
from minikafka.leaders.picture import Picture

LED = view(leader=(0, 7), ours=True, isr=(0, 1))


def effects(picture: Picture) -> list[object]:
    return [effect for effect in picture.drain() if not isinstance(effect, Note)]


def test_hosted_replica_is_watched_once_and_unwatched_when_forgotten() -> None:
    picture = Picture(1)
    replica = picture.host(T0, ID, is_new=True)
    assert picture.host(T0, ID, is_new=False) is replica
    assert effects(picture) == [WatchPartition(T0)]
    assert picture.status(T0) is ReplicaStatus.WAITING
    picture.forget(replica)
    assert effects(picture) == [Unwatch(T0)]
    assert picture.status(T0) is ReplicaStatus.ABSENT


def test_only_the_first_role_of_a_replica_is_new() -> None:
    picture = Picture(1)
    replica = picture.host(T0, ID, is_new=True)
    newer = view(leader=(2, 8), isr=(0, 1))
    picture.follow(replica, LED)
    picture.follow(replica, newer)
    roles = [effect for effect in picture.drain() if isinstance(effect, BecomeFollower)]
    assert roles == [BecomeFollower(T0, LED, True), BecomeFollower(T0, newer, False)]


def test_same_write_at_the_same_view_waits_first() -> None:
    picture = Picture(0)
    replica = picture.host(T0, ID, is_new=False)
    write = GiveUpLeadership(T0, LED)
    picture.write(replica, write)
    picture.write(replica, write)
    picture.write(replica, write)
    assert effects(picture) == [WatchPartition(T0), write, WaitToElect(T0)]


def test_refusal_is_noted_once_per_view(caplog: pytest.LogCaptureFixture) -> None:
    picture = Picture(0)
    replica = picture.host(T0, ID, is_new=False)
    picture.drain()
    for seen in (LED, LED, view()):
        picture.refuse(replica, seen, "it is torn")
    assert len(picture.drain()) == 2
    assert caplog.text.count("partition t-0: it is torn") == 2


def test_refusal_without_a_fault_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Picture(0).note_refusal(T0, "it has moved", logging.INFO)
    assert caplog.text == ""


def test_role_ends_only_where_there_is_one() -> None:
    picture = Picture(1)
    replica = picture.host(T0, ID, is_new=False)
    picture.end_role(replica)
    picture.follow(replica, LED)
    picture.drain()
    picture.end_role(replica)
    picture.end_role(replica)
    assert effects(picture) == [StopLeading(T0)]
