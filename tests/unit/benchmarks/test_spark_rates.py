"""The benchmark of Spark streams: rates without the first micro-batch, and the division of rows into micro-batches."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks import spark_floor, spark_rates
from minikafka.spark.datasource import SCHEMA


def micro_batch(rows: int, spent_ms: int) -> SimpleNamespace:
    return SimpleNamespace(numInputRows=rows, durationMs={"triggerExecution": spent_ms})


def test_rate_of_a_stream_leaves_out_its_first_micro_batch():
    progress = [micro_batch(9_000, 90_000), micro_batch(2_000, 2), micro_batch(4_000, 4)]

    assert spark_rates.backlog_rate(progress) == pytest.approx(1.0)


def test_rate_of_a_stream_with_an_unexpected_number_of_micro_batches_is_refused():
    with pytest.raises(AssertionError):
        spark_rates.backlog_rate([micro_batch(2_000, 2), micro_batch(4_000, 4)])


def test_ready_rows_source_divides_its_rows_into_micro_batches_and_partitions():
    source = spark_floor.ReadyRows({"rows": "60", "partitions": "6", "maxOffsetsPerTrigger": "24"})
    reader = source.streamReader(SCHEMA)
    ends = [reader.initialOffset()]
    while ends[-1]["rows"] < 60:
        ends.append(reader.latestOffset(ends[-1], ReadAllAvailable()))

    assert [end["rows"] for end in ends] == [0, 24, 48, 60]
    tasks = [reader.partitions(*pair) for pair in pairwise(ends)]
    assert [[task.value for task in found] for found in tasks] == [[4] * 6, [4] * 6, [2] * 6]
    assert [batch.num_rows for batch in reader.read(tasks[0][0])] == [4]
