"""The output of a pipeline on a terminal: progress, tables and the summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Self

from rich.table import Table as RichTable

from minikafka.runtime.clock import SystemClock
from minikafka.spark.pipelines.session.report import Bar, Fact, Summary, Table
from minikafka.tools.cli.terminal.columns import Column, fold
from minikafka.tools.cli.terminal.console import plain_console
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cli.terminal.progress import Amount, Progress


class TerminalDisplay:
    """Progress on standard error: bars on a terminal, else lines. If `shown` is false, no progress is shown.

    Tables go to standard output. With `as_json` they go to standard error, because the JSON document goes to
    standard output.
    """

    def __init__(self, *, shown: bool, as_json: bool = False) -> None:
        self._shown = shown
        self._as_json = as_json
        self._progress = Progress(SystemClock(), "", shown=shown)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__()

    def show(self, bars: Sequence[Bar]) -> None:
        """Show the progress of the running steps."""
        self._progress.update({bar.name: Amount(bar.done, bar.total, bar.note) for bar in bars})

    def note(self, text: str) -> None:
        """Print a line on standard error, if `shown` is set."""
        if self._shown:
            echo(text, err=True)

    def table(self, table: Table) -> None:
        """Print a table of the user's data, with the names and values unchanged."""
        console = plain_console()
        console.stderr = self._as_json
        console.print(_folded(table, _data))
        console.file.flush()


def print_summary(summary: Summary) -> None:
    """Print the title, facts and tables of a summary to standard output."""
    echo(summary.title)
    width = max((len(name) for name in summary.facts), default=0)
    for name, fact in summary.facts.items():
        echo(f"  {name.replace('_', ' '):<{width}}  {_text(fact)}")
    console = plain_console()
    for table in summary.tables:
        echo()
        console.print(_folded(table, _text, between=" "))


def _folded(table: Table, text: Callable[[Fact], str], between: str = "_") -> RichTable:
    """Return a table for the terminal. `between`: separates the words of the titles."""
    columns = [
        Column(
            name.replace("_", between),
            name,
            itemgetter(index),
            text=text,
            is_right=all(isinstance(row[index], int | float) for row in table.rows),
        )
        for index, name in enumerate(table.columns)
    ]
    return fold(table.name.replace("_", " "), columns, table.rows)


def _data(fact: Fact) -> str:
    """Return a value as text."""
    if fact is None or isinstance(fact, bool):
        return {None: "null", True: "true", False: "false"}[fact]
    return str(fact)


def _text(fact: Fact) -> str:
    if fact is None:
        return "-"
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int):
        return f"{fact:,}"
    return f"{fact:,.3f}" if isinstance(fact, float) else fact
