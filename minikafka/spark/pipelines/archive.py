"""The archive pipeline: writes each record of the topics once, to Parquet files named by offset range.

The archive needs no checkpoint. Each run continues after the last archived file of a partition, and fills
the gaps that an interrupted run left. Spark's tasks write staged files, and only the driver moves staged
files into the archive. A record is therefore archived once even if Spark runs a task twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock
from minikafka.spark.key_stores import prepared
from minikafka.spark.option_map import SERVERS
from minikafka.spark.parquet import archive_save
from minikafka.spark.parquet.archive_directory import ArchiveDirectory, Tile, cut, gaps
from minikafka.spark.parquet.archive_save import Save
from minikafka.spark.pipelines.archive_history import check_history, lost_part
from minikafka.spark.pipelines.archive_jobs import write_in_jobs
from minikafka.spark.pipelines.session.report import Report, Summary, Table
from minikafka.spark.source import planning
from minikafka.spark.source.options import Mode, ReadOptions, parse
from minikafka.spark.source.positions import Positions
from minikafka.spark.source.subscription import SUBSCRIBE
from minikafka.spark.wire.leaders import Position
from minikafka.spark.workers import run_tasks

if TYPE_CHECKING:
    from minikafka.spark.lakehouse.tables import LakeSettings

RECORDS_PER_FILE: Final = 1_000_000


@dataclass(frozen=True)
class ArchiveSettings:
    """The settings of the archive pipeline. `interval_s`: seconds between passes; None for a single pass."""

    servers: str
    topics: tuple[str, ...]
    directory: str
    interval_s: float | None = None
    records_per_file: int = RECORDS_PER_FILE
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store, if `directory` is a URI. They may be secrets."""
    skip_lost: bool = False
    """Continue if records were deleted before they were archived; list the lost offsets in `_runs/`."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options that protect connections."""

    table: LakeSettings | None = None
    """The table of Delta Lake or Iceberg that holds the archive; None for Parquet files in `directory`."""

    def archive(self) -> ArchiveDirectory:
        """Return the archive. Raises `ConfigError`."""
        return ArchiveDirectory(self.directory, self.storage)

    def read_options(self) -> ReadOptions:
        """Return the options for reading committed records with their headers. Lost records raise an error."""
        is_nulled = self.table is not None and self.table.nulls_timestamps
        options = {
            SERVERS: self.servers,
            SUBSCRIBE: ",".join(self.topics),
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            **self.security,
            "failOnTimestampOverflow": str(not is_nulled).lower(),
        }
        return prepared(parse(options, Mode.STREAM))


@dataclass
class _Run:
    """The files that one run of the pipeline has archived so far, and the offset ranges that were lost."""

    name: str
    topics: tuple[str, ...]
    files: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)

    def total(self, fact: str) -> int:
        """Return the total of `fact` (`records` or `bytes`) over the files that this run has archived."""
        return sum(file[fact] for file in self.files)


def run(spark: SparkSession, settings: ArchiveSettings, report: Report) -> Summary:
    """Archive the records that exist now and return the counts; with an interval, repeat until Ctrl-C."""
    if settings.table is not None:
        from minikafka.spark.pipelines import archive_table

        archive = archive_table.TableArchive(
            topics=settings.topics,
            options=settings.read_options(),
            table=settings.table,
            interval_s=settings.interval_s,
            records_per_file=settings.records_per_file,
            skip_lost=settings.skip_lost,
        )
        return archive_table.run(spark, archive, report)
    directory = settings.archive()
    stamp = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
    done = _Run(f"{stamp:%Y%m%dT%H%M%S}-{os.urandom(4).hex()}", settings.topics)
    with directory.locked():
        _Archiving(spark, settings, report, directory, done).archive_new_records()
        while settings.interval_s is not None:
            threading.Event().wait(settings.interval_s)
            _Archiving(spark, settings, report, directory, done).archive_new_records()
    return _summary(settings, directory, done)


class _Archiving:
    """One pass: finds the offset ranges without a file, writes a file for each, and archives the files."""

    def __init__(
        self,
        spark: SparkSession,
        settings: ArchiveSettings,
        report: Report,
        directory: ArchiveDirectory,
        done: _Run,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._options = settings.read_options()
        self._report = report
        self._directory = directory
        self._done = done

    def archive_new_records(self) -> None:
        """Archive each partition up to its current end.

        Raises `PipelineError` for lost records if `skip_lost` is not set.
        """
        with self._report.stage("plan"):
            works = self._plan()
        write_in_jobs(self._spark, self._report, self._settings.topics, works, self._write)

    def _write(self, works: Sequence[Save]) -> None:
        results = run_tasks(self._spark, archive_save.save, works)
        staged = {}
        for work, result in zip(works, results, strict=True):
            staged[result.pop("staged")] = (work.tp, work.tile)
            self._done.files.append(_entry(work.tp, work.tile) | result)
        self._directory.add(staged)
        self._write_run()

    def _write_run(self) -> None:
        facts = {"topics": self._done.topics, "files": self._done.files, "lost": self._done.lost}
        self._directory.write_run(self._done.name, facts)

    def _plan(self) -> list[Save]:
        first = planning.first_positions(self._options)
        begin = first | self._archived_ends()
        end = planning.latest_positions(self._options, begin)
        check_history(self._options, begin, end, self._directory.url)
        works: list[Save] = []
        for tp in sorted(begin):
            for missing in self._missing(tp, begin[tp], end[tp]):
                present = self._without_lost(tp, missing, first[tp].offset)
                tiles = cut(present, self._settings.records_per_file) if present else ()
                works += [self._work(tp, tile, end[tp]) for tile in tiles]
        if self._done.lost:
            self._write_run()
        return works

    def _work(self, tp: TopicPartition, tile: Tile, end: Position) -> Save:
        storage = self._settings.storage
        return Save(self._options, tp, tile, end, self._directory.url, storage)

    def _archived_ends(self) -> Positions:
        """Return the position after the last archived offset of each partition that has archived files."""
        ends = {}
        for topic in self._settings.topics:
            for partition in self._directory.partitions(topic):
                tp = TopicPartition(topic, partition)
                if tiles := self._directory.tiles(tp):
                    last = self._directory.open(tp, tiles[-1])
                    ends[tp] = archive_save.end_of(last, tiles[-1].end)
        return ends

    def _missing(self, tp: TopicPartition, begin: Position, end: Position) -> Iterator[Tile]:
        """Yield the partition's offset ranges up to `end` that are neither archived nor listed as lost.

        The ranges begin at the first offset that was ever archived, or at `begin` if no offset was archived.
        """
        tiles, runs = self._directory.tiles(tp), self._directory.runs()
        lost = listed_tiles(runs, tp, "lost")
        once = [tile.start for tile in (*tiles, *listed_tiles(runs, tp, "files"))]
        start = min(once, default=begin.offset)
        yield from gaps([*tiles, *lost], start, max(end.offset, start))

    def _without_lost(self, tp: TopicPartition, tile: Tile, earliest: int) -> Tile | None:
        """Return the part of an offset range that is still in the log; None if the whole range was deleted.

        If `skip_lost` is set, deleted offsets are listed as lost. Otherwise they raise `PipelineError`.
        """
        lost = lost_part(tp, tile, earliest, skip_lost=self._settings.skip_lost)
        if lost is None:
            return tile
        self._report.note(f"{tp}: offsets {lost.start} to {lost.end - 1} are lost")
        self._done.lost.append(_entry(tp, lost))
        return Tile(lost.end, tile.end) if lost.end < tile.end else None


def _entry(tp: TopicPartition, tile: Tile) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition, "start": tile.start, "end": tile.end}


def listed_tiles(runs: Sequence[dict[str, Any]], tp: TopicPartition, what: str) -> list[Tile]:
    """Return a partition's offset ranges in the lists named `what` (`files` or `lost`) of all runs."""
    return [
        Tile(entry["start"], entry["end"])
        for facts in runs
        for entry in facts[what]
        if (entry["topic"], entry["partition"]) == tp
    ]


def _summary(settings: ArchiveSettings, directory: ArchiveDirectory, done: _Run) -> Summary:
    facts = {
        "directory": directory.url,
        "files": len(done.files),
        "records": done.total("records"),
        "bytes": done.total("bytes"),
        "lost_offsets": sum(entry["end"] - entry["start"] for entry in done.lost),
    }
    rows = [
        _row(TopicPartition(topic, partition), tiles, done)
        for topic in dict.fromkeys(settings.topics)
        for partition in directory.partitions(topic)
        if (tiles := directory.tiles(TopicPartition(topic, partition)))
    ]
    columns = ("topic", "partition", "start", "end", "new_files", "new_records")
    title = f"archive of {', '.join(settings.topics)}"
    return Summary(title, facts, (Table("partitions", columns, tuple(rows)),))


def _row(
    tp: TopicPartition, tiles: Sequence[Tile], done: _Run
) -> tuple[str, int, int, int, int, int]:
    new = [file for file in done.files if (file["topic"], file["partition"]) == tp]
    records = sum(file["records"] for file in new)
    return (*tp, tiles[0].start, tiles[-1].end, len(new), records)
