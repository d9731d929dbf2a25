"""The driver of spark-deaths: two streams from one topic, to Parquet and to another topic.

    python spark_deaths_driver.py BOOTSTRAP MASTER DIRECTORY

Prints `{"copied": N}` for each micro-batch that reached the other topic. A line on standard input ends
it: the streams process what is there, the rows of the Parquet table go to `rows.parquet`, and the
process prints `{"rows": N}`. An error of a stream ends it with a traceback and exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from minikafka.cluster.processes import die_with
from minikafka.spark.session import session

SOURCE = "deaths"
COPY = "deaths-copy"
ORIGIN = "origin"
MAX_OFFSETS = "50000"
POLL_SECONDS = 0.2
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    # Executors that a test kills must not use up the application's limit of failures.
    "spark.deploy.maxExecutorRetries": "-1",
}


def main(bootstrap: str, master: str, directory: Path) -> None:
    """Run both streams until a line arrives on standard input."""
    die_with(os.getppid())
    is_local = master.startswith("local")
    addresses = {} if is_local else {"spark.driver.host": "127.0.0.1"}
    spark = session("spark-deaths", master, **(SETTINGS | addresses))
    copying = to_topic(spark, bootstrap, directory / "copy-checkpoint")
    # Two queries that start at once have failed with OptionalDataException in the executors: Spark seems to
    # serialize the environment of the Python source for one while it sets it up for the other.
    wait_for_first_batch(copying)
    archiving = to_parquet(spark, bootstrap, directory)
    follow(copying, archiving)
    for query in (archiving, copying):
        query.processAllAvailable()
        query.stop()
    table = spark.read.parquet(str(directory / "table")).select("partition", "offset", "value")
    rows = table.toArrow()
    pq.write_table(rows, directory / "rows.parquet")
    say(rows=rows.num_rows)
    spark.stop()


def source(spark: SparkSession, bootstrap: str):  # noqa: ANN201 - a DataFrame
    """Return the stream of the source topic from its start."""
    reader = spark.readStream.format("minikafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", SOURCE).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", MAX_OFFSETS).load()


def to_parquet(spark: SparkSession, bootstrap: str, directory: Path) -> StreamingQuery:
    """Start the stream to Parquet."""
    writer = source(spark, bootstrap).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(directory / "table-checkpoint"))
    return writer.option("path", str(directory / "table")).start()


def to_topic(spark: SparkSession, bootstrap: str, checkpoint: Path) -> StreamingQuery:
    """Start the stream to the other topic; each value names the record's place in the source."""
    named = "concat(cast(concat(partition, ':', offset, ':') as binary), value) as value"
    writer = source(spark, bootstrap).selectExpr("key", named).writeStream.format("minikafka")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", COPY)
    writer = writer.option("originHeader", ORIGIN).option("checkpointLocation", str(checkpoint))
    return writer.start()


def follow(copying: StreamingQuery, archiving: StreamingQuery) -> None:
    """Print the micro-batches of the copying stream until a line arrives; raise a stream's error."""
    finish = threading.Event()
    threading.Thread(target=wait_for_line, args=(finish,), daemon=True).start()
    last = -1
    while not finish.wait(POLL_SECONDS):
        for query in (copying, archiving):
            if error := query.exception():
                raise error
        progress = copying.lastProgress
        if progress is not None and progress.numInputRows and progress.batchId != last:
            last = progress.batchId
            say(copied=progress.numInputRows)


def wait_for_first_batch(query: StreamingQuery) -> None:
    """Return when the query has processed a micro-batch; raise its error."""
    while query.lastProgress is None and not query.awaitTermination(POLL_SECONDS):
        pass


def wait_for_line(finish: threading.Event) -> None:
    """Set the event when a line arrives on standard input."""
    sys.stdin.readline()
    finish.set()


def say(**facts: int) -> None:
    """Print one line of JSON."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
