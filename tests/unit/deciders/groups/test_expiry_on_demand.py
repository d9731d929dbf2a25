"""The expiry of one group's offsets by a user's request, and of all that are due when the clock is advanced."""

from __future__ import annotations

from support.deciders.group_world import GROUP, GroupWorld

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import ClockAdvanced
from minikafka.deciders.groups.commands import ExpireGroupResponse
from minikafka.deciders.groups.events import ExpireGroupRequest

T0, T1 = ("t", 0), ("t", 1)


def expire(world: GroupWorld, group: str = GROUP) -> ExpireGroupResponse:
    answer = world.answers[world.call(ExpireGroupRequest, group_id=group)]
    assert isinstance(answer, ExpireGroupResponse)
    return answer


def test_all_offsets_of_a_group_without_members_expire_and_the_group_goes() -> None:
    world = GroupWorld()
    world.commit({T0: 5, T1: 7})
    assert expire(world) == (0, {TopicPartition(*T0): 5, TopicPartition(*T1): 7})
    assert GROUP not in world.context.groups
    assert expire(world).error == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_members_keeps_its_offsets() -> None:
    world = GroupWorld()
    world.stable()
    assert expire(world) == (ErrorCode.NON_EMPTY_GROUP, {})
    assert world.state == "Stable"


def test_group_of_another_coordinator_is_refused() -> None:
    world = GroupWorld(loads=False)
    assert expire(world) == (ErrorCode.NOT_COORDINATOR, {})


def test_request_is_answered_when_the_tombstones_are_written() -> None:
    world = GroupWorld()
    world.commit({T0: 5})
    world.holds = True
    caller = world.call(ExpireGroupRequest, group_id=GROUP)
    assert caller not in world.answers
    world.release()
    assert world.answers[caller].offsets == {TopicPartition(*T0): 5}


def test_advanced_clock_removes_only_the_offsets_that_are_due() -> None:
    world = GroupWorld(offsets_retention_minutes=60)
    world.commit({T0: 5})
    world.handle(ClockAdvanced())
    assert world.offsets() == {T0: 5}
    world.now += 2 * 3_600_000
    world.handle(ClockAdvanced())
    assert GROUP not in world.context.groups
