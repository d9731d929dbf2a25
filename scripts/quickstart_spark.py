"""The PySpark job of quickstart: the topic as a table, joined with the source lines, written as Parquet.

    python quickstart_spark.py SOURCE.parquet RESULT_DIRECTORY

Starts its session, says so in a line, then waits for one line on stdin: {"bootstrap": …, "topic": …}.
Prints the totals of what it wrote as one line of JSON. Ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from minikafka.cluster.processes import die_with
from minikafka.spark.session import session


def main(source_file: str, result: str) -> None:
    """Warm up while the cluster is being worked with, read when told to."""
    die_with(os.getppid())
    spark = session("minikafka quickstart")
    source = spark.read.parquet(source_file)
    _say({"lines": source.count()})
    wanted = json.loads(sys.stdin.readline() or "null")
    if wanted is not None:
        compare(spark, source, wanted["bootstrap"], wanted["topic"]).write.parquet(result)
        _say(totals(spark.read.parquet(result)))
    spark.stop()


def compare(spark: SparkSession, source: DataFrame, bootstrap: str, topic: str) -> DataFrame:
    """One row per line of a file, or record of the topic, that the other side has or lacks."""
    by_file = Window.partitionBy("file").orderBy("partition", "offset")
    records = (
        spark.read.format("minikafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
        .select(F.col("key").cast("string").alias("file"), "partition", "offset", "value")
        .withColumn("position", F.row_number().over(by_file) - 1)
    )
    joined = source.join(records, ["file", "position"], "full_outer")
    return joined.withColumn("agrees", F.coalesce(F.col("line") == F.col("value"), F.lit(False)))


def totals(table: DataFrame) -> dict[str, int]:
    """What the written table says; `checksum` covers the bytes, file, partition and offset of each record."""
    place = F.encode(F.concat_ws(" ", "file", "partition", "offset"), "utf-8")
    row = table.agg(
        F.count("value").alias("records"),
        F.count("line").alias("lines"),
        F.count_if("agrees").alias("agreeing"),
        F.sum(F.crc32(F.concat("value", place))).alias("checksum"),
    ).collect()[0]
    return {name: value or 0 for name, value in row.asDict().items()}


def _say(answer: dict[str, int]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
