"""Tables in the layout of Kafka's tools: left-aligned columns that are as wide as needed, whatever the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table_lines(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    growing: Iterable[int],
) -> Iterator[str]:
    """Yield lines of left-aligned columns. `growing`: indexes of columns that grow to their longest cell."""
    sizes = list(widths)
    for column in growing:
        sizes[column] = max([sizes[column], *(len(row[column]) for row in rows)])
    for row in (header, *rows):
        yield " ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True)).rstrip()


def fitted_lines(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield lines of columns that are as wide as their longest cell. None is printed as "-"."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    return table_lines(header, cells, [len(title) for title in header], range(len(header)))
