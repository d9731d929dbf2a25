"""Reads and writes of Spark's tasks over protected connections, without a Spark session."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from minikafka.spark.key_stores import prepared
from minikafka.spark.sink import options as sink_options
from minikafka.spark.sink.writers import write_rows
from minikafka.spark.source import options as source_options
from minikafka.spark.source import planning
from minikafka.spark.source.readers import read_ranges

Options = Mapping[str, str]


def write(given: Options, topic: str, values: list[bytes]) -> None:
    """Write rows as one task."""
    options = prepared(sink_options.parse({**given, "topic": topic}))
    write_rows(options, iter([pa.RecordBatch.from_pydict({"value": values})]))


def read(given: Options, topic: str) -> list[bytes]:
    """Return the values of a topic, planned as on the driver and read as one task."""
    options = source_options.parse({**given, "subscribe": topic}, source_options.Mode.BATCH)
    options = prepared(options)
    ranges = planning.plan_batch(options)
    return [
        value
        for batch in read_ranges(options, ranges)
        for value in batch.column("value").to_pylist()
    ]
