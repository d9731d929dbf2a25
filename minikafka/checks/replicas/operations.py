"""The events of clients (docs/isolation.md), joined to rows as plain lines give them: one row per write and read.

The same rules as in `checks/isolation/operations.py`, as queries, because a history may be larger than a process.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from minikafka.checks.histories import (
    ABORT,
    ABORTED,
    COMMIT,
    FAILED,
    INVOKED,
    OK,
    READ,
    SEEK,
    UNKNOWN,
    WRITE,
)
from minikafka.spark.frames import kept
from minikafka.spark.pipelines.session.failures import PipelineError

_NULL: Final = "xxhash64('')"
"""The content of a record without a value, and of an event without one."""
_IS_END: Final = f"outcome != '{INVOKED}'"


def writes_of(events: DataFrame) -> DataFrame:
    """Return one row per write, with the outcome that the end of its transaction gives it.

    `events`: the rows of writes, commits and aborts. Raises PipelineError if an operation is invoked or ends twice.
    """
    operations = kept(_joined(events))
    if (twice := operations.where("is_twice").first()) is not None:
        raise PipelineError(
            f"client {twice.producer}, number {twice.sequence}, is in the histories more than once;"
            " an operation is invoked once and ends once, and a client that is restarted has a new name"
        )
    writes = operations.where(f"event = '{WRITE}'")
    joined = writes.join(_fates(operations), ["producer", "transaction"], "left")
    return joined.selectExpr(
        "producer",
        "sequence",
        "topic",
        "partition",
        "if(partition IS NULL, NULL, offset) AS offset",
        f"CASE WHEN transaction IS NULL OR outcome = '{FAILED}' OR fate = '{OK}' THEN outcome"
        f" ELSE coalesce(fate, '{ABORTED}') END AS outcome",
        "content",
    )


def _joined(events: DataFrame) -> DataFrame:
    """Return one row per operation. The event with the outcome may lack fields of the event before the call."""
    outcome = f"coalesce(max(outcome) FILTER (WHERE {_IS_END}), '{UNKNOWN}') AS outcome"
    columns = (
        "max(step.event) AS event",
        f"{_latest('step.transaction')} AS transaction",
        *(f"{_latest(name)} AS {name}" for name in ("topic", "partition", "offset")),
        f"coalesce({_latest(f'nullif(content, {_NULL})')}, {_NULL}) AS content",
        "min(step.event) != max(step.event) OR greatest(count_if("
        f"{_IS_END}), count_if(NOT {_IS_END})) > 1 AS is_twice",
        outcome,  # last: the other columns must refer to the column of `events` with this name
    )
    return events.groupBy("producer", "sequence").agg(*map(f.expr, columns))


def _latest(field: str) -> str:
    return f"coalesce(max({field}) FILTER (WHERE {_IS_END}), max({field}))"


def _fates(operations: DataFrame) -> DataFrame:
    """Return the outcome of transactions: `ok`, `aborted` or `unknown`. One that never ended has no row.

    The last commit or abort that has an effect decides.
    """
    ends = operations.where(
        f"event IN ('{COMMIT}', '{ABORT}')"
        f" AND (outcome = '{OK}' OR event = '{COMMIT}' AND outcome != '{FAILED}')"
    )
    fate = (
        f"CASE WHEN outcome != '{OK}' THEN '{UNKNOWN}'"
        f" WHEN event = '{COMMIT}' THEN '{OK}' ELSE '{ABORTED}' END"
    )
    last = f.expr(f"max_by({fate}, sequence)").alias("fate")
    return ends.groupBy("producer", "transaction").agg(last)


def reads_of(events: DataFrame) -> DataFrame:
    """Return the rows of reads. Column `run`: the number of seeks of the consumer in the partition before the read."""
    before = Window.partitionBy("consumer", "topic", "partition").orderBy("position")
    run = f.count_if(f.expr(f"step.event = '{SEEK}'")).over(before).cast("int")
    reads = events.withColumn("run", run).where(f"step.event = '{READ}'")
    return reads.select("consumer", "position", "topic", "partition", "offset", "content", "run")
