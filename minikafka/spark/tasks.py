"""Work that the caller divides: Spark runs one task for each piece, and each returns one small result."""

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
    """Run `function(work)` for each piece of work in a task of its own; return the results in order.

    Results must be fit for JSON. Spark may run a piece more than once. Raises the error of Spark with one
    line from the task that failed.
    """
    if not works:
        return []

    def run(index: int) -> str:
        with one_line_errors():
            return json.dumps(function(works[index]))

    # Arrow functions would need pandas. A deterministic one might be called more than once per row.
    call = f.udf(run, "string", useArrow=False).asNondeterministic()
    numbers = spark.range(0, len(works), 1, len(works))
    rows = numbers.select("id", call("id").alias("result")).collect()
    return [json.loads(row["result"]) for row in sorted(rows, key=lambda row: row["id"])]
