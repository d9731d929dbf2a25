"""Progress on standard error: live bars on a terminal, occasional lines elsewhere.

Invariant: nothing is written to standard output, because another program may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from minikafka.base.ports import Clock
from minikafka.base.printable import printable
from minikafka.tools.cli.terminal.echo import echo

LINE_INTERVAL_MS: Final = 2_000
"""Minimum time between two lines when standard error is not a terminal."""
BARS_MAX: Final = 16
"""Maximum number of bars, so that they fit on a screen."""


class Amount(NamedTuple):
    """The amount of work done, and the total amount (None: unknown). `note` is printed after the bar."""

    done: int
    total: int | None
    note: str = ""

    @property
    def percent(self) -> str:
        """The percentage as text, rounded down, so that 100 % means that all work is done."""
        return f"{100 * self.done // self.total} %" if self.total else "?"

    @property
    def text(self) -> str:
        """The percentage, then `note` in parentheses if `note` is not empty: `50 % (1 MB of 2 MB)`."""
        return f"{self.percent} ({self.note})" if self.note else self.percent


class Progress:
    """The progress display of several tasks; a context manager. Nothing is printed if `shown` is false.

    `what`: the name of finished tasks, such as "topics deleted"; "" if finished tasks are not counted.
    """

    def __init__(self, clock: Clock, what: str, *, shown: bool) -> None:
        self._clock = clock
        self._what = what
        console = Console(stderr=True)
        self._is_live = shown and console.is_terminal
        self._is_plain = shown and not console.is_terminal
        self._last_time: int | None = None
        self._last_line = ""
        self._rows: dict[str, TaskID] = {}
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not self._is_live,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def update(self, active: Mapping[str, Amount], finished: int = 0) -> None:
        """Show the active tasks by name, and the number of finished tasks."""
        active = {
            printable(name): amount._replace(note=printable(amount.note))
            for name, amount in active.items()
        }
        total = finished + len(active)
        if self._is_live:
            self._draw(active, finished, total)
        elif self._is_plain and self._is_line_due():
            shown = ", ".join(
                f"{name} {amount.text}" for name, amount in list(active.items())[:BARS_MAX]
            )
            more = f", and {len(active) - BARS_MAX} more" if len(active) > BARS_MAX else ""
            counted = f"{finished} of {total} {self._what}: " if self._what else ""
            self._print(f"{counted}{shown}{more}")

    def say(self, line: str) -> None:
        """Print a line above the display."""
        if self._is_live:
            self._bars.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
        elif self._is_plain:
            echo(line, err=True)

    def _is_line_due(self) -> bool:
        now = self._clock.now()
        if self._last_time is not None and now - self._last_time < LINE_INTERVAL_MS:
            return False
        self._last_time = now
        return True

    def _print(self, line: str) -> None:
        """Print the line, except if it equals the last line: a log must not grow while nothing changes."""
        if line != self._last_line:
            echo(line, err=True)
        self._last_line = line

    def _draw(self, active: Mapping[str, Amount], finished: int, total: int) -> None:
        rows = dict(list(active.items())[:BARS_MAX])
        if self._what and total > 1:
            rows = {self._what: Amount(finished, total, f"{finished} of {total}"), **rows}
        for gone in self._rows.keys() - rows.keys():
            self._bars.remove_task(self._rows.pop(gone))
        for name, amount in rows.items():
            if name not in self._rows:
                self._rows[name] = self._bars.add_task(name, note="")
            row = self._rows[name]
            self._bars.update(row, completed=amount.done, total=amount.total, note=amount.note)


def size(count: int) -> str:
    """Return a number of bytes as text with a unit, for example `1.5 MB`."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"
