"""Parts of long administrative requests: at most one part is done per event loop turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.brokers.cold import Cold, context, state
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode
from minikafka.base.model import PartitionResult, RequestedTopic, TopicPartition
from minikafka.broker.admin import partitions
from minikafka.broker.apis import (
    configs,
    elections,
    logdirs,
    offsets,
    reassignments,
    records,
    topics,
)
from minikafka.broker.turns import PART_ITEMS, Scheduler
from minikafka.deciders.controller.assignments import assign_more
from minikafka.kafka.wire.versions import (
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
)
from minikafka.simulation.clocks import LoopClock

COUNT = 2_000
NAMES = [f"none-{number}" for number in range(COUNT)]
HANDLERS = {
    **configs.HANDLERS,
    **elections.HANDLERS,
    **logdirs.HANDLERS,
    **offsets.HANDLERS,
    **reassignments.HANDLERS,
    **records.HANDLERS,
    **topics.HANDLERS,
}


class Turns:
    """A counter of event loop turns, and the largest number of `Watched` elements that were read in one turn."""

    def __init__(self) -> None:
        self.count = self.most = 0
        self._here = 0

    def read(self) -> None:
        self._here += 1
        self.most = max(self.most, self._here)

    def end(self) -> None:
        self._here = 0
        self.count += 1


class Watched(tuple[Any, ...]):
    """The elements of a request. `turns` counts how many elements are read in each turn of the event loop."""

    __slots__ = ()
    turns: Turns

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.turns.read()
            yield item


@asynccontextmanager
async def counted() -> AsyncIterator[Turns]:
    turns = Turns()

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            turns.end()

    counting = asyncio.ensure_future(count())
    yield turns
    counting.cancel()


class Controller:
    """An active controller that knows no partition."""

    is_active = True

    async def elect_leaders(self, *, unclean: bool, partitions: Any) -> Any:
        return dict.fromkeys(partitions, PartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    async def alter_reassignments(self, targets: Mapping[TopicPartition, Any]) -> Any:
        return dict.fromkeys(targets, PartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    async def reassignments(self) -> dict[TopicPartition, Any]:
        return {}


def rows(name: str, key: str, row: Any) -> list[dict[str, Any]]:
    return [{name: topic, key: [row]} for topic in NAMES]


def resources(**rest: Any) -> dict[str, Any]:
    named = [{"resource_type": 2, "resource_name": name, **rest} for name in NAMES]
    return {"resources": named}


NEW = {"num_partitions": 1, "replication_factor": 1}
REQUESTS: list[tuple[int, int, dict[str, Any]]] = [
    (CREATE_TOPICS, 7, {"topics": [{"name": n, **NEW} for n in NAMES], "validate_only": True}),
    (DELETE_TOPICS, 5, {"topic_names": NAMES}),
    (DELETE_TOPICS, 6, {"topics": [{"name": name} for name in NAMES]}),
    (CREATE_PARTITIONS, 3, {"topics": [{"name": n, "count": 2} for n in NAMES]}),
    (DESCRIBE_CONFIGS, 4, resources()),
    (ALTER_CONFIGS, 2, resources(configs=[])),
    (INCREMENTAL_ALTER_CONFIGS, 1, resources(configs=[])),
    (ELECT_LEADERS, 2, {"topic_partitions": rows("topic", "partitions", 0)}),
    (
        ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": rows("name", "partitions", {"partition_index": 0, "replicas": None})},
    ),
    (LIST_PARTITION_REASSIGNMENTS, 0, {"topics": rows("name", "partition_indexes", 0)}),
    (DESCRIBE_LOG_DIRS, 4, {"topics": rows("topic", "partitions", 0)}),
    (
        ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/" + name, "topics": []} for name in NAMES]},
    ),
    (LIST_OFFSETS, 7, {"topics": rows("name", "partitions", {"partition_index": 0})}),
    (DELETE_RECORDS, 2, {"topics": rows("name", "partitions", {"partition_index": 0})}),
]


@pytest.mark.parametrize(("api", "version", "values"), REQUESTS, ids=lambda value: str(value)[:2])
async def test_admin_handler_reads_a_limited_number_of_request_elements_per_loop_turn(
    api: int, version: int, values: dict[str, Any]
) -> None:
    cold = Cold()
    services: Any = cold.services
    if api in (ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS):
        services.administration = Controller()
    request = entity(api, version, **values)
    name = next(name for name in request._fields if len(_elements(request, name)) == COUNT)
    async with counted() as turns:
        watched = type("Watched", (Watched,), {"turns": turns})(getattr(request, name))
        answer: Any = HANDLERS[api](services, request._replace(**{name: watched}), context(version))
        if not isinstance(answer, Generator):
            answer = await answer
        taken = 0
        for _ in answer:
            taken += 1
            await asyncio.sleep(0)
    assert turns.most <= PART_ITEMS
    assert turns.count + taken >= COUNT // PART_ITEMS


def _elements(request: Any, name: str) -> Any:
    value = getattr(request, name)
    return value if isinstance(value, tuple) else ()


async def test_every_part_after_the_first_of_each_request_has_a_separate_loop_turn() -> None:
    pauses = Scheduler(LoopClock(), lambda now: None).parts
    async with counted() as turns:
        done: list[tuple[int, int]] = []

        async def work() -> None:
            done.extend([(item, turns.count) async for item in pauses.each(range(3), 1)])

        await asyncio.gather(*(work() for _ in range(5)))
    later = [turn for item, turn in done if item]
    assert len(set(later)) == len(later) == 10


async def test_cancelled_request_does_not_delay_other_requests() -> None:
    pauses = Scheduler(LoopClock(), lambda now: None).parts
    waiting = [asyncio.ensure_future(pauses.pause()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await waiting[1]
    await waiting[2]
    assert waiting[0].cancelled()


async def test_parts_of_a_request_contain_each_item_once() -> None:
    pauses = Scheduler(LoopClock(), lambda now: None).parts
    assert [list(part) async for part in pauses.parts(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [list(part) async for part in pauses.parts([], 2)] == [[]]


async def test_event_loop_turn_chooses_replicas_of_a_limited_number_of_new_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cold = Cold()
    creating = asyncio.ensure_future(
        cold.admin.topics.create_topics([RequestedTopic("t", 1, 1)], 1000)
    )
    await asyncio.sleep(0.01)
    cold.lead_what_is_created()
    await creating
    async with counted() as turns:

        def counted_assignment(*arguments: Any) -> Any:
            added = assign_more(*arguments)
            for _ in added:
                turns.read()
            return added

        monkeypatch.setattr(partitions, "assign_more", counted_assignment)
        asked = [partitions.MorePartitions("t", COUNT)]
        create = cold.admin.partitions.create_partitions
        results = await asyncio.gather(*(create(asked, 1000, validate_only=True) for _ in range(3)))
    assert results == [[partitions.CreatePartitionsResult("t")]] * 3
    assert turns.most <= PART_ITEMS


async def test_deletion_of_many_topics_returns_results_in_the_order_of_the_request() -> None:
    cold = Cold()
    creating = asyncio.ensure_future(
        cold.admin.topics.create_topics([RequestedTopic("t", 1, 1)], 1000)
    )
    await asyncio.sleep(0.01)
    cold.lead_what_is_created()
    await creating
    cold.update(state("t", 0, (1,)))
    found = await cold.admin.topics.delete_topics([*NAMES, "t"], 0)
    assert list(found) == [*NAMES, "t"]
    assert found["t"].error == ErrorCode.REQUEST_TIMED_OUT
    others = {found[name].error for name in NAMES}
    assert others == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
