"""Terminal output of the programs in this folder: progress lines and tables.

Without a terminal, progress is printed as plain lines.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

PROGRESS_SECONDS = 2.0
"""Seconds between two progress lines of a step, if the output is not a terminal."""
PLAIN_WIDTH = 120


class Step:
    """A context manager for one step of a job. `done` prints the result of the step."""

    def __init__(self, display: Display, name: str) -> None:
        self._display = display
        self._name = name
        self._started = self._shown = time.monotonic()
        self._line = display.progress.add_task(name, total=None, note="")
        if not display.is_live:
            display.say(f"{name} …")

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line in self._display.progress.task_ids:
            self._display.progress.remove_task(self._line)

    def advance(self, done: float, total: float | None, note: str = "") -> None:
        """Show the progress of the step: `done` of `total`, and a note."""
        self._display.progress.update(self._line, completed=done, total=total, note=note)
        now = time.monotonic()
        if not self._display.is_live and now - self._shown >= PROGRESS_SECONDS:
            self._shown = now
            amount = f"{done:,.0f} of {total:,.0f}" if total else ""
            self._display.say(f"  {amount}  {note}".rstrip())

    def done(self, note: str) -> None:
        """Replace the progress line by a permanent line with the result."""
        seconds = time.monotonic() - self._started
        self._display.progress.remove_task(self._line)
        self._display.say(f"{self._name}: {note} ({seconds:.1f} s)")


class Display:
    """A context manager that shows the progress of steps."""

    def __init__(self) -> None:
        console = Console()
        self.console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
        self.is_live = console.is_terminal
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.is_live,
        )

    def __enter__(self) -> Display:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def step(self, name: str) -> Step:
        """Begin and return a new step."""
        return Step(self, name)

    def say(self, text: str) -> None:
        """Print one line that the progress display does not overwrite."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=not self.is_live)
        self.console.file.flush()

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table."""
        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*map(str, row))
        self.console.print(table)
