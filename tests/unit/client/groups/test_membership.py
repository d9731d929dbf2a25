"""A group member's reactions to errors in each state, and the member id and generation that remain afterwards."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.client.groups.membership import (
    REACTIONS,
    Call,
    Generation,
    Membership,
    Reaction,
    State,
)

E = ErrorCode


def stable() -> Membership:
    member = Membership()
    member.begin_join()
    member.joined("m-1", 7)
    member.synced()
    return member


def test_member_that_joins_and_syncs_is_stable() -> None:
    member = Membership("i")
    assert (member.must_rejoin, member.identity) == (True, Generation(-1, ""))
    member.begin_join()
    assert (member.state, member.must_rejoin) == (State.JOINING, False)
    member.joined("m-1", 7)
    assert member.state is State.SYNCING
    member.synced()
    assert (member.state, member.identity) == (State.STABLE, Generation(7, "m-1"))


@pytest.mark.parametrize(
    ("code", "identity", "reaction", "lost"),
    [
        (E.REBALANCE_IN_PROGRESS, Generation(7, "m-1"), Reaction.REJOIN, False),
        (E.ILLEGAL_GENERATION, Generation(-1, "m-1"), Reaction.REJOIN, True),
        (E.UNKNOWN_MEMBER_ID, Generation(-1, ""), Reaction.REJOIN, True),
        (E.NOT_COORDINATOR, Generation(7, "m-1"), Reaction.FIND_COORDINATOR, False),
        (E.COORDINATOR_NOT_AVAILABLE, Generation(7, "m-1"), Reaction.FIND_COORDINATOR, False),
        (E.COORDINATOR_LOAD_IN_PROGRESS, Generation(7, "m-1"), Reaction.BACK_OFF, False),
        (E.FENCED_INSTANCE_ID, Generation(7, "m-1"), Reaction.FAIL, False),
        (E.NONE, Generation(7, "m-1"), Reaction.GO_ON, False),
    ],
)
def test_heartbeat_error_changes_member_id_and_generation_as_in_kafka(
    code: ErrorCode, identity: Generation, reaction: Reaction, lost: bool
) -> None:
    member = stable()
    assert member.react(Call.HEARTBEAT, code, member.identity) is reaction
    assert member.identity == identity
    assert member.has_lost_generation is lost
    assert member.must_rejoin is (reaction is Reaction.REJOIN)


@pytest.mark.parametrize(
    "code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS]
)
def test_commit_with_a_membership_error_fails_and_the_member_rejoins(code: ErrorCode) -> None:
    member = stable()
    assert member.react(Call.COMMIT, code, member.identity) is Reaction.FAIL
    assert member.must_rejoin
    assert "OffsetCommit" in member.reason


@pytest.mark.parametrize("call", [Call.HEARTBEAT, Call.SYNC])
def test_error_in_a_response_to_a_request_of_an_earlier_generation_is_ignored(call: Call) -> None:
    member = stable()
    assert member.react(call, E.UNKNOWN_MEMBER_ID, Generation(6, "m-1")) is Reaction.GO_ON
    assert member.identity == Generation(7, "m-1")
    assert not member.must_rejoin


def test_commit_of_an_earlier_generation_fails_and_changes_nothing() -> None:
    member = stable()
    sent = Generation(6, "m-1")
    assert member.react(Call.COMMIT, E.ILLEGAL_GENERATION, sent) is Reaction.FAIL
    assert member.identity == Generation(7, "m-1")


def test_member_takes_the_id_that_the_coordinator_requires() -> None:
    member = Membership()
    member.begin_join()
    sent = member.identity
    assert member.react(Call.JOIN, E.MEMBER_ID_REQUIRED, sent, "m-9") is Reaction.RETRY
    assert (member.identity, member.state) == (Generation(-1, "m-9"), State.JOINING)


def test_member_rejoins_without_an_id_after_unknown_member_id() -> None:
    member = stable()
    member.begin_join()
    assert member.react(Call.JOIN, E.UNKNOWN_MEMBER_ID, member.identity) is Reaction.RETRY
    assert (member.identity, member.state) == (Generation(-1, ""), State.JOINING)
    assert member.has_lost_generation
    member.joined("m-2", 9)
    assert not member.has_lost_generation


def test_member_forgets_its_generation_and_must_rejoin_after_leaving_the_group() -> None:
    member = stable()
    member.leave("slow")
    assert (member.state, member.identity) == (State.UNJOINED, Generation(-1, ""))
    assert (member.has_lost_generation, member.must_rejoin, member.reason) == (True, True, "slow")


def test_first_reason_for_a_rejoin_is_kept() -> None:
    member = stable()
    member.request_rejoin("first")
    member.request_rejoin("second")
    assert member.reason == "first"
    member.begin_join()
    member.abort_join()
    assert (member.state, member.must_rejoin) == (State.UNJOINED, True)
    assert member.reason == "first"


def test_rebalance_in_progress_error_while_syncing_makes_the_member_rejoin() -> None:
    member = Membership()
    member.begin_join()
    member.joined("m", 1)
    assert member.react(Call.SYNC, E.REBALANCE_IN_PROGRESS, member.identity) is Reaction.REJOIN
    assert (member.state, member.must_rejoin) == (State.UNJOINED, True)
    assert member.identity == Generation(1, "m")


@pytest.mark.parametrize("call", list(Call))
@pytest.mark.parametrize(
    "code",
    [E.INCONSISTENT_GROUP_PROTOCOL, E.FENCED_INSTANCE_ID, E.UNKNOWN_SERVER_ERROR],
)
def test_group_request_fails_on_an_error_that_cannot_be_retried(
    call: Call, code: ErrorCode
) -> None:
    assert stable().react(call, code, Generation(7, "m-1")) is Reaction.FAIL


@pytest.mark.parametrize("call", list(Call))
def test_not_coordinator_error_makes_the_member_look_up_the_coordinator_again(call: Call) -> None:
    assert REACTIONS[call][E.NOT_COORDINATOR] is Reaction.FIND_COORDINATOR
