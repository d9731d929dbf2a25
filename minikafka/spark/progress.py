"""What Spark reports about queries: the metrics of observations, and the lag of a stream behind its topics.

A Python data source cannot add metrics to the progress of a query. But the progress contains the latest
offsets and the read offsets of each source. A listener on the driver computes the lag from these offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Observation
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from minikafka.base.errors import ConfigError
from minikafka.spark.source.positions import behind


def metrics_of(seen: Observation) -> dict[str, Any]:
    """Return the metrics of an observation after its query has ended; {} if the query did not run the observed rows.

    `Observation.get` raises an AssertionError if the optimizer has removed the rows from the plan, for example because
    the other side of a join is empty. It waits for ever if they are not in the plan, for example in an unused view.
    """
    observation: Any = seen._jo
    context: Any = SparkContext._active_spark_context
    if not observation.future().isCompleted():
        context._jsc.sc().listenerBus().waitUntilEmpty()
    if not observation.future().isCompleted() or not observation.getRow().size():
        return {}
    return seen.get


@dataclass(frozen=True)
class OffsetsBehind:
    """The lag, in offsets, of the partitions of one source at the time when a micro-batch was planned."""

    average: float
    least: int
    most: int


def offsets_behind(source: SourceProgress) -> OffsetsBehind | None:
    """Return the lag of a source; None if the source is not of the format `minikafka`, or has no offsets."""
    try:
        read, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
        found = list(behind(read or {}, latest or {}).values())
    except (ValueError, TypeError, ConfigError):
        return None
    return OffsetsBehind(sum(found) / len(found), min(found), max(found)) if found else None


class OffsetsBehindListener(StreamingQueryListener):
    """Calls `report(progress, behind)` for each micro-batch and each `minikafka` source.

    Usage: `spark.streams.addListener(OffsetsBehindListener(report))`. A thread of the driver makes the calls.
    """

    def __init__(self, report: Callable[[StreamingQueryProgress, OffsetsBehind], None]) -> None:
        self._report = report

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Call `report` for each `minikafka` source of a micro-batch."""
        for source in event.progress.sources:
            if found := offsets_behind(source):
                self._report(event.progress, found)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no offsets yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: Spark reports no offsets while a query is idle."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last progress has already been reported."""
