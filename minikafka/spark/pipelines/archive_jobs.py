"""The Spark jobs of an archive: each writes a few offset ranges, which the driver adds before the next job begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from pyspark.sql import SparkSession

from minikafka.spark.parquet.archive_directory import Tile
from minikafka.spark.pipelines.session.report import Bar, Report

_ROUNDS_PER_JOB: Final = 2
"""Offset ranges per core that one job writes."""


class Work(Protocol):
    """The work of one task: an offset range of a partition."""

    @property
    def tile(self) -> Tile:
        """The offset range."""


Some = TypeVar("Some", bound=Work)


def write_in_jobs(
    spark: SparkSession,
    report: Report,
    topics: Sequence[str],
    works: Sequence[Some],
    write: Callable[[Sequence[Some]], None],
) -> None:
    """Call `write` with the works of each job, and report how many offsets were written before."""
    size = _ROUNDS_PER_JOB * spark.sparkContext.defaultParallelism
    name = f"archive {', '.join(topics)}"
    total = _offsets(works)
    for first in range(0, len(works), size):
        before = _offsets(works[:first])
        report.stream(Bar(name, before, total, f"{before:,} of {total:,} offsets"))
        with report.stage(name):
            write(works[first : first + size])
    report.stream_ended(name)


def _offsets(works: Sequence[Work]) -> int:
    return sum(work.tile.end - work.tile.start for work in works)
