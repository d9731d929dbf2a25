"""Matches each send with a record in the logs: by offset if the offset is known, otherwise by content.

Invariant: each record is matched with at most one send. Records that match no send by offset are the
*surplus*. Sends with the same content claim surplus records in this order: acknowledged without an offset,
acknowledged at another offset (moved), unknown, aborted, failed. A surplus record that no send claims is a
duplicate if its content was ever sent. Otherwise the record is from a producer without a history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from minikafka.pipeline.check.anomalies import finding
from minikafka.pipeline.check.histories import content_of
from minikafka.pipeline.check.kept import kept
from minikafka.pipeline.check.logs import ABORTED, PARTITION, VISIBLE, is_control

_PLACE: Final = (*PARTITION, "offset")
_CLAIMS: Final = ("somewhere", "missing", "unknown", "aborted", "failed")
"""Kinds of sends that may claim a surplus record, in the order of their claims."""
_BROADCAST_MAX: Final = 100_000
"""Maximum number of distinct contents to broadcast to all tasks. A broadcast avoids a shuffle of the sends."""


def present(records: DataFrame, table: DataFrame) -> DataFrame:
    """Return one row for each offset with a data record, with the contents of the record on all replicas.

    `content`: the content on most replicas. `variants`: each distinct content with its brokers. `expected`: the
    brokers that must have the record. If all these brokers have the same batch (`shared`), `variants` and `expected`
    are null.
    """
    data = records.where(~is_control() & f.col("fault").isNull())
    content = content_of(f.col("value")).alias("content")
    columns = (*_PLACE, content, "state")
    shared = data.where("brokers IS NULL").select(
        *columns,
        f.lit(None).cast("array<struct<content:bigint,brokers:array<int>>>").alias("variants"),
        f.lit(None).cast("array<int>").alias("expected"),
    )
    single = data.where("brokers IS NOT NULL").select(
        *columns, f.explode("brokers").alias("broker")
    )
    return shared.unionByName(_compared(single, table))


def _compared(single: DataFrame, table: DataFrame) -> DataFrame:
    limits = table.select(
        "broker", *PARTITION, "start", "dense_from", "high_watermark", "committed"
    )
    counting = single.join(f.broadcast(limits), ["broker", *PARTITION]).where(
        "offset >= start AND (offset < high_watermark OR offset >= committed)"
    )
    variants = counting.groupBy(*_PLACE, "content").agg(
        f.collect_set("broker").alias("brokers"), f.min("state").alias("state")
    )
    rank = f.struct(f.size("brokers"), -f.array_min("brokers"))
    at_offset = variants.groupBy(*_PLACE).agg(
        f.max_by("content", rank).alias("content"),
        f.max_by("state", rank).alias("state"),
        f.collect_list(f.struct("content", "brokers")).alias("variants"),
    )
    every = limits.groupBy(*PARTITION).agg(
        f.collect_list(f.struct("broker", "dense_from", "high_watermark")).alias("replicas")
    )
    offset = f.col("offset")
    expected = f.transform(
        f.filter(
            "replicas", lambda one: (one.dense_from <= offset) & (offset < one.high_watermark)
        ),
        lambda one: one.broker,
    )
    joined = at_offset.join(f.broadcast(every), list(PARTITION))
    return joined.select(*_PLACE, "content", "state", "variants", expected.alias("expected"))


@dataclass(frozen=True)
class Matched:
    """The sends and the logs, joined by offset."""

    joined: DataFrame
    """The acknowledged sends and the records, joined by offset. `matched`: a replica has the sent content."""
    surplus: DataFrame
    """Visible records that match no send by offset."""
    claims: DataFrame
    """Per topic and content: the number of surplus records (`found`) and of sends of each kind in `_CLAIMS`."""


def match(sends: DataFrame, logs: DataFrame, table: DataFrame) -> Matched:
    """Match each send of a producer with a data record in the logs; return the result.

    `logs`: the data records, from `present`. `table`: the offset limits of each replica.
    """
    acked = sends.where("outcome = 'ok' AND offset >= 0").select(
        "producer", "sequence", *_PLACE, f.col("content").alias("sent")
    )
    floors = table.groupBy(*PARTITION).agg(f.min(f.greatest("start", "dense_from")).alias("floor"))
    both = acked.join(logs, list(_PLACE), "full_outer").join(
        f.broadcast(floors), list(PARTITION), "left"
    )
    matched = f.coalesce(_is_there() & (f.col("state") != ABORTED), f.lit(False))
    joined = kept(both.withColumn("matched", matched))
    surplus = joined.where(~f.col("matched") & (f.col("state") == VISIBLE))
    return Matched(joined, surplus, kept(_claims(sends, joined, surplus)))


def _is_there() -> Column:
    """True if the content in the row's column `sent` is on at least one replica at the row's offset."""
    other = f.exists("variants", lambda one: one.content == f.col("sent"))
    return (f.col("sent") == f.col("content")) | f.coalesce(other, f.lit(False))


def _is_missing() -> Column:
    """True for an acknowledged send whose record is not in the log at the acknowledged offset.

    False if retention or the cleaner may have removed the record.
    """
    is_removed = f.col("content").isNull() & (f.col("offset") < f.col("floor"))
    return f.col("sent").isNotNull() & ~f.col("matched") & ~f.coalesce(is_removed, f.lit(False))


def _claims(sends: DataFrame, joined: DataFrame, surplus: DataFrame) -> DataFrame:
    """Return one row per topic and content: how many surplus records and how many sends have this content.

    `found`: the number of surplus records (records that match no send by offset). Each column named in `_CLAIMS`:
    the number of sends of this kind. A row exists for the content of each surplus record, each acknowledged send
    whose record is missing at its offset, and each acknowledged send without an offset. `_granted` adds further
    columns.
    """
    key = ("topic", "content")
    found = surplus.groupBy(*key).agg(
        f.count(f.lit(1)).alias("found"), f.min(f.struct(*PARTITION[1:], "offset")).alias("first")
    )
    missing = joined.where(_is_missing()).groupBy("topic", f.col("sent").alias("content"))
    misses = missing.agg(f.count(f.lit(1)).alias("missing"))
    is_somewhere = (f.col("outcome") == "ok") & (f.coalesce("offset", f.lit(-1)) < 0)
    others = sends.where(is_somewhere).select(*key).unionByName(found.select(*key))
    asked = kept(others.unionByName(misses.select(*key)).distinct())
    if asked.count() <= _BROADCAST_MAX:
        asked = f.broadcast(asked)
    counted = (
        sends.join(asked, list(key), "left_semi")
        .groupBy(*key)
        .agg(
            f.count(f.lit(1)).alias("sent"),
            f.count_if(is_somewhere).alias("somewhere"),
            *(
                f.count_if(f.col("outcome") == name).alias(name)
                for name in ("unknown", "aborted", "failed")
            ),
        )
    )
    all_ = found.join(misses, list(key), "full_outer").join(counted, list(key), "full_outer")
    numbers = [f.coalesce(name, f.lit(0)).alias(name) for name in ("found", *_CLAIMS, "sent")]
    return _granted(all_.select(*key, "first", *numbers))


def _granted(claims: DataFrame) -> DataFrame:
    """Assign the surplus records of each row to sends, in the order of the kinds of sends in `_CLAIMS`.

    A surplus record is a record that matches no send by offset.
    Column `KIND_granted`, for each kind: the number of surplus records that are assigned to sends of this kind.
    Column `left`: the number of surplus records that are assigned to no send.
    """
    claims = claims.withColumn("left", f.col("found"))
    for name in _CLAIMS:
        granted = f.least("left", name)
        claims = claims.withColumn(f"{name}_granted", granted).withColumn(
            "left", f.col("left") - granted
        )
    return claims


def findings(matched: Matched) -> Iterator[DataFrame]:
    """Yield the anomalies that the producers' histories show, as one table per kind of anomaly."""
    yield from _lost(matched)
    held = f.filter("variants", lambda one: one.content == f.col("sent"))
    absent = f.array_except("expected", f.flatten(f.transform(held, lambda one: one.brokers)))
    seen = matched.joined.where("matched AND variants IS NOT NULL").withColumn("absent", absent)
    yield finding(seen.where(f.size("absent") > 0), "missing", brokers=f.array_sort("absent"))
    for kind, column in (
        ("aborted_visible", "aborted_granted"),
        ("failed_present", "failed_granted"),
    ):
        yield _of_content(matched.claims.where(f.col(column) > 0), kind, f.col(column))
    again = matched.claims.where((f.col("left") > 0) & (f.col("sent") > 0))
    yield _of_content(again, "duplicated", f.col("left"))
    yield _reordered(matched)


def _of_content(claims: DataFrame, kind: str, count: Column) -> DataFrame:
    return finding(claims.select("*", "first.*"), kind, count=count)


def _lost(matched: Matched) -> Iterator[DataFrame]:
    """Yield the anomalies `lost` and `moved` of acknowledged sends.

    A send is lost if its record is not in the logs. A send is moved if its record is only at another offset.
    """
    granted = matched.claims.select(
        "topic", f.col("content").alias("sent"), "missing_granted", "first"
    )
    rank = f.row_number().over(Window.partitionBy("topic", "sent").orderBy("partition", "offset"))
    missing = matched.joined.where(_is_missing()).select(
        "producer", "sequence", *_PLACE, "sent", "content"
    )
    joined = missing.join(granted, ["topic", "sent"], "left").withColumn("rank", rank)
    is_moved = f.coalesce(f.col("rank") <= f.col("missing_granted"), f.lit(False))
    there = f.when(f.col("content").isNull(), "no record is there").otherwise(
        "another record is there"
    )
    yield finding(joined.where(~is_moved), "lost", detail=there)
    found = f.format_string("found at offset %d of partition %d", "first.offset", "first.partition")
    yield finding(joined.where(is_moved), "moved", detail=found)
    nowhere = matched.claims.where("somewhere > somewhere_granted").drop("first")
    count = f.col("somewhere") - f.col("somewhere_granted")
    yield finding(nowhere, "lost", count=count, detail=f.lit("acknowledged without an offset"))


def _reordered(matched: Matched) -> DataFrame:
    """Return an anomaly for each record whose predecessor in the log was sent after the record.

    The predecessor is the same producer's previous record in the partition, by offset. A record that is missing at
    its acknowledged offset is compared at the offset of the surplus record with the same content. A surplus record
    is a record in the log that matches no send by offset. The record is not compared if the topic has several
    missing records or several surplus records with this content.
    """
    columns = ("producer", "sequence", *_PLACE)
    unique = matched.claims.where("found = 1 AND missing = 1").select(
        "topic", f.col("content").alias("sent"), "first"
    )
    missing = matched.joined.where(_is_missing()).select("producer", "sequence", "topic", "sent")
    moved = missing.join(unique, ["topic", "sent"]).select(
        "producer", "sequence", "topic", "first.*"
    )
    there = matched.joined.where("matched").select(*columns).unionByName(moved.select(*columns))
    before = Window.partitionBy("producer", *PARTITION).orderBy("offset")
    ordered = there.withColumn("before", f.lag("sequence").over(before))
    text = f.format_string("after sequence %d", "before")
    return finding(ordered.where("before > sequence"), "reordered", detail=text)


def read_findings(reads: DataFrame, logs: DataFrame, table: DataFrame) -> Iterator[DataFrame]:
    """Yield tables of the anomalies that the consumers' histories show."""
    floors = table.groupBy(*PARTITION).agg(f.min(f.greatest("start", "dense_from")).alias("floor"))
    read = reads.withColumnRenamed("content", "sent")
    joined = read.join(logs, list(_PLACE), "left").join(
        f.broadcast(floors), list(PARTITION), "left"
    )
    who = {"producer": f.col("consumer"), "sequence": f.col("position")}
    is_removed = f.col("content").isNull() & (f.col("offset") < f.coalesce("floor", f.lit(0)))
    wrong = joined.where(~f.coalesce(_is_there(), f.lit(False)) & ~is_removed)
    yield finding(wrong, "read_differs", **who)
    yield finding(joined.where(_is_there() & (f.col("state") == ABORTED)), "aborted_visible", **who)
    before = Window.partitionBy("consumer", *PARTITION).orderBy("position")
    back = reads.withColumn("before", f.lag("offset").over(before)).where("offset <= before")
    yield finding(back, "read_back", **who, detail=f.format_string("after offset %d", "before"))
