"""Results as rows: one table of columns gives the lines of the text and the objects of the JSON.

The lines have the layout of Kafka's tools: left-aligned columns that are as wide as needed, whatever the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


class Column(NamedTuple):
    """One column of a result. `value`: reads its value from a row; None if there is none.

    `title`: "" if the text lacks the column. `key`: the name in JSON, "" if the JSON lacks it. `width`: by default that
    of the title. `grows`: the column is as wide as its longest cell. `text`: returns a value as the text of a cell.
    """

    title: str
    key: str
    value: Callable[[Any], object]
    width: int | None = None
    grows: bool = True
    text: Callable[[Any], str] = _shown


def lines(columns: Iterable[Column], rows: Iterable[Any]) -> Iterator[str]:
    """Yield the titles, and a line for each row."""
    shown = [column for column in columns if column.title]
    table = [[column.title for column in shown]]
    table += [[column.text(column.value(row)) for column in shown] for row in rows]
    sizes = [_size(column, [row[at] for row in table[1:]]) for at, column in enumerate(shown)]
    for cells in table:
        yield " ".join(map(str.ljust, cells, sizes)).rstrip()


def _size(column: Column, cells: Sequence[str]) -> int:
    width = len(column.title) if column.width is None else column.width
    return max([width, *map(len, cells)]) if column.grows else width


def objects(columns: Iterable[Column], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the JSON object of each row."""
    known = [column for column in columns if column.key]
    return [{column.key: column.value(row) for column in known} for row in rows]
