"""The table of anomalies. Each row is one finding of a check, with a partition, an offset and a count."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

KINDS: Final = {
    "lost": "acknowledged, but on no replica",
    "missing": "acknowledged, but not on each replica that must hold it",
    "moved": "acknowledged at one offset, but found only at another",
    "duplicated": "in the log more often than it was sent",
    "reordered": "directly after a record that its producer sent later",
    "diverging": "offsets at which replicas differ, or a replica lacks a record",
    "aborted_visible": "of an aborted transaction, but visible to consumers",
    "failed_present": "reported as failed for certain, but in the log",
    "read_differs": "read, but different from the logs",
    "read_back": "read at or below an offset that the consumer had passed",
    "gaps": "offsets without a record",
    "overlapping": "batches that begin below the end of the one before",
    "epochs_decreasing": "batches with a lower leader epoch than the one before",
    "sequence_back": "batches with a sequence that their producer had used before",
    "corrupt": "batches that are damaged, or whose records cannot be decoded",
}
"""The kinds of anomalies. Each text says what the column `count` counts for this kind."""
COLUMNS: Final = (
    "kind",
    "topic",
    "partition",
    "offset",
    "count",
    "brokers",
    "producer",
    "sequence",
    "detail",
)
_TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "count": "long",
    "brokers": "array<int>",
    "producer": "string",
    "sequence": "long",
    "detail": "string",
}


def finding(table: DataFrame, kind: str, **columns: Column) -> DataFrame:
    """Return the rows of `table` as anomalies of this kind.

    Each column is taken from `columns`, otherwise from `table`, and otherwise is null. The column `count`
    is never taken from `table`: it is 1 if `columns` does not contain `count`.
    """
    assert kind in KINDS
    given: dict[str, Column] = {"count": f.lit(1), **columns}
    chosen = [f.lit(kind).alias("kind")]
    for name, type_ in _TYPES.items():
        own = f.col(name) if name in table.columns else f.lit(None)
        chosen.append(given.get(name, own).cast(type_).alias(name))
    return table.select(*chosen)


def together(findings: Sequence[DataFrame]) -> DataFrame:
    """Return all findings as one table."""
    return reduce(DataFrame.unionByName, findings)
