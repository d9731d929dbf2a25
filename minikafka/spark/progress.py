"""How far a stream is behind its topics: what Spark's own Kafka source reports as metrics.

A data source in Python cannot add metrics to the progress of a query. The progress holds the latest
and the read offsets of each source, from which a listener on the driver computes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class OffsetsBehind:
    """How many offsets a query was behind the partitions of one source when a batch was planned."""

    average: float
    least: int
    most: int


def offsets_behind(source: SourceProgress) -> OffsetsBehind | None:
    """Return by how many offsets a source is behind; None if it is of another format or has no offsets."""
    try:
        read, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
        found = list(behind(read or {}, latest or {}).values())
    except (ValueError, TypeError, ConfigError):
        return None
    return OffsetsBehind(sum(found) / len(found), min(found), max(found)) if found else None


class OffsetsBehindListener(StreamingQueryListener):
    """Calls `report(progress, behind)` for each micro-batch and each source of this format.

    `spark.streams.addListener(OffsetsBehindListener(report))`; the calls come from a thread of the driver.
    """

    def __init__(self, report: Callable[[StreamingQueryProgress, OffsetsBehind], None]) -> None:
        self._report = report

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Call `report` for each source of this format in a micro-batch."""
        for source in event.progress.sources:
            if found := offsets_behind(source):
                self._report(event.progress, found)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no offsets yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: Spark reports no offsets while a query is idle."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last progress was reported before."""
