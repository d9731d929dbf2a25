"""A plain PySpark job, as users submit it: a batch read with SQL, and a stream from topic to topic.

    spark-submit --master M --py-files minikafka-spark.zip standalone_job.py OPTIONS CHECKPOINT OUTPUT

OPTIONS is a file with the options of the source and of the sink as JSON. The job writes its results to OUTPUT as JSON,
with the executors on which the batch read ran.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType


@f.udf(StringType())
def where(_: int) -> str:
    """Return the working directory of the task, which identifies the executor."""
    return os.getcwd()


def main(options: str, checkpoint: str, output: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    given = json.loads(Path(options).read_text())
    listed = ", ".join(f"'{name}' '{value}'" for name, value in given["source"].items())
    spark.sql(f"CREATE TEMPORARY VIEW records USING minikafka OPTIONS ({listed})")
    rows = spark.table("records")
    read = rows.select("partition", "offset", where("partition").alias("at")).collect()
    found = {
        "batch": sorted((row["partition"], row["offset"]) for row in read),
        "executors": sorted({row["at"] for row in read}),
    }
    stream = spark.readStream.format("minikafka").options(**given["source"])
    frame = stream.option("startingOffsets", "earliest").load()
    sink = frame.select("key", "value").writeStream.format("minikafka").options(**given["sink"])
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    found["batches"] = [progress.numInputRows for progress in query.recentProgress]
    Path(output).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
