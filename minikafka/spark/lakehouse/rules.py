"""How a table is partitioned: by the values of columns, or by the date or the hour of a timestamp column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.base.errors import ConfigError

DATE: Final = "date"
HOUR: Final = "hour"
_OF_TIME: Final = re.compile(r"(date|hour)\((.+)\)")
_CALL: Final = re.compile(r"\w+\(.*\)")
_HOUR_MICROS: Final = 3_600_000_000
_DAY_MICROS: Final = 24 * _HOUR_MICROS
_VALUES: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date32,
)
"""Tests for the types whose values can divide a table."""
Key = tuple[object, ...]
"""The values of the rules for a row: a string, number, truth value or date; days or hours since 1970; or None."""


@dataclass(frozen=True)
class PartitionRule:
    """One part of the partitioning. `unit`: `date` or `hour` of a timestamp column; "" for the column's value."""

    column: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.unit}({self.column})" if self.unit else self.column

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the value of the rule for each row. Days and hours are 32-bit numbers since 1970."""
        column = batch.column(self.column)
        if not self.unit:
            return column
        if pa.types.is_date32(column.type):
            return column.cast(pa.int32())
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        size = _DAY_MICROS if self.unit == DATE else _HOUR_MICROS
        present = np.asarray(micros.fill_null(0)) // size
        return pa.array(present.astype(np.int32), mask=np.asarray(micros.is_null()))


def parse_rules(texts: Sequence[str]) -> tuple[PartitionRule, ...]:
    """Return the rules that texts such as `user` and `date(timestamp)` name.

    Raises `ConfigError` for a repetition and for another function.
    """
    rules = []
    for text in texts:
        found = _OF_TIME.fullmatch(text.strip())
        if found is None and _CALL.fullmatch(text.strip()):
            raise ConfigError(
                f"partition_by: {text} must be a column, date(COLUMN) or hour(COLUMN): use one of these, or add a"
                " column with this value in the query"
            )
        rules.append(PartitionRule(found[2].strip(), found[1]) if found else PartitionRule(text))
    if len({str(rule).lower() for rule in rules}) < len(rules):
        raise ConfigError("partition_by names a column twice")
    return tuple(rules)


def check_rules(rules: Sequence[PartitionRule], schema: pa.Schema) -> tuple[PartitionRule, ...]:
    """Return the rules with the columns as the schema spells them. Raises `ConfigError` for a wrong column."""
    names = {name.lower(): name for name in schema.names}
    found = []
    for rule in rules:
        if rule.column.lower() not in names:
            text = f"partition_by: there is no column {rule.column}: the columns are {', '.join(schema.names)}"
            raise ConfigError(text)
        named = PartitionRule(names[rule.column.lower()], rule.unit)
        _check_type(named, schema.field(named.column).type)
        found.append(named)
    return tuple(found)


def _check_type(rule: PartitionRule, kind: pa.DataType) -> None:
    is_time = pa.types.is_timestamp(kind)
    if rule.unit:
        if not (is_time or (rule.unit == DATE and pa.types.is_date32(kind))):
            raise ConfigError(
                f"partition_by: {rule} needs a timestamp, and {rule.column} is of the type {kind}: name another column"
            )
    elif not any(is_possible(kind) for is_possible in _VALUES):
        remedy = (
            f"use date({rule.column}) or hour({rule.column})" if is_time else "cast it to string"
        )
        raise ConfigError(f"partition_by: column {rule.column} is of the type {kind}: {remedy}")


def split(
    batch: pa.RecordBatch, rules: Sequence[PartitionRule]
) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each key in a batch. Rows of a key keep their order."""
    if not batch.num_rows:
        return
    if not rules:
        yield (), batch
        return
    columns = [rule.values(batch).dictionary_encode("encode") for rule in rules]
    codes = _joined_codes(columns)
    if (codes == codes[0]).all():
        yield _key(columns, 0), batch
        return
    order = np.argsort(codes, kind="stable")
    borders = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, borders):
        yield _key(columns, int(rows[0])), batch.take(pa.array(rows))


def _joined_codes(columns: Sequence[pa.DictionaryArray]) -> npt.NDArray[np.int64]:
    """Return one number per row, equal for rows with equal values in all columns."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes = codes * len(column.dictionary) + np.asarray(column.indices, dtype=np.int64)
    return codes


def _key(columns: Sequence[pa.DictionaryArray], row: int) -> Key:
    return tuple(column.dictionary[column.indices[row].as_py()].as_py() for column in columns)


TIME_MIN: Final = -62_135_596_800_000_000
"""The first microsecond of the year 1, since 1970: the earliest time that every reader of a table can show."""
TIME_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""


def out_of_range(column: pa.Array) -> pa.Array | None:
    """Return which values of a timestamp or date column are before the year 1 or after 9999; None if there is none."""
    if pa.types.is_timestamp(column.type):
        numbers, least, most = column.cast(pa.int64()), TIME_MIN, TIME_MAX
    elif pa.types.is_date32(column.type):
        numbers, least, most = (
            column.cast(pa.int32()),
            TIME_MIN // _DAY_MICROS,
            TIME_MAX // _DAY_MICROS,
        )
    else:
        return None
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or (found["min"] >= least and found["max"] <= most):
        return None
    return pc.or_(pc.less(numbers, least), pc.greater(numbers, most)).fill_null(False)
