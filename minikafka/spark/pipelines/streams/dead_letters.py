"""Malformed records: the places of the first ones, and a topic for all of them (dead letters).

A dead letter is the unchanged record with its place and the reason as headers. The names of the headers are those of
Kafka Connect's dead letter queues, with a prefix of this project. The places are an observed metric of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from minikafka.spark.datasource import FORMAT
from minikafka.spark.pipelines.session.report import Table
from minikafka.spark.progress import metrics_of
from minikafka.spark.sink.options import TOPIC

PLACE: Final = ("topic", "partition", "offset")
PLACES: Final = "places"
"""Name of the observed metric with the places of the first invalid records."""
PLACES_MAX: Final = 5


def first_places(is_invalid: Column, prefix: str = "") -> Column:
    """Return an aggregate: topic, partition and offset of the first `PLACES_MAX` rows that are invalid."""
    place = f.struct(*(f.col(f"{prefix}{name}").alias(name) for name in PLACE))
    return f.min_by(place, f.when(is_invalid, place), PLACES_MAX)


def places_table(name: str, counts: Mapping[str, Any]) -> tuple[Table, ...]:
    """Return a table with the places in the observed metrics `counts`; no table if there are no places."""
    places = counts.get(PLACES) or ()
    return (Table(name, PLACE, tuple(tuple(place) for place in places)),) if places else ()


def added(before: Any, value: Any) -> Any:
    """Return the sum of two metrics of micro-batches. A list of places keeps its first `PLACES_MAX` entries."""
    if isinstance(value, list):
        return [*(before or ()), *map(tuple, value)][:PLACES_MAX]
    return before if value is None else (before or 0) + value


_PREFIX: Final = "minikafka.errors"
REASON: Final = f"{_PREFIX}.exception.message"
_NUMBER: Final = "dead_letters"
_HEADERS: Final = "array<struct<key: string, value: binary>>"


def letters(records: DataFrame, reason: Column) -> DataFrame:
    """Return malformed records of a source, with headers, as the records to write.

    Key, value, headers and timestamp are kept. A timestamp that Spark cannot hold is left to the sink.
    """
    given = f.coalesce(f.col("headers"), f.array().cast(_HEADERS))
    facts = {f"{_PREFIX}.{name}": f.col(name).cast("string") for name in PLACE} | {REASON: reason}
    added = [
        f.struct(f.lit(name).alias("key"), fact.cast("binary").alias("value"))
        for name, fact in facts.items()
    ]
    headers = f.concat(given, f.array(*added).cast(_HEADERS)).alias("headers")
    return records.select("key", "value", headers, "timestamp")


def counted(records: DataFrame, seen: str | Observation) -> DataFrame:
    """Return the dead letters with an observation of their number, for `number`."""
    return records.observe(seen, f.count(f.lit(1)).alias(_NUMBER))


def number(counts: Mapping[str, Any]) -> int:
    """Return the number of dead letters from the observed metrics; 0 if nothing was observed."""
    return int(counts.get(_NUMBER, 0))


def send(records: DataFrame, connection: Mapping[str, str], topic: str) -> int:
    """Write the dead letters of a batch, and return their number. `connection`: the options that say how to connect."""
    seen = Observation()
    options = {**connection, TOPIC: topic}
    counted(records, seen).write.format(FORMAT).mode("append").options(**options).save()
    return number(metrics_of(seen))
