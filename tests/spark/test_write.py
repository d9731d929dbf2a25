"""Tables and streams written to a real cluster, and read back by other clients.

Writes start on the test's own thread: Spark finds a Python data source for a write only in a thread whose active
session has registered the data source.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from support.clusters.running_cluster import kill

from minikafka.base.errors import KafkaError
from minikafka.client import Client, NewTopic
from minikafka.client.partitioner import partition_for_key
from minikafka.kafka.records.batch import Record
from minikafka.kafka.records.header import CODECS
from minikafka.spark.sink.options import parse
from minikafka.spark.sink.writers import write_rows
from minikafka.tools.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("compiled_plans")


@pytest.fixture
async def client(cluster: LocalCluster):
    async with Client(cluster.bootstrap) as running:
        yield running


async def read(cluster: LocalCluster, topic: str, partitions: int) -> list[Any]:
    """Return all records of a topic, in order of partition and offset."""
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap)
    await consumer.start()
    try:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        ends = await consumer.end_offsets(tps)
        found: list[Any] = []
        while len(found) < sum(ends.values()):
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found += records
    finally:
        await consumer.stop()
    return sorted(found, key=lambda one: (one.partition, one.offset))


def table(spark, rows: list[tuple], columns: str):
    return spark.createDataFrame(rows, columns).repartition(2)


def write(frame, cluster: LocalCluster, **options: str) -> None:
    writer = frame.write.format("minikafka").mode("append")
    writer.option("kafka.bootstrap.servers", cluster.bootstrap).options(**options).save()


async def test_rows_written_by_spark_are_read_back_by_aiokafka(spark, cluster, client):
    await client.create_topics(NewTopic("written", 3, 3))
    rows = [(f"k{number % 7}", f"v{number}", [("h", b"1")]) for number in range(500)]
    columns = "key string, value string, headers array<struct<key:string,value:binary>>"
    write(
        table(spark, rows, columns), cluster, topic="written", **{"kafka.compression.type": "gzip"}
    )
    found = await read(cluster, "written", 3)
    assert Counter((one.key, one.value) for one in found) == Counter(
        (key.encode(), value.encode()) for key, value, _ in rows
    )
    assert {one.partition for one in found if one.key == b"k3"} == {partition_for_key(b"k3", 3)}
    assert {tuple(one.headers) for one in found} == {(("h", b"1"),)}


@pytest.mark.parametrize("codec", CODECS)
async def test_rows_are_written_with_every_codec_and_read_by_the_source(
    spark, cluster, client, codec
):
    topic = f"codec-{codec}"
    # Without this setting, a retention pass would delete the rows, whose timestamps are in 1970.
    await client.create_topics(NewTopic(topic, 2, 3, {"retention.ms": "-1"}))
    options = parse(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "topic": topic,
            "kafka.compression.type": codec,
            "kafka.batch.size": "2000",
        }
    )
    values = [b"%d" % number * 10 for number in range(1_000)]
    times = pa.array(range(0, 1_000_000, 1_000), pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values), "timestamp": times})
    assert await asyncio.to_thread(write_rows, options, iter([batch])) == 1_000

    def job() -> list[Any]:
        reader = spark.read.format("minikafka").option("subscribe", topic)
        frame = reader.option("kafka.bootstrap.servers", cluster.bootstrap).load()
        return frame.select("value", "timestamp", "offset", "partition").collect()

    found = await asyncio.to_thread(job)
    assert sorted(bytes(row["value"]) for row in found) == sorted(values)
    ordered = sorted(found, key=lambda row: (row["partition"], row["offset"]))
    stamps = [row["timestamp"].timestamp() * 1_000 for row in ordered]
    assert stamps == sorted(stamps)


async def test_missing_topic_is_created_with_the_defaults_of_the_brokers(cluster, client):
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "made-by-sink"}
    batch = pa.RecordBatch.from_pydict({"value": [b"v"]})
    with pytest.raises(KafkaError, match="set option createTopics to true"):
        await asyncio.to_thread(write_rows, parse(given), iter([batch]))
    options = parse(given | {"createTopics": "true"})
    assert await asyncio.to_thread(write_rows, options, iter([batch])) == 1
    assert [one.value for one in await read(cluster, "made-by-sink", 1)] == [b"v"]


@pytest.mark.row("N7")
async def test_stream_between_topics_writes_the_origin_of_each_row_to_a_record_header(
    spark, cluster, client, tmp_path
):
    await client.create_topics(NewTopic("from", 2, 3), NewTopic("to", 2, 3))
    for partition in range(2):
        records = [Record(value=b"%d" % number) for number in range(partition, 200, 2)]
        await client.produce("from", records, partition=partition)

    servers = {"kafka.bootstrap.servers": cluster.bootstrap}
    given = {"subscribe": "from", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "120"}
    frame = spark.readStream.format("minikafka").options(**servers, **given).load()
    doubled = frame.selectExpr("key", "cast(2 * int(cast(value as string)) as string) as value")
    writer = doubled.writeStream.format("minikafka").options(**servers)
    writer = writer.options(topic="to", originHeader="origin")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    writer.start().awaitTermination()
    found = await read(cluster, "to", 2)
    assert sorted(int(one.value) for one in found) == list(range(0, 400, 2))
    origins = [json.loads(dict(one.headers)["origin"]) for one in found]
    assert {origin["batch"] for origin in origins} == {0, 1}
    assert len({origin["query"] for origin in origins}) == 1
    assert len({tuple(origin.values()) for origin in origins}) == 200


async def test_every_row_is_written_once_although_a_leader_is_killed(cluster, client):
    replicas = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
    await client.create_topics(NewTopic("killed", assignment=replicas))
    options = parse({"kafka.bootstrap.servers": cluster.bootstrap, "topic": "killed"})
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def batches():
        for number in range(60):
            if number == 20:
                loop.call_soon_threadsafe(asked.set)
            values = [b"%d" % (1_000 * number + index) + bytes(200) for index in range(1_000)]
            yield pa.RecordBatch.from_pydict({"value": pa.array(values)})

    writing = asyncio.create_task(asyncio.to_thread(write_rows, options, batches()))
    await asked.wait()
    await kill(cluster, 1)
    assert await writing == 60_000
    found = await read(cluster, "killed", 3)
    assert len(found) == len({one.value for one in found}) == 60_000


@pytest.mark.parametrize(
    ("columns", "row", "options", "message"),
    [
        (
            "value string",
            ("v",),
            {"topic": "nowhere"},
            "nowhere: no such topic; correct option topic",
        ),
        ("value string", ("v",), {}, "option topic or a column topic must name the topic"),
        ("value string, topic string", ("v", None), {}, "row 0 of the task has no topic"),
        ("value int", (1,), {"topic": "refusing"}, "column value must be binary or string"),
        ("value string", ("v" * 2_000_000,), {"topic": "refusing"}, "row 0 .* MESSAGE_TOO_LARGE"),
        ("value string", ("v",), {"topic": "compacted"}, "row 0 .* INVALID_RECORD"),
    ],
)
async def test_error_about_rows_that_cannot_be_written_names_them(
    spark, cluster, client, columns, row, options, message
):
    if topic := options.get("topic"):
        configs = {"cleanup.policy": "compact"} if topic == "compacted" else {}
        if topic != "nowhere":
            await client.admin.create_topics([NewTopic(topic, 1, 3, configs)])
    with pytest.raises(Exception, match=message) as caught:
        write(spark.createDataFrame([row], columns), cluster, **options)
    assert "Traceback" not in str(caught.value)
