"""The APIs about committed offsets in every version, with a coordinator that only records calls."""

from __future__ import annotations

from typing import Any

import pytest
from support.brokers.cold import Cold, state
from support.brokers.group_recorder import exchange, parts_of

from minikafka.base.coordinators import TransactionalProducer
from minikafka.base.errors import ErrorCode
from minikafka.deciders.groups.commands import (
    CommitResponse,
    DeleteOffsetsResponse,
    FetchedGroup,
    FetchedOffset,
    FetchOffsetsResponse,
)
from minikafka.deciders.groups.events import (
    CommitRequest,
    DeleteOffsetsRequest,
    FetchOffsetsRequest,
    OffsetToCommit,
)
from minikafka.kafka.wire.versions import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)

MANY = [state("t", number, (1,)) for number in range(900)]
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def cold() -> Cold:
    found = Cold()
    found.update(state("t", 0, (1,)), state("t", 1, (1,)))
    return found


def to_commit(partition: int, offset: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": 5,
        "committed_metadata": None,
    }


@pytest.mark.parametrize("version", range(2, 9))
async def test_commit_passes_only_existing_partitions_to_the_coordinator(
    cold: Cold, version: int
) -> None:
    topics = [
        {"name": "gone", "partitions": [to_commit(0, 1)]},
        {"name": "t", "partitions": [to_commit(1, 7), to_commit(2, 8)]},
    ]
    asked, answer = exchange(
        cold,
        OFFSET_COMMIT,
        version,
        CommitResponse([("t", [(1, 12)])]),
        group_id="g",
        generation_id_or_member_epoch=3,
        member_id="m",
        retention_time_ms=60_000,
        group_instance_id="i",
        topics=topics,
    )
    offset = OffsetToCommit(1, 7, 5 if version >= 6 else -1, "")
    instance = "i" if version >= 7 else None
    retention_ms = 60_000 if version <= 4 else -1
    assert asked == CommitRequest("g", 3, "m", instance, [("t", [offset])], None, retention_ms)
    rows = [
        (topic.name, partition.partition_index, partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    ]
    assert rows == [("gone", 0, UNKNOWN), ("t", 1, 12), ("t", 2, UNKNOWN)]


async def test_commit_without_existing_partitions_is_not_passed_to_the_coordinator(
    cold: Cold,
) -> None:
    topics = [{"name": "gone", "partitions": [to_commit(0, 1)]}]
    asked, answer = exchange(cold, OFFSET_COMMIT, 8, None, group_id="g", topics=topics)
    assert asked is None
    assert answer.topics[0].partitions[0].error_code == UNKNOWN


@pytest.mark.parametrize("version", range(5))
async def test_commit_in_a_transaction_has_the_fields_of_its_version(
    cold: Cold, version: int
) -> None:
    topics = [
        {"name": "gone", "partitions": [to_commit(0, 1)]},
        {"name": "t", "partitions": [to_commit(1, 7), to_commit(2, 8)]},
    ]
    asked, answer = exchange(
        cold,
        TXN_OFFSET_COMMIT,
        version,
        CommitResponse([("t", [(1, 12)])]),
        transactional_id="tx",
        group_id="g",
        producer_id=77,
        producer_epoch=3,
        generation_id=4,
        member_id="m",
        group_instance_id="i",
        topics=topics,
    )
    offset = OffsetToCommit(1, 7, 5 if version >= 2 else -1, "")
    member = (4, "m", "i") if version >= 3 else (-1, "", None)
    producer = TransactionalProducer(77, 3)
    assert asked == CommitRequest(
        "g", *member, [("t", [offset])], None, producer=producer, transactional_id="tx"
    )
    assert rows_with_errors(answer) == [("gone", 0, UNKNOWN), ("t", 1, 12), ("t", 2, UNKNOWN)]


def rows_with_errors(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, partition.partition_index, partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("count", [1, 2, 17])
async def test_old_producer_is_not_told_that_the_coordinator_is_loading(
    cold: Cold, version: int, count: int
) -> None:
    cold.update(*MANY)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    outcome = CommitResponse([("t", [(number, loading) for number in range(count)])])
    topics = [{"name": "t", "partitions": [to_commit(number, 7) for number in range(count)]}]
    named = {"transactional_id": "tx", "group_id": "g", "topics": topics}
    _, answer = exchange(cold, TXN_OFFSET_COMMIT, version, outcome, **named)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 else loading
    assert {error for _, _, error in rows_with_errors(answer)} == {code}


def rows_of(topics: Any) -> list[tuple[str, int, int, str, int]]:
    return [
        (t.name, p.partition_index, p.committed_offset, p.metadata, int(p.error_code))
        for t in topics
        for p in t.partitions
    ]


@pytest.mark.parametrize("version", range(1, 8))
async def test_offset_fetch_of_one_group_has_the_fields_of_its_version(
    cold: Cold, version: int
) -> None:
    fetched = FetchedGroup("g", 0, [("t", [FetchedOffset(1, 9, 4, "x"), FetchedOffset(0)])])
    asked, answer = exchange(
        cold,
        OFFSET_FETCH,
        version,
        FetchOffsetsResponse([fetched]),
        group_id="g",
        topics=[{"name": "t", "partition_indexes": [1, 0]}],
        require_stable=True,
    )
    assert asked == FetchOffsetsRequest([("g", [("t", (1, 0))])], None, version >= 7)
    assert rows_of(answer.topics) == [("t", 1, 9, "x", 0), ("t", 0, -1, "", 0)]
    if version >= 5:
        assert [p.committed_leader_epoch for p in answer.topics[0].partitions] == [4, -1]


@pytest.mark.parametrize("version", range(2, 8))
async def test_offset_fetch_without_topics_requests_every_offset_of_the_group(
    cold: Cold, version: int
) -> None:
    outcome = FetchOffsetsResponse([FetchedGroup("g", 0)])
    asked, answer = exchange(cold, OFFSET_FETCH, version, outcome, group_id="g", topics=None)
    assert asked.groups == [("g", None)]
    assert not answer.topics


@pytest.mark.parametrize("version", range(1, 8))
async def test_offset_fetch_repeats_a_group_error_in_each_partition_only_in_version_1(
    cold: Cold, version: int
) -> None:
    code = int(ErrorCode.NOT_COORDINATOR)
    outcome = FetchOffsetsResponse([FetchedGroup("g", code)])
    topics = [{"name": "t", "partition_indexes": [1]}]
    _, answer = exchange(cold, OFFSET_FETCH, version, outcome, group_id="g", topics=topics)
    if version == 1:
        assert rows_of(answer.topics) == [("t", 1, -1, "", code)]
    else:
        assert (answer.error_code, rows_of(answer.topics)) == (code, [])


async def test_offset_fetch_of_several_groups_answers_each_group(cold: Cold) -> None:
    outcome = FetchOffsetsResponse(
        [FetchedGroup("g", 0, [("t", [FetchedOffset(0, 3)])]), FetchedGroup("h", 16)]
    )
    groups = [
        {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]},
        {"group_id": "h", "topics": None},
    ]
    asked, answer = exchange(cold, OFFSET_FETCH, 8, outcome, groups=groups)
    assert asked.groups == [("g", [("t", (0,))]), ("h", None)]
    found = [(group.group_id, group.error_code, rows_of(group.topics)) for group in answer.groups]
    assert found == [("g", 0, [("t", 0, 3, "", 0)]), ("h", 16, [])]


async def test_offset_delete_passes_only_existing_partitions_to_the_coordinator(cold: Cold) -> None:
    topics = [
        {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": "gone", "partitions": [{"partition_index": 0}]},
    ]
    outcome = DeleteOffsetsResponse(0, [("t", [(0, 86)])])
    asked, answer = exchange(cold, OFFSET_DELETE, 0, outcome, group_id="g", topics=topics)
    assert asked == DeleteOffsetsRequest("g", [("t", [0])], None)
    rows = [
        (topic.name, partition.partition_index, int(partition.error_code))
        for topic in answer.topics
        for partition in topic.partitions
    ]
    assert rows == [("t", 0, 86), ("t", 9, UNKNOWN), ("gone", 0, UNKNOWN)]


async def test_refused_offset_delete_response_has_no_partitions(cold: Cold) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    outcome = DeleteOffsetsResponse(int(ErrorCode.GROUP_ID_NOT_FOUND))
    _, answer = exchange(cold, OFFSET_DELETE, 0, outcome, group_id="g", topics=topics)
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


# ---- large requests


class Coordinator:
    """A coordinator that answers each request at once.

    If `is_late` is true, requests are answered only when the test calls `answer`, the last request first.
    """

    def __init__(self, *, is_late: bool = False) -> None:
        self.sizes: list[int] = []
        self.late: list[tuple[Any, Any]] | None = [] if is_late else None

    def _handle(self, topics: Any, outcome: Any, respond: Any) -> None:
        self.sizes.append(sum(len(rows) for _, rows in topics))
        if self.late is None:
            respond(outcome)
        else:
            self.late.append((outcome, respond))

    def answer(self) -> None:
        assert self.late is not None
        for outcome, respond in reversed(self.late):
            respond(outcome)

    def handle(self, asked: CommitRequest | DeleteOffsetsRequest | FetchOffsetsRequest) -> None:
        outcome: Any
        if isinstance(asked, CommitRequest):
            topics: Any = asked.topics
            outcome = CommitResponse(
                [(t, [(row.partition, row.offset % 7) for row in rows]) for t, rows in topics]
            )
        elif isinstance(asked, DeleteOffsetsRequest):
            topics = asked.partitions
            outcome = DeleteOffsetsResponse(
                0, [(t, [(number, number % 7) for number in rows]) for t, rows in topics]
            )
        else:
            ((group, named),) = asked.groups
            topics = named or ()
            found = [(t, [FetchedOffset(n, n) for n in rows]) for t, rows in topics]
            outcome = FetchOffsetsResponse([FetchedGroup(group, 0, found)])
        self._handle(topics, outcome, asked.caller)


@pytest.mark.parametrize("is_late", [False, True])
async def test_large_commit_reaches_the_coordinator_in_parts(cold: Cold, is_late: bool) -> None:
    cold.update(*MANY)
    coordinator = Coordinator(is_late=is_late)
    topics = [
        {"name": "gone", "partitions": [to_commit(0, 1)] * 100},
        {"name": "t", "partitions": [to_commit(number, number) for number in range(1_000)]},
    ]
    steps, answer = parts_of(
        cold, OFFSET_COMMIT, 7, coordinator, group_id="g", member_id="m", topics=topics
    )
    assert (max(coordinator.sizes), sum(coordinator.sizes), steps > 14) == (64, 900, True)
    assert {row.error_code for row in answer.topics[0].partitions} == {UNKNOWN}
    errors = [int(row.error_code) for row in answer.topics[1].partitions]
    assert errors == [number % 7 if number < 900 else UNKNOWN for number in range(1_000)]


@pytest.mark.parametrize("is_late", [False, True])
async def test_offsets_of_many_partitions_are_deleted_in_parts(cold: Cold, is_late: bool) -> None:
    cold.update(*MANY)
    coordinator = Coordinator(is_late=is_late)
    topics = [{"name": "t", "partitions": [{"partition_index": n} for n in range(1_000)]}]
    steps, answer = parts_of(cold, OFFSET_DELETE, 0, coordinator, group_id="g", topics=topics)
    assert (max(coordinator.sizes), sum(coordinator.sizes), steps > 14) == (64, 900, True)
    errors = [int(row.error_code) for row in answer.topics[0].partitions]
    assert errors == [number % 7 if number < 900 else UNKNOWN for number in range(1_000)]


@pytest.mark.parametrize("version", [1, 7, 8])
async def test_offsets_of_many_partitions_are_fetched_in_parts(cold: Cold, version: int) -> None:
    cold.update(*MANY)
    coordinator = Coordinator()
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": range(1_000)}]}
    values = {"groups": [asked, {"group_id": "h", "topics": None}]} if version >= 8 else asked
    steps, answer = parts_of(cold, OFFSET_FETCH, version, coordinator, **values)
    assert (max(coordinator.sizes), sum(coordinator.sizes), steps > 14) == (64, 1_000, True)
    group = answer.groups[0] if version >= 8 else answer
    rows = [(t, n, offset) for t, n, offset, *_ in rows_of(group.topics)]
    assert rows == [("t", number, number) for number in range(1_000)]
