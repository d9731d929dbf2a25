"""Streams from a real cluster through `format("minikafka")` in Spark: micro-batches, restarts, new partitions."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as f
from support.clients.topics import create_again
from support.clusters.running_cluster import eventually, kill

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark import register
from minikafka.spark.progress import OffsetsBehind, OffsetsBehindListener, offsets_behind
from minikafka.tools.cluster import LocalCluster

pytestmark = pytest.mark.usefixtures("compiled_plans")


class Stream:
    """A streaming query from topics to Parquet. It ends when it has read all records that exist (availableNow)."""

    def __init__(self, spark, bootstrap: str, directory) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._output = str(directory / "output")
        self._checkpoint = str(directory / "checkpoint")
        self.batches: list[int] = []
        """Rows of each micro-batch of the last run."""
        self.behind: list[OffsetsBehind | None] = []
        """Offsets that were still unread after each micro-batch of the last run."""

    def run(self, **given: str) -> None:
        options = {"kafka.bootstrap.servers": self._bootstrap, "startingOffsets": "earliest"}
        frame = self._spark.readStream.format("minikafka").options(**options | given).load()
        writer = frame.writeStream.format("parquet").option("path", self._output)
        query = writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True)
        running = query.start()
        running.awaitTermination()
        self.batches = [progress.numInputRows for progress in running.recentProgress]
        self.behind = [offsets_behind(progress.sources[0]) for progress in running.recentProgress]

    def rows(self) -> list[Row]:
        """Return topic, partition, offset and value as text of all rows written so far, in order."""
        frame = self._spark.read.parquet(self._output)
        columns = "topic", "partition", "offset", f.col("value").cast("string")
        return frame.select(*columns).orderBy("topic", "partition", "offset").collect()


@pytest.fixture
def stream(spark, cluster: LocalCluster, tmp_path) -> Stream:
    return Stream(spark, cluster.bootstrap, tmp_path)


@pytest.fixture
async def client(cluster: LocalCluster):
    async with Client(cluster.bootstrap) as running:
        yield running


async def fill(client: Client, topic: str, partition: int, first: int, count: int) -> list[tuple]:
    """Produce `count` numbers as text, beginning with `first`; return the rows that a reader must get.

    The rows are right only if `first` is the partition's next offset.
    """
    values = [str(number) for number in range(first, first + count)]
    records = [Record(value=value.encode()) for value in values]
    await client.produce(topic, records, partition=partition)
    return [(topic, partition, first + index, value) for index, value in enumerate(values)]


async def wait_for_only_replica(cluster: LocalCluster, topic: str, broker: int) -> None:
    """Wait until this broker leads partition 0 of the topic and is the only ISR member."""

    async def leads_alone() -> bool:
        view = (await cluster.state()).partitions.get(TopicPartition(topic, 0))
        return view is not None and (view.leader, view.isr) == (broker, (broker,))

    await eventually(leads_alone)


async def run(stream: Stream, **given: str) -> list[tuple]:
    def job() -> list[tuple]:
        stream.run(**given)
        return [tuple(row) for row in stream.rows()]

    return await asyncio.to_thread(job)


@pytest.mark.row("N7")
async def test_stream_continues_from_its_checkpoint_and_finds_new_partitions(client, stream):
    await client.create_topics(NewTopic("stream-grows", 2, 3))
    rows = await fill(client, "stream-grows", 0, 0, 300)
    rows += await fill(client, "stream-grows", 1, 0, 100)
    assert await run(stream, subscribe="stream-grows", maxOffsetsPerTrigger="200") == rows
    assert stream.batches == [200, 200]
    assert stream.behind == [OffsetsBehind(100, 50, 150), OffsetsBehind(0, 0, 0)]
    await client.admin.create_partitions({"stream-grows": 3})
    rows += await fill(client, "stream-grows", 2, 0, 50)
    rows += await fill(client, "stream-grows", 0, 300, 10)
    assert await run(stream, subscribe="stream-grows", startingOffsets="latest") == sorted(rows)
    assert stream.batches == [60]


async def test_starting_a_stream_adds_no_variable_to_the_environment_shared_by_streams(
    spark, client, stream
):
    """Spark keeps the environment in a map that is not thread-safe: if two threads add keys, the next read fails."""
    await client.create_topics(NewTopic("environment", 1, 3))
    rows = await fill(client, "environment", 0, 0, 1)
    register(spark)
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    shared = sources.lookupDataSource("minikafka").dataSourceCls().envVars()
    before = set(shared.keySet())
    assert await run(stream, subscribe="environment") == rows
    assert set(shared.keySet()) == before


async def test_query_listener_is_told_how_many_offsets_each_micro_batch_is_behind(
    spark, client, stream
):
    await client.create_topics(NewTopic("watched", 1, 3))
    await fill(client, "watched", 0, 0, 30)
    told: queue.Queue[OffsetsBehind] = queue.Queue()
    listener = OffsetsBehindListener(lambda _, behind: told.put(behind))
    spark.streams.addListener(listener)
    try:
        await run(stream, subscribe="watched", maxOffsetsPerTrigger="20")
        found = [await asyncio.to_thread(told.get, timeout=30) for _ in range(2)]
    finally:
        spark.streams.removeListener(listener)
    assert found == [OffsetsBehind(10, 10, 10), OffsetsBehind(0, 0, 0)]


async def test_stream_with_subscribe_pattern_reads_topics_that_are_created_later(client, stream):
    await client.create_topics(NewTopic("later-a", 1, 3))
    rows = await fill(client, "later-a", 0, 0, 5)
    assert await run(stream, subscribePattern="later-.") == rows
    await client.create_topics(NewTopic("later-b", 1, 3))
    rows += await fill(client, "later-b", 0, 0, 5)
    assert await run(stream, subscribePattern="later-.") == rows


@pytest.mark.parametrize("again", [5, 30], ids=["shorter", "longer"])
async def test_stream_fails_with_an_explanation_when_its_topic_was_created_again(
    client, stream, again
):
    topic = f"made-again-{again}"
    await client.create_topics(NewTopic(topic, 1, 3))
    rows = await fill(client, topic, 0, 0, 20)
    assert await run(stream, subscribe=topic, maxOffsetsPerTrigger="100") == rows
    await client.delete_topics(topic)
    await create_again(client, NewTopic(topic, 1, 3))
    new = await fill(client, topic, 0, 0, again)
    with pytest.raises(Exception, match="failOnDataLoss") as caught:
        await run(stream, subscribe=topic)
    assert f"{topic}-0 was deleted and created again" in str(caught.value)
    tolerant = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "10"}
    assert await run(stream, subscribe=topic, **tolerant) == sorted(rows + new)
    assert stream.batches == [10] * (again // 10) or [again]
    more = [(topic, 0, again, "7")]
    await client.produce(topic, [Record(value=b"7")], partition=0)
    assert await run(stream, subscribe=topic) == sorted(rows + new + more)


async def test_stream_fails_with_an_explanation_when_records_that_it_read_are_truncated(
    cluster: LocalCluster, client, stream
):
    """A replica that lacks the last ten records that the stream has read becomes leader.

    The new leader's log then grows past the stream's offset.
    """
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    await client.create_topics(NewTopic("cut", 1, configs=config, assignment={0: [1, 2]}))
    rows = await fill(client, "cut", 0, 0, 20)
    await kill(cluster, 2)
    await wait_for_only_replica(cluster, "cut", 1)
    rows += await fill(client, "cut", 0, 20, 10)
    assert await run(stream, subscribe="cut") == rows
    await kill(cluster, 1)
    await cluster.start(2)
    await wait_for_only_replica(cluster, "cut", 2)
    new = [(row[0], row[1], row[2], f"1{row[3]}") for row in rows[20:]]
    new += [("cut", 0, offset, f"1{offset}") for offset in range(30, 35)]
    # Use another client: the idempotent producer of `client` would continue with the sequence number after the lost
    # records.
    async with Client(cluster.bootstrap) as later:
        await later.produce("cut", [Record(value=row[3].encode()) for row in new], partition=0)
    lost = (
        r"records 20 to 29 of cut-0 were read but are no longer .* since an unclean leader election"
    )
    with pytest.raises(Exception, match=lost):
        await run(stream, subscribe="cut")
    found = await run(stream, subscribe="cut", failOnDataLoss="false")
    assert sorted(found) == sorted(rows + new)


@pytest.fixture
def batch(spark, cluster: LocalCluster) -> Callable[..., list[int]]:
    """Return a function that does a batch read and returns (offsets, number of tasks)."""

    def read(**given: str) -> tuple[list[int], int]:
        reader = spark.read.format("minikafka")
        options = {"kafka.bootstrap.servers": cluster.bootstrap}
        frame = reader.options(**options | given).load().select("offset")
        return sorted(row["offset"] for row in frame.collect()), frame.rdd.getNumPartitions()

    return read


async def test_batch_read_is_limited_by_timestamps_and_split_by_min_partitions(client, batch):
    # Without this setting, a retention pass would delete the records, whose timestamps are in 1970.
    await client.create_topics(NewTopic("timed", 1, 3, {"retention.ms": "-1"}))
    records = [Record(value=b"v", timestamp=1_000 + 10 * number) for number in range(100)]
    await client.produce("timed", records, partition=0)

    async def read(**given: str) -> tuple[list[int], int]:
        return await asyncio.to_thread(lambda: batch(subscribe="timed", **given))

    assert await read(startingTimestamp="1495", endingTimestamp="1600") == (list(range(50, 60)), 1)
    by_partition = '{"timed":{"0":1900}}'
    assert await read(startingOffsetsByTimestamp=by_partition) == (list(range(90, 100)), 1)
    assert await read(endingTimestamp="9999", minPartitions="4") == (list(range(100)), 4)
    with pytest.raises(Exception, match="no record at or after 5000"):
        await read(startingTimestamp="5000")
    late = await read(startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    assert late[0] == []


@pytest.mark.parametrize(
    ("given", "schema", "reason"),
    [
        (
            {"endingOffsets": "latest"},
            None,
            "option endingOffsets has no effect on a stream: remove it",
        ),
        ({}, "value binary", "the minikafka source has a fixed schema: remove schema"),
    ],
)
def test_invalid_option_of_a_stream_is_named_in_the_first_line_of_the_error(
    spark, cluster, tmp_path, given, schema, reason
):
    reader = spark.readStream.format("minikafka").options(subscribe="any", **given)
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
    frame = (reader.schema(schema) if schema else reader).load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match=reason) as caught:
        query.awaitTermination()
    assert reason in str(caught.value).splitlines()[0]
