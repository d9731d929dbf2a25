"""The recorded answers of Apache Kafka to requests about transactions, with which brokers here are compared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.clusters.apache_kafka import apache_kafka, needs_kafka
from support.clusters.transaction_scenes import answers_of, answers_of_kafka

from minikafka.kafka.wire.codec import decode_response, encode_request, request

pytestmark = [pytest.mark.clients, needs_kafka]
ONE = {
    "offsets_topic_num_partitions": 2,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "group_initial_rebalance_delay_ms": 0,
}
ANSWER_SECONDS = 30


async def test_apache_kafka_gives_the_recorded_answers(tmp_path: Path) -> None:
    async with apache_kafka(tmp_path, **ONE) as kafka:
        reader, writer = await asyncio.open_connection(*kafka.bootstrap.split(":"))

        async def send(api: int, version: int, **values: Any) -> Any:
            writer.write(encode_request(api, version, 1, "tester", request(api, version, **values)))
            async with asyncio.timeout(ANSWER_SECONDS):
                length = int.from_bytes(await reader.readexactly(4))
                return decode_response(api, version, await reader.readexactly(length))

        try:
            assert await answers_of(send) == answers_of_kafka()
        finally:
            writer.close()
