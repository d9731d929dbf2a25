"""The coordinator's report of a group: joined members, their last requests, assignments and commits."""

from __future__ import annotations

import struct
from typing import Any

from support.group_world import GROUP, REBALANCE, SESSION, GroupWorld, subscription

from minikafka.base.errors import ErrorCode


def assignment(topic: str, *partitions: int) -> bytes:
    name = topic.encode()
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 0, 1, len(name)) + name + numbers + b"\xff\xff\xff\xff"


def explained(world: GroupWorld) -> dict[str, Any]:
    found = world.coordinator.explain(GROUP, world.now)
    assert found["error"] == 0
    return found["group"]  # type: ignore[no-any-return]


def test_report_shows_each_member_with_its_assignment_and_the_committed_offsets():
    world = GroupWorld()
    member = world.join(instance_id=None).member_id
    world.sync(member, 1, assignments={member: assignment("t", 0, 2)})
    world.commit({("t", 2): 7}, member, 1)
    world.advance(1_500)

    report = explained(world)

    [found] = report["members"]
    assert (report["state"], report["generation"], report["leader"]) == ("Stable", 1, member)
    assert (report["topics"], report["protocol"], report["due_ms"]) == (["t"], "range", None)
    assert (found["topics"], found["assigned"]) == (["t"], {"t": [0, 2]})
    assert (found["heard_ms"], found["session_timeout_ms"]) == (1_500, SESSION)
    assert found["joined"]
    assert found["synced"]
    assert report["offsets"] == [["t", 2, 7, world.wall_ms() - 1_500]]


def test_report_shows_members_that_have_not_joined_and_their_deadline():
    world = GroupWorld()
    first, second = world.stable(2)
    world.advance(1_000)
    world.send_join(second, protocols=(("range", subscription("other")),))
    world.advance(4_000)

    report = explained(world)

    assert report["state"] == "PreparingRebalance"
    assert report["due_ms"] == REBALANCE - 4_000
    assert {m["member"]: m["joined"] for m in report["members"]} == {first: False, second: True}
    assert {m["member"]: m["heard_ms"] for m in report["members"]}[first] == 5_000


def test_report_shows_members_that_have_not_fetched_their_assignment():
    world = GroupWorld()
    world.join()

    report = explained(world)

    assert report["state"] == "CompletingRebalance"
    assert [m["synced"] for m in report["members"]] == [False]
    assert report["due_ms"] == REBALANCE


def test_report_of_a_connect_group_has_no_topics_and_no_assigned_partitions():
    world = GroupWorld()
    world.stable(protocol_type="connect", protocols=(("default", b"\0\0"),))

    report = explained(world)

    assert report["topics"] is None
    assert [(m["topics"], m["assigned"]) for m in report["members"]] == [(None, None)]


def test_report_of_a_group_of_another_coordinator_is_an_error():
    world = GroupWorld(loads=False)

    found = world.coordinator.explain(GROUP, world.now)

    assert found == {"partition": 0, "error": ErrorCode.NOT_COORDINATOR, "group": None}
