"""`python -m benchmarks.spark_rates`: how fast topics are read for Spark, compared with other readers.

There are five measurements. The readers of a measurement run in turn, in the same run.
- The decoder reads one partition in one process, for every codec. The other readers are confluent-kafka, and a reader
  that only decompresses. The unit is records per second of processor time.
- Jobs read 2 million lz4 records from 6 partitions, with Spark's master `local[2]`.
- Streams read 6 million lz4 records from 6 partitions in three micro-batches, also in `local[2]`.
- Writes append a million rows that the JVM generates: to 6 partitions without a codec and with lz4, and to 200
  partitions without a codec. The comparison is with Spark's sink that writes nothing (`noop`), which shows the time to
  generate the rows, with a write in one transaction (`exactlyOnce`), and with Spark's own Kafka connector.
- Delays: a stream copies single records from one topic with 3 partitions to another. The delay of a record is the time
  from its production to its consumption by a client. Another stream reads 200 partitions, and its `foreachBatch` calls
  `isEmpty()` and `limit(1).collect()`; the time of each pair of calls is measured.

Jobs and streams are compared with a source of prepared rows (`spark_floor.py`), and with Spark's own Kafka connector
if MINIKAFKA_SPARK_KAFKA_JARS names a directory with the connector's jars.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from benchmarks import report
from benchmarks.spark_floor import ReadyRows, contents
from minikafka.client import Client, NewTopic
from minikafka.spark.records.batches import sections
from minikafka.spark.records.compression import gzip_library
from minikafka.spark.session import session
from minikafka.spark.sink import options as sink_options
from minikafka.spark.sink.writers import write_rows
from minikafka.spark.source import options as source_options
from minikafka.spark.source.fetch import RangesReader
from minikafka.spark.source.planning import connect, plan_batch
from minikafka.spark.source.readers import read_ranges
from minikafka.spark.wire.deadline import Deadline
from minikafka.tools.cluster import LocalCluster

JARS: Final = "MINIKAFKA_SPARK_KAFKA_JARS"
RECORD_BYTES: Final = 124
"""Number of bytes that the sink counts for a record of 100 bytes, to convert `Topic.batch` to a batch size."""
PARTITIONS: Final = 6
MICRO_BATCHES: Final = 3
"""Number of micro-batches of a stream. In the first micro-batch, Spark also compiles the query's code."""
FILL_ROWS: Final = 20_000
WIDE: Final = 200
"""Number of partitions of the topic that `isEmpty` and `limit` look at."""
LOOKS: Final = 5
WARM_RECORDS, COPIED_RECORDS = 10, 40
SERVERS: Final = "kafka.bootstrap.servers"
OURS, CONNECTOR, READY, NOOP = "minikafka", "kafka", "ready", "noop"
ONCE: Final = "exactlyOnce"
CONFLUENT, DECOMPRESSION = "confluent-kafka", "decompression alone"

Rates = dict[str, list[float]]
"""Million rows per second of each round, by reader. For delays: milliseconds."""


class Topic(NamedTuple):
    """A topic with records of 100 bytes, in batches of `batch` records."""

    name: str
    codec: str
    batch: int
    records: int
    partitions: int = 1


def topics(records: int) -> list[Topic]:
    """Return the topics that the decoder reads."""
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    return [
        *(Topic(f"{codec}, 1,000 a batch", codec, 1_000, records) for codec in codecs),
        Topic("gzip, 140 a batch", "gzip", 140, records),
        Topic("lz4, 20 a batch", "lz4", 20, records),
        Topic("none, 1 a batch", "none", 1, records // 4),
    ]


def fill(bootstrap: str, name: str, topic: Topic) -> None:
    """Create the topic `name`, and write the records that `topic` describes."""
    asyncio.run(_create(bootstrap, name, topic.partitions))
    given = {
        SERVERS: bootstrap,
        "topic": name,
        "kafka.compression.type": topic.codec,
        "kafka.batch.size": str(topic.batch * RECORD_BYTES),
    }
    write_rows(sink_options.parse(given), _tables(topic))


async def _create(bootstrap: str, name: str, partitions: int) -> None:
    async with Client(bootstrap) as client:
        await client.create_topics(NewTopic(name, partitions, 1))


def _tables(topic: Topic) -> Iterator[pa.RecordBatch]:
    for first in range(0, topic.records, FILL_ROWS):
        count = min(FILL_ROWS, topic.records - first)
        keys, values = contents(first, count)
        numbers = (np.arange(first, first + count) % topic.partitions).astype(np.int32)
        columns = [keys, values, pa.array(numbers)]
        yield pa.RecordBatch.from_arrays(columns, ["key", "value", "partition"])


def read_here(bootstrap: str, name: str) -> int:
    """Read a topic like a Spark task, but without Spark. Return the number of rows."""
    options = _read_options(bootstrap, name)
    return sum(batch.num_rows for batch in read_ranges(options, plan_batch(options)))


def _read_options(bootstrap: str, name: str) -> source_options.ReadOptions:
    given = {SERVERS: bootstrap, "subscribe": name}
    return source_options.parse(given, source_options.Mode.BATCH)


def responses(bootstrap: str, name: str) -> list[memoryview]:
    """Fetch a topic with one partition from start to end. Return the bytes of the record batches, per response."""
    options = _read_options(bootstrap, name)
    leaders = connect(options)
    deadline = Deadline(60.0)
    try:
        reader = RangesReader(
            leaders,
            plan_batch(options),
            deadline,
            fetch_bytes=options.fetch_bytes,
            fail_on_data_loss=True,
        )
        return [block.response.records for block in reader.blocks()]
    finally:
        leaders.close()


def decompress(blocks: Sequence[memoryview]) -> int:
    """Only decompress all batches. Return the number of records."""
    found = (sections(block, 0, 2**62, None) for block in blocks)
    return sum(section.record_count for block in found for section in block)


def read_confluent(bootstrap: str, name: str, topic: Topic) -> int:
    """Read a topic with confluent-kafka, and access the value of each message. Return the record count."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.assign([TopicPartition(name, 0, 0)])
    size = seen = 0
    while seen < topic.records:
        found = consumer.consume(min(10_000, topic.records - seen), 1.0)
        size += sum(len(message.value() or b"") for message in found)
        seen += len(found)
    consumer.close()
    return seen


def decoder(bootstrap: str, options: argparse.Namespace) -> dict[str, Rates]:
    """Measure and print the records per second of CPU time, for every reader and codec."""
    print(f"gzip by {gzip_library().__name__}", flush=True)
    figures = {}
    for number, topic in enumerate(topics(int(400_000 * options.scale))):
        name = f"decoder-{number}"
        fill(bootstrap, name, topic)
        readers: dict[str, Callable[[], int]] = {
            OURS: partial(read_here, bootstrap, name),
            CONFLUENT: partial(read_confluent, bootstrap, name, topic),
        }
        if topic.codec != "none":
            readers[DECOMPRESSION] = partial(decompress, responses(bootstrap, name))
        rates: Rates = {reader: [] for reader in readers}
        for turn in range(-1, options.rounds):
            for reader, read in readers.items():
                begin = time.process_time()
                count = read()
                spent = time.process_time() - begin
                assert count == topic.records
                if turn >= 0:
                    rates[reader].append(count / spent / 1e6)
        figures[topic.name] = rates
        show(topic.name, rates)
    return figures


class Jobs:
    """The Spark queries to measure. A query with an argument `name` reads all rows of the data source `name`."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], directory: Path) -> None:
        self._spark = spark
        self._options = options
        self._directory = directory
        self._runs = 0

    def _read(self, name: str) -> DataFrame:
        return self._spark.read.format(name).options(**self._options).load()

    def _stream(self, name: str) -> DataFrame:
        options = {**self._options, "startingOffsets": "earliest"}
        return self._spark.readStream.format(name).options(**options).load()

    def count(self, name: str) -> None:
        self._read(name).count()

    def parquet(self, name: str) -> None:
        self._read(name).write.mode("overwrite").parquet(str(self._directory / "table"))

    def stream_count(self, name: str) -> list[Any]:
        """Count rows in a stream. Return Spark's progress report of each micro-batch."""
        counts = self._stream(name).groupBy().count()
        return self._run(counts.writeStream.outputMode("complete"), "noop")

    def stream_parquet(self, name: str) -> list[Any]:
        """Write a stream to Parquet. Return Spark's progress report of each micro-batch."""
        return self._run(self._stream(name).writeStream, "parquet")

    def _run(self, writer: Any, sink: str) -> list[Any]:
        self._runs += 1
        place = self._directory / str(self._runs)
        writer = writer.format(sink).option("path", str(place / "output"))
        writer = writer.option("checkpointLocation", str(place / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(place)
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def copy(self, name: str, topic: str, output: str) -> Any:
        """Start a stream that copies the records of `topic` to the topic `output`. Return the query."""
        settings = {SERVERS: self._options[SERVERS]}
        read = {"subscribe": topic, "startingOffsets": "earliest", **settings}
        rows = self._spark.readStream.format(name).options(**read).load()
        writer = rows.select("key", "value").writeStream.format(name)
        self._runs += 1
        place = self._directory / f"{name}-{self._runs}"
        return writer.options(topic=output, checkpointLocation=str(place), **settings).start()

    def look_times(self, name: str, bootstrap: str) -> list[float]:
        """Call `isEmpty` and `limit` on micro-batches. Return the time of each pair of calls in milliseconds."""
        found: list[float] = []

        def look(batch: DataFrame, number: int) -> None:
            begin = time.perf_counter()
            batch.isEmpty()
            batch.limit(1).collect()
            found.append((time.perf_counter() - begin) * 1e3)

        self._runs += 1
        place = self._directory / f"{name}-{self._runs}"
        writer = self._stream(name).writeStream.foreachBatch(look)
        query = writer.option("checkpointLocation", str(place)).start()
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        while len(found) <= LOOKS:
            seen = len(found)
            for partition in range(WIDE):
                producer.produce(self._options["subscribe"], b"value", partition=partition)
            producer.flush()
            while len(found) == seen:
                query.awaitTermination(1)
        query.stop()
        return found[1:]

    def range_count(self, rows: int) -> None:
        """Count rows that Spark's JVM generates, without a Python data source."""
        self._range(rows).groupBy().count().collect()

    def range_parquet(self, rows: int) -> None:
        """Write rows with the columns of a topic to Parquet. Spark's JVM generates the rows."""
        self._range(rows).write.mode("overwrite").parquet(str(self._directory / "table"))

    def write(self, sink: str, topic: str, codec: str, rows: int) -> None:
        """Append rows that Spark's JVM generates to a topic, with the sink `sink`."""
        made = self._range(rows).select("key", "value").write.format(OURS if sink == ONCE else sink)
        settings = {
            SERVERS: self._options[SERVERS],
            "topic": topic,
            "kafka.compression.type": codec,
        }
        if sink == ONCE:
            settings[ONCE] = "true"
        made.mode("overwrite" if sink == NOOP else "append").options(**settings).save()

    def _range(self, rows: int) -> DataFrame:
        number = "cast(lpad(cast(id AS string), 12, '0') AS binary)"
        random = "md5(cast(id AS string))"
        return self._spark.range(0, rows, 1, PARTITIONS).selectExpr(
            f"{number} AS key",
            f"cast(rpad({random}, 88, {random}) AS binary) AS value",
            "'topic' AS topic",
            "cast(0 AS int) AS partition",
            "id AS offset",
            "timestamp_millis(id) AS timestamp",
            "cast(0 AS int) AS timestampType",
        )


def jobs(bootstrap: str, options: argparse.Namespace) -> dict[str, Rates]:
    """Measure and print the rows per second of every batch query with every source."""
    records = int(2_000_000 * options.scale) // PARTITIONS * PARTITIONS
    fill(bootstrap, "jobs", Topic("jobs", "lz4", 1_000, records, PARTITIONS))
    figures = {}
    with prepared(bootstrap, "jobs", records) as own:
        for title, query, made in (
            ("batch to count", Jobs.count, Jobs.range_count),
            ("batch to Parquet", Jobs.parquet, Jobs.range_parquet),
        ):
            runs = {name: partial(query, jobs, name) for name, jobs in own.items()}
            runs["JVM's own rows"] = partial(made, own[OURS], records)
            figures[title] = rounds(runs, records, options.rounds)
            show(title, figures[title])
    return figures


def streams(bootstrap: str, options: argparse.Namespace) -> dict[str, Rates]:
    """Measure and print the rows per second of every stream with every source. The first round is not counted.

    Each stream has two rates. The rate of the whole query includes the start of the query. The rate of the
    micro-batches after the first one shows how fast a query processes a backlog.
    """
    share = PARTITIONS * MICRO_BATCHES
    records = int(6_000_000 * options.scale) // share * share
    fill(bootstrap, "streams", Topic("streams", "lz4", 1_000, records, PARTITIONS))
    figures: dict[str, Rates] = {}
    limit = {"maxOffsetsPerTrigger": str(records // MICRO_BATCHES)}
    with prepared(bootstrap, "streams", records, limit) as own:
        for title, query in (
            ("stream to count", Jobs.stream_count),
            ("stream to Parquet", Jobs.stream_parquet),
        ):
            whole: Rates = {name: [] for name in own}
            later: Rates = {name: [] for name in own}
            for turn in range(-1, options.rounds):
                for name, source in own.items():
                    begin = time.perf_counter()
                    progress = query(source, name)
                    spent = time.perf_counter() - begin
                    if turn >= 0:
                        whole[name].append(records / spent / 1e6)
                        later[name].append(backlog_rate(progress))
            for suffix, rates in (("", whole), (", later micro-batches", later)):
                figures[title + suffix] = rates
                show(title + suffix, rates)
    return figures


def backlog_rate(progress: Sequence[Any]) -> float:
    """Return the rate of all micro-batches after the first one, in millions of rows per second."""
    assert len(progress) == MICRO_BATCHES
    rows = sum(one.numInputRows for one in progress[1:])
    spent_ms = sum(one.durationMs["triggerExecution"] for one in progress[1:])
    return float(rows / spent_ms / 1e3)


def writes(bootstrap: str, options: argparse.Namespace) -> dict[str, Rates]:
    """Measure and print the rows per second of writes with every sink. The first round is not counted."""
    records = int(1_000_000 * options.scale) // PARTITIONS * PARTITIONS
    figures: dict[str, Rates] = {}
    with prepared(bootstrap, "none", records) as own:
        found = {name: jobs for name, jobs in own.items() if name != READY}
        found |= {ONCE: own[OURS], NOOP: own[OURS]}
        for codec, partitions in (("none", 6), ("lz4", 6), ("none", 200)):
            title = f"write, {codec}, {partitions} partitions"
            rates: Rates = {name: [] for name in found}
            for turn in range(-1, options.rounds):
                for name, jobs in found.items():
                    topic = f"writes-{codec}-{partitions}-{turn}-{name}"
                    asyncio.run(_create(bootstrap, topic, partitions))
                    begin = time.perf_counter()
                    jobs.write(name, topic, codec, records)
                    spent = time.perf_counter() - begin
                    if turn >= 0:
                        rates[name].append(records / spent / 1e6)
            figures[title] = rates
            show(title, rates)
    return figures


def delays(bootstrap: str, options: argparse.Namespace) -> dict[str, Rates]:
    """Measure and print the delays of streams in milliseconds, with every source."""
    copied: Rates = {}
    looked: Rates = {}
    asyncio.run(_create(bootstrap, "delays-wide", WIDE))
    with prepared(bootstrap, "delays-wide", 0) as own:
        names = [name for name in own if name != READY]
        for turn in range(-1, options.rounds):
            for name in names:
                found = copy_delays(own[name], bootstrap, name, f"delays-{turn}-{name}")
                waits = own[name].look_times(name, bootstrap)
                if turn >= 0:
                    copied.setdefault(name, []).append(statistics.median(found))
                    looked.setdefault(name, []).append(statistics.median(waits))
    figures = {"topic to topic": copied, "isEmpty and limit, 200 partitions": looked}
    for title, times in figures.items():
        show_delays(title, times)
    return figures


def copy_delays(jobs: Jobs, bootstrap: str, name: str, topic: str) -> list[float]:
    """Copy single records from `topic` to another topic in a stream. Return their delays in milliseconds."""
    output = f"{topic}-copied"
    for created in (topic, output):
        asyncio.run(_create(bootstrap, created, 3))
    query = jobs.copy(name, topic, output)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": output})
    consumer.assign([TopicPartition(output, partition, 0) for partition in range(3)])
    found = []
    for number in range(-WARM_RECORDS, COPIED_RECORDS):
        begin = time.perf_counter()
        producer.produce(topic, str(number).encode(), partition=number % 3)
        producer.flush()
        message = None
        while message is None or message.value() != str(number).encode():
            message = consumer.poll(60.0)
        if number >= 0:
            found.append((time.perf_counter() - begin) * 1e3)
    consumer.close()
    query.stop()
    return found


def show_delays(title: str, times: Rates) -> None:
    """Print the medians in milliseconds, and minikafka's median divided by every other median."""
    medians = {name: statistics.median(found) for name, found in times.items()}
    cells = [f"{name} {median:.0f} ms" for name, median in medians.items()]
    cells += [f"{medians[OURS] / medians[name]:.2f}x" for name in medians if name != OURS]
    print(f"{title:38} " + "   ".join(cells), flush=True)


@contextmanager
def prepared(
    bootstrap: str, topic: str, records: int, more: Mapping[str, str] | None = None
) -> Iterator[dict[str, Jobs]]:
    """Start Spark, and yield a mapping from the name of each data source to its queries (`Jobs`)."""
    found = sorted(map(str, Path(os.environ.get(JARS) or os.devnull).glob("*.jar")))
    spark = session("rates", "local[2]", **({"spark_jars": ",".join(found)} if found else {}))
    spark.dataSource.register(ReadyRows)
    given = {SERVERS: bootstrap, "subscribe": topic, **(more or {})}
    ready = {"rows": str(records), "partitions": str(PARTITIONS), **(more or {})}
    names = [OURS, *([CONNECTOR] if found else []), READY]
    with tempfile.TemporaryDirectory(prefix="spark-rates-") as directory:
        place = Path(directory)
        yield {name: Jobs(spark, ready if name == READY else given, place) for name in names}
    spark.stop()


def rounds(runs: Mapping[str, Callable[[], None]], records: int, count: int) -> Rates:
    """Call the functions `runs` in turn, in `count` rounds. Return their rates in million records per second.

    Two more rounds come first. These rounds are not counted, because the JVM still compiles frequently used code.
    """
    rates: Rates = {name: [] for name in runs}
    for turn in range(-2, count):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            spent = time.perf_counter() - begin
            if turn >= 0:
                rates[name].append(records / spent / 1e6)
    return rates


def show(title: str, rates: Rates) -> None:
    """Print the medians in million rows per second, and the ratio of minikafka's median to every other median."""
    medians = {name: statistics.median(found) for name, found in rates.items()}
    cells = [f"{OURS} {medians[OURS]:.2f} M/s"]
    for name, median in medians.items():
        if name != OURS:
            cells.append(f"{name} {median:.2f} M/s ({medians[OURS] / median:.2f}x)")
    print(f"{title:38} " + "   ".join(cells), flush=True)


PARTS: Final = {
    "decoder": decoder,
    "jobs": jobs,
    "streams": streams,
    "writes": writes,
    "delays": delays,
}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_rates", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds of every measurement (default: 5)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of records (default: 1)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    options = parser.parse_args()
    machine = report.machine()
    print(machine, flush=True)
    with LocalCluster(1, config={"zookeeper.session.timeout.ms": 6_000}) as cluster:
        figures = {
            title: rates
            for name, measure in PARTS.items()
            if options.only in (None, name)
            for title, rates in measure(cluster.bootstrap, options).items()
        }
    if options.json is not None:
        report.append(options.json, {"machine": machine, "spark": figures})


if __name__ == "__main__":
    main()
