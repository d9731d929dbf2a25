"""Results as rows: one table of columns gives the text, on wide and narrow terminals, and the objects of the JSON.

The text of the same columns has one of four layouts:

- `lines`: that of Kafka's tools, left-aligned columns that are as wide as needed, whatever the terminal.
- `labelled`: that of kafka-topics.sh, one line of `Title: text` for each row.
- `lay_out`: the project's own, which fits a terminal without cutting a word. If the columns are too wide, some are
  left out, and their titles are returned, so that the caller can say so. If the first cell of a row is too long, it
  gets a line of its own, and the other cells of the row follow on the next line: one long row widens no other row.
  Without a width, every row is one line with all columns, and only the row with the long cell is not aligned.
- `fold`: for data of the user, of any width. Cells that are too wide continue on the next line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import rich.cells as rich_cells
import rich.table as rich_table
import rich.text as rich_text

from minikafka.base.printable import printable

Cell: TypeAlias = str | tuple[str, str]
"""A text, or a text with its style on a terminal."""

_GAP: Final = "  "
_HEAD_MAX: Final = 24
"""Columns are left out for first cells of up to this width; a longer cell gets a line of its own instead."""

_PIPE_HEAD_MAX: Final = 60
"""Width of the first column without a terminal; a row with a longer first cell is not aligned with the others."""


def or_dash(value: object) -> str:
    """Return a value as text; "-" for None."""
    return "-" if value is None else str(value)


class Column(NamedTuple):
    """One column of a result. `value`: reads its value from a row; None if there is none.

    `title`: "" if the text lacks the column. `key`: the name in JSON, "" if the JSON lacks it. `width`: the least one.
    `grows`: the column is as wide as its longest cell. `text`: returns a value as the text of a cell. Only `lay_out`
    reads `drop` and `is_below`, and only `fold` reads `is_right`. `drop`: narrow terminals leave out the columns with a
    number, the lowest first. `is_below`: each cell has a line of its own below its row if the last column is too wide.
    `is_right`: the cells are aligned to the right.
    """

    title: str
    key: str
    value: Callable[[Any], object]
    width: int = 0
    grows: bool = True
    text: Callable[[Any], Cell] = or_dash
    drop: int = 0
    is_below: bool = False
    is_right: bool = False


def objects(columns: Iterable[Column], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the JSON object of each row."""
    known = [column for column in columns if column.key]
    return [{column.key: column.value(row) for column in known} for row in rows]


def labelled(columns: Iterable[Column], row: Any) -> str:
    """Return the titles and texts of a row, separated by tabs."""
    shown = _shown(columns, [row])
    return "\t".join(f"{one.column.title}: {_plain(one.cells[1])}" for one in shown)


def failure(
    outcome: Callable[[Any], Any], reason: Callable[[Any], str] = attrgetter("reason")
) -> tuple[Column, Column]:
    """Return the JSON's columns `error` and `message` of an outcome; both are null for a success."""
    return (
        Column("", "error", lambda row: None if outcome(row).ok else outcome(row).code.name),
        Column("", "message", lambda row: None if outcome(row).ok else reason(outcome(row))),
    )


class _Shown(NamedTuple):
    """A column with its cells, the title first."""

    column: Column
    cells: list[Cell]

    @property
    def width(self) -> int:
        return max(self.column.width, *map(_width, self.cells[: None if self.column.grows else 1]))


def _shown(columns: Iterable[Column], rows: Sequence[Any]) -> list[_Shown]:
    titled = [column for column in columns if column.title]
    return [_Shown(one, [one.title, *(one.text(one.value(row)) for row in rows)]) for one in titled]


def lines(columns: Iterable[Column], rows: Iterable[Any]) -> Iterator[str]:
    """Yield the titles, and a line for each row, in the layout of Kafka's tools."""
    shown = _shown(columns, list(rows))
    widths = [one.width for one in shown]
    for cells in _rows(shown):
        padded = (
            _plain(cell) + " " * (width - _width(cell))
            for cell, width in zip(cells, widths, strict=True)
        )
        yield " ".join(padded).rstrip()


class Grid(NamedTuple):
    """The rows of a table, the titles first, and the titles of the columns that are left out. A row has its lines."""

    rows: list[list[rich_text.Text]]
    hidden: list[str]

    @property
    def lines(self) -> list[rich_text.Text]:
        """The lines of all rows."""
        return [line for row in self.rows for line in row]


def lay_out(columns: Iterable[Column], rows: Iterable[Any], width: int | None) -> Grid:
    """Return the table in at most `width` columns of the terminal (None: any width)."""
    shown = _shown(columns, list(rows))
    below = shown.pop() if shown[-1].column.is_below else None
    hidden = [] if width is None else _leave_out(shown, width)
    room = _PIPE_HEAD_MAX if width is None else width - _rest(shown)
    heads = [_width(cell) for cell in shown[0].cells]
    head = max((size for size in heads if size <= room), default=room)
    sizes = [head, *(one.width for one in shown[1:])]
    table = [
        [_line(cells, sizes)]
        if width is None or _width(cells[0]) <= head
        else [_line(cells[:1], sizes), _line(("", *cells[1:]), sizes)]
        for cells in _rows(shown)
    ]
    return Grid(_with_last(table, below.cells, width) if below else table, hidden)


def _leave_out(shown: list[_Shown], width: int) -> list[str]:
    """Remove columns until the others fit, and return their titles."""
    heads = map(_width, shown[0].cells)
    wanted = max((size for size in heads if size <= _HEAD_MAX), default=0)
    hidden = []
    for one in sorted((one for one in shown if one.column.drop), key=lambda one: one.column.drop):
        if wanted + _rest(shown) > width:
            shown.remove(one)
            hidden.append(one.column.title)
    return hidden


def _with_last(
    table: Sequence[list[rich_text.Text]], cells: Sequence[Cell], width: int | None
) -> list[list[rich_text.Text]]:
    """Return the rows with one more column: next to the others if it fits, else each cell below its row."""
    start = max(row[-1].cell_len for row in table) + len(_GAP)
    if width is not None and start + max(map(_width, cells)) > width:
        own = (rich_text.Text(f"{2 * _GAP}{cell}", "dim") for cell in cells)
        return [[*row, line] for row, line in zip(table, own, strict=True)]
    return [
        [*head, rich_text.Text.assemble(last, " " * (start - last.cell_len), cell)]
        for (*head, last), cell in zip(table, cells, strict=True)
    ]


def _rest(shown: Sequence[_Shown]) -> int:
    """Return the width of all columns after the first one, with their gaps."""
    return sum(one.width + len(_GAP) for one in shown[1:])


def _line(cells: Sequence[Cell], sizes: Sequence[int]) -> rich_text.Text:
    line = rich_text.Text()
    for at, (cell, size) in enumerate(zip(cells, sizes, strict=False)):
        text, style = (cell, "") if isinstance(cell, str) else cell
        line.append(text, style or None)
        if at < len(cells) - 1:
            line.append(" " * (size - _width(cell)) + _GAP)
    line.rstrip()
    return line


def fold(title: str, columns: Iterable[Column], rows: Sequence[Any]) -> rich_table.Table:
    """Return a table whose cells continue on the next line if the table is too wide for the terminal."""
    table = rich_table.Table(title=printable(title), title_justify="left", box=None)
    shown = _shown(columns, rows)
    for one in shown:
        table.add_column(
            printable(one.column.title),
            justify="right" if one.column.is_right else "left",
            overflow="fold",
        )
    _titles, *others = _rows(shown)
    for cells in others:
        table.add_row(*(printable(_plain(cell)) for cell in cells))
    return table


def _rows(shown: Sequence[_Shown]) -> Iterator[tuple[Cell, ...]]:
    return zip(*(one.cells for one in shown), strict=True)


def _width(cell: Cell) -> int:
    return rich_cells.cell_len(_plain(cell))


def _plain(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]
