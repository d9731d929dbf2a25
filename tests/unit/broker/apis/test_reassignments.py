"""AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, PartitionResult, ReplicaAssignment, TopicPartition
from minikafka.broker.apis.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from minikafka.kafka.wire.versions import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
)

pytestmark = pytest.mark.row("R57")

Targets = Mapping[TopicPartition, tuple[BrokerId, ...] | None]


class Controller:
    """A controller that returns the results given by the test; `rules` is True if the controller is active."""

    controller_id = 1

    def __init__(self) -> None:
        self.rules = True
        self.targets: Targets = {}
        self.results: dict[TopicPartition, PartitionResult] = {}
        self.moving: dict[TopicPartition, ReplicaAssignment] = {}

    async def alter_reassignments(self, targets: Targets) -> dict[TopicPartition, PartitionResult]:
        self._check()
        self.targets = targets
        return {tp: self.results.get(tp, PartitionResult()) for tp in targets}

    async def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        self._check()
        return self.moving

    def _check(self) -> None:
        if not self.rules:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)


def with_controller() -> tuple[Cold, Controller]:
    cold, controller = Cold(), Controller()
    services: Any = cold.services
    services.administration = controller
    return cold, controller


async def alter(cold: Cold, **topics: list[tuple[int, list[int] | None]]) -> Any:
    asked = [
        {"name": name, "partitions": [{"partition_index": p, "replicas": r} for p, r in entries]}
        for name, entries in topics.items()
    ]
    request = entity(ALTER_PARTITION_REASSIGNMENTS, 0, topics=asked)
    answer = await alter_partition_reassignments(cold.services, request, context(0))
    return decoded(ALTER_PARTITION_REASSIGNMENTS, 0, answer)


async def listed(cold: Cold, topics: Any) -> Any:
    request = entity(LIST_PARTITION_REASSIGNMENTS, 0, topics=topics)
    answer = await list_partition_reassignments(cold.services, request, context(0))
    return decoded(LIST_PARTITION_REASSIGNMENTS, 0, answer)


async def test_response_has_a_result_for_each_reassigned_or_cancelled_partition() -> None:
    cold, controller = with_controller()
    refused = PartitionResult(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel")
    controller.results[TopicPartition("t", 1)] = refused
    got = await alter(cold, t=[(0, [1, 2]), (1, None)], u=[(0, [])])
    assert controller.targets == {
        TopicPartition("t", 0): (1, 2),
        TopicPartition("t", 1): None,
        TopicPartition("u", 0): (),
    }
    assert (got.error_code, got.error_message) == (0, None)
    assert [
        [(p.partition_index, int(p.error_code), p.error_message) for p in topic.partitions]
        for topic in got.responses
    ] == [
        [(0, 0, None), (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel")],
        [(0, 0, None)],
    ]


async def test_partition_given_twice_is_not_reassigned() -> None:
    cold, controller = with_controller()
    got = await alter(cold, t=[(0, [1]), (0, [2]), (1, [2])])
    assert controller.targets == {TopicPartition("t", 1): (2,)}
    codes = {p.partition_index: int(p.error_code) for p in got.responses[0].partitions}
    assert codes == {0: ErrorCode.INVALID_REQUEST, 1: 0}


async def test_broker_that_is_not_the_controller_returns_not_controller() -> None:
    cold, controller = with_controller()
    controller.rules = False
    assert (await alter(cold, t=[(0, [1])])).error_code == ErrorCode.NOT_CONTROLLER
    assert (await listed(cold, None)).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.row("R55")
async def test_reassignments_are_listed_with_adding_and_removing_replicas() -> None:
    cold, controller = with_controller()
    controller.moving = {
        TopicPartition("t", 1): ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,)),
        TopicPartition("t", 0): ReplicaAssignment((2, 1), adding=(2,)),
        TopicPartition("u", 0): ReplicaAssignment((1, 2), removing=(2,)),
    }
    got = await listed(cold, None)
    assert [(topic.name, len(topic.partitions)) for topic in got.topics] == [("t", 2), ("u", 1)]
    shown = got.topics[0].partitions[1]
    assert (shown.partition_index, shown.replicas) == (1, (3, 1, 2))
    assert (shown.adding_replicas, shown.removing_replicas) == ((3,), (2,))


async def test_only_requested_reassignments_are_listed() -> None:
    cold, controller = with_controller()
    controller.moving = {TopicPartition("t", 0): ReplicaAssignment((2, 1), adding=(2,))}
    asked = [{"name": "t", "partition_indexes": [0, 5]}, {"name": "none", "partition_indexes": [0]}]
    (topic,) = (await listed(cold, asked)).topics
    assert [p.partition_index for p in topic.partitions] == [0]
    assert (await listed(cold, [])).topics == ()
    assert (await listed(cold, [{"name": "t", "partition_indexes": [1]}])).topics == ()


async def test_too_long_names_and_replica_lists_are_not_sent_to_the_controller() -> None:
    cold, controller = with_controller()
    long = "x" * 250
    got = await alter(
        cold, **{long: [(0, [1])]}, t=[(0, list(range(1_000))), (1, list(range(1_001)))]
    )
    assert list(controller.targets) == [TopicPartition("t", 0)]
    codes = [row.error_code for topic in got.responses for row in topic.partitions]
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
