"""How far something is, on standard error: live bars on a terminal, a line now and then elsewhere.

Invariant: standard output is never touched, so that what a command prints can be read by a program
while a person watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import click
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from minikafka.base.ports import Clock

NEWS_MS: Final = 2_000
"""How often a line is written where bars cannot be."""
BARS_MAX: Final = 16
"""More at a time would not fit on a screen."""


class Amount(NamedTuple):
    """How much of a thing is done; `total` None when nobody knows. `note` stands behind the bar."""

    done: int
    total: int | None
    note: str = ""

    @property
    def percent(self) -> str:
        """Rounded down, so that 100 % is all of it."""
        return f"{100 * self.done // self.total} %" if self.total else "…"


class Progress:
    """A context; `update` tells everything that goes on now. Without `shown` it says nothing."""

    def __init__(self, clock: Clock, what: str, *, shown: bool) -> None:
        self._clock = clock
        self._what = what
        console = Console(stderr=True)
        self._is_live = shown and console.is_terminal
        self._is_plain = shown and not console.is_terminal
        self._told: int | None = None
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

    def update(self, going_on: Mapping[str, Amount], finished: int) -> None:
        """What goes on now, by name, and how many are finished."""
        total = finished + len(going_on)
        if self._is_live:
            self._draw(going_on, finished, total)
        elif self._is_plain and self._is_news():
            shown = ", ".join(
                f"{name} {amount.percent}" for name, amount in list(going_on.items())[:BARS_MAX]
            )
            more = f", and {len(going_on) - BARS_MAX} more" if len(going_on) > BARS_MAX else ""
            click.echo(f"{finished} of {total} {self._what}: {shown}{more}", err=True)

    def _is_news(self) -> bool:
        now = self._clock.now()
        if self._told is not None and now - self._told < NEWS_MS:
            return False
        self._told = now
        return True

    def _draw(self, going_on: Mapping[str, Amount], finished: int, total: int) -> None:
        rows = dict(list(going_on.items())[:BARS_MAX])
        if total > 1:
            rows = {self._what: Amount(finished, total, f"{finished} of {total}"), **rows}
        for gone in self._rows.keys() - rows.keys():
            self._bars.remove_task(self._rows.pop(gone))
        for name, amount in rows.items():
            if name not in self._rows:
                self._rows[name] = self._bars.add_task(name, note="")
            row = self._rows[name]
            self._bars.update(row, completed=amount.done, total=amount.total, note=amount.note)


def size(count: int) -> str:
    """Bytes for a person: `1.5 MB`."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"
