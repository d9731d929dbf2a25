"""What is known about queries: the metrics of observations, the lag of a stream, and the costs of its reads.

A Python data source cannot add metrics to the progress of a query. But the progress contains the latest
offsets and the read offsets of each source. A listener on the driver computes the lag from these offsets. The tasks
send the costs of their reads to the driver themselves (`source.costs`).
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Observation, SparkSession
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
from minikafka.spark.source.costs import DATAGRAM_BYTES, PROPERTY, Costs, CountingPort, received
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


_END_S: Final = 0.1
"""Time after which the end of the counting is asked for again."""


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


class ReadCosts:
    """Counts what the reads of queries cost. A context manager; it counts queries that its thread starts in its body.

    Usage: `with ReadCosts(spark) as costs: query = ….start(); …; costs.of(query.runId)`. The tasks send datagrams to
    a UDP port of the driver, at the address of Spark's own ports (`spark.driver.host`). The counts are too low if
    a firewall stops the datagrams. Needs a session without Spark Connect. Raises OSError if no port can be opened.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._token = os.urandom(16).hex()
        self._costs: defaultdict[str, Costs] = defaultdict(Costs)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def of(self, run: object) -> Costs:
        """Return the costs of the finished tasks of a run of a query; of batch reads for the run ""."""
        with self._lock:
            return replace(self._costs[str(run)])

    def __enter__(self) -> ReadCosts:
        settings = self._context.getConf()
        host = settings.get("spark.driver.host") or ""
        bound = settings.get("spark.driver.bindAddress") or host
        family, kind, number, _, place = socket.getaddrinfo(bound, 0, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, kind, number)
        try:
            self._socket.bind(place)
        except OSError:
            self._socket.close()
            raise
        self._place = self._socket.getsockname()
        self._thread.start()
        address = CountingPort(host, self._place[1], self._token)
        self._context.setLocalProperty(PROPERTY, json.dumps(address))
        return self

    def __exit__(self, *_: object) -> None:
        self._context.setLocalProperty(PROPERTY, None)  # type: ignore[arg-type]
        with self._socket:
            while self._thread.is_alive():  # a datagram gets lost if many others wait
                self._socket.sendto(self._token.encode(), self._place)
                self._thread.join(_END_S)

    def _count(self) -> None:
        """Count datagrams until one has only the token."""
        while (datagram := self._socket.recv(DATAGRAM_BYTES)) != self._token.encode():
            if found := received(datagram, self._token):
                with self._lock:
                    self._costs[found[0]].add(found[1])
