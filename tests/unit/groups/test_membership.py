"""SyncGroup, Heartbeat and LeaveGroup: errors, sessions, and the removal of members."""

from __future__ import annotations

import pytest
from support.group_world import GROUP, SESSION, GroupWorld

from minikafka.base.errors import ErrorCode
from minikafka.groups.messages.requests import LeavingMember
from minikafka.groups.messages.responses import LeftMember

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


# SyncGroup.


@pytest.mark.parametrize(
    ("member", "generation", "changes", "error"),
    [
        ("client-1", 1, {}, 0),
        ("client-1", 1, {"protocol_type": "consumer", "protocol_name": "range"}, 0),
        ("client-1", 1, {"protocol_type": "x"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("client-1", 1, {"protocol_name": "x"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("client-1", 2, {}, ErrorCode.ILLEGAL_GENERATION),
        ("client-1", 0, {}, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, {}, UNKNOWN),
        ("client-1", 1, {"instance_id": "i"}, UNKNOWN),
        ("client-1", 1, {"group_id": "other"}, UNKNOWN),
        ("client-1", 1, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
@pytest.mark.parametrize("is_stable", [True, False])
def test_sync_group_errors_are_checked_in_the_same_order_as_in_kafka(
    member, generation, changes, error, is_stable
):
    world = GroupWorld()
    if is_stable:
        world.stable()
    else:
        world.join()

    assert world.sync(member, generation, **changes).error == error


def test_sync_during_a_rebalance_returns_rebalance_in_progress():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)

    assert world.sync(follower, 2).error == ErrorCode.REBALANCE_IN_PROGRESS


def test_repeated_sync_ends_the_earlier_sync_with_an_error():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.send_join(follower)
    earlier = world.send_sync(follower, 3)

    later = world.send_sync(follower, 3)
    world.sync(leader, 3, assignments={follower: b"f"})

    assert world.answers[earlier].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answers[later].assignment == b"f"


# Heartbeat.


@pytest.mark.parametrize(
    ("member", "generation", "changes", "error"),
    [
        ("client-1", 1, {}, 0),
        ("client-1", 2, {}, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, {}, UNKNOWN),
        ("client-1", 1, {"instance_id": "i"}, UNKNOWN),
        ("client-1", 1, {"group_id": "other"}, UNKNOWN),
        ("client-1", 1, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_heartbeat_errors_are_checked_in_the_same_order_as_in_kafka(
    member, generation, changes, error
):
    world = GroupWorld()
    world.stable()

    assert world.heartbeat(member, generation, **changes) == error


def test_heartbeat_returns_rebalance_in_progress_until_the_member_has_joined():
    world = GroupWorld()
    leader, follower = world.stable(2)
    assert world.heartbeat(follower, 2) == 0

    world.send_join(leader)
    assert world.heartbeat(follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS

    world.send_join(follower)
    assert world.heartbeat(follower, 3) == 0  # between JoinGroup and SyncGroup


def test_heartbeat_to_an_empty_group_returns_unknown_member_id():
    world = GroupWorld()
    [member] = world.stable()
    world.leave(member)

    assert world.heartbeat(member, 1) == UNKNOWN


# Sessions.


def test_member_without_heartbeats_is_removed_after_its_session_timeout():
    world = GroupWorld()
    [member] = world.stable()

    world.advance(SESSION - 1)
    assert world.state == "Stable"
    world.advance(1)

    assert world.state == "Empty"
    assert world.heartbeat(member, 1) == UNKNOWN


@pytest.mark.parametrize("sign", ["heartbeat", "commit", "sync"])
def test_heartbeat_commit_and_sync_each_extend_the_session_of_the_member(sign):
    world = GroupWorld()
    [member] = world.stable()

    for _ in range(5):
        world.advance(SESSION - 1)
        if sign == "heartbeat":
            assert world.heartbeat(member, 1) == 0
        elif sign == "commit":
            assert world.commit({("t", 0): 1}, member, 1) == {0}
        else:
            assert world.sync(member, 1).error == 0

    assert world.state == "Stable"
    world.advance(SESSION)
    assert world.state == "Empty"


def test_failed_requests_do_not_extend_the_session_of_the_member():
    world = GroupWorld()
    [member] = world.stable()
    world.advance(SESSION - 1)
    world.heartbeat(member, 7)
    world.commit({("t", 0): 1}, member, 7)
    world.sync(member, 7)

    world.advance(1)

    assert world.state == "Empty"


def test_rebalance_does_not_wait_for_a_member_that_has_expired():
    world = GroupWorld()
    leader, silent = world.stable(2)
    waiting = world.send_join(leader)
    world.advance(500)
    assert world.heartbeat(silent, 2) == ErrorCode.REBALANCE_IN_PROGRESS

    world.advance(SESSION)

    assert [member.member_id for member in world.answers[waiting].members] == [leader]


def test_member_that_waits_for_other_members_does_not_expire():
    world = GroupWorld()
    leader, slow = world.stable(2)
    waiting = world.send_join(leader)
    for _ in range(4):
        world.advance(SESSION - 1)
        world.heartbeat(slow, 2)
    assert waiting not in world.answers
    world.send_join(slow)
    waiting = world.send_sync(slow, 3)
    for _ in range(3):
        world.advance(SESSION - 1)
        world.heartbeat(leader, 3)

    world.sync(leader, 3)

    assert world.answers[waiting].error == 0
    world.advance(SESSION - 1)
    assert world.heartbeat(slow, 3) == 0


def test_group_leader_that_dies_before_its_sync_is_removed_and_followers_rejoin():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.send_join(follower)
    waiting = world.send_sync(follower, 3)

    world.advance(SESSION)

    assert world.answers[waiting].error == ErrorCode.REBALANCE_IN_PROGRESS
    answer = world.join(follower)
    assert (answer.generation, answer.leader) == (4, follower)
    assert [member.member_id for member in answer.members] == [follower]
    assert leader not in world.group.members


# LeaveGroup.


def test_member_that_leaves_causes_a_rebalance_with_its_reason():
    world = GroupWorld()
    leader, other = world.stable(2)

    answer = world.leave(LeavingMember(other, None, "the consumer is being closed"))

    assert answer.members == [LeftMember(other, None, 0)]
    assert world.state == "PreparingRebalance"
    fields = world.notes[-1].fields
    assert (fields["trigger"], fields["member"]) == ("member left", other)
    assert fields["reason"] == "the consumer is being closed"
    assert world.join(leader).generation == 3


def test_group_is_empty_when_its_last_member_leaves():
    world = GroupWorld()
    [member] = world.stable()

    world.leave(member)

    assert (world.state, world.group.generation) == ("Empty", 2)
    world.unload()
    world.lead(epoch=1)
    assert (world.state, world.group.generation) == ("Empty", 2)


def test_rebalance_completes_when_the_missing_member_leaves():
    world = GroupWorld()
    leader, other = world.stable(2)
    waiting = world.send_join(leader)

    world.leave(other)

    assert world.answers[waiting].generation == 3


def test_rebalance_does_not_wait_for_a_pending_member_that_has_left():
    world = GroupWorld()
    [member] = world.stable()
    pending = world.join(requires_member_id=True).member_id
    waiting = world.send_join(member)
    assert waiting not in world.answers

    assert world.leave(pending).members[0].error == 0

    assert world.answers[waiting].generation == 2
    assert world.leave(pending).members[0].error == UNKNOWN


def test_leave_group_returns_the_outcome_of_each_member():
    world = GroupWorld()
    ids = world.static("a", "b", "c")
    pending = world.join(requires_member_id=True).member_id

    answer = world.leave(
        LeavingMember("", "a"),
        LeavingMember("stranger", "b"),
        LeavingMember("", "z"),
        LeavingMember("stranger"),
        LeavingMember(""),
        LeavingMember(pending),
        LeavingMember(ids["c"], "c"),
    )

    assert answer.error == 0
    assert [member.error for member in answer.members] == [
        0,
        ErrorCode.FENCED_INSTANCE_ID,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        0,
        0,
    ]
    assert list(world.group.static_ids) == ["b"]


def test_leave_group_of_an_unknown_group_returns_unknown_member_id_for_each_member():
    answer = GroupWorld().leave("a", "b")

    assert answer.error == 0
    assert [member.error for member in answer.members] == [UNKNOWN, UNKNOWN]


def test_waiting_request_of_a_member_that_leaves_is_answered():
    world = GroupWorld()
    leader, follower = world.stable(2)
    joining = world.send_join(leader)
    world.leave(leader)
    assert world.answers[joining].error == UNKNOWN

    world.join(follower)
    other = world.send_join()
    world.send_join(follower)
    syncing = world.send_sync(world.answers[other].member_id, 4)
    world.leave(world.answers[other].member_id)
    assert world.answers[syncing].error == UNKNOWN


# A full group.


def test_group_of_two_hundred_members_accepts_heartbeats_and_completes_a_rebalance():
    world = GroupWorld()
    members = world.stable(200)

    assert {world.heartbeat(member, 2) for member in members} == {0}
    waiting = [world.send_join(member) for member in members]

    assert {world.answers[caller].generation for caller in waiting} == {3}
    assert len(world.answers[waiting[0]].members) == 200
    assert world.coordinator.groups[GROUP].joining == 0
