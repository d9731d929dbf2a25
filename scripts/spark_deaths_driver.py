"""The driver of spark-deaths: three streams from one topic, to Parquet and to other topics.

    python spark_deaths_driver.py BOOTSTRAP MASTER DIRECTORY TOPIC…

One topic is written at least once, the others (TOPIC…) exactly once: with several, in one `foreachBatch`. The driver
prints `{"copied": N}` for each micro-batch that was written exactly once. The driver reads two lines from standard
input. After the first line, the driver processes all existing records, stops the streams, writes the rows of the
Parquet table to `rows.parquet`, and prints `{"rows": N}`. The second line has the settings of
`minikafka pipeline check` as JSON. After the second line, the driver runs this check, prints the check's JSON document
and exits. After an error, the driver exits with a traceback and code 1.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from spark_deaths_sink import DyingSource

from minikafka.checks.replicas.pipeline import CheckSettings, run
from minikafka.runtime.spawning import die_with
from minikafka.spark.pipelines.session.report import Report
from minikafka.spark.pipelines.streams.tables import TableSettings, table_stream
from minikafka.spark.session import session

SOURCE = "deaths"
COPY = "deaths-copy"
ONCE = "deaths-once"
ONCE_TOO = "deaths-once-too"
ORIGIN = "origin"
COPY_CHECKPOINT = "copy-checkpoint"
ONCE_CHECKPOINT = "once-checkpoint"
TABLE_CHECKPOINT = "table-checkpoint"
NAMED = "concat(cast(concat(partition, ':', offset, ':') as binary), value) as value"
MAX_OFFSETS = "50000"
POLL_SECONDS = 0.2
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.executor.memory": "512m",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    # No limit, because Spark would count killed executors as failures of the application.
    "spark.deploy.maxExecutorRetries": "-1",
}


def main(bootstrap: str, master: str, directory: Path, topics: Sequence[str]) -> None:
    """Run all streams until a line arrives on standard input, then run `minikafka pipeline check`.

    The second line on standard input has the settings of the check.
    """
    die_with(os.getppid())
    is_local = master.startswith("local")
    more = {} if is_local else {"spark.driver.host": "127.0.0.1"}
    more["spark.sql.warehouse.dir"] = str(directory / "warehouse")
    spark = session("spark-deaths", master, **SETTINGS, **more)
    spark.dataSource.register(DyingSource)
    origin = {"topic": COPY, "originHeader": ORIGIN}
    copying = to_topic(spark, bootstrap, directory / COPY_CHECKPOINT, "minikafka", origin)
    # The executors of a standalone cluster have only the modules of minikafka.
    sink = "dying" if is_local else "minikafka"
    write_once = to_topic_once if len(topics) == 1 else to_topics_once
    writing_once = write_once(spark, bootstrap, directory / ONCE_CHECKPOINT, sink, topics)
    lines: Queue[str] = Queue()
    threading.Thread(target=read_lines, args=(lines,), daemon=True).start()
    table = TableSettings(str(directory / "table"))
    with table_stream(spark, table, str(directory / TABLE_CHECKPOINT)) as add:
        archiving = to_parquet(spark, bootstrap, directory / TABLE_CHECKPOINT, add)
        follow(writing_once, (copying, archiving), lines)
        for query in (archiving, copying, writing_once):
            query.processAllAvailable()
            query.stop()
    # pyarrow reads every file under a final name, so a file of a killed micro-batch would be found.
    rows = ds.dataset(directory / "table").to_table(columns=["partition", "offset", "value"])
    pq.write_table(rows, directory / "rows.parquet")
    say(rows=rows.num_rows)
    settings = {name: tuple(paths) for name, paths in json.loads(lines.get()).items()}
    say(**run(spark, CheckSettings(**settings), Report()).document())
    spark.stop()


def source(spark: SparkSession, bootstrap: str):  # noqa: ANN201 - a DataFrame
    """Return a stream that reads the source topic from the start."""
    reader = spark.readStream.format("minikafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", SOURCE).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", MAX_OFFSETS).load()


def to_parquet(
    spark: SparkSession, bootstrap: str, checkpoint: Path, add: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the stream to Parquet. `add`: the function that adds a micro-batch to the table."""
    writer = source(spark, bootstrap).writeStream.foreachBatch(add)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def to_topic(
    spark: SparkSession, bootstrap: str, checkpoint: Path, sink: str, options: Mapping[str, str]
) -> StreamingQuery:
    """Start a stream to a topic. Each value begins with the partition and offset of the source record."""
    writer = source(spark, bootstrap).selectExpr("key", NAMED).writeStream.format(sink)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).options(**options)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def to_topic_once(
    spark: SparkSession, bootstrap: str, checkpoint: Path, sink: str, topics: Sequence[str]
) -> StreamingQuery:
    """Start a stream that writes to the only topic of `topics` exactly once."""
    return to_topic(spark, bootstrap, checkpoint, sink, once(topics[0]))


def to_topics_once(
    spark: SparkSession, bootstrap: str, checkpoint: Path, sink: str, topics: Sequence[str]
) -> StreamingQuery:
    """Start a stream that writes to each of the topics exactly once, one after the other."""

    def each(batch: DataFrame, _: int) -> None:
        for topic in topics:
            writer = batch.write.format(sink).mode("append").options(**once(topic))
            writer = writer.option("transactionalIdPrefix", topic)
            writer = writer.option("checkpointLocation", str(checkpoint))
            writer.option("kafka.bootstrap.servers", bootstrap).save()

    writer = source(spark, bootstrap).selectExpr("key", NAMED).writeStream.foreachBatch(each)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def once(topic: str) -> dict[str, str]:
    """Return the options of a write to a topic exactly once."""
    return {"topic": topic, "exactlyOnce": "true"}


def follow(shown: StreamingQuery, others: Sequence[StreamingQuery], lines: Queue[str]) -> None:
    """Print the row counts of the micro-batches of the stream `shown`, until the queue `lines` has a line.

    If a stream has failed, raises the error of this stream.
    """
    last = -1
    while not has_line(lines):
        for query in (shown, *others):
            if error := query.exception():
                raise error
        progress = shown.lastProgress
        if progress is not None and progress.numInputRows and progress.batchId != last:
            last = progress.batchId
            say(copied=progress.numInputRows)


def read_lines(lines: Queue[str]) -> None:
    """Put each line of standard input into the queue."""
    for line in sys.stdin:
        lines.put(line)


def has_line(lines: Queue[str]) -> bool:
    """Wait briefly for a line. Return True if a line arrived."""
    try:
        lines.get(timeout=POLL_SECONDS)
    except Empty:
        return False
    return True


def say(**facts: object) -> None:
    """Print one line of JSON."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
