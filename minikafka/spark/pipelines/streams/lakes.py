"""Streams into tables of Delta Lake and Iceberg."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from minikafka.spark.lakehouse.append import LakeWriter, StreamBatch
from minikafka.spark.lakehouse.tables import LakeSettings
from minikafka.spark.micro_batches import plan_of
from minikafka.spark.pipelines.streams.checkpoints import planned_offsets, query_id


class LakeStream:
    """The function for `foreachBatch` that adds the micro-batches of a stream to a table.

    `rows` and `nulled`: the numbers of rows that this run has added, and of their times that became null.
    Raises `OtherStream` if the table holds the rows of another stream.
    """

    def __init__(self, spark: SparkSession, settings: LakeSettings, checkpoint: str) -> None:
        self._writer = LakeWriter(settings)
        self._checkpoint = checkpoint
        self._writer.check_query(query_id(spark, checkpoint), checkpoint)
        self.rows = 0
        self.nulled = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Add the rows of a micro-batch."""
        spark = frame.sparkSession
        query = query_id(spark, self._checkpoint)
        assert query is not None, "Spark writes the id before the first micro-batch"
        plan = plan_of(planned_offsets(spark, self._checkpoint, batch)).digest
        found = StreamBatch(query, batch, plan, self._checkpoint)
        added = self._writer.add_micro_batch(frame, found)
        self.rows += added.rows
        self.nulled += added.nulled
