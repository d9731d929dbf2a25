"""Streams and sinks of Spark's own Kafka connector and of `format("minikafka")`, compared on the same brokers.

Writes start on the test's own thread, as in `test_write.py`.
"""

from __future__ import annotations

import pytest
from support.spark.spark_connector import Formats, needs_connector

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

pytestmark = needs_connector

COLUMNS = "key binary, value binary, headers array<struct<key:string,value:binary>>"
CONTENT = "key", "value", "headers"


async def create(cluster: LocalCluster, *names: str, partitions: int = 3) -> None:
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(*(NewTopic(name, partitions, 3) for name in names))


def content(rows: list[dict], *more: str) -> list[str]:
    """Return the rows as sorted texts.

    Each text has the values of the columns in `CONTENT`, then the values of the columns that `more` names.
    """
    return sorted(str([row[name] for name in (*CONTENT, *more)]) for row in rows)


async def test_kafka_and_minikafka_sinks_write_the_same_records_to_the_same_partitions(
    spark, cluster
):
    await create(cluster, "sink-kafka", "sink-minikafka", partitions=7)
    formats = Formats(spark, cluster.bootstrap)
    headers = [None, [], [("a", b"1"), ("a", None), ("\u00fc", b"")]]
    rows = [
        (
            None if number % 10 == 0 else b"%d" % (number**3) * (number % 4),
            None if number % 7 == 0 else b"v%d" % number,
            headers[number % 3],
        )
        for number in range(200)
    ]
    frame = spark.createDataFrame(rows, COLUMNS)
    found = {}
    for sink in ("kafka", "minikafka"):
        topic = f"sink-{sink}"
        formats.save(sink, frame, topic=topic)
        given = {"subscribe": topic, "includeHeaders": "true"}
        by_kafka, by_minikafka = (formats.rows(n, **given) for n in ("kafka", "minikafka"))
        assert by_kafka == by_minikafka
        found[sink] = by_kafka
    assert content(found["minikafka"]) == content(found["kafka"])
    keyed = [[row for row in found[sink] if row["key"] is not None] for sink in found]
    assert content(keyed[0], "partition") == content(keyed[1], "partition")
    assert len(found["kafka"]) == len(rows)


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "70"}], ids=str)
async def test_streams_of_kafka_and_minikafka_formats_read_the_same_batches(
    spark, cluster, tmp_path, limit
):
    names = "kafka-minikafka", "minikafka-kafka"
    source = f"lines-{len(limit)}"
    targets = {name: f"{name}-{len(limit)}" for name in names}
    await create(cluster, source, *targets.values())
    async with Client(cluster.bootstrap) as client:
        for partition in range(3):
            records = [
                Record(key=b"%d" % number, value=b"v", headers=(("h", b"1"),))
                for number in range(40 * partition + 5)
            ]
            await client.produce(source, records, partition=partition)
    formats = Formats(spark, cluster.bootstrap)
    given = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"}

    def copy(name: str) -> list[int]:
        reads, writes = name.split("-")
        return formats.copy(reads, writes, tmp_path / name, given | limit, targets[name])

    theirs, ours = map(copy, names)
    assert ours == theirs
    assert sum(ours) == 135
    copies = [
        formats.rows("kafka", subscribe=topic, includeHeaders="true") for topic in targets.values()
    ]
    kept = "partition", "key", "value", "headers"
    first, second = ([[row[name] for name in kept] for row in rows] for rows in copies)
    assert sorted(map(str, first)) == sorted(map(str, second))
