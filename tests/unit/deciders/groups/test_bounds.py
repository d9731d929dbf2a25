"""Bounds: memory, pending members, steps of the expiry check, large groups.

`GroupWorld` checks how memory is counted.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from support.deciders.group_world import GroupWorld, subscription

from minikafka.base.errors import ErrorCode
from minikafka.deciders.decider import TimerDue
from minikafka.deciders.groups import members
from minikafka.deciders.groups.states import STABLE

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
MEMORY = 200_000
EXPIRY_CHECK_MS = 600_000
"""The default of `offsets.retention.check.interval.ms`."""


def world(**settings: int) -> GroupWorld:
    return GroupWorld(minikafka_groups_memory_max_bytes=MEMORY, **settings)


def fill(one: GroupWorld, size: int) -> list[str]:
    """Let members with metadata of this size join groups of their own until one is refused; return the groups."""
    joined: list[str] = []
    while True:
        name = f"full-{len(joined)}"
        if one.join(group_id=name, protocols=[("range", bytes(size))]).error:
            return joined
        joined.append(name)


@pytest.mark.key("minikafka.groups.memory.max.bytes")
def test_new_members_are_refused_when_the_groups_use_too_much_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = world()
    (member,) = one.stable()
    assert 15 < len(fill(one, 5_000)) < MEMORY / 5_000
    refused = one.join(group_id="new", protocols=[("range", bytes(5_000))])
    assert (refused.error, "new" in one.context.groups) == (LOADING, False)
    assert len(caplog.records) == 1, "refusals are logged once a minute"
    assert one.heartbeat(member, 1) == 0
    again = one.join(member)
    assert (again.error, again.generation) == (0, 2), "a member that joins again needs no memory"
    assert one.sync(member, 2, assignments={member: b"x"}).error == 0
    assert one.join(group_id="new").error == 0, "a small one still fits"


def test_member_may_not_grow_when_the_groups_use_too_much_memory() -> None:
    one = world()
    (member,) = one.stable()
    fill(one, 5_000)
    assert one.join(member, protocols=[("range", bytes(20_000))]).error == LOADING
    assert one.state == "Stable"


def test_memory_of_members_is_free_again_when_their_sessions_have_expired() -> None:
    one = world()
    full = fill(one, 5_000)
    assert len(full) > 15
    one.advance(one.settings.group_max_session_timeout_ms)
    assert len(fill(one, 5_000)) >= len(full) - 1
    one.unload()
    assert one.context.memory.used == 0


def test_large_members_leave_memory_for_small_ones() -> None:
    one = world()
    assert len(fill(one, 40_000)) == 2
    assert one.join(group_id="small").error == 0


def test_pending_members_and_long_group_names_count_too() -> None:
    one = world()
    outcomes = [
        one.join(group_id=f"{number}" * 2_000, requires_member_id=True).error
        for number in range(100, 200)
    ]
    assert outcomes.count(ErrorCode.MEMBER_ID_REQUIRED) < MEMORY / 6_000
    assert outcomes[-1] == LOADING
    one.advance(one.settings.group_max_session_timeout_ms)
    assert one.context.memory.used == 0
    assert not any(pending.group_id for pending in one.coordinator._members._recent)


@pytest.mark.key("minikafka.offsets.memory.max.bytes")
def test_offsets_of_new_partitions_are_refused_when_offsets_use_too_much_memory() -> None:
    one = GroupWorld(minikafka_offsets_memory_max_bytes=MEMORY)
    accepted = 0
    while one.commit({("t", accepted): 1}, metadata="m" * 1_000) == {0}:
        accepted += 1
    assert 100 < accepted < MEMORY / 1_000
    assert one.commit({("t", accepted): 1}, group="h", metadata="m" * 1_000) == {LOADING}
    assert "h" not in one.context.groups
    assert one.commit({("t", 0): 2}, metadata="n" * 1_000) == {0}, "it replaces an offset"
    assert one.offsets()["t", 0] == 2
    one.delete_offsets([("t", [1, 2])])
    assert one.commit({("t", accepted): 1}, metadata="m" * 1_000) == {0}
    assert one.delete("g") == {"g": 0}
    assert one.context.offsets_memory.used == 0


def test_groups_that_only_have_offsets_count_as_groups_too() -> None:
    one = world()
    outcomes = [one.commit({("t", 0): 1}, group=f"g{number}") for number in range(100)]
    assert outcomes[0] == {0}
    assert outcomes[-1] == {LOADING}


def test_subscriptions_to_many_topics_are_not_kept_in_decoded_form() -> None:
    """The names of 20,000 topics take 2 MB as texts, and 0.2 MB in the metadata of the member."""
    one = GroupWorld()
    protocols = [("range", subscription(*map(str, range(20_000))))]
    tracemalloc.start()
    try:
        one.stable(protocols=protocols)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 500_000
    topics = one.group.subscribed()
    assert topics is not None
    assert len(topics) == 20_000


def test_oldest_pending_members_of_all_groups_are_removed_above_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "PENDING_MAX", 3)
    one = GroupWorld()
    ids = [
        one.join(group_id=f"g{number}", requires_member_id=True).member_id for number in range(5)
    ]

    assert list(one.context.groups) == ["g2", "g3", "g4"]
    assert one.join(ids[0], group_id="g0").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.join(ids[4], group_id="g4").error == 0


def test_expiry_check_of_many_groups_is_divided_into_several_calls() -> None:
    one = GroupWorld(offsets_retention_minutes=1)
    for number in range(30):
        one.commit({("t", n): 1 for n in range(1000)}, group=f"g{number}")
    one.advance(EXPIRY_CHECK_MS - 1)

    one.now += 1
    one.handle(TimerDue())
    left = len(one.context.groups)

    assert 5 <= left <= 20
    assert one.coordinator.next_deadline() == one.now
    one.advance(0)
    assert not one.context.groups


def test_group_of_two_hundred_members_accepts_heartbeats_and_completes_a_rebalance() -> None:
    one = GroupWorld()
    ids = one.stable(200)

    assert {one.heartbeat(member, 2) for member in ids} == {0}
    waiting = [one.send_join(member) for member in ids]

    assert {one.answers[caller].generation for caller in waiting} == {3}
    assert len(one.answers[waiting[0]].members) == 200
    assert one.group.joining == 0


# ---- measured memory


def traced_bytes(build: Callable[[], GroupWorld]) -> tuple[int, GroupWorld]:
    """Call `build`; return the bytes that stay allocated, and the result of the call."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = build()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], kept
    finally:
        tracemalloc.stop()


def test_member_uses_about_a_kilobyte_of_memory() -> None:
    def build() -> GroupWorld:
        world = GroupWorld()
        world.stable(100)
        world.answers.clear()
        world.notes.clear()
        world.log.clear()
        return world

    size, _ = traced_bytes(build)

    assert 300 < size / 100 < 1_500


def test_group_of_one_member_uses_about_three_kilobytes_of_memory() -> None:
    def build() -> GroupWorld:
        world = GroupWorld(partitions=50)
        for number in range(100):
            group = f"group-{number}"
            member = world.join(group_id=group).member_id
            world.sync(member, 1, group_id=group, assignments={member: bytes(30)})
        world.answers.clear()
        world.notes.clear()
        world.log.clear()
        world._generations.clear()
        return world

    size, world = traced_bytes(build)

    assert world.context.state_counts() == {STABLE: 100}
    assert size / 100 < 4_000
