"""ElectLeaders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded, finished, state
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import PartitionResult, TopicPartition
from minikafka.broker.apis.elections import PREFERRED, UNCLEAN, elect_leaders
from minikafka.kafka.wire.versions import ELECT_LEADERS

pytestmark = pytest.mark.row("R61")

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOT_NEEDED = PartitionResult(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed.")


class Controller:
    """A controller that returns the election results given by the test."""

    controller_id = 1

    def __init__(self) -> None:
        self.rules = True
        self.asked: list[tuple[bool, list[TopicPartition] | None]] = []
        self.results: dict[TopicPartition, PartitionResult] = {}

    async def elect_leaders(
        self, *, unclean: bool, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionResult]:
        if not self.rules:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self.asked.append((unclean, None if partitions is None else list(partitions)))
        return dict(self.results)


def with_controller(**results: PartitionResult) -> tuple[Cold, Controller]:
    cold, controller = Cold(), Controller()
    cold.update(state("t", 0, (1, 2), 2), state("t", 1, (9, 1), 9), state("u", 0, (3, 1), 3))
    services: Any = cold.services
    services.administration = controller
    return cold, controller


def codes(answer: Any, version: int) -> dict[TopicPartition, int]:
    """Return the error code of each partition in a response."""
    got = decoded(ELECT_LEADERS, version, answer)
    return {
        TopicPartition(topic.topic, result.partition_id): int(result.error_code)
        for topic in got.replica_election_results
        for result in topic.partition_result
    }


def request(version: int, topics: Any, timeout: int = 60_000, **rest: Any) -> Any:
    asked = topics and [{"topic": name, "partitions": parts} for name, parts in topics.items()]
    return entity(ELECT_LEADERS, version, topic_partitions=asked, timeout_ms=timeout, **rest)


@pytest.mark.parametrize("version", range(3))
async def test_election_is_answered_when_the_metadata_has_the_new_leader(version: int) -> None:
    cold, controller = with_controller()
    controller.results = {T0: PartitionResult(), U0: NOT_NEEDED}
    rest = {} if version == 0 else {"election_type": PREFERRED}
    asked = request(version, {"t": [0], "u": [0]}, **rest)
    electing: asyncio.Future[Any] = asyncio.ensure_future(
        _awaited(elect_leaders(cold.services, asked, context(version)))
    )
    await cold.until_waiting(electing)
    assert not electing.done()
    cold.update(state("t", 0, (1, 2), 1))
    assert codes(await electing, version) == {T0: 0, U0: ErrorCode.ELECTION_NOT_NEEDED}
    assert controller.asked == [(False, [T0, U0])]


async def _awaited(answer: Any) -> Any:
    return await answer


async def test_election_times_out_when_the_metadata_does_not_have_the_new_leader() -> None:
    cold, controller = with_controller()
    controller.results = {T0: PartitionResult(), U0: PartitionResult()}
    answer = await elect_leaders(
        cold.services, request(2, {"t": [0], "u": [0]}, timeout=1), context(2)
    )
    assert codes(answer, 2) == {T0: ErrorCode.REQUEST_TIMED_OUT, U0: 0}


async def test_unclean_election_is_answered_when_the_metadata_has_a_live_leader() -> None:
    cold, controller = with_controller()
    controller.results = {T0: PartitionResult(), T1: PartitionResult()}
    asked = request(2, {"t": [0, 1]}, timeout=1, election_type=UNCLEAN)
    answer = await elect_leaders(cold.services, asked, context(2))
    assert codes(answer, 2) == {T0: 0, T1: ErrorCode.REQUEST_TIMED_OUT}
    assert controller.asked == [(True, [T0, T1])]


async def test_partitions_that_need_no_election_are_omitted_when_all_are_requested() -> None:
    cold, controller = with_controller()
    failed = PartitionResult(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 2 is down")
    controller.results = {T0: NOT_NEEDED, T1: failed}
    answer = await elect_leaders(cold.services, request(2, None), context(2))
    assert codes(answer, 2) == {T1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert controller.asked == [(False, None)]


async def test_broker_that_is_not_the_controller_returns_not_controller() -> None:
    cold, controller = with_controller()
    controller.rules = False
    answer = finished(await elect_leaders(cold.services, request(1, {"t": [0]}), context(1)))
    assert decoded(ELECT_LEADERS, 1, answer).error_code == ErrorCode.NOT_CONTROLLER
    assert codes(answer, 1) == {T0: ErrorCode.NOT_CONTROLLER}
    assert codes(await elect_leaders(cold.services, request(0, {"t": [0]}), context(0)), 0) == {
        T0: ErrorCode.NOT_CONTROLLER
    }


async def test_unknown_election_type_is_refused() -> None:
    cold, controller = with_controller()
    answer = await elect_leaders(cold.services, request(2, {"t": [0]}, election_type=7), context(2))
    assert decoded(ELECT_LEADERS, 2, answer).error_code == ErrorCode.INVALID_REQUEST
    assert controller.asked == []


async def test_topic_with_too_long_a_name_is_unknown_and_not_sent_to_the_controller() -> None:
    cold, controller = with_controller()
    controller.results = {U0: NOT_NEEDED}
    long = TopicPartition("x" * 250, 0)
    asked = request(2, {long.topic: [0], "u": [0]}, election_type=PREFERRED)
    answer = await elect_leaders(cold.services, asked, context(2))
    assert codes(answer, 2) == {
        long: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        U0: ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert controller.asked == [(False, [U0])]
