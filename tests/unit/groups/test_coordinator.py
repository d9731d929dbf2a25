"""The groups that a coordinator serves, their descriptions, and moves of their partitions to other coordinators."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from support.group_world import GROUP, GroupWorld

from minikafka.base.coordinators import LoadedRecord
from minikafka.base.errors import ErrorCode
from minikafka.groups.messages.commands import LOADED, UNLOADED
from minikafka.groups.messages.requests import DescribeRequest
from minikafka.groups.state.states import EMPTY, STABLE

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
MOVED = ErrorCode.NOT_COORDINATOR


def test_stable_group_keeps_its_member_and_commit_when_its_partition_moves():
    world = GroupWorld()
    [member] = world.stable()

    assert world.commit({("t", 0): 5}, member, 1) == {0}

    world.unload()
    world.lead(epoch=1)
    assert world.state == "Stable"
    assert world.offsets() == {("t", 0): 5}
    assert world.describe().members[0].assignment == member.encode()


@pytest.mark.parametrize(
    ("is_loading", "error", "of_sync", "of_heartbeat"),
    [(True, LOADING, ErrorCode.REBALANCE_IN_PROGRESS, 0), (False, MOVED, MOVED, MOVED)],
)
def test_requests_are_refused_while_the_partition_of_the_group_is_not_served(
    is_loading, error, of_sync, of_heartbeat
):
    world = GroupWorld(loads=False)
    if is_loading:
        assert world.coordinator.begin_load(0, 0)

    assert world.join().error == error
    assert world.join(instance_id="i").error == error
    assert world.sync("m", 1).error == of_sync
    assert world.heartbeat("m", 1) == of_heartbeat
    assert (world.leave("m").error, world.leave("m").members) == (error, ())
    assert world.commit({("t", 0): 1}, "m", 1) == {error}
    assert world.commit({("t", 0): 1}) == {error}
    assert world.fetch().error == error
    assert world.delete_offsets([("t", [0])]).error == error
    assert (world.describe().error, world.describe().state) == (error, "")
    assert world.delete(GROUP) == {GROUP: error}
    assert world.list().error == (LOADING if is_loading else 0)


def test_groups_of_other_partitions_are_served_while_one_partition_is_loading():
    world = GroupWorld(loads=False, partitions=2)
    world.lead(0)
    world.coordinator.begin_load(1, 0)

    errors = [world.commit({("t", 0): 1}, group=group) for group in ("b", "c")]

    assert errors == [{0}, {LOADING}]
    assert [group.group_id for group in world.list().groups] == ["b"]


# Moves of a partition.


def test_waiting_members_get_not_coordinator_when_the_partition_moves():
    world = GroupWorld()
    leader, follower = world.stable(2)
    joining = world.send_join(leader)
    world.unload()
    assert world.answers[joining].error == MOVED
    assert world.answers[joining].member_id == leader

    world.lead(epoch=1)
    world.send_join(leader)
    world.send_join(follower)
    syncing = world.send_sync(follower, 3)
    world.unload()
    assert world.answers[syncing].error == MOVED
    assert [note.kind for note in world.notes if note.kind in (LOADED, UNLOADED)] == [
        UNLOADED,
        LOADED,
        UNLOADED,
    ]


@pytest.mark.parametrize("error", [0, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_commit_returns_the_result_of_its_write_although_the_partition_moved(error):
    world = GroupWorld()
    [member] = world.stable()
    world.holds = True
    caller = world.send_commit({("t", 0): 1}, member, 1)
    world.unload()

    world.release(error)

    assert world.answers[caller].topics == [("t", [(0, MOVED if error else 0)])]


def test_sync_returns_not_coordinator_when_the_partition_moves_during_the_write():
    world = GroupWorld()
    member = world.join().member_id
    world.holds = True
    caller = world.send_sync(member, 1, assignments={member: b"a"})

    world.unload()
    world.release()

    assert world.answers[caller].error == MOVED


def test_timers_of_a_group_end_when_its_partition_moves():
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    world.send_join()
    world.join(requires_member_id=True)
    world.unload()

    assert world.coordinator.next_deadline() > 100_000  # only the check of expired offsets is left
    world.advance(600_000)


def test_partition_that_is_led_again_in_a_later_epoch_keeps_its_groups():
    world = GroupWorld()
    world.stable()

    assert not world.coordinator.begin_load(0, 5)
    assert world.state == "Stable"


def test_records_loaded_for_an_earlier_leader_epoch_are_ignored():
    world = GroupWorld()
    world.commit({("t", 0): 1})
    world.unload()
    coordinator, records = world.coordinator, [LoadedRecord(*record) for record in world.log[0]]
    assert coordinator.begin_load(0, 1)
    coordinator.load(0, 1, records)
    assert coordinator.begin_load(0, 2)

    coordinator.load(0, 1, records)
    assert coordinator.loaded(0, 1, world.now) == []
    assert world.fetch().error == LOADING
    world.run(coordinator.loaded(0, 2, world.now))

    assert world.offsets() == {}


def test_group_partition_that_moved_while_loading_is_not_served_when_loading_ends():
    world = GroupWorld(loads=False)
    world.coordinator.begin_load(0, 1)
    world.unload()

    assert world.coordinator.loaded(0, 1, world.now) == []
    assert world.fetch().error == MOVED


# Descriptions and lists of groups.


def test_stable_group_is_described_with_metadata_and_assignments():
    world = GroupWorld()
    ids = world.static("a", "b")

    found = world.describe()

    assert (found.state, found.protocol_type, found.protocol) == ("Stable", "consumer", "range")
    assert [
        (member.instance_id, member.client_id, member.client_host) for member in found.members
    ] == [("a", "client", "/127.0.0.1"), ("b", "client", "/127.0.0.1")]
    assert [member.assignment for member in found.members] == [
        member.encode() for member in ids.values()
    ]
    assert all(member.metadata for member in found.members)


def test_group_in_a_rebalance_is_described_without_metadata():
    world = GroupWorld()
    leader, _ = world.stable(2)
    world.send_join(leader)

    found = world.describe()

    assert (found.state, found.protocol) == ("PreparingRebalance", "")
    assert {(member.metadata, member.assignment) for member in found.members} == {(b"", b"")}


def test_unknown_group_is_described_as_dead():
    world = GroupWorld()
    caller = world.call("describe", DescribeRequest(["x", "y"]), timed=False)

    assert [(group.error, group.state) for group in world.answers[caller].groups] == [
        (0, "Dead"),
        (0, "Dead"),
    ]


def test_groups_are_listed_by_state_and_the_case_of_the_state_is_ignored():
    world = GroupWorld()
    world.stable()
    world.commit({("t", 0): 1}, group="simple")

    def names(*states):
        return {group.group_id for group in world.list(*states).groups}

    assert names() == {"g", "simple"}
    assert names("stable") == {"g"}
    assert names("STABLE", "Empty") == {"g", "simple"}
    assert names("PreparingRebalance") == set()
    assert {(group.protocol_type, group.state) for group in world.list().groups} == {
        ("consumer", "Stable"),
        ("", "Empty"),
    }
    assert world.coordinator.state_counts() == {STABLE: 1, EMPTY: 1}


# Memory.


def traced_bytes(build):
    """Call `build`; return the bytes that stay allocated, and the result of the call."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = build()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], kept
    finally:
        tracemalloc.stop()


def test_member_uses_about_a_kilobyte_of_memory():
    def build():
        world = GroupWorld()
        world.stable(300)
        world.answers.clear()
        world.notes.clear()
        world.log.clear()
        return world

    size, _ = traced_bytes(build)

    assert 300 < size / 300 < 1_500


def test_group_of_one_member_uses_about_three_kilobytes_of_memory():
    def build():
        world = GroupWorld(partitions=50)
        for number in range(300):
            group = f"group-{number}"
            member = world.join(group_id=group).member_id
            world.sync(member, 1, group_id=group, assignments={member: bytes(30)})
        world.answers.clear()
        world.notes.clear()
        world.log.clear()
        world._generations.clear()
        return world

    size, world = traced_bytes(build)

    assert world.coordinator.state_counts() == {STABLE: 300}
    assert size / 300 < 4_000
