"""Tables on standard output: as wide as the terminal, or 200 columns if the output is not a terminal.

Invariants: characters that are not printable are escaped, in lines and in cells (see `echo.py`). All other text is
printed unchanged. Rich would interpret `[…]` as markup and `:name:` as an emoji, but paths, racks and addresses may
contain both.

A `Grid` fits the width without cutting a word. If it is too wide, columns are left out, and their titles are
returned, so that the caller can say so. If the first cell of a row is too long, it gets a line of its own, and the
other cells of the row follow on the next line: one long row widens no other row. Without a width, every row is one
line with all columns, and only the row with the long cell is not aligned.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minikafka.base.printable import printable

WIDTH_WITHOUT_TERMINAL: Final = 200


class EscapedTable(Table):
    """A table without borders. Its cells and headers are escaped."""

    def __init__(self, *headers: str, **options: Any) -> None:
        super().__init__(*headers, box=None, **options)

    def add_column(self, header: Any = "", *args: Any, **options: Any) -> None:
        """Add a column."""
        super().add_column(escaped(header), *args, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of strings and styled texts."""
        super().add_row(*map(escaped, cells), **options)


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """Print tables and lines; the lines are escaped."""
        super().print(*map(escaped, objects), **options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, as plain output does. Rich would end the process with exit code 1 instead."""
        raise BrokenPipeError


def plain_console() -> Console:
    """Return a console that writes to the current standard output. With NO_COLOR set, it prints no styles."""
    console = _Console(
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def print_lines(console: Console, lines: Sequence[Text]) -> None:
    """Print lines without cutting them.

    A terminal wraps a name or path itself, so that it can be copied. Sentences are wrapped between words.
    """
    for line in lines:
        is_sentence = " " in line.plain.strip()
        console.print(line, soft_wrap=not (console.is_terminal and is_sentence))


def escaped(shown: Any) -> Any:
    """Return a string or a styled text with escapes, and any other object unchanged."""
    if isinstance(shown, str):
        return printable(shown)
    if not isinstance(shown, Text) or shown.plain.isprintable():
        return shown
    result = shown.blank_copy()
    for char in shown.divide(range(1, len(shown))):
        text = Text(printable(char.plain))
        for span in char.spans:
            text.stylize(span.style)
        result.append_text(text)
    return result


Cell: TypeAlias = str | tuple[str, str]
"""A text, or a text with its style on a terminal."""

_GAP: Final = "  "
_HEAD_MAX: Final = 24
"""Columns are left out for first cells of up to this width; a longer cell gets a line of its own instead."""

_PIPE_HEAD_MAX: Final = 60
"""Width of the first column without a terminal; a row with a longer first cell is not aligned with the others."""


class Grid(NamedTuple):
    """The rows of a table, the titles first, and the titles of the columns that are left out.

    A row has one line, or two if its first cell has a line of its own.
    """

    rows: list[list[Text]]
    hidden: list[str]

    @property
    def lines(self) -> list[Text]:
        """The lines of all rows."""
        return [line for row in self.rows for line in row]


def lay_out(
    titles: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int | None,
    optional: Sequence[str] = (),
) -> Grid:
    """Return the table in at most `width` columns of the terminal (None: any width).

    `optional`: the titles of columns that may be left out, in this order.
    """
    hidden: list[str] = []
    widths = [max(_width(row[at]) for row in (titles, *rows)) for at in range(len(titles))]
    shown = list(range(len(titles)))
    heads = [_width(row[0]) for row in (titles, *rows)]
    wanted = max(size for size in (*heads, 0) if size <= _HEAD_MAX)
    while (
        width is not None and wanted + _rest(widths, shown) > width and len(hidden) < len(optional)
    ):
        title = optional[len(hidden)]
        hidden.append(title)
        if title in titles:
            shown.remove(titles.index(title))
    room = _PIPE_HEAD_MAX if width is None else width - _rest(widths, shown)
    widths[0] = max((size for size in heads if size <= room), default=room)
    laid_out = []
    for row in (titles, *rows):
        cells, sizes, lines = [row[at] for at in shown], [widths[at] for at in shown], []
        if width is not None and _width(row[0]) > widths[0]:
            lines.append(_line(cells[:1], [0]))
            cells[0] = ""
        laid_out.append([*lines, _line(cells, sizes)])
    return Grid(laid_out, [title for title in hidden if title in titles])


def with_last_column(grid: Grid, cells: Sequence[str], width: int | None) -> list[Text]:
    """Return the lines of a table with one more column of long cells, such as paths.

    If the column does not fit next to the others, each cell gets a line of its own below its row.
    """
    start = max(row[-1].cell_len for row in grid.rows) + len(_GAP)
    if width is not None and start + max(map(cell_len, cells)) > width:
        own_lines = (Text(f"{2 * _GAP}{cell}", "dim") for cell in cells)
        return [line for row, own in zip(grid.rows, own_lines, strict=True) for line in (*row, own)]
    return [
        line
        for (*head, last), cell in zip(grid.rows, cells, strict=True)
        for line in (*head, Text.assemble(last, " " * (start - last.cell_len), cell))
    ]


def _rest(widths: Sequence[int], shown: Sequence[int]) -> int:
    """Return the width of all columns after the first one, with their gaps."""
    return sum(widths[at] + len(_GAP) for at in shown[1:])


def _width(cell: Cell) -> int:
    return cell_len(cell if isinstance(cell, str) else cell[0])


def _line(cells: Sequence[Cell], widths: Sequence[int]) -> Text:
    line = Text()
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text, style = (cell, "") if isinstance(cell, str) else cell
        line.append(text, style or None)
        if at < len(cells) - 1:
            line.append(" " * (width - cell_len(text)) + _GAP)
    line.rstrip()
    return line
