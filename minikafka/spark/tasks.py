"""Runs a list of work items in Spark: one task per item, and one small result per task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from minikafka.spark.errors import one_line_errors

Work = TypeVar("Work")


def run_tasks(
    spark: SparkSession, function: Callable[[Work], Mapping[str, Any]], works: Sequence[Work]
) -> list[dict[str, Any]]:
    """Run `function(work)` for each item of `works` in a separate task. Return the results in order.

    Results must be convertible to JSON. Spark may run `function` more than once for an item. If a task fails,
    raises Spark's error with a one-line text from the failed task.
    """
    if not works:
        return []

    def run(index: int) -> str:
        with one_line_errors():
            return json.dumps(function(works[index]))

    # With useArrow, the function would need pandas. Spark might call a deterministic function twice for a row.
    call = f.udf(run, "string", useArrow=False).asNondeterministic()
    numbers = spark.range(0, len(works), 1, len(works))
    rows = numbers.select("id", call("id").alias("result")).collect()
    return [json.loads(row["result"]) for row in sorted(rows, key=lambda row: row["id"])]
