"""The triggers of streams, and a function that runs a stream until the stream ends."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StateOperatorProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.session.metrics_page import StreamCounts
from minikafka.spark.pipelines.session.report import Bar, Report
from minikafka.spark.pipelines.streams.dead_letters import added
from minikafka.spark.progress import ReadCosts, offsets_behind
from minikafka.spark.source.positions import behind

MAX_OFFSETS_PER_TRIGGER: Final = "1000000"
"""Default of `maxOffsetsPerTrigger` in pipelines, so that a first run is not one giant micro-batch."""
_INTERVAL: Final = re.compile(r"processing-time ([0-9]+ (?:milli)?(?:second|minute|hour)s?)")
_LAST_EVENTS_S: Final = 10.0
_DUPLICATES: Final = "numDroppedDuplicateRows"
"""The metric of Spark's operators that drop duplicates."""


@dataclass(frozen=True)
class Trigger:
    """When micro-batches start. `interval` None: read the records that exist now, then end the stream."""

    interval: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of DataStreamWriter.trigger."""
        if self.interval is None:
            return {"availableNow": True}
        return {"processingTime": self.interval}


AVAILABLE_NOW: Final = Trigger()
CONTINUOUS: Final = Trigger("1 second")


def parse_trigger(text: str) -> Trigger | None:
    """Return the trigger that `text` names; None for "batch". Raises ConfigError for an unknown name."""
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
    """The numbers of micro-batches, rows and unread offsets of one run of a stream."""

    batches: int
    rows_read: int
    rows_written: int | None
    """Number of rows written; None if the sink does not report this number."""
    offsets_behind: int | None
    """Number of unread offsets when the last micro-batch was planned; None if there was no micro-batch."""
    observed: Mapping[str, Mapping[str, Any]]
    """The query's observed metrics, by the name of the observation: sums of numbers, and the first places."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The number of rows that Spark's operators with state have dropped, by reason; see `dropped_by`."""
    query: str = ""
    """The id of the query, which its checkpoint holds."""
    run: str = ""
    """The id that Spark has given to this run of the query."""


def run_stream(
    spark: SparkSession,
    writer: DataStreamWriter,
    trigger: Trigger,
    report: Report,
    *,
    name: str,
    others: Sequence[DataStreamWriter] = (),
) -> StreamTotals:
    """Run a query until the query ends, show its progress, and return its counts.

    `writer`: the stream's writer without a trigger. A stream with an interval runs until Ctrl-C or an error.
    `others`: writers of further queries, with names, that run at the same time. Their observed metrics are in the
    result too. Raises Spark's error if a query fails, after all queries have been stopped.
    """
    with ReadCosts(spark) if report.is_scraped else nullcontext() as costs:
        return _run_counted(spark, [writer, *others], trigger, _Counter(report, name, costs))


def _run_counted(
    spark: SparkSession, writers: Sequence[DataStreamWriter], trigger: Trigger, counter: _Counter
) -> StreamTotals:
    """Run queries until they end. Return the counts of the first one, and the observed metrics of all."""
    report, name = counter.report, counter.name
    spark.streams.addListener(counter)
    spark.streams.resetTerminated()
    queries: list[StreamingQuery] = []
    try:
        with report.stage(name):
            starting = (one.trigger(**trigger.arguments()) for one in writers)
            queries.extend(one.start() for one in starting)
            _wait_for(spark, queries)
            totals, *further = [counter.totals(str(query.runId)) for query in queries]
            observed = {key: row for one in further for key, row in one.observed.items()}
            observed = {**totals.observed, **observed}
            ids = str(queries[0].id), str(queries[0].runId)
            return replace(totals, observed=observed, query=ids[0], run=ids[1])
    finally:
        for query in queries:
            query.stop()
        spark.streams.removeListener(counter)
        for shown in (name, *(query.name for query in queries if query.name)):
            report.stream_ended(shown)


def _wait_for(spark: SparkSession, queries: Sequence[StreamingQuery]) -> None:
    """Wait until all queries have ended. Raise Spark's error as soon as one of them fails."""
    while any(query.isActive for query in queries):
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
    for query in queries:
        query.awaitTermination()


class _Run:
    """The counts of one run of a query."""

    def __init__(self) -> None:
        self.batches = 0
        self.read = 0
        self.written: int | None = None
        self.behind: int | None = None
        self.batch_s = 0.0
        self.observed: dict[str, dict[str, Any]] = {}
        self.dropped: Counter[str] = Counter()
        self.ended = threading.Event()

    def add(self, progress: StreamingQueryProgress) -> None:
        """Add the counts of a progress event. An event without input rows does not count as a micro-batch."""
        self.behind = offsets_of(progress)
        self.batch_s = progress.batchDuration / 1000
        if progress.sink.numOutputRows >= 0:
            self.written = (self.written or 0) + progress.sink.numOutputRows
        if progress.numInputRows:
            self.batches += 1
            self.read += progress.numInputRows
        self.dropped.update(dropped_by(progress.stateOperators))
        for name, row in progress.observedMetrics.items():
            found = self.observed.setdefault(name, {})
            found |= {key: added(found.get(key), value) for key, value in row.asDict().items()}


class _Counter(StreamingQueryListener):
    """Counts the micro-batches of every running query, by run id, and shows the progress."""

    def __init__(self, report: Report, name: str, costs: ReadCosts | None = None) -> None:
        self.report = report
        self.name = name
        self._costs = costs
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def totals(self, run_id: str) -> StreamTotals:
        """Wait at most `_LAST_EVENTS_S` for the last event of a run, and return the run's counts."""
        run = self._run(run_id)
        run.ended.wait(_LAST_EVENTS_S)
        return StreamTotals(
            run.batches, run.read, run.written, run.behind, run.observed, run.dropped
        )

    def _run(self, run_id: str) -> _Run:
        with self._lock:
            return self._runs.setdefault(run_id, _Run())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the query has read no rows yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a micro-batch and show how far the stream is."""
        progress = event.progress
        run = self._run(str(progress.runId))
        run.add(progress)
        total = None if run.behind is None else run.read + run.behind
        note = f"batch {progress.batchId}: {progress.numInputRows:,} rows"
        note += f", {run.behind:,} offsets behind" if run.behind else ""
        name = progress.name or self.name
        self.report.stream(Bar(name, run.read, total, note))
        self.report.counted(name, partial(self._counts, str(progress.runId)))

    def _counts(self, run_id: str) -> StreamCounts:
        run = self._run(run_id)
        found = StreamCounts(run.batches, run.read, run.written, run.behind, run.batch_s)
        if self._costs is None:
            return found
        costs = self._costs.of(run_id)
        return found._replace(bytes_read=costs.bytes, wait_s=costs.wait_s)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: an idle query has read no new rows."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Mark the run as ended, so that `totals` returns its counts."""
        self._run(str(event.runId)).ended.set()


def dropped_by(operators: Sequence[StateOperatorProgress]) -> dict[str, int]:
    """Return the number of rows that operators with state have dropped in a micro-batch, by reason.

    `duplicates` and `late` are numbers of rows of steps that drop duplicates. `late_groups` is of other operators:
    Spark counts their late rows after it has summed up the rows of each task, so a number may stand for more rows.
    """
    found = {"duplicates": 0, "late": 0, "late_groups": 0}
    for one in operators:
        is_unique = _DUPLICATES in one.customMetrics
        found["duplicates"] += one.customMetrics.get(_DUPLICATES, 0)
        found["late" if is_unique else "late_groups"] += one.numRowsDroppedByWatermark
    return found


def offsets_of(progress: StreamingQueryProgress) -> int | None:
    """Return the total number of unread offsets of a query's sources; None if no source reports offsets."""
    found = [_behind(source) for source in progress.sources if offsets_behind(source)]
    return sum(found) if found else None


def _behind(source: SourceProgress) -> int:
    read, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
    return sum(behind(read, latest).values())
