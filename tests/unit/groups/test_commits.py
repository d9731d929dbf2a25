"""OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups, and the expiry of offsets."""

from __future__ import annotations

import pytest
from support.group_world import SESSION, START_WALL_MS, GroupWorld, subscription

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.groups.messages.records import OffsetKey, read_key, read_offset
from minikafka.groups.messages.requests import (
    CommitRequest,
    DeleteGroupsRequest,
    FetchOffsetsRequest,
    OffsetToCommit,
)

T0, T1 = ("t", 0), ("t", 1)
MINUTE = 60_000
CHECK = 600_000
"""The default of `offsets.retention.check.interval.ms`."""


def tombstones(world):
    return [read_key(key) for key, value in world.log[0] if value is None]


# Clients that may commit.


def test_client_without_group_membership_commits_and_fetches_offsets():
    world = GroupWorld()

    assert world.commit({T0: 5, T1: 7}) == {0}

    assert world.offsets() == {T0: 5, T1: 7}
    assert world.describe().state == "Empty"


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("client-1", 1, None, 0),
        ("client-1", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("client-1", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("client-1", 1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commit_to_a_group_with_members_must_match_member_and_generation(
    member, generation, instance, error
):
    world = GroupWorld()
    world.stable()

    assert world.commit({T0: 5}, member, generation, instance=instance) == {error}
    assert world.offsets() == ({} if error else {T0: 5})


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("", -1, None, 0),
        ("", -1, "instance", 0),
        ("stranger", -1, None, 0),
        ("client-1", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 2, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_empty_group_accepts_only_commits_without_a_generation(member, generation, instance, error):
    world = GroupWorld()
    world.leave(*world.stable())

    assert world.commit({T0: 5}, member, generation, instance=instance) == {error}


def test_commit_of_a_generation_to_an_unknown_group_is_refused():
    world = GroupWorld()

    assert world.commit({T0: 5}, "m", 1) == {ErrorCode.ILLEGAL_GENERATION}
    assert world.list().groups == []


def test_member_may_commit_until_its_generation_has_ended():
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.send_join(leader)
    assert world.commit({T0: 1}, follower, 2) == {0}

    world.send_join(follower)
    assert world.commit({T0: 2}, follower, 2) == {ErrorCode.ILLEGAL_GENERATION}
    assert world.commit({T0: 2}, follower, 3) == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert world.offsets() == {T0: 1}


def test_group_with_an_empty_name_accepts_offsets_but_no_members():
    world = GroupWorld()

    assert world.commit({T0: 5}, group="") == {0}
    assert world.offsets("") == {T0: 5}
    assert world.describe("").state == "Empty"
    assert world.join(group_id="").error == ErrorCode.INVALID_GROUP_ID
    assert world.leave("m", group="").error == ErrorCode.INVALID_GROUP_ID
    assert world.delete_offsets([("t", [0])], "").error == ErrorCode.INVALID_GROUP_ID
    assert world.delete("") == {"": 0}


# Writes and reads of offsets.


def test_commit_is_visible_only_after_it_is_written():
    world = GroupWorld()
    world.commit({T0: 1})
    world.holds = True
    caller = world.send_commit({T0: 2})

    assert caller not in world.answers
    assert world.offsets() == {T0: 1}
    stable = world.fetch(partitions=[("t", [0, 1])], stable=True)
    assert [(found.error, found.offset) for found in stable.topics[0][1]] == [
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1),
        (0, -1),
    ]
    world.release()
    assert world.offsets() == {T0: 2}


@pytest.mark.parametrize(
    ("append_error", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_failed_commit_changes_nothing(append_error, error):
    world = GroupWorld()
    world.commit({T0: 1})
    world.append_error = append_error

    assert world.commit({T0: 2, T1: 2}) == {error}

    assert world.offsets() == {T0: 1}
    found = world.fetch(partitions=[("t", [0])], stable=True)
    assert found.topics[0][1][0].offset == 1


def test_last_of_several_overlapping_commits_of_a_partition_is_kept():
    world = GroupWorld()
    world.holds = True
    callers = [world.send_commit({T0: offset}) for offset in (1, 2)]
    first, second = world.held

    world.held = []
    world.holds = False
    world.finish(first, 0)
    assert world.offsets() == {T0: 1}
    world.finish(second, 0)

    assert world.offsets() == {T0: 2}
    assert all(caller in world.answers for caller in callers)


def test_committed_offset_keeps_its_leader_epoch_its_metadata_and_its_commit_time():
    world = GroupWorld()
    item = OffsetToCommit(0, 97, 15, "häuser")
    world.call("commit", CommitRequest("g", -1, "", None, [("t", [item])]))

    found = world.fetch().topics[0][1][0]
    assert (found.offset, found.leader_epoch, found.metadata) == (97, 15, "häuser")
    [(key, value)] = world.log[0]
    assert read_key(key) == OffsetKey("g", TopicPartition("t", 0))
    assert read_offset(value).commit_timestamp == START_WALL_MS + world.now


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("x" * 4096, 0),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("ä" * 4096, 0),
        ("😀" * 2048, 0),
        ("😀" * 2048 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_offset_metadata_limit_counts_characters_as_java_does(metadata, error):
    world = GroupWorld()

    assert world.commit({T0: 1}, metadata=metadata) == {error}


def test_commit_refuses_only_partitions_with_too_much_metadata():
    world = GroupWorld(offset_metadata_max_bytes=3)
    items = [OffsetToCommit(0, 1, metadata="long"), OffsetToCommit(1, 2, metadata="ok")]
    caller = world.call("commit", CommitRequest("g", -1, "", None, [("t", items)]))

    assert world.answers[caller].topics == [
        ("t", [(0, ErrorCode.OFFSET_METADATA_TOO_LARGE), (1, 0)])
    ]
    assert world.offsets() == {T1: 2}


def test_commit_with_a_topic_name_that_is_too_long_for_a_record_is_refused():
    world = GroupWorld()
    world.commit({T0: 1})

    assert world.commit({("x" * 40_000, 0): 1}) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert world.offsets() == {T0: 1}


def test_offset_fetch_answers_groups_and_partitions_in_the_order_of_the_request():
    world = GroupWorld()
    world.commit({T0: 1, ("u", 3): 3}, group="a")
    world.commit({T0: 2}, group="b")
    groups = [("a", [("u", [4, 3]), ("t", [0])]), ("none", [("t", [0])]), ("b", None)]
    caller = world.call("fetch_offsets", FetchOffsetsRequest(groups), timed=False)

    found = {
        group.group_id: [
            (topic, [(item.partition, item.offset, item.error) for item in items])
            for topic, items in group.topics
        ]
        for group in world.answers[caller].groups
    }
    assert found == {
        "a": [("u", [(4, -1, 0), (3, 3, 0)]), ("t", [(0, 1, 0)])],
        "none": [("t", [(0, -1, 0)])],
        "b": [("t", [(0, 2, 0)])],
    }


# OffsetDelete and deleted topics.


def test_deletion_of_the_last_offset_of_an_empty_group_deletes_the_group():
    world = GroupWorld()
    world.commit({T0: 1, T1: 2})

    answer = world.delete_offsets([("t", [0, 7])])

    assert (answer.error, answer.topics) == (0, [("t", [(0, 0), (7, 0)])])
    assert world.offsets() == {T1: 2}
    assert tombstones(world) == [OffsetKey("g", TopicPartition("t", 0))]
    world.delete_offsets([("t", [1])])
    assert world.list().groups == []


def test_offset_delete_keeps_the_offsets_of_subscribed_topics():
    world = GroupWorld()
    [member] = world.stable()
    world.commit({T0: 1, ("old", 0): 2}, member, 1)

    answer = world.delete_offsets([("t", [0]), ("old", [0])])

    kept = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert (answer.error, answer.topics) == (0, [("t", [(0, kept)]), ("old", [(0, 0)])])
    assert world.offsets() == {T0: 1}


def test_offset_delete_keeps_offsets_when_the_subscriptions_cannot_be_read():
    world = GroupWorld()
    [member] = world.stable(protocols=(("range", b""),))
    world.commit({T0: 1}, member, 1)

    answer = world.delete_offsets([("t", [0])])

    assert answer.topics == [("t", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)])]


def test_offset_delete_refuses_a_non_empty_group_that_is_no_consumer_group():
    world = GroupWorld()
    world.stable(protocol_type="connect")

    answer = world.delete_offsets([("t", [0])])

    assert (answer.error, answer.topics) == (ErrorCode.NON_EMPTY_GROUP, ())


def test_offset_delete_of_an_unknown_group_returns_an_error():
    assert GroupWorld().delete_offsets([("t", [0])]).error == ErrorCode.GROUP_ID_NOT_FOUND


def test_offset_delete_that_cannot_be_written_returns_a_group_error():
    world = GroupWorld()
    world.commit({T0: 1})
    world.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    answer = world.delete_offsets([("t", [0])])

    assert (answer.error, answer.topics) == (ErrorCode.NOT_COORDINATOR, ())


def test_offsets_of_deleted_topics_are_removed_from_all_groups():
    world = GroupWorld(partitions=3)
    [member] = world.stable()
    world.commit({T0: 1, ("u", 0): 2}, member, 1)
    world.commit({T0: 1}, group="simple")

    world.run(world.coordinator.delete_topics({"t"}))

    assert world.offsets() == {("u", 0): 2}
    assert [group.group_id for group in world.list().groups] == ["g"]
    for partition in range(3):
        world.unload(partition)
        world.lead(partition, 1)
    assert world.offsets() == {("u", 0): 2}
    assert world.fetch("simple").topics == []


def test_commit_that_is_written_after_its_topic_was_deleted_leaves_no_offset():
    world = GroupWorld()
    world.commit({("u", 0): 1})
    world.holds = True
    caller = world.send_commit({T0: 5})
    world.run(world.coordinator.delete_topics({"t"}))

    world.release()

    assert world.answers[caller].topics == [("t", [(0, 0)])]
    assert world.offsets() == {("u", 0): 1}
    world.unload()
    world.lead(epoch=1)
    assert world.offsets() == {("u", 0): 1}


# DeleteGroups.


def test_groups_are_deleted_with_their_offsets():
    world = GroupWorld(partitions=5)
    world.leave(*world.stable())
    world.commit({T0: 1})
    world.commit({T0: 1}, group="simple")

    assert world.delete("g", "simple", "none", "g") == {
        "g": 0,
        "simple": 0,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert world.describe().state == "Dead"
    for partition in range(5):
        world.unload(partition)
        world.lead(partition, 1)
    assert world.list().groups == []


@pytest.mark.parametrize("joins_again", [True, False])
def test_group_with_members_is_not_deleted(joins_again):
    world = GroupWorld()
    leader, _ = world.stable(2)
    if joins_again:
        world.send_join(leader)

    assert world.delete("g") == {"g": ErrorCode.NON_EMPTY_GROUP}


def test_group_deletion_is_answered_when_all_its_tombstones_are_written():
    world = GroupWorld(partitions=5)
    for name in ("a", "b", "c"):
        world.commit({T0: 1}, group=name)
    world.holds = True

    request = DeleteGroupsRequest(("a", "b", "c", "none"))
    caller = world.call("delete_groups", request, timed=False)
    first, second, third = world.held
    world.held = []
    world.finish(first, 0)
    world.finish(third, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert caller not in world.answers
    world.finish(second, 0)

    assert dict(world.answers[caller].groups) == {
        "a": 0,
        "b": 0,
        "c": ErrorCode.NOT_COORDINATOR,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_pending_member_of_a_deleted_group_gets_unknown_member_id():
    world = GroupWorld()
    pending = world.join(requires_member_id=True).member_id

    assert world.delete("g") == {"g": 0}

    assert world.join(pending).error == ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(SESSION)


# Expiry.


def test_offsets_of_an_empty_group_expire_some_time_after_it_became_empty():
    world = GroupWorld(offsets_retention_minutes=60)
    [member] = world.stable(session_timeout_ms=1_800_000)
    world.commit({T0: 1}, member, 1)
    world.advance(20 * MINUTE)
    world.leave(member)

    world.advance(60 * MINUTE - 1)
    assert world.offsets() == {T0: 1}
    world.advance(CHECK)

    assert world.list().groups == []
    assert len(tombstones(world)) == 2
    world.unload()
    world.lead(epoch=1)
    assert world.list().groups == []


def test_offsets_of_a_simple_consumer_expire_some_time_after_each_commit():
    world = GroupWorld(offsets_retention_minutes=60)
    world.commit({T0: 1})
    world.advance(30 * MINUTE)
    world.commit({T1: 2})

    world.advance(30 * MINUTE + CHECK)
    assert world.offsets() == {T1: 2}
    world.advance(30 * MINUTE)

    assert world.list().groups == []


def test_offsets_of_subscribed_topics_do_not_expire_while_the_group_is_stable():
    world = GroupWorld(offsets_retention_minutes=1)
    [member] = world.stable(protocols=(("range", subscription("t")),))
    world.commit({T0: 1, ("old", 0): 2}, member, 1)

    for _ in range(CHECK // 5_000 + 1):
        world.advance(5_000)
        world.heartbeat(member, 1)

    assert world.offsets() == {T0: 1}


def test_offsets_do_not_expire_while_the_subscriptions_cannot_be_read():
    world = GroupWorld(offsets_retention_minutes=1)
    [member] = world.stable(protocols=(("range", b""),), session_timeout_ms=1_800_000)
    world.commit({T0: 1}, member, 1)

    world.advance(CHECK)

    assert world.offsets() == {T0: 1}


def test_explicit_retention_time_of_a_commit_decides_its_expiry():
    world = GroupWorld(offsets_retention_minutes=60)
    world.commit({T0: 1}, retention_time_ms=5 * MINUTE)
    world.commit({T1: 1}, retention_time_ms=500 * MINUTE)

    world.advance(CHECK)
    assert world.offsets() == {T1: 1}
    world.advance(480 * MINUTE)

    assert world.offsets() == {T1: 1}


def test_offset_with_a_commit_in_progress_does_not_expire():
    world = GroupWorld(offsets_retention_minutes=1)
    world.commit({T0: 1})
    world.holds = True
    world.send_commit({T0: 2})

    world.advance(CHECK)
    world.release()

    assert world.offsets() == {T0: 2}


def test_group_without_members_and_offsets_is_removed():
    world = GroupWorld()
    world.leave(*world.stable())
    world.join(group_id="refused", protocols=())

    world.advance(CHECK)

    assert world.list().groups == []
    assert [key.group for key in tombstones(world)] == ["g"]


def test_expiry_check_of_many_groups_is_divided_into_several_calls():
    world = GroupWorld(offsets_retention_minutes=1)
    for number in range(30):
        world.commit({("t", n): 1 for n in range(1000)}, group=f"g{number}")
    world.advance(CHECK - 1)

    world.now += 1
    world.run(world.coordinator.handle_timer(world.now))
    left = len(world.coordinator.groups)

    assert 5 <= left <= 20
    assert world.coordinator.next_deadline() == world.now
    world.advance(0)
    assert not world.coordinator.groups
