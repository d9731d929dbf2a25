"""The course of a rebalance: delays, timeouts, elections of leaders, assignments and failed writes."""

from __future__ import annotations

import pytest
from support.group_world import REBALANCE, SESSION, GroupWorld, subscription

from minikafka.base.errors import ErrorCode
from minikafka.groups.messages.commands import APPEND_FAILED, COMPLETING, STABLE

DELAY = 3_000


# The initial delay.


def test_first_rebalance_waits_for_the_initial_delay():
    world = GroupWorld(group_initial_rebalance_delay_ms=DELAY)
    caller = world.send_join()

    world.advance(DELAY - 1)
    assert caller not in world.answers
    world.advance(1)

    assert world.answers[caller].generation == 1


def test_first_rebalance_completes_at_once_without_a_delay():
    world = GroupWorld(group_initial_rebalance_delay_ms=0)

    assert world.join().generation == 1


def test_initial_delay_is_extended_when_another_member_joins():
    world = GroupWorld(group_initial_rebalance_delay_ms=DELAY)
    callers = [world.send_join(rebalance_timeout_ms=DELAY * 3)]
    world.advance(DELAY - 1)
    callers.append(world.send_join(rebalance_timeout_ms=DELAY * 3))

    world.advance(DELAY)
    assert not world.answers
    world.advance(1)

    assert [world.answers[caller].generation for caller in callers] == [1, 1]
    assert len(world.answers[callers[0]].members) == 2


def test_initial_delay_is_not_extended_beyond_the_rebalance_timeout():
    world = GroupWorld(group_initial_rebalance_delay_ms=DELAY)
    callers = [world.send_join(rebalance_timeout_ms=DELAY * 2) for _ in range(2)]
    world.advance(DELAY)
    callers.append(world.send_join(rebalance_timeout_ms=DELAY * 2))

    world.advance(DELAY - 1)
    assert not world.answers
    world.advance(1)

    assert [world.answers[caller].error for caller in callers] == [0, 0, 0]


def test_group_that_became_empty_waits_for_the_initial_delay_again():
    world = GroupWorld(group_initial_rebalance_delay_ms=DELAY)
    caller = world.send_join()
    world.advance(DELAY)
    world.leave(world.answers[caller].member_id)
    assert world.state == "Empty"

    caller = world.send_join()
    world.advance(DELAY - 1)
    assert caller not in world.answers
    world.advance(1)

    assert world.answers[caller].generation == 3


# Members that do not join again.


def test_dynamic_member_that_does_not_rejoin_is_removed_after_the_rebalance_timeout():
    world = GroupWorld()
    leader, silent = world.stable(2)
    waiting = world.send_join(leader)
    for _ in range(REBALANCE // SESSION):
        world.advance(SESSION - 1)
        assert world.heartbeat(silent, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in world.answers

    world.advance(REBALANCE // SESSION)

    assert [member.member_id for member in world.answers[waiting].members] == [leader]
    removed = [note for note in world.notes if note.kind == "member removed"]
    assert [(note.fields["member"], note.fields["trigger"]) for note in removed] == [
        (silent, "did not rejoin in time")
    ]


def test_rebalance_timeout_is_the_longest_timeout_of_the_members():
    world = GroupWorld()
    leader, silent = world.stable(2, session_timeout_ms=1_000_000)
    world.group.members[silent].rebalance_timeout_ms = REBALANCE * 2
    waiting = world.send_join(leader, session_timeout_ms=1_000_000)

    world.advance(REBALANCE * 2 - 1)
    assert waiting not in world.answers
    world.advance(1)

    assert waiting in world.answers


def test_another_member_leads_when_the_leader_does_not_rejoin():
    world = GroupWorld()
    _, other = world.stable(2)
    waiting = world.send_join(other, protocols=(("range", subscription("u")),))

    world.advance(REBALANCE)

    assert world.answers[waiting].leader == other
    assert [member.member_id for member in world.answers[waiting].members] == [other]


def test_static_member_that_does_not_rejoin_stays_and_another_member_leads():
    world = GroupWorld()
    ids = world.static("a", "b", session_timeout_ms=REBALANCE * 2)
    new = world.send_join(instance_id="c", session_timeout_ms=REBALANCE * 2)
    world.send_join(ids["b"], instance_id="b", session_timeout_ms=REBALANCE * 2)

    world.advance(REBALANCE)

    answer = world.answers[new]
    assert (answer.error, answer.generation) == (0, 3)
    assert answer.leader == ids["b"]
    assert set(world.group.static_ids) == {"a", "b", "c"}


def test_rebalance_waits_while_only_absent_static_members_are_left():
    world = GroupWorld()
    ids = world.static("a", "b", session_timeout_ms=REBALANCE * 3)
    world.leave(ids["b"])

    world.advance(REBALANCE * 2)
    assert (world.state, world.group.generation) == ("PreparingRebalance", 2)

    answer = world.join(instance_id="a")
    assert (answer.error, answer.generation, answer.leader) == (0, 3, answer.member_id)


def test_group_is_empty_when_the_absent_static_members_have_expired():
    world = GroupWorld()
    ids = world.static("a", "b", session_timeout_ms=REBALANCE * 2)
    world.leave(ids["b"])

    world.advance(REBALANCE * 2)

    assert (world.state, world.group.generation, world.group.leader) == ("Empty", 3, None)


@pytest.mark.parametrize("timeout", [0, -1])
def test_rebalance_waits_for_absent_static_members_with_a_timeout_of_zero(timeout):
    world = GroupWorld()
    ids = world.static("a", "b")
    for member in world.group.members.values():
        member.rebalance_timeout_ms = timeout
    world.leave(ids["b"])

    world.advance(SESSION - 1)
    assert world.state == "PreparingRebalance"
    world.advance(1)

    assert world.state == "Empty"


# SyncGroup.


def test_every_member_gets_the_assignment_that_the_leader_sent_for_it():
    world = GroupWorld()
    leader, second, third = world.stable(3)
    world.send_join(leader)
    world.send_join(second)
    world.send_join(third)
    early = world.send_sync(second, 3)
    assert early not in world.answers

    assigned = {leader: b"1", second: b"\x00" * 1000, third: b"3"}
    first = world.sync(leader, 3, assignments={**assigned, "stranger": b"x"})
    late = world.sync(third, 3)

    assert [first.assignment, world.answers[early].assignment, late.assignment] == list(
        assigned.values()
    )
    assert (late.protocol_type, late.protocol_name) == ("consumer", "range")


def test_member_without_an_assignment_by_the_leader_gets_an_empty_assignment():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.send_join(follower)
    world.sync(leader, 3, assignments={leader: b"all"})

    answer = world.sync(follower, 3)

    assert (answer.error, answer.assignment) == (0, b"")


def test_sync_is_answered_only_after_the_assignment_is_written():
    world = GroupWorld()
    member = world.join().member_id
    world.holds = True
    caller = world.send_sync(member, 1, assignments={member: b"a"})
    assert caller not in world.answers
    assert world.state == "CompletingRebalance"

    world.release()

    assert world.answers[caller].assignment == b"a"
    assert world.state == "Stable"


def test_second_assignment_does_not_replace_the_assignment_being_written():
    world = GroupWorld()
    member = world.join().member_id
    world.holds = True
    earlier = world.send_sync(member, 1, assignments={member: b"first"})
    later = world.send_sync(member, 1, assignments={member: b"second"})
    assert world.answers[earlier].error == ErrorCode.REBALANCE_IN_PROGRESS

    world.release()

    assert world.answers[later].assignment == b"first"
    world.unload()
    world.lead(epoch=1)
    assert world.describe().members[0].assignment == b"first"


@pytest.mark.parametrize(
    ("append_error", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_failed_write_of_the_assignment_returns_an_error_and_restarts_the_rebalance(
    append_error, error
):
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.send_join(follower)
    waiting = world.send_sync(follower, 3)
    world.append_error = append_error

    answer = world.sync(leader, 3, assignments={leader: b"a", follower: b"b"})

    assert (answer.error, answer.assignment) == (error, b"")
    assert world.answers[waiting] == answer
    assert (answer.protocol_type, answer.protocol_name) == (None, None)
    assert (world.state, world.group.generation) == ("PreparingRebalance", 3)
    assert any(note.kind == APPEND_FAILED for note in world.notes)


def test_written_assignment_of_a_generation_that_has_ended_is_dropped():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.send_join(follower)
    world.holds = True
    waiting = world.send_sync(leader, 3, assignments={leader: b"old"})
    world.send_join(follower, protocols=(("range", subscription("u")),))
    assert world.answers[waiting].error == ErrorCode.REBALANCE_IN_PROGRESS

    world.release()

    assert world.state == "PreparingRebalance"
    assert world.group.members[leader].assignment == b""


@pytest.mark.parametrize("leader_syncs", [True, False])
def test_members_that_do_not_sync_are_removed_after_the_rebalance_timeout(leader_syncs):
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.send_join(follower)
    silent, active = (follower, leader) if leader_syncs else (leader, follower)
    waiting = world.send_sync(active, 3)

    for _ in range(REBALANCE // 6_000):
        world.heartbeat(silent, 3)
        if leader_syncs:
            world.heartbeat(active, 3)
        world.advance(6_000)

    assert world.heartbeat(silent, 3) == ErrorCode.UNKNOWN_MEMBER_ID
    expected = 0 if leader_syncs else ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answers[waiting].error == expected
    assert world.state == "PreparingRebalance"
    assert list(world.group.members) == [active]


def test_group_stays_stable_when_all_members_have_synced():
    world = GroupWorld()
    members = world.stable(3)

    for _ in range(REBALANCE // 6_000 * 3):
        world.advance(6_000)
        assert {world.heartbeat(member, 2) for member in members} == {0}

    assert world.state == "Stable"


# Protocols.


def test_common_protocol_with_the_most_votes_is_chosen():
    def offers(*names):
        return tuple((name, name.encode()) for name in names)

    world = GroupWorld(group_initial_rebalance_delay_ms=DELAY)
    callers = [
        world.send_join(protocols=offers(*names))
        for names in (("own", "b", "a"), ("a", "b"), ("a", "other", "b"))
    ]
    world.advance(DELAY * 2)

    assert {world.answers[caller].protocol_name for caller in callers} == {"a"}
    assert [member.metadata for member in world.answers[callers[0]].members] == [b"a"] * 3


# The ledger.


def test_ledger_notes_of_a_group_have_the_duration_of_each_rebalance_phase():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    world.advance(200)
    world.send_join(follower)
    world.advance(30)
    world.holds = True
    world.send_sync(leader, 3)
    world.advance(4)
    world.release()

    joined = next(note for note in reversed(world.notes) if note.kind == COMPLETING)
    assert joined.fields["joining_ms"] == 200
    assert joined.fields["last"] == follower
    assert (joined.generation, joined.fields["members"]) == (3, 2)
    written = world.notes[-1]
    assert written.kind == STABLE
    assert written.fields["assigning_ms"] == 30
    assert written.fields["writing_ms"] == 4
    assert written.fields["rebalance_ms"] == 234
