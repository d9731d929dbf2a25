"""Offsets that a producer committed in a transaction: pending from their load until the transaction ends."""

from __future__ import annotations

import pytest
from support.group_world import GroupWorld

from minikafka.base.coordinators import LoadedRecord
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.groups.messages.records import (
    OffsetAndMetadata,
    group_metadata_key,
    offset_commit_key,
    offset_commit_value,
)

KEY = offset_commit_key("g", TopicPartition("t", 0))
FIRST, SECOND = 7, 8
"""Producer ids."""
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


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
