"""The driver of lakehouse-deaths: streams from one topic to a table of Delta Lake and to one of Iceberg.

    python lakehouse_deaths_driver.py BOOTSTRAP DIRECTORY CATALOG

CATALOG is the address of a REST catalog for Iceberg, or empty. The driver prints `{"batch": N, "table": FORMAT}` for
each micro-batch that a table has got, and ends when a line arrives on standard input and all existing records are in
both tables. After an error, it exits with a traceback and code 1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from queue import Queue
from threading import Thread

from lakehouse_engines import settings_of
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from spark_deaths_driver import SETTINGS, has_line, read_lines, say, source

from minikafka.runtime.spawning import die_with
from minikafka.spark.lakehouse.tables import FORMATS
from minikafka.spark.pipelines.streams.lakes import LakeStream
from minikafka.spark.session import session


def main(bootstrap: str, directory: Path, catalog: str) -> None:
    """Run both streams until a line arrives and all records are written."""
    die_with(os.getppid())
    warehouse = {"spark.sql.warehouse.dir": str(directory / "warehouse")}
    spark = session("lakehouse-deaths", "local[2,4]", **SETTINGS, **warehouse)
    lines: Queue[str] = Queue()
    Thread(target=read_lines, args=(lines,), daemon=True).start()
    queries = [start(spark, bootstrap, directory, name, catalog) for name in FORMATS]
    last = dict.fromkeys(FORMATS, -1)
    while not has_line(lines):
        for name, query in zip(FORMATS, queries, strict=True):
            if error := query.exception():
                raise error
            progress = query.lastProgress
            if progress is not None and progress.numInputRows and progress.batchId != last[name]:
                last[name] = progress.batchId
                say(batch=progress.batchId, table=name)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    say(finished=True)
    spark.stop()


def start(
    spark: SparkSession, bootstrap: str, directory: Path, name: str, catalog: str
) -> StreamingQuery:
    """Start the stream to the table of a format."""
    checkpoint = str(directory / f"{name}-checkpoint")
    settings = settings_of(directory, "stream", name, catalog)
    rows = source(spark, bootstrap).select("topic", "partition", "offset", "timestamp", "value")
    writer = rows.writeStream.foreachBatch(LakeStream(spark, settings, checkpoint))
    return writer.option("checkpointLocation", checkpoint).start()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
