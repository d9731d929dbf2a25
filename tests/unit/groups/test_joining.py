"""JoinGroup: required member ids, limits, changed metadata, and static members that return."""

from __future__ import annotations

import pytest
from support.group_world import GROUP, REBALANCE, SESSION, GroupWorld, subscription

from minikafka.base.errors import ErrorCode
from minikafka.groups import joining
from minikafka.groups.messages.commands import MEMBER_REPLACED, PREPARING

BOTH = (("range", subscription("t")), ("roundrobin", subscription("t")))
ROUND_ROBIN = (("roundrobin", subscription("t")),)
RANGE_ONLY = (("range", subscription("t")),)
OTHER_TOPICS = (("range", subscription("t", "u")),)


# New members.


def test_first_join_of_a_dynamic_member_returns_only_an_id_when_ids_are_required():
    world = GroupWorld()

    first = world.join(requires_member_id=True)

    assert (first.error, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "client-1")
    assert world.state == "Empty"
    second = world.join(first.member_id, requires_member_id=True)
    assert (second.error, second.member_id, second.generation) == (0, "client-1", 1)
    assert second.leader == "client-1"


def test_client_of_an_old_version_joins_at_once_without_an_id():
    answer = GroupWorld().join()

    assert (answer.error, answer.member_id, answer.generation) == (0, "client-1", 1)


def test_static_member_joins_at_once_with_an_id_from_its_instance_id():
    answer = GroupWorld().join(instance_id="i", requires_member_id=False)

    assert (answer.error, answer.member_id) == (0, "i-1")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_first_join_is_refused_when_the_request_is_invalid(changes, error):
    answer = GroupWorld().join(**changes)

    assert answer.error == error
    assert (answer.protocol_type, answer.protocol_name) == (None, None)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ROUND_ROBIN}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": "client-1", "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_join_that_does_not_match_the_existing_group_is_refused(changes, error):
    world = GroupWorld()
    world.stable()

    assert world.join(**changes).error == error
    assert world.state == "Stable"


def test_pending_member_may_not_become_static():
    world = GroupWorld()
    pending = world.join(requires_member_id=True).member_id

    assert world.join(pending, instance_id="i").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_a_pending_member_and_ends_when_it_joins():
    world = GroupWorld()
    leader, other = world.stable(2)
    waiting = world.send_join(leader)
    pending = world.join(requires_member_id=True).member_id
    world.send_join(other)
    assert world.state == "PreparingRebalance"

    world.send_join(pending)

    assert len(world.answers[waiting].members) == 3


def test_rebalance_waits_for_a_pending_member_until_its_session_timeout():
    world = GroupWorld()
    leader, other = world.stable(2)
    waiting = world.send_join(leader)
    world.join(requires_member_id=True, session_timeout_ms=6_000)
    world.send_join(other)

    world.advance(5_999)
    assert waiting not in world.answers
    world.advance(1)

    assert len(world.answers[waiting].members) == 2
    assert not world.group.pending


def test_oldest_pending_members_of_all_groups_are_removed_above_the_limit(monkeypatch):
    monkeypatch.setattr(joining, "PENDING_MAX", 3)
    world = GroupWorld()
    ids = [
        world.join(group_id=f"g{number}", requires_member_id=True).member_id for number in range(5)
    ]

    assert list(world.coordinator.groups) == ["g2", "g3", "g4"]
    assert world.join(ids[0], group_id="g0").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(ids[4], group_id="g4").error == 0


def test_group_without_members_is_removed_when_its_last_pending_member_expires():
    world = GroupWorld()
    world.join(requires_member_id=True, session_timeout_ms=6_000)
    world.join(requires_member_id=True, session_timeout_ms=7_000)

    world.advance(6_000)
    assert list(world.coordinator.groups) == [GROUP]
    world.advance(1_000)
    assert not world.coordinator.groups


def test_new_member_that_waits_five_minutes_gets_unknown_member_id():
    world = GroupWorld()
    [member] = world.stable(session_timeout_ms=1_800_000, rebalance_timeout_ms=1_800_000)
    new = world.send_join(rebalance_timeout_ms=1_800_000)

    world.advance(299_999)
    assert new not in world.answers
    world.advance(1)

    assert world.answers[new].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answers[new].member_id == ""
    assert list(world.group.members) == [member]


# The size of a group.


def join_all(world, members, **changes):
    return [world.send_join(member, **changes) for member in members]


@pytest.mark.parametrize("requires_member_id", [True, False])
def test_joins_above_the_maximum_group_size_are_refused(requires_member_id):
    world = GroupWorld(group_max_size=3, group_initial_rebalance_delay_ms=3_000)
    members = [""] * 4
    if requires_member_id:
        members = [world.join(requires_member_id=True).member_id for _ in range(4)]
    callers = join_all(world, members)
    world.advance(6_000)

    codes = [world.answers[caller].error for caller in callers]
    assert codes == [0, 0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert world.answers[callers[3]].member_id == ""
    again = join_all(world, [world.answers[caller].member_id for caller in callers])
    assert [world.answers[caller].error for caller in again] == codes


def test_static_member_that_returns_to_a_full_group_is_refused():
    world = GroupWorld(group_max_size=1)
    world.static("a")

    assert world.join(instance_id="a").error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_last_members_to_rejoin_are_removed_if_the_maximum_group_size_was_lowered():
    world = GroupWorld()
    members = world.stable(4)
    world.unload()
    smaller = GroupWorld(loads=False, group_max_size=2)
    smaller.log = world.log
    smaller.lead(epoch=1)
    assert smaller.state == "PreparingRebalance"

    callers = join_all(smaller, members)

    codes = [smaller.answers[caller].error for caller in callers]
    assert codes == [0, 0, *[ErrorCode.GROUP_MAX_SIZE_REACHED] * 2]
    assert list(smaller.group.members) == members[:2]


# Known members.


def test_follower_that_rejoins_unchanged_gets_the_current_generation():
    world = GroupWorld()
    leader, follower = world.stable(2)

    answer = world.join(follower)

    assert (answer.error, answer.generation, answer.leader) == (0, 2, leader)
    assert answer.members == ()
    assert world.state == "Stable"


def test_follower_that_rejoins_with_changed_metadata_causes_a_rebalance():
    world = GroupWorld()
    _, follower = world.stable(2)

    world.send_join(follower, protocols=OTHER_TOPICS)

    assert world.state == "PreparingRebalance"
    assert world.notes[-1].kind == PREPARING
    assert world.notes[-1].fields["trigger"] == "member changed its metadata"
    assert world.notes[-1].fields["member"] == follower


def test_leader_that_rejoins_unchanged_causes_a_rebalance_with_the_reason_it_gave():
    world = GroupWorld()
    leader, _ = world.stable(2)

    world.send_join(leader, reason="partitions of t changed")

    assert world.state == "PreparingRebalance"
    assert world.notes[-1].fields["trigger"] == "leader rejoined"
    assert world.notes[-1].fields["reason"] == "partitions of t changed"


@pytest.mark.parametrize("is_leader", [True, False])
def test_member_that_missed_its_join_response_gets_it_again(is_leader):
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    first = world.join(follower)
    assert world.state == "CompletingRebalance"

    answer = world.join(leader if is_leader else follower)

    assert (answer.error, answer.generation, answer.leader) == (0, first.generation, leader)
    assert [member.member_id for member in answer.members] == (
        [leader, follower] if is_leader else []
    )


def test_member_with_changed_metadata_restarts_a_completing_rebalance():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.send_join(follower)
    waiting = world.send_sync(follower, 3)

    world.send_join(leader, protocols=OTHER_TOPICS)

    assert world.answers[waiting].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.state == "PreparingRebalance"


def test_repeated_join_ends_the_earlier_join_with_an_error():
    world = GroupWorld()
    leader, _ = world.stable(2)
    earlier = world.send_join(leader)

    later = world.send_join(leader)

    assert world.answers[earlier].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answers[earlier].member_id == leader
    assert later not in world.answers


# Static members that return.


def test_static_member_with_a_wrong_member_id_is_fenced():
    world = GroupWorld()
    ids = world.static("a", "b")

    assert world.join("stranger", instance_id="a").error == ErrorCode.FENCED_INSTANCE_ID
    assert world.join(ids["a"], instance_id="b").error == ErrorCode.FENCED_INSTANCE_ID
    assert world.join(ids["a"], instance_id="z").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_follower_returns_to_a_stable_group_without_a_rebalance():
    world = GroupWorld()
    ids = world.static("a", "b")

    answer = world.join(instance_id="b")

    assert (answer.error, answer.generation, answer.leader) == (0, 2, ids["a"])
    assert (answer.members, answer.skip_assignment) == ((), False)
    assert answer.member_id not in ids.values()
    assert world.state == "Stable"
    synced = world.sync(answer.member_id, 2, instance_id="b")
    assert synced.assignment == ids["b"].encode()
    assert world.notes[-1].kind == MEMBER_REPLACED
    assert world.notes[-1].fields["replaced"] == ids["b"]


def test_returning_static_leader_is_told_to_skip_assignment_since_join_group_v9():
    world = GroupWorld()
    world.static("a", "b")

    answer = world.join(instance_id="a", can_skip_assignment=True)

    assert (answer.error, answer.generation, answer.leader) == (0, 2, answer.member_id)
    assert answer.skip_assignment
    assert {member.instance_id for member in answer.members} == {"a", "b"}


def test_returning_static_leader_is_answered_as_a_follower_before_join_group_v9():
    world = GroupWorld()
    ids = world.static("a", "b")

    answer = world.join(instance_id="a")

    assert (answer.error, answer.generation, answer.leader) == (0, 2, ids["a"])
    assert answer.leader != answer.member_id
    assert (answer.members, answer.skip_assignment) == ((), False)
    assert world.group.leader == answer.member_id


def test_former_process_of_a_static_member_is_fenced_in_every_request():
    world = GroupWorld()
    old = world.static("a")["a"]
    world.join(instance_id="a")

    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.join(old, instance_id="a").error == fenced
    assert world.sync(old, 1, instance_id="a").error == fenced
    assert world.heartbeat(old, 1, instance_id="a") == fenced
    assert world.commit({("t", 0): 1}, old, 1, instance="a") == {fenced}
    assert world.sync(old, 1).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_id_of_a_static_member_survives_a_move_of_the_coordinator():
    world = GroupWorld()
    world.static("a", "b")
    member = world.join(instance_id="b").member_id

    world.unload()
    world.lead(epoch=1)

    assert world.heartbeat(member, 2, instance_id="b") == 0


def test_static_member_that_waits_to_join_is_fenced_by_its_successor():
    world = GroupWorld()
    ids = world.static("a", "b")
    world.send_join()
    old = world.send_join(ids["b"], instance_id="b")

    new = world.send_join(instance_id="b")

    assert world.answers[old].error == ErrorCode.FENCED_INSTANCE_ID
    assert world.answers[old].member_id == ids["b"]
    assert new not in world.answers


def test_static_member_that_waits_to_sync_is_fenced_and_the_rebalance_restarts():
    world = GroupWorld()
    ids = world.static("a", "b")
    world.send_join(ids["a"], instance_id="a")
    world.send_join(ids["b"], instance_id="b")
    old = world.send_sync(ids["b"], 3, instance_id="b")

    world.send_join(instance_id="b")

    assert world.answers[old].error == ErrorCode.FENCED_INSTANCE_ID
    assert world.state == "PreparingRebalance"


def test_static_member_whose_return_changes_the_protocol_causes_a_rebalance():
    world = GroupWorld()
    ids = world.static("a", "b", protocols=BOTH)
    assert world.group.protocol_name == "range"

    back = world.send_join(instance_id="b", protocols=ROUND_ROBIN)
    assert world.state == "PreparingRebalance"
    world.send_join(ids["a"], instance_id="a", protocols=BOTH)

    answer = world.answers[back]
    assert (answer.error, answer.generation, answer.protocol_name) == (0, 3, "roundrobin")


def test_static_member_that_returns_with_fewer_protocols_keeps_the_group_stable():
    world = GroupWorld()
    world.static("a", "b", protocols=BOTH)

    answer = world.join(instance_id="b", protocols=RANGE_ONLY)

    assert (answer.error, answer.generation) == (0, 2)
    assert world.group.members[answer.member_id].protocols == RANGE_ONLY


def test_static_member_keeps_its_former_id_when_the_write_of_its_return_fails():
    world = GroupWorld()
    ids = world.static("a", "b", protocols=BOTH)
    world.append_error = ErrorCode.MESSAGE_TOO_LARGE

    answer = world.join(
        instance_id="b",
        protocols=RANGE_ONLY,
        session_timeout_ms=SESSION * 2,
        rebalance_timeout_ms=REBALANCE * 2,
    )

    assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    member = world.group.members[ids["b"]]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION, REBALANCE)
    assert member.protocols == BOTH
    assert world.heartbeat(ids["b"], 2, instance_id="b") == 0
    assert world.sync(ids["b"], 2, instance_id="b").assignment == ids["b"].encode()


def test_static_member_gets_a_new_id_at_each_return():
    world = GroupWorld()
    world.static("a", "b")

    ids = {world.join(instance_id="a").member_id for _ in range(5)}

    assert len(ids) == 5


def test_second_return_of_a_static_member_fences_a_first_return_being_written():
    world = GroupWorld()
    world.static("a", "b")
    world.holds = True
    first = world.send_join(instance_id="b")

    second = world.send_join(instance_id="b")
    world.release()

    assert world.answers[first].error == ErrorCode.FENCED_INSTANCE_ID
    assert world.answers[second].error == 0
    assert world.group.static_ids["b"] == world.answers[second].member_id


def test_rebalance_answers_a_static_member_whose_return_is_still_being_written():
    world = GroupWorld()
    ids = world.static("a", "b")
    world.holds = True
    back = world.send_join(instance_id="b")
    world.send_join(ids["a"], instance_id="a")
    assert world.answers[back].generation == 3

    world.release(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert world.group.static_ids["b"] == world.answers[back].member_id
    assert world.state == "CompletingRebalance"


def test_static_member_that_returns_before_its_sync_must_sync_with_its_new_id():
    world = GroupWorld()
    ids = world.static("a", "b")
    world.send_join(ids["a"], instance_id="a")
    world.send_join(ids["b"], instance_id="b")
    world.sync(ids["a"], 3, instance_id="a", assignments={ids["b"]: b"for b"})
    member = world.join(instance_id="b").member_id

    assert world.sync(member, 3, instance_id="b").assignment == b"for b"

    for _ in range(10):
        world.advance(SESSION - 1)
        assert world.heartbeat(ids["a"], 3) == world.heartbeat(member, 3) == 0


def test_join_of_one_group_does_not_change_another_group():
    world = GroupWorld()
    world.stable()

    assert world.join(group_id="other").generation == 1
    assert world.coordinator.groups[GROUP].generation == 1
