"""What quickstart and chaos show: a live line per step on a terminal, plain lines elsewhere; tables at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

NEWS_SECONDS = 2.0
"""How often a step that goes on is told of where lines cannot be rewritten."""
PLAIN_WIDTH = 120


class Step:
    """One step of the job, as a context; `done` says what came of it."""

    def __init__(self, display: Display, name: str) -> None:
        self._display = display
        self._name = name
        self._started = self._told = time.monotonic()
        self._line = display.progress.add_task(name, total=None, note="")
        if not display.is_live:
            display.say(f"{name} …")

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line in self._display.progress.task_ids:
            self._display.progress.remove_task(self._line)

    def advance(self, done: float, total: float | None, note: str = "") -> None:
        """How far it is."""
        self._display.progress.update(self._line, completed=done, total=total, note=note)
        now = time.monotonic()
        if not self._display.is_live and now - self._told >= NEWS_SECONDS:
            self._told = now
            amount = f"{done:,.0f} of {total:,.0f}" if total else ""
            self._display.say(f"  {amount}  {note}".rstrip())

    def done(self, note: str) -> None:
        """It is finished; the line stays to be read."""
        seconds = time.monotonic() - self._started
        self._display.progress.remove_task(self._line)
        self._display.say(f"{self._name}: {note} ({seconds:.1f} s)")


class Display:
    """A context in which steps are shown."""

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
        """A step that begins now."""
        return Step(self, name)

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(text, highlight=False, markup=False)
        self.console.file.flush()

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table that stays."""
        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*map(str, row))
        self.console.print(table)
