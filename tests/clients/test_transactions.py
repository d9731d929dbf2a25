"""Transactions, which are not served: clients are told at once, and librdkafka at the time-out that it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError as KafkaPythonError

from minikafka.cluster import LocalCluster

pytestmark = [pytest.mark.clients]

TOLD_SECONDS = 20
"""Less than the time for which the clients ask again after a retriable error."""


def kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx")
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=0)


async def by_aiokafka(bootstrap: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx")
    try:
        await producer.start()
    finally:
        await producer.stop()


def by_librdkafka(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    producer.init_transactions(2)


@pytest.mark.parametrize(
    ("begin", "error"),
    [
        (by_librdkafka, KafkaException),
        (kafka_python, KafkaPythonError),
        (lambda bootstrap: asyncio.run(by_aiokafka(bootstrap)), AioKafkaError),
    ],
    ids=["librdkafka", "kafka-python", "aiokafka"],
)
async def test_transactional_producer_is_refused(
    cluster: LocalCluster, begin: Callable[[str], None], error: type[Exception]
) -> None:
    async with asyncio.timeout(TOLD_SECONDS):
        with pytest.raises(error):
            await asyncio.to_thread(begin, cluster.bootstrap)
