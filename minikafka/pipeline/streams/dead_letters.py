"""Dead letters: malformed records in a topic of their own, unchanged, with their place and the reason as headers.

The names of the headers are those of Kafka Connect's dead letter queues, with a prefix of this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from minikafka.pipeline.streams.places import PLACE
from minikafka.spark.datasource import FORMAT
from minikafka.spark.option_map import SERVERS
from minikafka.spark.progress import metrics_of
from minikafka.spark.sink.options import TOPIC

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


def send(records: DataFrame, servers: str, topic: str) -> int:
    """Write the dead letters of a batch, and return their number."""
    seen = Observation()
    options = {SERVERS: servers, TOPIC: topic}
    counted(records, seen).write.format(FORMAT).mode("append").options(**options).save()
    return number(metrics_of(seen))
