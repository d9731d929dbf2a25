"""The checks that read only the logs of the replicas, without histories of producers or consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from minikafka.pipeline.check.anomalies import finding
from minikafka.pipeline.check.logs import PARTITION, Limits

_REPLICA: Final = ("broker", *PARTITION)
_HALF_SEQUENCES: Final = 1 << 30
"""Half the range of sequence numbers. A larger decrease is the wrap from 2,147,483,647 to 0."""
_VARYING: Final = 0x47
"""Attribute bits that may differ on a compacted replica: the codec, and the delete horizon flag."""


def batch_findings(found: DataFrame, table: DataFrame) -> Iterator[DataFrame]:
    """Yield tables of the anomalies in batch headers. An anomaly on several replicas is one row."""
    limits = f.broadcast(table.select(*_REPLICA, "dense_from", "start", "end", "torn_from"))
    joined = found.join(limits, list(_REPLICA))
    is_torn = f.col("fault").isNotNull() & (f.col("base_offset") >= f.greatest("torn_from", "end"))
    is_torn &= f.col("torn_from").isNotNull()
    whole = joined.where(~f.coalesce(is_torn, f.lit(False)))
    faulty = whole.where(f.col("fault").isNotNull())
    yield _of_replicas(faulty, "corrupt", detail=f.col("fault"))
    before = Window.partitionBy(*_REPLICA).orderBy("position_of_segment", "position")
    in_order = whole.withColumn(
        "position_of_segment", f.regexp_extract("path", r"(\d{20})\.log$", 1)
    )
    in_order = in_order.withColumn("previous_end", f.lag("last_offset").over(before) + 1)
    in_order = in_order.withColumn("previous_epoch", f.lag("leader_epoch").over(before))
    yield from _order_findings(in_order)
    yield _sequence_findings(whole.where("fault IS NULL AND base_sequence >= 0"))


def _order_findings(in_order: DataFrame) -> Iterator[DataFrame]:
    base, end = f.col("base_offset"), f.col("last_offset") + 1
    expected = f.greatest(f.coalesce("previous_end", "start"), f.col("dense_from"))
    missing = base - expected
    yield _of_replicas(
        in_order.where(missing > 0), "gaps", offset=expected, count=missing, detail=_until(base)
    )
    inside = end - base - f.col("record_count")
    hollow = (inside > 0) & (base >= f.col("dense_from")) & f.col("fault").isNull()
    yield _of_replicas(in_order.where(hollow), "gaps", count=inside, detail=f.lit("within a batch"))
    yield _of_replicas(in_order.where(base < f.col("previous_end")), "overlapping")
    lower = in_order.where("fault IS NULL AND leader_epoch < previous_epoch")
    text = f.format_string("epoch %d after epoch %d", "leader_epoch", "previous_epoch")
    yield _of_replicas(lower, "epochs_decreasing", detail=text)


def _until(end: Column) -> Column:
    return f.format_string("none until %d", end)


def _sequence_findings(batches: DataFrame) -> DataFrame:
    before = Window.partitionBy(*_REPLICA, "producer_id", "producer_epoch").orderBy("base_offset")
    last = f.lag(f.col("base_sequence") + f.col("last_offset") - f.col("base_offset")).over(before)
    back = batches.withColumn("back", last - f.col("base_sequence"))
    text = f.format_string(
        "producer id %d, epoch %d: sequence %d again",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    )
    wrong = back.where((f.col("back") >= 0) & (f.col("back") < _HALF_SEQUENCES))
    return _of_replicas(wrong, "sequence_back", detail=text)


def _of_replicas(table: DataFrame, kind: str, **columns: Column) -> DataFrame:
    """Return the rows of `table` as anomalies of this kind. Equal anomalies of several replicas become one row.

    Each row of `table` is one batch.
    """
    given = {"offset": f.col("base_offset"), **columns}
    found = finding(table, kind, brokers=f.array("broker"), **given)
    same = found.groupBy("kind", *PARTITION, "offset", "count", "detail")
    return finding(
        same.agg(f.array_sort(f.flatten(f.collect_set("brokers"))).alias("brokers")),
        kind,
        count=f.col("count"),
    )


def short_logs(spark: SparkSession, known: Sequence[Limits]) -> DataFrame | None:
    """Return an anomaly for each replica whose log ends below its own high watermark; None if there is no anomaly."""
    rows = [
        (
            one.replica.topic,
            one.replica.partition,
            one.end,
            one.high_watermark - one.end,
            [one.replica.broker],
        )
        for one in known
        if one.end < one.high_watermark
    ]
    if not rows:
        return None
    schema = "topic string, partition int, offset long, count long, brokers array<int>"
    text = f.lit("the log ends below its high watermark")
    return finding(spark.createDataFrame(rows, schema), "gaps", count=f.col("count"), detail=text)


def undecodable(faults: DataFrame) -> DataFrame:
    """Return anomalies for batches whose checksum is valid but whose records cannot be decoded."""
    text = f.concat(f.lit("the records do not decode: "), "fault")
    return finding(faults, "corrupt", detail=text)


def divergences(records: DataFrame, table: DataFrame) -> DataFrame:
    """Return the offsets below the high watermark at which a record differs or is missing on some replicas.

    `records`: the records of all batches whose column `shared` in `logs.groups` is false (the batch is not the
    same on every replica). The column `brokers` of the result lists the brokers without the record. The column also
    lists the brokers whose record differs from the record that the largest group of brokers has.
    """
    limits = table.select(*_REPLICA, "start", "dense_from", "high_watermark")
    every = limits.groupBy(*PARTITION).agg(
        f.collect_list(f.struct("broker", "dense_from", "high_watermark")).alias("replicas")
    )
    joined = _holders(records, limits).join(f.broadcast(every), list(PARTITION))
    judged = joined.withColumn("absent", f.array_except(_expected(), "holding")).withColumn(
        "differing", f.array_except("holding", "agreeing")
    )
    wrong = judged.where((f.size("absent") > 0) | (f.size("differing") > 0))
    text = f.concat_ws(
        ", ",
        f.when(f.size("differing") > 0, f.concat(f.lit("differs from "), _words("agreeing"))),
        f.when(f.size("absent") > 0, f.concat(f.lit("absent on "), _words("absent"))),
    )
    brokers = f.array_sort(f.concat("absent", "differing"))
    return finding(wrong, "diverging", brokers=brokers, detail=text)


def _holders(records: DataFrame, limits: DataFrame) -> DataFrame:
    """Return one row for each offset, with two lists of brokers.

    `holding`: all brokers with a record at the offset. `agreeing`: the largest group of brokers that have
    the same record at the offset.
    """
    held = records.where("fault IS NULL").select(
        *PARTITION, "offset", _whole().alias("whole"), f.explode("brokers").alias("broker")
    )
    counting = held.join(f.broadcast(limits), list(_REPLICA)).where(
        "offset >= start AND offset < high_watermark"
    )
    variants = counting.groupBy(*PARTITION, "offset", "whole").agg(
        f.collect_set("broker").alias("brokers")
    )
    sized = variants.withColumn("rank", f.struct(f.size("brokers"), -f.array_min("brokers")))
    return sized.groupBy(*PARTITION, "offset").agg(
        f.flatten(f.collect_list("brokers")).alias("holding"),
        f.max_by("brokers", "rank").alias("agreeing"),
    )


def _whole() -> Column:
    """Return a hash of those record fields that must be equal on all replicas."""
    return f.xxhash64(
        f.col("leader_epoch"),
        f.col("attributes").bitwiseAND(f.lit(~_VARYING)),
        *map(f.col, ("producer_id", "producer_epoch", "timestamp", "key", "value", "headers")),
        f.when(
            f.col("base_sequence") >= 0,
            f.col("base_sequence") + f.col("offset") - f.col("base_offset"),
        ),
    )


def _expected() -> Column:
    """Return the brokers that must have a record at the row's offset.

    A broker must have the record if the offset is below the high watermark of its replica, and its cleaner has not
    compacted this part of the log.
    """
    offset = f.col("offset")
    must_hold = f.filter(
        "replicas", lambda one: (one.dense_from <= offset) & (offset < one.high_watermark)
    )
    return f.transform(must_hold, lambda one: one.broker)


def _words(brokers: str) -> Column:
    return f.array_join(f.array_sort(f.col(brokers).cast("array<string>")), " ")
