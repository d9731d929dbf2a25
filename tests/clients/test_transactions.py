"""Transactions, which are not supported yet: transactional producers fail at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError as KafkaPythonError

from minikafka.base.errors import ErrorCode
from minikafka.cluster import LocalCluster
from minikafka.wire.codec import decode_response, encode_request, request
from minikafka.wire.versions import API_VERSIONS, FIND_COORDINATOR, INIT_PRODUCER_ID

pytestmark = [pytest.mark.clients]

TOLD_SECONDS = 20
"""Time limit for the refusal, below the time for which clients retry after a retriable error."""


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
    producer.init_transactions(2 * TOLD_SECONDS)


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


@pytest.mark.parametrize(
    ("software", "code"),
    [
        (None, ErrorCode.INVALID_REQUEST),
        ("anything", ErrorCode.INVALID_REQUEST),
        ("librdkafka", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_transactional_id_is_refused_with_a_code_that_depends_on_the_client(
    cluster: LocalCluster, software: str | None, code: ErrorCode
) -> None:
    reader, writer = await asyncio.open_connection(*cluster.bootstrap.split(",")[0].split(":"))

    async def ask(api: int, version: int, **fields: Any) -> Any:
        writer.write(encode_request(api, version, 1, "a", request(api, version, **fields)))
        length = int.from_bytes(await reader.readexactly(4))
        return decode_response(api, version, await reader.readexactly(length))

    try:
        if software is not None:
            named = {"client_software_name": software, "client_software_version": "1.0"}
            assert (await ask(API_VERSIONS, 3, **named)).error_code == ErrorCode.NONE
        assert (await ask(INIT_PRODUCER_ID, 4, transactional_id="tx")).error_code == code
        found = await ask(FIND_COORDINATOR, 2, key="tx", key_type=1)
        assert (found.error_code, found.error_message) == (
            code,
            "transactions are not supported yet",
        )
    finally:
        writer.close()
