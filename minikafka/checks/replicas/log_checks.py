"""The checks that read only the logs of the replicas, without histories of producers or consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from minikafka.checks.replicas.anomalies import COLUMNS, Rule, findings, rule
from minikafka.checks.replicas.logs import PARTITION, Limits

_REPLICA: Final = ("broker", *PARTITION)
_HALF_SEQUENCES: Final = 1 << 30
"""Half the range of sequence numbers. A larger decrease is the wrap from 2,147,483,647 to 0."""
_VARYING: Final = 0x47
"""Attribute bits that may differ on a compacted replica: the codec, and the delete horizon flag."""


def batch_findings(found: DataFrame, table: DataFrame) -> DataFrame:
    """Return the anomalies in batch headers. An anomaly on several replicas is one row."""
    limits = f.broadcast(table.select(*_REPLICA, "dense_from", "start", "end", "torn_from"))
    joined = found.join(limits, list(_REPLICA))
    is_torn = f.col("fault").isNotNull() & (f.col("base_offset") >= f.greatest("torn_from", "end"))
    is_torn &= f.col("torn_from").isNotNull()
    whole = joined.where(~f.coalesce(is_torn, f.lit(False)))
    in_order = findings(_with_batch_before(whole), *_order_rules())
    again = findings(_with_sequence_before(whole), _sequence_rule())
    return _of_all_replicas(in_order.union(again))


def _with_batch_before(batches: DataFrame) -> DataFrame:
    """Return the batches with four more columns.

    `position_of_segment`: the first offset of the segment, as in its file name; batches are sorted by it.
    `previous_end`, `previous_epoch`: the offset after the batch before in the replica's log, and its leader epoch.
    `expected`: the offset at which the batch begins if no record is missing before it.
    """
    before = Window.partitionBy(*_REPLICA).orderBy("position_of_segment", "position")
    segment = f.regexp_extract("path", r"(\d{20})\.log$", 1)
    return (
        batches.withColumn("position_of_segment", segment)
        .withColumn("previous_end", f.lag("last_offset").over(before) + 1)
        .withColumn("previous_epoch", f.lag("leader_epoch").over(before))
        .selectExpr("*", "greatest(coalesce(previous_end, start), dense_from) AS expected")
    )


def _order_rules() -> Iterator[Rule]:
    yield _batch_rule("corrupt", "fault IS NOT NULL", detail="fault")
    yield _batch_rule(
        "gaps",
        "base_offset > expected",
        offset="expected",
        count="base_offset - expected",
        detail="format_string('none until %d', base_offset)",
    )
    inside = "(last_offset + 1 - base_offset - record_count)"
    hollow = f"fault IS NULL AND base_offset >= dense_from AND {inside} > 0"
    yield _batch_rule("gaps", hollow, count=inside, detail="'within a batch'")
    yield _batch_rule("overlapping", "base_offset < previous_end")
    text = "format_string('epoch %d after epoch %d', leader_epoch, previous_epoch)"
    lower = "fault IS NULL AND leader_epoch < previous_epoch"
    yield _batch_rule("epochs_decreasing", lower, detail=text)


def _with_sequence_before(batches: DataFrame) -> DataFrame:
    """Return the valid batches of idempotent producers, each with the last sequence number of the batch before it."""
    before = Window.partitionBy(*_REPLICA, "producer_id", "producer_epoch").orderBy("base_offset")
    last = f.col("base_sequence") + f.col("last_offset") - f.col("base_offset")
    numbered = batches.where("fault IS NULL AND base_sequence >= 0")
    return numbered.withColumn("previous_sequence", f.lag(last).over(before))


def _sequence_rule() -> Rule:
    back = "previous_sequence - base_sequence"
    text = (
        "'producer id %d, epoch %d: sequence %d again', producer_id, producer_epoch, base_sequence"
    )
    return _batch_rule(
        "sequence_back",
        f"{back} >= 0 AND {back} < {_HALF_SEQUENCES}",
        detail=f"format_string({text})",
    )


def _batch_rule(kind: str, where: str, **columns: str) -> Rule:
    """Return a rule for a table with one row per batch and replica."""
    return rule(kind, where, **{"offset": "base_offset", "brokers": "array(broker)", **columns})


def _of_all_replicas(found: DataFrame) -> DataFrame:
    """Return the anomalies `found`, with equal anomalies of several replicas as one row that lists all brokers."""
    same = found.groupBy(*(name for name in COLUMNS if name != "brokers"))
    brokers = f.array_sort(f.flatten(f.collect_set("brokers"))).alias("brokers")
    return same.agg(brokers).select(*COLUMNS)


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
    short = rule("gaps", count="count", detail="'the log ends below its high watermark'")
    return findings(spark.createDataFrame(rows, schema), short)


def undecodable(faults: DataFrame) -> DataFrame:
    """Return anomalies for batches whose checksum is valid but whose records cannot be decoded."""
    return findings(faults, rule("corrupt", detail="concat('the records do not decode: ', fault)"))


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
    differs = f"if(size(differing) > 0, concat('differs from ', {_words('agreeing')}), NULL)"
    absent = f"if(size(absent) > 0, concat('absent on ', {_words('absent')}), NULL)"
    wrong = rule(
        "diverging",
        "size(absent) > 0 OR size(differing) > 0",
        brokers="array_sort(concat(absent, differing))",
        detail=f"concat_ws(', ', {differs}, {absent})",
    )
    return findings(judged, wrong)


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


def _words(brokers: str) -> str:
    return f"array_join(array_sort(CAST({brokers} AS array<string>)), ' ')"
