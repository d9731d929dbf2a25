"""The progress and the result of a pipeline.

Every pipeline receives a `Report`, and names its steps with `with report.stage("read events"):`. The tasks
of the Spark stages that run during a step are counted and shown automatically. It returns a `Summary`, which the
command prints as text or as one JSON document.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from pyspark.sql import SparkSession

from minikafka.spark.pipelines.session.metrics_page import StreamCounts

Fact: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows of a result. The names in `columns` are the keys of each row in JSON."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Fact, ...], ...]


@dataclass(frozen=True)
class Summary:
    """The result of a pipeline. `ok`: True for success (exit code 0), False for failure (exit code 1).

    `facts`: values by name, in the order in which they are printed. The JSON document uses the same names.
    The text output shows each `_` in a name as a space. A fact must not have the name of a table, because
    both are keys of the JSON document.
    """

    title: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    ok: bool = True

    def __post_init__(self) -> None:
        if both := self.facts.keys() & {table.name for table in self.tables}:
            raise ValueError(f"a fact and a table have the same name: {', '.join(sorted(both))}")

    def document(self) -> dict[str, object]:
        """Return the JSON document: title, ok, the facts by name, and each table as a list of objects."""
        tables = {
            table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
            for table in self.tables
        }
        return {"title": self.title, "ok": self.ok, **self.facts, **tables}


_INTERVAL_S: Final = 0.5
"""Seconds between two requests for the state of Spark's stages."""
_TASKS: Final = "Spark"
"""Name of the progress bar of Spark's tasks if a progress bar of a stream is shown too.

Without a stream, the progress bar of Spark's tasks has the name of the step.
"""


class Bar(NamedTuple):
    """A progress bar: the work done, the total (None if unknown), and a note that is shown after both."""

    name: str
    done: int
    total: int | None
    note: str = ""


class Display(Protocol):
    """An object that shows progress. Its methods are called from several threads."""

    def show(self, bars: Sequence[Bar]) -> None:
        """Show the progress bars of the running steps; no two bars have the same name."""

    def note(self, text: str) -> None:
        """Print one line."""

    def table(self, table: Table) -> None:
        """Print rows of a pipeline's result while the pipeline still runs."""


class Silent:
    """A display that shows nothing, for `--quiet`, `--json` and tests."""

    def show(self, bars: Sequence[Bar]) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def table(self, table: Table) -> None:
        """Do nothing."""


class Report:
    """The progress of one pipeline; it is safe to call from any thread."""

    def __init__(self, display: Display | None = None) -> None:
        self._display = display or Silent()
        self._lock = threading.Lock()
        self._stages: list[str] = []
        self._streams: dict[str, Bar] = {}
        self._counts: dict[str, Callable[[], StreamCounts]] = {}
        self.is_scraped = False
        """True if a page shows the counts: then streams count the costs of their reads too."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show `name` as the current step during the `with` body. Of nested steps, the innermost is shown."""
        with self._lock:
            self._stages.append(name)
        try:
            yield
        finally:
            with self._lock:
                self._stages.remove(name)

    def note(self, text: str) -> None:
        """Print a line about an event."""
        self._display.note(text)

    def table(self, table: Table) -> None:
        """Print rows of the pipeline's result while the pipeline still runs."""
        self._display.table(table)

    def stream(self, bar: Bar) -> None:
        """Show the progress bar of a stream. If a bar with the same name is shown, replace that bar."""
        with self._lock:
            self._streams[bar.name] = bar

    def counted(self, name: str, counts: Callable[[], StreamCounts]) -> None:
        """Set the function that returns the counts of a stream, also those that the metrics show after its end."""
        with self._lock:
            self._counts[name] = counts

    def counts(self) -> dict[str, StreamCounts]:
        """Return the counts of each stream by name."""
        with self._lock:
            found = dict(self._counts)
        return {name: counts() for name, counts in found.items()}

    def stream_ended(self, name: str) -> None:
        """Remove the progress bar of a stream that has ended."""
        with self._lock:
            self._streams.pop(name, None)

    @contextmanager
    def following(self, spark: SparkSession) -> Iterator[None]:
        """Show the tasks of Spark's active stages while the `with` body runs."""
        stopped = threading.Event()
        thread = threading.Thread(target=self._follow, args=(spark, stopped), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join(_INTERVAL_S)

    def _follow(self, spark: SparkSession, stopped: threading.Event) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not stopped.wait(_INTERVAL_S):
            try:
                active = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            except Exception:  # noqa: BLE001 - Spark has stopped: its client raises errors of many types
                return
            known = [stage for stage in active if stage is not None]
            done = sum(stage.numCompletedTasks for stage in known)
            self._show(done, sum(stage.numTasks for stage in known))

    def _show(self, done: int, tasks: int) -> None:
        with self._lock:
            bars = list(self._streams.values())
            if self._stages and not (bars and not tasks):
                note = f"{done} of {tasks} tasks" if tasks else ""
                name = _TASKS if bars else self._stages[-1]
                bars.append(Bar(name, done, tasks or None, note))
        if bars:
            self._display.show(bars)
