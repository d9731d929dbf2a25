"""Dead letters: malformed records in a topic of their own, unchanged, with their place and the reason as headers.

The names of the headers are those of Kafka Connect's dead letter queues, with a prefix of this project.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from minikafka.pipeline.places import PLACE

_PREFIX: Final = "minikafka.errors"
REASON: Final = f"{_PREFIX}.exception.message"
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
