"""The PySpark job of quickstart: reads the topic as a stream, then as a table to join with the source lines.

    python quickstart_spark.py SOURCE.parquet RESULT_DIRECTORY BOOTSTRAP TOPIC

The job starts the stream while records still arrive, and prints one line when the stream runs. A line on standard
input tells the job that the topic is complete. The job then prints one line of JSON with the totals of the stream,
the verdict of `minikafka.spark.verify`, and a checksum of the table. The job ends when its parent process ends.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from minikafka.runtime.spawning import die_with
from minikafka.spark.session import session
from minikafka.spark.verify import verify

MAX_OFFSETS = "100000"
EVERY = "1 second"
"""Interval of the micro-batches. Spark keeps the progress of only the last 100 micro-batches."""


def main(source: str, result: str, bootstrap: str, topic: str) -> None:
    """Start a session and the stream, wait until the topic is complete, verify the topic, print the result."""
    die_with(os.getppid())
    spark = session("minikafka quickstart", spark_sql_warehouse_dir=f"{result}.warehouse")
    stream = follow(spark, bootstrap, topic, f"{result}.checkpoint")
    _say({"lines": spark.read.parquet(source).count()})
    if sys.stdin.readline():
        streamed = finish(stream)
        found = verify(spark, bootstrap, topic, source, result)
        total = checksum(spark.read.parquet(result))
        _say(streamed | asdict(found) | {"ok": found.ok, "checksum": total})
    spark.stop()


def follow(spark: SparkSession, bootstrap: str, topic: str, checkpoint: str) -> StreamingQuery:
    """Start a stream that reads the topic from its start and computes a count and a checksum of each micro-batch."""
    reader = spark.readStream.format("minikafka").option("kafka.bootstrap.servers", bootstrap)
    records = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    records = records.option("maxOffsetsPerTrigger", MAX_OFFSETS).load()
    named = records.withColumn("file", f.col("key").cast("string"))
    counted = named.observe(
        "streamed", f.count("*").alias("records"), f.sum(_crc()).alias("checksum")
    )
    writer = counted.writeStream.format("noop").trigger(processingTime=EVERY)
    return writer.option("checkpointLocation", checkpoint).start()


def finish(stream: StreamingQuery) -> dict[str, int]:
    """Wait until the stream has read the whole topic, and return the totals of the stream."""
    stream.processAllAvailable()
    stream.stop()
    batches = [found for found in stream.recentProgress if found.numInputRows]
    seen = [batch.observedMetrics["streamed"] for batch in batches]
    return {
        "micro_batches": len(batches),
        "streamed": sum(row["records"] for row in seen),
        "stream_checksum": sum(row["checksum"] or 0 for row in seen),
    }


def checksum(table: DataFrame) -> int:
    """Return a checksum of the table: of value, file, partition and offset of every record."""
    [row] = table.agg(f.sum(_crc())).collect()
    return row[0] or 0


def _crc() -> Column:
    place = f.encode(f.concat_ws(" ", "file", "partition", "offset"), "utf-8")
    return f.crc32(f.concat("value", place))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
