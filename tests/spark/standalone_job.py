"""A plain PySpark job, as users submit it: a batch read with SQL, and a stream from topic to topic.

    spark-submit --master M --py-files minikafka-spark.zip standalone_job.py BOOTSTRAP CHECKPOINT OUTPUT

The job writes its results to OUTPUT as JSON, with the executors on which the batch read ran.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType


@f.udf(StringType())
def where(_: int) -> str:
    """Return the working directory of the task, which identifies the executor."""
    return os.getcwd()


def main(bootstrap: str, checkpoint: str, output: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    servers = {"kafka.bootstrap.servers": bootstrap}
    spark.sql(
        "CREATE TEMPORARY VIEW records USING minikafka "
        f"OPTIONS ('kafka.bootstrap.servers' '{bootstrap}', 'subscribe' 'lines')"
    )
    rows = spark.table("records")
    read = rows.select("partition", "offset", where("partition").alias("at")).collect()
    found = {
        "batch": sorted((row["partition"], row["offset"]) for row in read),
        "executors": sorted({row["at"] for row in read}),
    }
    stream = spark.readStream.format("minikafka").options(**servers, subscribe="lines")
    frame = stream.option("startingOffsets", "earliest").load()
    writer = frame.select("key", "value", where("partition").alias("at")).selectExpr(
        "key", "value", "array(struct('at' AS key, cast(at AS binary) AS value)) AS headers"
    )
    sink = writer.writeStream.format("minikafka").options(**servers, topic="copies")
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    found["batches"] = [progress.numInputRows for progress in query.recentProgress]
    with open(output, "w") as file:
        json.dump(found, file)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
