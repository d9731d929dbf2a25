"""Offsets that a producer commits in a transaction (KIP-98, KIP-447): pending until the transaction ends."""

from __future__ import annotations

import pytest
from support.group_world import GROUP, GroupWorld

from minikafka.base.coordinators import LoadedRecord, TransactionalProducer
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.groups.messages.records import (
    OffsetAndMetadata,
    group_metadata_key,
    offset_commit_key,
    offset_commit_value,
    read_key,
    read_offset,
)
from minikafka.groups.messages.requests import FetchOffsetsRequest

KEY = offset_commit_key("g", TopicPartition("t", 0))
FIRST, SECOND = 7, 8
"""Producer ids."""
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
T0, T1 = ("t", 0), ("t", 1)
PRODUCER = TransactionalProducer(7, 3, 11)
OTHER = TransactionalProducer(8, 0)


def offset(value: int, producer_id: int = -1) -> LoadedRecord:
    stored = offset_commit_value(OffsetAndMetadata(value, commit_timestamp=1))
    return LoadedRecord(KEY, stored, producer_id)


def loaded(*records: LoadedRecord | tuple[int, bool]) -> GroupWorld:
    """Load the group g from records and ends of transactions (producer id, committed)."""
    world = GroupWorld(loads=False)
    core = world.coordinator
    assert core.begin_load(0, 1)
    for each in records:
        if isinstance(each, LoadedRecord):
            core.load(0, 1, [each])
        else:
            core.transaction_ended(0, *each)
    world.run(core.loaded(0, 1, world.now))
    return world


def end(world: GroupWorld, producer_id: int, *, committed: bool) -> None:
    world.run(world.coordinator.transaction_ended(0, producer_id, committed))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([offset(1), offset(5, FIRST), (FIRST, True)], 5),
        ([offset(1), offset(5, FIRST), (FIRST, False)], 1),
        ([offset(5, FIRST), offset(6, FIRST), (FIRST, True)], 6),
        ([offset(5, FIRST), offset(1), (FIRST, True)], 1),
        ([offset(5, FIRST), LoadedRecord(KEY, None), (FIRST, True)], None),
        ([offset(5, FIRST), offset(6, SECOND), (SECOND, True), (FIRST, True)], 6),
        ([offset(5, FIRST), (FIRST, False), offset(6, FIRST), (FIRST, True)], 6),
        ([offset(5, FIRST), (SECOND, True), (FIRST, True)], 5),
    ],
)
def test_load_keeps_the_committed_offset_that_is_last_in_the_log(records, expected):
    assert loaded(*records).offsets().get(("t", 0)) == expected


def test_offset_of_an_open_transaction_is_unstable_until_the_transaction_ends():
    world = loaded(offset(1), offset(5, FIRST), offset(6, SECOND))
    assert world.offsets() == {("t", 0): 1}
    assert world.group.offsets.is_pending(TopicPartition("t", 0))
    end(world, SECOND, committed=False)
    assert world.group.offsets.is_pending(TopicPartition("t", 0))
    end(world, FIRST, committed=True)
    assert not world.group.offsets.is_pending(TopicPartition("t", 0))
    assert world.offsets() == {("t", 0): 5}


def test_group_with_only_an_open_transaction_exists_and_does_not_expire():
    world = loaded(offset(5, FIRST))
    assert [group.group_id for group in world.list().groups] == ["g"]
    world.advance(world.settings.offsets_retention_minutes * 60_000 * 2)
    end(world, FIRST, committed=True)
    assert world.offsets() == {("t", 0): 5}


def test_deleted_group_does_not_get_the_offset_of_its_open_transaction():
    world = loaded(offset(5, FIRST))
    world.delete("g")
    end(world, FIRST, committed=True)
    assert world.list().groups == []
    world.commit({("t", 1): 2})
    assert world.offsets() == {("t", 1): 2}


def test_transaction_of_an_unloaded_partition_is_forgotten():
    world = loaded(offset(5, FIRST))
    world.unload()
    end(world, FIRST, committed=True)
    world.lead(epoch=2)
    assert world.list().groups == []


def test_transaction_cannot_change_the_members_of_a_group(caplog):
    world = loaded(LoadedRecord(group_metadata_key("g"), None, FIRST), offset(1))
    assert "a transaction can only commit an offset" in caplog.text
    assert world.offsets() == {("t", 0): 1}


# TxnOffsetCommit.


def stable_errors(world: GroupWorld) -> set[int]:
    """Return the error codes of partition t-0 for a client that requires stable offsets."""
    found = world.fetch(partitions=[("t", [0])], stable=True)
    return {row.error for _, rows in found.topics for row in rows}


def test_offsets_of_a_transaction_are_visible_after_its_commit_marker() -> None:
    world = GroupWorld()
    world.commit({T0: 1})
    assert world.commit({T0: 5, T1: 6}, producer=PRODUCER) == {0}
    assert world.offsets() == {T0: 1}
    assert stable_errors(world) == {UNSTABLE}
    world.end_transaction(OTHER.producer_id)
    assert world.offsets() == {T0: 1}
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == {T0: 5, T1: 6}
    assert stable_errors(world) == {0}


def test_offsets_of_an_aborted_transaction_are_dropped() -> None:
    world = GroupWorld()
    world.commit({T0: 1})
    world.commit({T0: 5, T1: 6}, producer=PRODUCER)
    world.end_transaction(PRODUCER.producer_id, committed=False)
    assert world.offsets() == {T0: 1}
    assert stable_errors(world) == {0}
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == {T0: 1}


def test_records_of_a_transactional_commit_carry_the_producer() -> None:
    world = GroupWorld()
    world.holds = True
    caller = world.send_commit({T0: 5}, producer=PRODUCER)
    (append,) = world.held
    assert append.producer == PRODUCER
    ((key, value),) = append.records
    assert value is not None
    assert (read_key(key).tp, read_offset(value).offset) == (T0, 5)
    assert caller not in world.answers
    world.release()
    assert caller in world.answers


def test_marker_before_the_result_of_the_append_completes_the_offsets() -> None:
    """The high watermark passes both batches at once, and the marker is reported first."""
    world = GroupWorld()
    world.holds = True
    caller = world.send_commit({T0: 5}, producer=PRODUCER)
    world.end_transaction(PRODUCER.producer_id)
    world.release()
    assert world.offsets() == {T0: 5}
    assert world.answers[caller].topics == [("t", [(0, 0)])]


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_offsets_that_were_not_appended_are_not_completed(error: int, answered: int) -> None:
    world = GroupWorld()
    world.append_error = error
    assert world.commit({T0: 5}, producer=PRODUCER) == {answered}
    world.append_error = 0
    assert stable_errors(world) == {0}
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == {}


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_s111_offsets_that_may_be_in_the_log_are_completed_by_the_marker(
    error: int, answered: int
) -> None:
    world = GroupWorld()
    world.append_error = error
    assert world.commit({T0: 5}, producer=PRODUCER) == {answered}
    world.append_error = 0
    assert stable_errors(world) == {UNSTABLE}
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == {T0: 5}


def test_later_commit_in_the_same_transaction_replaces_the_earlier_one() -> None:
    world = GroupWorld()
    world.commit({T0: 5}, producer=PRODUCER)
    world.commit({T0: 6}, producer=PRODUCER)
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == {T0: 6}


# The confirmation of answers to OffsetFetch.


def send_fetch(world: GroupWorld, *, stable: bool) -> int:
    request = FetchOffsetsRequest([(GROUP, [("t", [0])])], stable)
    return world.call("fetch_offsets", request, timed=False)


def test_s113_stable_offsets_of_transactions_are_answered_after_an_append() -> None:
    world = GroupWorld()
    world.commit({T0: 5}, producer=PRODUCER)
    world.end_transaction(PRODUCER.producer_id)
    world.holds = True
    caller = send_fetch(world, stable=True)
    assert caller not in world.answers
    world.release()
    ((_, rows),) = world.answers[caller].groups[0].topics
    assert [row.offset for row in rows] == [5]


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_s113_coordinator_that_cannot_append_returns_no_stable_offsets(
    error: int, answered: int
) -> None:
    world = GroupWorld()
    world.commit({T0: 5}, producer=PRODUCER)
    world.end_transaction(PRODUCER.producer_id)
    world.append_error = error
    found = world.fetch(stable=True)
    assert (found.error, found.topics) == (answered, ())


def test_confirmation_does_not_change_the_group() -> None:
    world = GroupWorld()
    world.commit({T0: 5}, producer=PRODUCER)
    world.end_transaction(PRODUCER.producer_id)
    world.commit({T0: 6})
    send_fetch(world, stable=True)
    assert len(world.log[0]) == 2
    world.unload()
    world.lead(epoch=1)
    assert world.offsets() == {T0: 6}


@pytest.mark.parametrize(("stable", "transactional"), [(True, False), (False, True)])
def test_other_offsets_are_answered_at_once(stable: bool, transactional: bool) -> None:
    world = GroupWorld()
    world.commit({T0: 5}, producer=PRODUCER if transactional else None)
    world.holds = True
    caller = send_fetch(world, stable=stable)
    assert caller in world.answers
    assert world.held == []


# Clients that may commit.


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("client-1", 1, None, 0),
        ("client-1", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("client-1", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("client-1", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("client-1", 1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, 0),
    ],
)
def test_s112_transactional_commit_must_match_the_member_and_generation(
    member: str, generation: int, instance: str | None, error: int
) -> None:
    world = GroupWorld()
    world.stable()
    found = world.commit({T0: 5}, member, generation, instance=instance, producer=PRODUCER)
    assert found == {error}
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == ({} if error else {T0: 5})


def test_transactional_commit_of_a_replaced_static_member_is_fenced() -> None:
    world = GroupWorld()
    world.static("i")
    found = world.commit({T0: 5}, "replaced", 1, instance="i", producer=PRODUCER)
    assert found == {ErrorCode.FENCED_INSTANCE_ID}


def test_transactional_commit_is_not_refused_during_a_rebalance() -> None:
    world = GroupWorld()
    (leader,) = world.stable()
    world.join(leader)
    assert world.state == "CompletingRebalance"
    assert world.commit({T0: 5}, leader, 2) == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert world.commit({T0: 5}, leader, 2, producer=PRODUCER) == {0}


def test_transactional_commit_does_not_extend_the_session_of_the_member() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    world.advance(9_000)
    world.commit({T0: 5}, member, 1, producer=PRODUCER)
    world.advance(2_000)
    assert world.state == "Empty"


@pytest.mark.parametrize(
    ("group", "generation", "error"),
    [
        ("", -1, ErrorCode.INVALID_GROUP_ID),
        ("new", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("new", -1, 0),
    ],
)
def test_transactional_commit_to_a_group_without_members(
    group: str, generation: int, error: int
) -> None:
    world = GroupWorld()
    world.commit({T0: 5}, group="")
    assert world.commit({T0: 5}, "", generation, group, producer=PRODUCER) == {error}
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets("new") == ({} if error else {T0: 5})


def test_group_that_only_has_a_refused_transactional_commit_does_not_exist() -> None:
    world = GroupWorld()
    world.commit({T0: 5}, "m", 1, producer=PRODUCER)
    assert world.list().groups == []


def test_transactional_commit_to_a_partition_that_is_not_led_gets_not_coordinator() -> None:
    world = GroupWorld(loads=False)
    assert world.commit({T0: 5}, producer=PRODUCER) == {ErrorCode.NOT_COORDINATOR}
    world.coordinator.begin_load(0, 1)
    assert world.commit({T0: 5}, producer=PRODUCER) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_unloaded_partition_forgets_the_open_transactions() -> None:
    world = GroupWorld()
    world.holds = True
    world.send_commit({T0: 5}, producer=PRODUCER)
    world.unload()
    world.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.lead(epoch=1)
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == {}


def test_deleted_group_does_not_come_back_with_the_marker() -> None:
    world = GroupWorld()
    world.commit({T0: 5}, producer=PRODUCER)
    assert world.delete(GROUP) == {GROUP: 0}
    world.end_transaction(PRODUCER.producer_id)
    assert world.offsets() == {}
    assert world.list().groups == []
