"""Running a pipeline: its Spark session, the end of it in every case, and Ctrl-C.

The contract of a pipeline: a module of this package with a frozen dataclass of settings and
`run(spark, settings, report) -> Summary`. It starts no session and stops none, prints nothing, raises
MinikafkaError for what the user can mend, and leaves errors of Spark as they are: `execute` turns
them into one line (`failures.py`). A stream is run with `streams.run_stream`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from minikafka.pipeline.failures import PipelineError, explain
from minikafka.pipeline.report import Report
from minikafka.pipeline.summary import Summary
from minikafka.spark.session import session

Work: TypeAlias = Callable[[SparkSession, Report], Summary]

_STOP_S: Final = 5.0
"""Maximum time for stopping Spark; the Java process ends with this one anyway."""


@dataclass(frozen=True)
class SparkSettings:
    """Where Spark runs, and its settings by name. `debug`: let Spark write its warnings and errors."""

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
    """Start Spark, do the work, stop Spark, and return the result of the work.

    Raises MinikafkaError for whatever fails, with the error of Spark as its cause, and when the work
    takes longer than `limit_s`; KeyboardInterrupt after the jobs and streams were cancelled.
    """
    level = "WARN" if settings.debug else "OFF"
    try:
        spark = session(name, settings.master, **{"spark.log.level": level, **settings.conf})
    except Exception as error:
        raise explain(error) from error
    try:
        return _in_thread(spark, work, report, limit_s)
    finally:
        _stop(spark)


def _in_thread(spark: SparkSession, work: Work, report: Report, limit_s: float | None) -> Summary:
    """Do the work in a thread of its own: Ctrl-C must not break this thread's connection to Java."""
    results: list[Summary] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work(spark, report))
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            errors.append(error)

    thread = InheritableThread(target=target, session=spark, daemon=True)
    with report.following(spark):
        thread.start()
        thread.join(limit_s)
    if thread.is_alive():
        raise PipelineError(f"not finished within {limit_s:g} s (--timeout)")
    if errors:
        raise explain(errors[0]) from errors[0]
    return results[0]


def _stop(spark: SparkSession) -> None:
    """Stop streams, jobs and Spark, but do not wait long for it."""

    def stop() -> None:
        for query in spark.streams.active:
            query.stop()
        spark.sparkContext.cancelAllJobs()
        spark.stop()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    thread.join(_STOP_S)
