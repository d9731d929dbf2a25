"""Statistics of a data file for the log of a Delta table. They are read from the file's Parquet footer."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow.parquet as pq

_COLUMNS_MAX: Final = 32
"""Maximum number of columns with statistics. Delta Lake has the same limit."""
_TEXT_MAX: Final = 32
_MILLI: Final = timedelta(milliseconds=1)


def statistics(footer: bytes) -> str:
    """Return the statistics of a file as JSON: its number of rows, and the minimum, maximum and nulls of columns."""
    metadata = pq.read_metadata(io.BytesIO(footer))
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, parts in _simple_columns(metadata):
        if all(one.has_null_count for one in parts):
            nulls[name] = sum(one.null_count for one in parts)
        if bounds := _bounds(parts):
            least[name], greatest[name] = bounds
    facts = {"minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps({"numRecords": metadata.num_rows, **facts})


def _simple_columns(metadata: pq.FileMetaData) -> Iterator[tuple[str, list[pq.Statistics]]]:
    """Yield each column that is not nested, of the first columns, with its statistics in each row group."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for index in range(min(metadata.num_columns, _COLUMNS_MAX) if groups else 0):
        parts = [group.column(index) for group in groups]
        name = parts[0].path_in_schema
        is_nested = metadata.schema.column(index).max_repetition_level or "." in name
        found = [part.statistics for part in parts]
        if not is_nested and all(one is not None for one in found):
            yield name, found


def _bounds(parts: Sequence[pq.Statistics]) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of a column. None if a row group lacks them, or their type has no form in JSON."""
    valued = [one for one in parts if one.has_min_max]
    if not valued or any(not one.has_min_max and one.num_values for one in parts):
        return None
    low = _json(min(one.min for one in valued), up=False)
    high = _json(max(one.max for one in valued), up=True)
    return None if low is None or high is None else (low, high)


def _json(value: object, *, up: bool) -> Any:
    """Return a minimum or maximum as JSON. None if its type has no form in JSON, or if the text is too long.

    `up`: it is a maximum. Times are cut to milliseconds, so a maximum is rounded up.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else None
    if isinstance(value, datetime):
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if up and rounded < value:
            try:
                rounded += _MILLI
            except OverflowError:  # the last millisecond of the year 9999
                return None
        text = rounded.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text + "Z" if value.tzinfo is not None else text
    return value.isoformat() if isinstance(value, date) else None
