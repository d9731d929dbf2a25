"""Streams of a pipeline: their triggers, and running one until it ends."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter

from minikafka.base.errors import ConfigError
from minikafka.pipeline.report import Bar, Report
from minikafka.spark.progress import offsets_behind
from minikafka.spark.source.positions import behind

MAX_OFFSETS_PER_TRIGGER: Final = "1000000"
"""Default of `maxOffsetsPerTrigger` in pipelines, so that a first run is not one giant micro-batch."""
_INTERVAL: Final = re.compile(r"processing-time ([0-9]+ (?:milli)?(?:second|minute|hour)s?)")
_LAST_EVENTS_S: Final = 10.0


@dataclass(frozen=True)
class Trigger:
    """When micro-batches start. `interval`: None reads the records that exist now, then ends the stream."""

    interval: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of DataStreamWriter.trigger."""
        if self.interval is None:
            return {"availableNow": True}
        return {"processingTime": self.interval}


AVAILABLE_NOW: Final = Trigger()
CONTINUOUS: Final = Trigger("1 second")


def parse_trigger(text: str) -> Trigger | None:
    """Return the trigger that `text` names; None if it is "batch", which is no stream. Raises ConfigError."""
    if text == "batch":
        return None
    if text == "available-now":
        return AVAILABLE_NOW
    if found := _INTERVAL.fullmatch(text):
        return Trigger(found[1])
    raise ConfigError(
        f'trigger must be "available-now", "batch" or "processing-time N seconds", not {text!r}'
    )


@dataclass(frozen=True)
class StreamTotals:
    """The counts of one run of a stream."""

    batches: int
    rows_read: int
    rows_written: int | None
    """None if the sink does not report this number."""
    offsets_behind: int | None
    """Offsets that were not read yet when the last micro-batch was planned; None without a micro-batch."""
    observed: Mapping[str, Mapping[str, int]]
    """Sums of the metrics that the query observes, by the name of the observation."""


def run_stream(
    spark: SparkSession, writer: DataStreamWriter, trigger: Trigger, report: Report, *, name: str
) -> StreamTotals:
    """Start the query, show its micro-batches until it ends, and return its counts.

    The writer is complete except for its trigger. A stream with an interval runs until Ctrl-C or an error.
    Raises Spark's error if the query fails.
    """
    counter = _Counter(report, name)
    spark.streams.addListener(counter)
    try:
        with report.stage(name):
            query = writer.trigger(**trigger.arguments()).start()
            query.awaitTermination()
            return counter.totals(str(query.runId))
    finally:
        spark.streams.removeListener(counter)
        report.stream_ended(name)


class _Run:
    """The counts of one run of a query."""

    def __init__(self) -> None:
        self.batches = 0
        self.read = 0
        self.written: int | None = None
        self.behind: int | None = None
        self.observed: dict[str, Counter[str]] = {}
        self.ended = threading.Event()

    def add(self, progress: StreamingQueryProgress) -> None:
        """Add the counts of a progress event; an event without input rows is not counted as a micro-batch."""
        self.behind = offsets_of(progress)
        if progress.sink.numOutputRows >= 0:
            self.written = (self.written or 0) + progress.sink.numOutputRows
        if progress.numInputRows:
            self.batches += 1
            self.read += progress.numInputRows
        for name, row in progress.observedMetrics.items():
            self.observed.setdefault(name, Counter()).update(row.asDict())


class _Counter(StreamingQueryListener):
    """Counts the micro-batches of every running query, by run id, and shows them as progress."""

    def __init__(self, report: Report, name: str) -> None:
        self._report = report
        self._name = name
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def totals(self, run_id: str) -> StreamTotals:
        """Wait at most `_LAST_EVENTS_S` for the last event of a run, and return the run's counts."""
        run = self._run(run_id)
        run.ended.wait(_LAST_EVENTS_S)
        return StreamTotals(run.batches, run.read, run.written, run.behind, run.observed)

    def _run(self, run_id: str) -> _Run:
        with self._lock:
            return self._runs.setdefault(run_id, _Run())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: nothing was read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a micro-batch and show how far the stream is."""
        progress = event.progress
        run = self._run(str(progress.runId))
        run.add(progress)
        total = None if run.behind is None else run.read + run.behind
        note = f"batch {progress.batchId}: {progress.numInputRows:,} rows"
        note += f", {run.behind:,} offsets behind" if run.behind else ""
        self._report.stream(Bar(self._name, run.read, total, note))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: an idle query has read nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Mark the run as ended, so that `totals` returns its counts."""
        self._run(str(event.runId)).ended.set()


def offsets_of(progress: StreamingQueryProgress) -> int | None:
    """Return by how many offsets a query's sources are behind in total; None if no source reports any."""
    found = [_behind(source) for source in progress.sources if offsets_behind(source)]
    return sum(found) if found else None


def _behind(source: SourceProgress) -> int:
    read, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
    return sum(behind(read, latest).values())
