"""The partition of a group, and the loading of a partition's records."""

from __future__ import annotations

import pytest
from support.group_world import RANGE, GroupWorld

from minikafka.base.coordinators import partition_of
from minikafka.base.model import TopicPartition
from minikafka.groups.messages.records import (
    OffsetAndMetadata,
    group_metadata_key,
    offset_commit_key,
    offset_commit_value,
)

KEY = offset_commit_key("g", TopicPartition("t", 0))


def value(offset):
    return offset_commit_value(OffsetAndMetadata(offset, commit_timestamp=1))


@pytest.mark.parametrize(
    ("group", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer-12345", 158_455_506),
        ("grüße", 98_768_023),
        ("😀", 1_772_899),
        ("my-group", -1_906_497_762),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_partition_of_a_group_is_computed_from_the_java_hash_of_its_id(group, hash_code):
    magnitude = 0 if hash_code == -(2**31) else abs(hash_code)

    assert partition_of(group, 50) == magnitude % 50
    assert partition_of(group, 7) == magnitude % 7


def test_loading_an_offsets_partition_keeps_only_the_last_record_of_each_key():
    world = GroupWorld(loads=False)
    world.log[0] = [(KEY, value(1)), (KEY, value(2))]
    world.lead()
    assert world.offsets() == {("t", 0): 2}

    world.unload()
    world.log[0].append((KEY, None))
    world.lead(epoch=1)
    assert world.list().groups == []


def test_group_is_loaded_in_the_state_in_which_it_was_last_written():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.commit({("t", 0): 3}, leader, 2)
    before = world.describe()

    world.unload()
    world.lead(epoch=1)

    assert world.describe() == before
    group = world.group
    assert (group.generation, group.leader, group.protocol_name) == (2, leader, "range")
    assert group.subscribed() == frozenset({"t"})
    assert {world.heartbeat(member, 2) for member in (leader, follower)} == {0}
    assert world.offsets() == {("t", 0): 3}


def test_loaded_follower_rejoins_without_a_rebalance_and_loaded_leader_with_one():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.unload()
    world.lead(epoch=1)

    assert world.join(follower, protocols=RANGE).generation == 2
    world.send_join(leader)
    assert world.state == "PreparingRebalance"


def test_sessions_of_loaded_members_start_when_they_are_loaded():
    world = GroupWorld()
    [member] = world.stable(session_timeout_ms=6_000)
    world.unload()
    world.advance(60_000)
    world.lead(epoch=1)

    world.advance(5_999)
    assert world.heartbeat(member, 1) == 0
    world.advance(6_000)
    assert world.state == "Empty"


def test_group_tombstone_removes_the_group_and_keeps_its_offsets():
    world = GroupWorld(loads=False)
    world.log[0] = [(KEY, value(1)), (group_metadata_key("g"), None)]
    world.lead()

    assert world.describe().protocol_type == ""
    assert world.offsets() == {("t", 0): 1}


@pytest.mark.parametrize(
    ("key", "data", "warning"),
    [
        (b"\x00\x09future", b"", "version 9 of its key is unknown"),
        (None, b"x", "it has no key"),
        (KEY[:-1], value(9), "a field ends"),
        (KEY, b"\x00\x03", "a field ends"),
        (group_metadata_key("g"), b"\x00\x63", "the members of group g are lost"),
    ],
)
def test_unreadable_record_of_an_offsets_partition_is_skipped_with_a_warning(
    key, data, warning, caplog
):
    world = GroupWorld(loads=False)
    world.log[0] = [
        (KEY, value(1)),
        (key, data),
        (offset_commit_key("h", TopicPartition("t", 0)), value(2)),
    ]

    world.lead()

    assert (world.offsets("g"), world.offsets("h")) == ({("t", 0): 1}, {("t", 0): 2})
    assert warning in caplog.text
