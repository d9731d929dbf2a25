"""The table of anomalies. Each row is one finding of a check, with a partition, an offset and a count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame

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


class Rule(NamedTuple):
    """A rule that rows of a table break. Each row for which `where` is true is an anomaly of this kind.

    `where` and the values of `columns` are SQL expressions. A text is sent to Spark in one call. An expression that is
    built in Python needs a call for each of its parts, which takes several times as long.
    """

    kind: str
    where: str
    columns: Mapping[str, str]
    """Columns of the anomaly; see `findings`."""


def rule(kind: str, where: str = "true", **columns: str) -> Rule:
    """Return a rule for anomalies with these columns. Without `where`, each row of the table is an anomaly."""
    assert kind in KINDS
    assert columns.keys() <= _TYPES.keys()
    return Rule(kind, where, columns)


def findings(table: DataFrame, *rules: Rule) -> DataFrame:
    """Return an anomaly for each row of `table` and each of the rules that the row breaks.

    Each column of an anomaly is taken from the rule, otherwise from `table`, and otherwise is null. The column
    `count` is never taken from `table`: it is 1 if the rule has no column `count`. All rules are applied in one
    query, because Spark needs more time to plan a union of one query per rule.
    """
    names = frozenset(table.columns)
    found = ", ".join(f"CASE WHEN {one.where} THEN {_anomaly(one, names)} END" for one in rules)
    return table.selectExpr(f"inline(array_compact(array({found})))")


def _anomaly(of: Rule, names: Set[str]) -> str:
    """Return the SQL expression of an anomaly. `names`: the columns of the table."""
    fields = [f"'{of.kind}' AS kind"]
    for name, type_ in _TYPES.items():
        own = "1" if name == "count" else name if name in names else "NULL"
        fields.append(f"CAST({of.columns.get(name, own)} AS {type_}) AS {name}")
    return f"struct({', '.join(fields)})"


def together(tables: Sequence[DataFrame]) -> DataFrame:
    """Return the anomalies of all tables as one table."""
    return reduce(DataFrame.union, tables)
