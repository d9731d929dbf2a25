"""The logs of all replicas as tables: batches, limits of each replica, groups of equal batches, records.

A batch with the same bytes on several replicas is decoded once. Invariant: a batch is `shared` only if every
replica that must hold the batch's offsets has the same bytes. The records of all other batches are compared
one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from minikafka.checks.replicas.log_directories import CheckedReplica, SegmentFile
from minikafka.kafka.records.header import CONTROL, TRANSACTIONAL
from minikafka.kafka.records.transactions import VISIBLE
from minikafka.spark.frames import map_in_arrow
from minikafka.spark.replicas import (
    BATCHES,
    CHOSEN,
    RECORDS,
    SEGMENTS,
    STATES,
    read_faults,
    read_headers,
    read_records,
    read_states,
)

PARTITION: Final = ("topic", "partition")
LIMITS: Final = (
    "broker int, topic string, partition int, start long, dense_from long, high_watermark long, end long,"
    " torn_from long, committed long"
)
_TASK_BYTES: Final = 64 << 20
"""Approximate number of bytes of segment files that one task reads."""


@dataclass(frozen=True)
class Limits:
    """The offsets up to which one replica is checked."""

    replica: CheckedReplica
    end: int
    """Offset after the last valid batch."""

    @property
    def high_watermark(self) -> int:
        """The checkpointed high watermark; without a checkpoint, the end of the log."""
        known = self.replica.high_watermark
        return self.end if known is None else known


def batches(spark: SparkSession, segments: Sequence[SegmentFile]) -> DataFrame:
    """Return the batches of all segment files. For an invalid batch, the column `fault` has the reason."""
    largest_first = sorted(segments, key=lambda segment: -segment.size)
    rows = [segment[:5] for segment in largest_first]
    tasks = _tasks(spark, sum(segment.size for segment in segments), len(segments))
    table = spark.createDataFrame(rows, SEGMENTS).repartition(tasks)
    return map_in_arrow(table, read_headers, BATCHES)


def _tasks(spark: SparkSession, size: int, most: int) -> int:
    cores = spark.sparkContext.defaultParallelism
    return max(1, min(most, max(2 * cores, size // _TASK_BYTES)))


def limits(found: DataFrame, replicas: Sequence[CheckedReplica]) -> list[Limits]:
    """Return one `Limits` per replica. `found`: all batches, of which the valid ones determine the end of each log."""
    valid = found.where(f.col("fault").isNull()).groupBy("broker", *PARTITION)
    rows = valid.agg((f.max("last_offset") + 1).alias("end")).collect()
    ends = {(row.broker, row.topic, row.partition): row.end for row in rows}
    return [Limits(one, max(ends.get(one[:3], 0), one.start)) for one in replicas]


def limits_table(spark: SparkSession, known: Sequence[Limits]) -> DataFrame:
    """Return a table with one row per replica. The columns are in `LIMITS`.

    Column `committed`: the highest of the high watermarks of the partition's replicas.
    """
    committed: dict[tuple[str, int], int] = {}
    for one in known:
        tp = one.replica.topic, one.replica.partition
        committed[tp] = max(committed.get(tp, 0), one.high_watermark)
    rows = [
        (
            *one.replica[:5],
            one.high_watermark,
            one.end,
            one.replica.torn_from,
            committed[one.replica.topic, one.replica.partition],
        )
        for one in known
    ]
    return spark.createDataFrame(rows, LIMITS)


def valid_batches(found: DataFrame) -> DataFrame:
    """Return the valid batches with the column `state`: visible, aborted or open (`kafka/records/transactions.py`)."""
    valid = found.where(f.col("fault").isNull())
    is_data = (_bits(TRANSACTIONAL) != 0) & (_bits(CONTROL) == 0)
    plain = valid.where(~is_data & f.col("marker").isNull()).withColumn("state", f.lit(VISIBLE))
    log = ("broker", *PARTITION)
    of_transactions = valid.where(is_data | f.col("marker").isNotNull()).repartition(*log)
    in_order = of_transactions.sortWithinPartitions(*log, "base_offset")
    return plain.unionByName(map_in_arrow(in_order, read_states, STATES))


def _bits(mask: int) -> Column:
    return f.col("attributes").bitwiseAND(f.lit(mask))


def is_control() -> Column:
    """True for control batches and their records."""
    return _bits(CONTROL) != 0


def groups(valid: DataFrame, table: DataFrame) -> DataFrame:
    """Return one row for each distinct batch, with the brokers that have the batch.

    The column `shared` is true if every replica that must hold the batch's offsets has the batch. A batch that
    starts at or above a replica's own high watermark does not count for that replica, if the whole batch is below
    the high watermark of another replica.
    """
    own = f.broadcast(table.select("broker", *PARTITION, "start", "high_watermark", "committed"))
    counting = valid.join(own, ["broker", *PARTITION]).where(
        (f.col("base_offset") < f.col("high_watermark"))
        | (f.col("last_offset") >= f.col("committed"))
    )
    facts = ("leader_epoch", "attributes", "producer_id", "producer_epoch", "base_sequence")
    grouped = counting.groupBy(*PARTITION, "base_offset", "last_offset", "digest").agg(
        f.array_sort(f.collect_set("broker")).alias("brokers"),
        f.min(f.struct("path", "position", "size")).alias("place"),
        *(f.first(name).alias(name) for name in (*facts, "record_count", "committed")),
        f.min("state").alias("state"),
    )
    all_limits = table.groupBy(*PARTITION).agg(
        f.collect_list(f.struct("broker", "start", "high_watermark")).alias("replicas")
    )
    joined = grouped.join(f.broadcast(all_limits), list(PARTITION))
    return joined.select("*", "place.*", _is_shared().alias("shared")).drop("place", "replicas")


def _is_shared() -> Column:
    base, last, brokers = f.col("base_offset"), f.col("last_offset"), f.col("brokers")
    is_held = f.forall(
        "replicas",
        lambda one: (
            (one.high_watermark <= base)
            | (one.start > last)
            | f.array_contains(brokers, one.broker)
        ),
    )
    return is_held & (last < f.col("committed"))


def records(spark: SparkSession, chosen: DataFrame, size: int) -> DataFrame:
    """Return the records of distinct batches.

    The column `brokers` lists the brokers that have the record's batch. The column is null if every replica that
    must have the batch has it (`shared`).
    """
    brokers = f.when(f.col("shared"), None).otherwise(f.col("brokers"))
    table = _in_file_order(spark, chosen.withColumn("brokers", brokers), size)
    return map_in_arrow(table, read_records, RECORDS)


def undecodable(spark: SparkSession, chosen: DataFrame, size: int) -> DataFrame:
    """Return one row for each distinct batch whose records cannot be decoded, with the reason in `fault`."""
    return map_in_arrow(_in_file_order(spark, chosen, size), read_faults, RECORDS)


def _in_file_order(spark: SparkSession, chosen: DataFrame, size: int) -> DataFrame:
    """Return the batches that hold records, sorted by file and position within each Spark task."""
    place = ("path", "position")
    table = chosen.where("record_count > 0").select(*CHOSEN)
    tasks = _tasks(spark, size, max(1, size))
    return table.repartitionByRange(tasks, *place).sortWithinPartitions(*place)
