"""Brokers start, serve and stop with each numeric configuration key at its lowest and at its highest value."""

from __future__ import annotations

import asyncio

import pytest
from support.until import until

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.keys import INT_MAX, LONG_MAX, ConfigType, Key
from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster

NUMBERS = (ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE)
HIGHEST = {ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX, ConfigType.DOUBLE: 1.0}
REFUSALS = {
    ("message.max.bytes", 0): ErrorCode.MESSAGE_TOO_LARGE,
    ("max.message.bytes", 0): ErrorCode.MESSAGE_TOO_LARGE,
    ("log.message.timestamp.before.max.ms", 0): ErrorCode.INVALID_TIMESTAMP,
    ("log.message.timestamp.difference.max.ms", 0): ErrorCode.INVALID_TIMESTAMP,
    ("message.timestamp.before.max.ms", 0): ErrorCode.INVALID_TIMESTAMP,
    ("message.timestamp.difference.max.ms", 0): ErrorCode.INVALID_TIMESTAMP,
}
"""For each setting with which brokers refuse all records: the error that producers get."""
NEEDS = {
    ("replica.lag.time.max.ms", 1): {"replica_fetch_wait_max_ms": 1},
    ("replica.socket.timeout.ms", 1): {"replica_fetch_wait_max_ms": 1},
    ("replica.fetch.wait.max.ms", INT_MAX): {
        "replica_lag_time_max_ms": INT_MAX,
        "replica_socket_timeout_ms": INT_MAX,
    },
    ("group.min.session.timeout.ms", INT_MAX): {"group_max_session_timeout_ms": INT_MAX},
    ("group.max.session.timeout.ms", 0): {"group_min_session_timeout_ms": 0},
}
"""For each setting that is valid only together with another setting, as in Kafka: that other setting."""
NOT_STARTING = [("log.cleaner.threads", INT_MAX), ("log.cleaner.dedupe.buffer.size", -1)]
"""Settings with which neither minikafka nor Kafka starts: the buffer is too small for the cleaner threads."""
NOT_SERVING = [("max.connections", 0), ("max.connections.per.ip", 0)]
"""Settings with which brokers start, but accept no connection of a client or of another broker."""
ENDLESS = ("controlled.shutdown.max.retries", INT_MAX)
"""With this setting the last broker retries controlled shutdown forever, as in Kafka, so the test does not stop it."""


def values(keys: dict[str, Key]) -> list[tuple[str, float]]:
    """Return each numeric key with its lowest value and with its highest."""
    found = []
    for name, key in keys.items():
        if key.kind in NUMBERS and name not in ("broker.id", "socket.request.max.bytes"):
            lowest = -1 if key.low is None else key.low
            highest = HIGHEST[key.kind] if key.high is None else key.high
            found += [(name, lowest), (name, highest)]
    return [row for row in found if row not in NOT_STARTING + NOT_SERVING]


async def produce_and_read(client: Client, refusal: ErrorCode | None) -> None:
    """Assert that two records are written with acks=all and read back.

    If `refusal` is given, assert instead that the broker refuses the records with this error code.
    """
    records = [Record(timestamp=1_000, value=value) for value in (b"one", b"two")]
    if refusal is not None:
        with pytest.raises(KafkaError) as caught:
            await client.produce("t", records, partition=0)
        assert caught.value.code is refusal
        return
    for record in records:
        await client.produce("t", [record], partition=0)
    read = [found.value async for found in client.consume("t", until_end={0: 2})]
    assert read == [b"one", b"two"]


@pytest.mark.parametrize(("name", "value"), NOT_STARTING)
def test_setting_that_needs_more_memory_than_allowed_is_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", "[.]")):
        BrokerConfig.from_mapping({"broker.id": 0, "zookeeper.connect": "h:1", name: value})


@pytest.mark.parametrize(("name", "value"), values(BrokerConfig.keys()))
async def test_brokers_serve_clients_with_an_extreme_value_of_one_broker_setting(
    name: str, value: float
) -> None:
    keys = {name.replace(".", "_"): value, **NEEDS.get((name, value), {})}
    async with asyncio.timeout(20), MemoryCluster(2, **keys) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 2))
            await produce_and_read(client, REFUSALS.get((name, value)))
        if (name, value) not in REFUSALS:
            replicas = [broker.replicas.logs for broker in cluster.brokers.values()]
            await until(
                lambda: all(
                    log.written_log_end_offset == 2 for r in replicas for log in r.logs.values()
                )
            )
        for number in (0, 1):
            await cluster.stop(number, controlled=(name, value) != ENDLESS)
        await cluster.start(0)


@pytest.mark.parametrize(("name", "value"), values(TopicConfig.keys()))
async def test_topic_can_be_used_with_an_extreme_value_of_one_topic_setting(
    name: str, value: float
) -> None:
    key = TopicConfig.keys()[name]
    text = key.text(value)
    assert text is not None
    async with asyncio.timeout(20), MemoryCluster(1) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 1, configs={name: text}))
        await produce_and_read(client, REFUSALS.get((name, value)))
