"""The statistics of a file for the log of a Delta table, from the footer of the file."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow.parquet as pq

_COLUMNS_MAX: Final = 32
"""The number of columns with statistics, as in Delta Lake itself."""
_TEXT_MAX: Final = 32
_MILLI: Final = timedelta(milliseconds=1)


def statistics(footer: bytes) -> str:
    """Return the statistics of a file as JSON: the number of rows, and per column the least and greatest value."""
    metadata = pq.read_metadata(io.BytesIO(footer))
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    columns = metadata.num_columns if metadata.num_row_groups else 0
    for index in range(min(columns, _COLUMNS_MAX)):
        parts = [
            metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)
        ]
        name = parts[0].path_in_schema
        if metadata.schema.column(index).max_repetition_level or "." in name:
            continue
        found = [part.statistics for part in parts]
        if any(one is None for one in found):
            continue
        if all(one.has_null_count for one in found):
            nulls[name] = sum(one.null_count for one in found)
        valued = [one for one in found if one.has_min_max]
        if not valued or any(not one.has_min_max and one.num_values for one in found):
            continue
        low, high = (
            _json(min(one.min for one in valued), up=False),
            _json(max(one.max for one in valued), up=True),
        )
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    facts = {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
    return json.dumps(facts)


def _json(value: object, *, up: bool) -> Any:
    """Return a bound for JSON; None for a type without one. Times have milliseconds, so a maximum is rounded up."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else None
    if isinstance(value, datetime):
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if up and rounded < value:
            rounded += _MILLI
        text = rounded.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text + "Z" if value.tzinfo is not None else text
    return value.isoformat() if isinstance(value, date) else None
