"""InitProducerId and DescribeProducers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.brokers.cold import Cold, context, decoded, state
from support.brokers.group_recorder import exchange
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode, NotConnected
from minikafka.base.model import TopicPartition
from minikafka.broker.apis.producers import describe_producers, init_producer_id
from minikafka.deciders.transactions.commands import InitProducerIdResponse
from minikafka.deciders.transactions.events import InitProducerIdRequest
from minikafka.kafka.wire.versions import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID
from minikafka.storage.log.producers import ActiveProducer


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("timeout", [-1, 0, 2**31 - 1])
async def test_producer_gets_a_unique_id_with_epoch_0(version: int, timeout: int) -> None:
    cold = Cold()
    request = entity(
        INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=timeout
    )
    answers = [
        decoded(
            INIT_PRODUCER_ID,
            version,
            await init_producer_id(cold.services, request, context(version)),
        )
        for _ in range(2)
    ]
    assert [(a.error_code, a.producer_id, a.producer_epoch) for a in answers] == [
        (0, 0, 0),
        (0, 1, 0),
    ]


async def test_producer_with_an_old_id_gets_a_new_id() -> None:
    request = entity(INIT_PRODUCER_ID, 4, transactional_id=None, producer_id=77, producer_epoch=3)
    answer = decoded(
        INIT_PRODUCER_ID, 4, await init_producer_id(Cold().services, request, context(4))
    )
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 0, 0)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(("producer_id", "epoch"), [(77, -1), (-1, 3)])
async def test_old_producer_id_without_epoch_and_epoch_without_id_are_refused(
    producer_id: int, epoch: int, version: int
) -> None:
    request = entity(
        INIT_PRODUCER_ID,
        version,
        transactional_id=None,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    answer = decoded(
        INIT_PRODUCER_ID, version, init_producer_id(Cold().services, request, context(version))
    )
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("transactional_id", ["tx", ""])
def test_transactional_id_is_passed_to_the_coordinator(version: int, transactional_id: str) -> None:
    asked, answer = exchange(
        Cold(),
        INIT_PRODUCER_ID,
        version,
        InitProducerIdResponse(0, 88, 4),
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=77,
        producer_epoch=3,
    )
    old = (77, 3) if version >= 3 else (-1, -1)
    assert asked == InitProducerIdRequest(transactional_id, 60_000, *old, None)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 88, 4)


@pytest.mark.parametrize("version", range(6))
def test_fenced_producer_gets_the_code_that_its_version_knows(version: int) -> None:
    fenced, unknown = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    outcome = InitProducerIdResponse(fenced)
    _, answer = exchange(Cold(), INIT_PRODUCER_ID, version, outcome, transactional_id="tx")
    assert answer.error_code == (fenced if version >= 4 else unknown)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(77, -1), (-1, 3)])
def test_transactional_id_with_half_of_a_producer_is_refused(producer_id: int, epoch: int) -> None:
    asked, answer = exchange(
        Cold(),
        INIT_PRODUCER_ID,
        5,
        None,
        transactional_id="tx",
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    assert asked is None
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_init_producer_id_fails_with_a_retriable_error_without_zookeeper() -> None:
    cold = Cold()
    cold.session.failures = [NotConnected()]
    request = entity(INIT_PRODUCER_ID, 1, transactional_id=None)
    answer = decoded(
        INIT_PRODUCER_ID, 1, await init_producer_id(cold.services, request, context(1))
    )
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_describe_producers_returns_the_producer_state_of_a_replica() -> None:
    cold = Cold()
    producers = SimpleNamespace(active=lambda: [ActiveProducer(7, 0, 2, 1000, 4, 55)])
    hosted = SimpleNamespace(offline=False, log=SimpleNamespace(producers=producers))
    cold.replicas.partitions[TopicPartition("t", 0)] = hosted
    cold.update(state("t", 1, (2,)))
    asked = [{"name": "t", "partition_indexes": [0, 1, 2]}]
    request = entity(DESCRIBE_PRODUCERS, 0, topics=asked)
    answer = describe_producers(cold.services, request, context(0))
    (topic,) = decoded(DESCRIBE_PRODUCERS, 0, answer).topics
    assert [int(row.error_code) for row in topic.partitions] == [
        0,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    (shown,) = topic.partitions[0].active_producers
    assert (shown.producer_id, shown.last_sequence, shown.last_timestamp) == (7, 2, 1000)
    assert (shown.coordinator_epoch, shown.current_txn_start_offset) == (4, 55)
