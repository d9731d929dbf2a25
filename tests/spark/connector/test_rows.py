"""Spark's own Kafka connector reads the same rows from the brokers as `format("minikafka")`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka import Producer
from support.spark.spark_connector import Formats, needs_connector

from minikafka.client import Client, NewTopic

pytestmark = needs_connector

NOW = int(time.time() * 1000)
CODECS = "none", "gzip", "snappy", "lz4", "zstd"
HEADERS = [("a", b"1"), ("a", None), ("ü", b""), ("", b"2")]
KEPT = {"retention.ms": "-1"}


@pytest.fixture
def formats(spark, cluster) -> Formats:
    return Formats(spark, cluster.bootstrap)


@pytest.fixture
async def client(cluster) -> AsyncIterator[Client]:
    async with Client(cluster.bootstrap) as running:
        yield running


def fill(bootstrap: str, topic: str, partition: int, count: int, codec: str) -> None:
    """Produce records with timestamps one second apart; some have null or empty keys and values, or headers."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(count):
        producer.produce(
            topic,
            None if number % 7 == 0 else b"v%d" % number * (number % 5),
            None if number % 3 == 0 else b"k%d" % (number % 11),
            partition,
            timestamp=NOW + 1_000 * number,
            headers=HEADERS[: number % 5],
        )
    producer.flush()


async def both(formats: Formats, what: str, **given: str) -> tuple[Any, Any]:
    """Call the method `what` of `Formats` with the connector and with our data source; return both results."""
    method = getattr(formats, what)
    return tuple([await asyncio.to_thread(method, n, **given) for n in ("kafka", "minikafka")])


@pytest.fixture
async def lines(cluster, client) -> None:
    """Two topics, created once: `connector-lines` has one codec per partition, `connector-more` has LogAppendTime."""
    if "connector-lines" in await client.list_topics():
        return
    await client.create_topics(
        NewTopic("connector-lines", 6, 3, KEPT),
        NewTopic("connector-more", 2, 3, KEPT | {"message.timestamp.type": "LogAppendTime"}),
    )
    for partition, codec in enumerate(CODECS):
        await asyncio.to_thread(
            fill, cluster.bootstrap, "connector-lines", partition, 40 * (partition + 1), codec
        )
    for partition in range(2):
        await asyncio.to_thread(fill, cluster.bootstrap, "connector-more", partition, 30, "zstd")


STARTS = '{"connector-lines":{"0":5,"1":-2,"2":100,"3":160,"4":7,"5":0}}'
ENDS = '{"connector-lines":{"0":-1,"1":3,"2":110,"3":160,"4":190,"5":-1}}'
TIMES = ",".join(f'"{number}":{NOW + 1_000 * (20 + number)}' for number in range(5))
LATER = ",".join(f'"{number}":{NOW + 1_000 * (30 + 10 * number)}' for number in range(5))
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


def named(given: object) -> str:
    """Return a test id: the value as text, with times relative to NOW, because NOW differs between workers."""
    return re.sub(r"\d{13}", lambda time: f"now{int(time[0]) - NOW:+}", str(given))


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "connector-lines, connector-more,", "includeHeaders": "true"},
        {"subscribePattern": "nector-m.*"},
        {"subscribePattern": "nowhere.*"},
        {"assign": '{"connector-lines":[1,4],"connector-more":[1]}'},
        {"startingOffsets": STARTS, "endingOffsets": ENDS},
        {"startingOffsets": " EARLIEST ", "endingOffsets": "Latest"},
        {"startingOffsets": STARTS, "startingTimestamp": str(NOW + 15_500), **LATEST},
        {"startingTimestamp": "0", **LATEST},
        {"endingTimestamp": str(NOW + 60_000), "endingOffsets": ENDS},
        {
            "startingOffsetsByTimestamp": f'{{"connector-lines":{{{TIMES},"5":-1}}}}',
            "endingOffsetsByTimestamp": f'{{"connector-lines":{{{LATER},"5":{NOW}}}}}',
        },
        {"kafka.isolation.level": "read_committed"},
    ],
    ids=named,
)
async def test_kafka_and_minikafka_formats_read_the_same_rows(formats, lines, given):
    which = {"subscribe", "subscribePattern", "assign"} & given.keys()
    needed = {} if which else {"subscribe": "connector-lines"}
    theirs, ours = await both(formats, "rows", **needed, **given)
    assert ours == theirs


@pytest.mark.parametrize(
    ("given", "theirs", "message"),
    [
        (
            {"startingOffsets": "latest"},
            "can't be latest",
            "latest .* is not allowed for a batch read",
        ),
        (
            {"startingOffsets": STARTS.replace("5", "-1", 1)},
            "can.t be latest",
            "latest .* is not allowed for a batch",
        ),
        (
            {"endingOffsets": "earliest"},
            "can't be earliest",
            "earliest .* is not allowed for a batch read",
        ),
        (
            {"startingOffsets": '{"connector-lines":{"0":0}}'},
            "don't match what are assigned",
            "must name every partition",
        ),
        (
            {"startingTimestamp": str(NOW + 60_000)},
            "No offset matched",
            "has no record at or after",
        ),
        (
            {"startingTimestamp": str(NOW + 30_000), "endingTimestamp": str(NOW + 20_000)} | LATEST,
            "is greater than",
            "beyond its end",
        ),
        (
            {"startingOffsets": STARTS.replace("100", "500"), "failOnDataLoss": "false"},
            "is greater than",
            "at offset 500, beyond its end 120",
        ),
        (
            {"assign": '{"connector-lines":[1]}'},
            "Only one of the following",
            "not both assign and subscribe",
        ),
        ({"kafka.auto.offset.reset": "earliest"}, "is not supported", "use startingOffsets"),
    ],
    ids=named,
)
async def test_kafka_and_minikafka_formats_refuse_the_same_options(
    formats, lines, given, theirs, message
):
    with pytest.raises(Exception, match=theirs):
        await asyncio.to_thread(formats.rows, "kafka", subscribe="connector-lines", **given)
    with pytest.raises(Exception, match=message):
        await asyncio.to_thread(formats.rows, "minikafka", subscribe="connector-lines", **given)


async def test_kafka_and_minikafka_formats_split_the_partitions_at_the_same_offsets(formats, lines):
    for given in (
        {},
        {"startingOffsets": STARTS, "minPartitions": "9"},
        {"endingOffsets": ENDS, "maxRecordsPerPartition": "17"},
    ):
        chosen = {"subscribe": "connector-lines", "maxTasks": "1000"} | given
        theirs, ours = await both(formats, "splits", **chosen)
        assert ours == theirs
