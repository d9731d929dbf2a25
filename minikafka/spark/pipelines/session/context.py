"""Runs a pipeline in a Spark session, always stops the session afterwards, and handles Ctrl-C.

A pipeline is a module of this package with a frozen dataclass of settings and a function
`run(spark, settings, report) -> Summary`. `run` does not start or stop the session, prints nothing, and
raises MinikafkaError for mistakes that the user can correct. `run` does not catch Spark's errors: `execute`
reduces these errors to one line (`failures.py`). A pipeline runs its streams with `streams.run_stream`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyspark.sql import SparkSession

from minikafka.base.errors import MinikafkaError
from minikafka.spark.pipelines.session.failures import PipelineError, explain
from minikafka.spark.pipelines.session.report import Report, Summary
from minikafka.spark.session import session

Work: TypeAlias = Callable[[SparkSession, Report], Summary]

_ERRORS_OF_QUERIES: Final = "SQLQueryContextLogger"
"""The pyspark logger that prints each query error as JSON with the Java stack trace."""
_STOP_S: Final = 5.0
"""Maximum time to wait until Spark has stopped. The Java process ends with this Python process anyway."""


@dataclass(frozen=True)
class SparkSettings:
    """The Spark master and Spark's settings by name. `debug`: show the warnings and errors of Spark."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    debug: bool = False


def execute(
    name: str,
    work: Work,
    settings: SparkSettings,
    report: Report,
    *,
    limit_s: float | None = None,
) -> Summary:
    """Start Spark, call `work`, stop Spark, and return the summary that `work` returned.

    `limit_s`: maximum time for the start of Spark and the work together.
    Raises MinikafkaError for any failure, with Spark's error as the cause, and when `limit_s` has passed.
    Ctrl-C cancels the jobs and streams, then raises KeyboardInterrupt.
    """
    logging.getLogger(_ERRORS_OF_QUERIES).disabled = not settings.debug
    job = _Job(name, work, settings, report)
    thread = threading.Thread(target=job.run, daemon=True)
    try:
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            raise PipelineError(f"not finished within {limit_s:g} s (--timeout)")
    finally:
        _stop(job.spark)
    if job.error is not None:
        raise job.error
    assert job.summary is not None, "a thread ends with a result or an error"
    return job.summary


class _Job:
    """A pipeline that runs in a separate thread, so that Ctrl-C does not break the connection to Java.

    The same thread starts the session, because Spark finds Python data sources only in that thread.
    """

    def __init__(self, name: str, work: Work, settings: SparkSettings, report: Report) -> None:
        self._name = name
        self._work = work
        self._settings = settings
        self._report = report
        self.spark: SparkSession | None = None
        self.summary: Summary | None = None
        self.error: MinikafkaError | None = None

    def run(self) -> None:
        """Start Spark and do the work; store the result in `summary`, or an error in `error`."""
        debug, master = self._settings.debug, self._settings.master
        conf = {
            "spark.log.level": "WARN" if debug else "OFF",
            "spark.sql.pyspark.jvmStacktrace.enabled": str(debug).lower(),
            **self._settings.conf,
        }
        try:
            self._report.note(f"starting Spark on {master}")
            self.spark = session(self._name, master, **conf)
            with self._report.following(self.spark):
                self.summary = self._work(self.spark, self._report)
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            self.error = explain(error)
            self.error.__cause__ = None if self.error is error else error


def _stop(spark: SparkSession | None) -> None:
    """Stop all streams, all jobs and then Spark. Wait at most `_STOP_S` seconds."""
    if spark is None:
        return

    def stop() -> None:
        # A signal to the whole process group also stops Java. The errors of a stopped Java do not help the user.
        with suppress(Exception):
            for query in spark.streams.active:
                query.stop()
            spark.sparkContext.cancelAllJobs()
            spark.stop()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    thread.join(_STOP_S)
