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

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from minikafka.checks.replicas.anomalies import Rule, findings, rule
from minikafka.checks.replicas.history_tables import content_of
from minikafka.checks.replicas.logs import PARTITION, is_control
from minikafka.kafka.records.transactions import ABORTED, VISIBLE
from minikafka.spark.frames import kept

_PLACE: Final = (*PARTITION, "offset")
_CLAIMS: Final = ("somewhere", "missing", "unknown", "aborted", "failed")
"""Kinds of sends that may claim a surplus record, in the order of their claims."""
_IS_THERE: Final = (
    "(sent = content OR coalesce(exists(variants, one -> one.content = sent), false))"
)
"""SQL condition: the content in the row's column `sent` is on at least one replica at the row's offset."""
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
    """The acknowledged sends and the records, joined by offset.

    `matched`: a replica has the sent content. `is_removed`: no replica has a record, but retention or the cleaner may
    have removed it. `is_missing`: a send that is neither matched nor removed.
    """
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
    compared = both.selectExpr(
        "*",
        f"coalesce({_IS_THERE} AND state != {ABORTED}, false) AS matched",
        "content IS NULL AND coalesce(offset < floor, false) AS is_removed",
    )
    joined = kept(
        compared.selectExpr(
            "*", "sent IS NOT NULL AND NOT matched AND NOT is_removed AS is_missing"
        )
    )
    surplus = joined.where(f"NOT matched AND state = {VISIBLE}")
    return Matched(joined, surplus, kept(_claims(sends, joined, surplus)))


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
    missing = joined.where("is_missing").groupBy("topic", f.col("sent").alias("content"))
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


def send_findings(matched: Matched) -> Iterator[DataFrame]:
    """Yield tables of the anomalies that the producers' histories show."""
    held = f.filter("variants", lambda one: one.content == f.col("sent"))
    absent = f.array_except("expected", f.flatten(f.transform(held, lambda one: one.brokers)))
    seen = matched.joined.where("matched AND variants IS NOT NULL").withColumn("absent", absent)
    yield findings(seen, rule("missing", "size(absent) > 0", brokers="array_sort(absent)"))
    yield findings(matched.claims.select("*", "first.*"), *_claim_rules())
    yield _lost_or_moved(matched)
    yield _reordered(matched)


def _claim_rules() -> Iterator[Rule]:
    """Yield the rules for the rows of `Matched.claims`."""
    yield rule("aborted_visible", "aborted_granted > 0", count="aborted_granted")
    yield rule("failed_present", "failed_granted > 0", count="failed_granted")
    yield rule("duplicated", "left > 0 AND sent > 0", count="left")
    yield rule(
        "lost",
        "somewhere > somewhere_granted",
        partition="NULL",
        offset="NULL",
        count="somewhere - somewhere_granted",
        detail="'acknowledged without an offset'",
    )


def _lost_or_moved(matched: Matched) -> DataFrame:
    """Return the anomalies `lost` and `moved` of sends that were acknowledged with an offset.

    A send is lost if its record is not in the logs. A send is moved if its record is only at another offset.
    """
    granted = matched.claims.select(
        "topic", f.col("content").alias("sent"), "missing_granted", "first"
    )
    rank = f.row_number().over(Window.partitionBy("topic", "sent").orderBy("partition", "offset"))
    missing = matched.joined.where("is_missing").select(
        "producer", "sequence", *_PLACE, "sent", "content"
    )
    joined = missing.join(granted, ["topic", "sent"], "left").withColumn("rank", rank)
    is_moved = f.coalesce(f.col("rank") <= f.col("missing_granted"), f.lit(False))
    there = "if(content IS NULL, 'no record is there', 'another record is there')"
    found = "format_string('found at offset %d of partition %d', first.offset, first.partition)"
    return findings(
        joined.withColumn("is_moved", is_moved),
        rule("lost", "NOT is_moved", detail=there),
        rule("moved", "is_moved", detail=found),
    )


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
    missing = matched.joined.where("is_missing").select("producer", "sequence", "topic", "sent")
    moved = missing.join(unique, ["topic", "sent"]).select(
        "producer", "sequence", "topic", "first.*"
    )
    there = matched.joined.where("matched").select(*columns).unionByName(moved.select(*columns))
    before = Window.partitionBy("producer", *PARTITION).orderBy("offset")
    ordered = there.withColumn("before", f.lag("sequence").over(before))
    text = "format_string('after sequence %d', before)"
    return findings(ordered, rule("reordered", "before > sequence", detail=text))


def read_findings(reads: DataFrame, logs: DataFrame, table: DataFrame) -> Iterator[DataFrame]:
    """Yield tables of the anomalies that the consumers' histories show."""
    floors = table.groupBy(*PARTITION).agg(f.min(f.greatest("start", "dense_from")).alias("floor"))
    read = reads.withColumnRenamed("content", "sent")
    joined = read.join(logs, list(_PLACE), "left").join(
        f.broadcast(floors), list(PARTITION), "left"
    )
    who = {"producer": "consumer", "sequence": "position"}
    is_removed = "(content IS NULL AND offset < coalesce(floor, 0))"
    differs = f"NOT coalesce({_IS_THERE}, false) AND NOT {is_removed}"
    yield findings(
        joined,
        rule("read_differs", differs, **who),
        rule("aborted_visible", f"{_IS_THERE} AND state = {ABORTED}", **who),
    )
    before = Window.partitionBy("consumer", *PARTITION, "run").orderBy("position")
    text = "format_string('after offset %d', before)"
    yield findings(
        reads.withColumn("before", f.lag("offset").over(before)),
        rule("read_back", "offset <= before", **who, detail=text),
    )
