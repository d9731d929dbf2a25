"""Spark's own Kafka connector next to this project's data source, for tests that compare the two.

MINIKAFKA_SPARK_KAFKA_JARS names a directory with four jars: spark-sql-kafka-0-10_2.13,
spark-token-provider-kafka-0-10_2.13, kafka-clients and commons-pool2.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

VARIABLE: Final = "MINIKAFKA_SPARK_KAFKA_JARS"
JARS: Final = sorted(map(str, Path(os.environ.get(VARIABLE) or os.devnull).glob("*.jar")))

needs_connector = pytest.mark.skipif(
    not any("spark-sql-kafka" in jar for jar in JARS),
    reason=f"{VARIABLE} names no directory with the jars of Spark's Kafka connector",
)


def with_connector() -> dict[str, str]:
    """Return the Spark session settings that put the connector's jars on the class path."""
    return {"spark_jars": ",".join(JARS)} if JARS else {}


class Formats:
    """Reads and writes through the format `name`: "kafka" is Spark's connector, "minikafka" is our data source."""

    def __init__(self, spark: Any, bootstrap: str) -> None:
        self.spark = spark
        self._servers = {"kafka.bootstrap.servers": bootstrap}

    def load(self, name: str, **given: str) -> Any:
        """Return the table of a batch read."""
        return self.spark.read.format(name).options(**self._servers | given).load()

    def rows(self, name: str, **given: str) -> list[dict[str, Any]]:
        """Return the rows of a batch read, with all columns, in order of topic, partition and offset."""
        return ordered(self.load(name, **given))

    def splits(self, name: str, **given: str) -> list[tuple[str, int, int, int]]:
        """Return topic, partition, first and last offset of each task of a batch read."""
        self.load(name, **given).createOrReplaceTempView("splits")
        found = self.spark.sql(
            "SELECT topic, partition, min(offset), max(offset) FROM splits"
            " GROUP BY spark_partition_id(), topic, partition"
        )
        return sorted(tuple(row) for row in found.collect())

    def save(self, name: str, frame: Any, **given: str) -> None:
        """Append the rows of a DataFrame to topics."""
        frame.write.format(name).mode("append").options(**self._servers | given).save()

    def copy(self, source: str, sink: str, checkpoint: Path, given: dict, to: str) -> list[int]:
        """Copy records to the topic `to` with a stream; return the number of rows of each micro-batch.

        `given`: the options of the source, which select the records.
        """
        frame = self.spark.readStream.format(source).options(**self._servers | given).load()
        wanted = "key", "value", "headers"
        writer = frame.select(*wanted).writeStream.format(sink).options(**self._servers, topic=to)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress]


def ordered(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame in order of topic, partition and offset."""
    rows = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
