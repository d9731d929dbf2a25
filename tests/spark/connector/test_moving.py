"""Queries that move between Spark's own Kafka connector and `format("minikafka")`, each with one checkpoint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from support.clients.topics import create_again
from support.spark.spark_connector import needs_connector

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines.to_connector import rewrite_offsets
from minikafka.tools.cluster import LocalCluster

pytestmark = needs_connector


class Stopped(Exception):
    """The function of `foreachBatch` fails as if the driver had died in the micro-batch."""


class MovingQuery:
    """A query whose format changes from run to run. Its micro-batches have about ten offsets."""

    def __init__(self, spark: Any, bootstrap: str, topics: str, directory: Path) -> None:
        self.spark = spark
        self.checkpoint = directory / "checkpoint"
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topics,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "10",
        }
        self.rows: dict[int, set[tuple]] = {}
        """Topic, partition and offset of the rows of each micro-batch that was finished."""
        self.attempts: dict[int, list[set[tuple]]] = {}
        """The same of all runs of each micro-batch."""

    def run(self, form: str, stop_at: int | None = None, **given: str) -> None:
        """Run the query to the end of the topics, or fail in the micro-batch `stop_at`."""

        def handle(batch: Any, number: int) -> None:
            found = batch.select("topic", "partition", "offset").collect()
            rows = {tuple(row) for row in found}
            assert len(rows) == len(found)
            self.attempts.setdefault(number, []).append(rows)
            if number == stop_at:
                raise Stopped
            self.rows[number] = rows

        frame = self.spark.readStream.format(form).options(**self._options | given).load()
        writer = frame.writeStream.foreachBatch(handle).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        if stop_at is None:
            query.awaitTermination()
            return
        with pytest.raises(StreamingQueryException, match="Stopped"):
            query.awaitTermination()

    def read(self) -> Counter:
        """Return how often each row was in a finished micro-batch."""
        return Counter(row for rows in self.rows.values() for row in rows)


async def fill(cluster: LocalCluster, topic: str, first: int, count: int) -> Counter:
    """Produce records to two partitions; return the rows of all records so far, each once."""
    async with Client(cluster.bootstrap) as client:
        if not first:
            await client.create_topics(NewTopic(topic, 2, 3))
        for partition in range(2):
            await client.produce(topic, [Record(value=b"v")] * count, partition=partition)
    return Counter(
        (topic, partition, offset) for partition in range(2) for offset in range(first + count)
    )


@pytest.mark.parametrize("stop_at", [None, 0, 2])
async def test_query_of_the_connector_continues_with_this_source_and_moves_back(
    spark, cluster, tmp_path, stop_at
):
    topic = f"moving-{stop_at}"
    query = MovingQuery(spark, cluster.bootstrap, topic, tmp_path)
    await fill(cluster, topic, 0, 15)
    query.run("kafka", stop_at)
    everything = await fill(cluster, topic, 15, 15)
    query.run("minikafka")
    assert query.read() == everything
    everything = await fill(cluster, topic, 30, 12)
    last = max(query.rows)
    query.run("minikafka", None if stop_at is None else last + 1)
    assert rewrite_offsets(str(query.checkpoint))
    everything = await fill(cluster, topic, 42, 1)
    query.run("kafka")
    assert query.read() == everything
    assert all(len(set(map(frozenset, runs))) == 1 for runs in query.attempts.values())


async def test_first_micro_batch_of_this_source_is_repeated_by_the_connector(
    spark, cluster, tmp_path
):
    everything = await fill(cluster, "moving-first", 0, 15)
    query = MovingQuery(spark, cluster.bootstrap, "moving-first", tmp_path)
    query.run("minikafka", 0)
    assert sorted(rewrite_offsets(str(query.checkpoint))) == ["offsets/0", "sources/0/0"]
    assert rewrite_offsets(str(query.checkpoint)) == []
    query.run("kafka", startingOffsets="latest")
    assert query.read() == everything


async def test_start_of_the_connector_is_read_from_the_checkpoint_if_it_was_the_latest_offset(
    spark, cluster, tmp_path
):
    everything = await fill(cluster, "moving-latest", 0, 15)
    query = MovingQuery(spark, cluster.bootstrap, "moving-latest", tmp_path)
    query.run("kafka", 0)
    with pytest.raises(StreamingQueryException, match="set option checkpointLocation also"):
        query.run("minikafka", startingOffsets="latest")
    assert not query.rows
    query.run("minikafka", startingOffsets="latest", checkpointLocation=str(query.checkpoint))
    assert query.read() == everything


async def test_topic_that_is_shorter_than_the_offsets_of_the_connector_fails_the_query(
    spark, cluster, tmp_path
):
    await fill(cluster, "moving-shorter", 0, 15)
    query = MovingQuery(spark, cluster.bootstrap, "moving-shorter", tmp_path)
    query.run("kafka")
    async with Client(cluster.bootstrap) as client:
        await client.delete_topics("moving-shorter")
        await create_again(client, NewTopic("moving-shorter", 2, 3))
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        query.run("minikafka")


async def test_state_of_a_deduplication_moves_with_its_query(spark, cluster, tmp_path):
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("moving-state", 1, 3))
    found = []

    async def produce(*values: bytes) -> None:
        async with Client(cluster.bootstrap) as client:
            records = [Record(value=value) for value in values]
            await client.produce("moving-state", records, partition=0)

    def run(form: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "moving-state"}
        frame = spark.readStream.format(form).options(**given, startingOffsets="earliest").load()
        unique = frame.selectExpr("CAST(value AS STRING) AS value").dropDuplicates(["value"])
        writer = unique.writeStream.foreachBatch(
            lambda batch, _: found.extend(row["value"] for row in batch.collect())
        )
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        writer.start().awaitTermination()

    await produce(b"a", b"b", b"a")
    run("kafka")
    await produce(b"b", b"c")
    run("minikafka")
    rewrite_offsets(str(tmp_path))
    await produce(b"c", b"a", b"d")
    run("kafka")
    assert sorted(found) == ["a", "b", "c", "d"]
