"""The progress and the result of a pipeline, as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import click
from rich.table import Table as Grid

from minikafka.cli.console import plain_console
from minikafka.cli.progress import Amount, Progress
from minikafka.pipeline.report import Bar
from minikafka.pipeline.summary import Fact, Summary, Table
from minikafka.runtime.clock import SystemClock


class TerminalDisplay:
    """Progress on standard error: bars on a terminal, else lines; nothing unless `shown`.

    Rows go to standard output, or with `as_json`, whose document is there, to standard error.
    """

    def __init__(self, *, shown: bool, as_json: bool = False) -> None:
        self._shown = shown
        self._as_json = as_json
        self._progress = Progress(SystemClock(), "steps", shown=shown)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__()

    def show(self, bars: Sequence[Bar], finished: int) -> None:
        """Show the running steps, and the number of finished ones."""
        amounts = {bar.name: Amount(bar.done, bar.total, bar.note) for bar in bars}
        self._progress.update(amounts, finished)

    def note(self, text: str) -> None:
        """Print a line."""
        if self._shown:
            click.echo(text, err=True)

    def table(self, table: Table) -> None:
        """Print the rows of a table."""
        console = plain_console()
        console.stderr = self._as_json
        console.print(_grid(table))
        console.file.flush()


def print_summary(summary: Summary) -> None:
    """Print title, facts and tables to standard output."""
    click.echo(summary.title)
    width = max((len(name) for name in summary.facts), default=0)
    for name, fact in summary.facts.items():
        click.echo(f"  {name.replace('_', ' '):<{width}}  {_text(fact)}")
    console = plain_console()
    for table in summary.tables:
        click.echo()
        console.print(_grid(table))


def _grid(table: Table) -> Grid:
    grid = Grid(title=table.name.replace("_", " "), title_justify="left", box=None)
    for index, column in enumerate(table.columns):
        numbers = all(isinstance(row[index], int | float) for row in table.rows)
        grid.add_column(column.replace("_", " "), justify="right" if numbers else "left")
    for row in table.rows:
        grid.add_row(*map(_text, row))
    return grid


def _text(fact: Fact) -> str:
    if fact is None:
        return "-"
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int):
        return f"{fact:,}"
    return f"{fact:,.3f}" if isinstance(fact, float) else fact
