"""The archive pipeline with a table of Delta Lake or Iceberg as its target.

The table's marks say up to which offset each partition is archived, and change in the same commit as the files. So a
record is in the table once, whatever dies, and the archive needs no checkpoint.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from minikafka.base.model import TopicPartition
from minikafka.spark.lakehouse import records
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.records import SaveRecords
from minikafka.spark.lakehouse.tables import LakeSettings, TableChange, number_of
from minikafka.spark.parquet.archive_directory import Tile, cut
from minikafka.spark.pipelines.archive_history import check_history, lost_part
from minikafka.spark.pipelines.archive_jobs import write_in_jobs
from minikafka.spark.pipelines.session.report import Report, Summary, Table
from minikafka.spark.source import planning
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.positions import Positions
from minikafka.spark.wire.leaders import Position
from minikafka.spark.workers import run_tasks

_UNKNOWN: Final = "unknown"
"""The topic id of records that were archived from a topic which has another id now."""


@dataclass(frozen=True)
class TableArchive:
    """The settings of the pipeline. `interval_s`: seconds between passes; None for a single pass."""

    topics: tuple[str, ...]
    options: ReadOptions
    table: LakeSettings
    interval_s: float | None = None
    records_per_file: int = 1_000_000
    skip_lost: bool = False


@dataclass
class _Totals:
    """The counts of one run of the pipeline."""

    files: int = 0
    bytes: int = 0
    nulled: int = 0
    lost: int = 0
    records: Counter[TopicPartition] = field(default_factory=Counter)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


def run(spark: SparkSession, settings: TableArchive, report: Report) -> Summary:
    """Archive the records that exist now and return the counts; with an interval, repeat until Ctrl-C."""
    totals = _Totals()
    archiving = _Archiving(spark, settings, report, totals)
    archiving.archive_new_records()
    while settings.interval_s is not None:
        threading.Event().wait(settings.interval_s)
        archiving.archive_new_records()
    return _summary(settings, totals)


class _Archiving:
    """Finds the offset ranges that are not in the table, and adds them."""

    def __init__(
        self, spark: SparkSession, settings: TableArchive, report: Report, totals: _Totals
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._report = report
        self._totals = totals
        self._table = open_table(settings.table)
        self._marks: dict[str, int] = {}
        """The marks of the partitions as this process knows them. Another archiver would change them."""

    def archive_new_records(self) -> None:
        """Add the records of each partition up to its current end, in one commit for each Spark job."""
        with self._report.stage("plan"):
            end, tiles = self._plan()
        if not tiles:
            return
        layout = self._table.prepare(records.SCHEMA, may_lack=True)
        stage = layout.stage("records", self._settings.table)
        works = [SaveRecords(self._settings.options, tp, tile, stage) for tp, tile in tiles]
        topics, write = self._settings.topics, partial(self._write, end)
        write_in_jobs(self._spark, self._report, topics, works, write)

    def _plan(self) -> tuple[Positions, list[tuple[TopicPartition, Tile]]]:
        """Return the ends of the partitions, and the offset ranges that the table lacks, in order."""
        options, settings = self._settings.options, self._settings
        first = planning.first_positions(options)
        begin = first | self._archived(first)
        end = planning.latest_positions(options, begin)
        check_history(options, begin, end, settings.table.shown)
        tiles = []
        for tp in sorted(begin):
            missing = Tile(begin[tp].offset, end[tp].offset)
            if lost := lost_part(tp, missing, first[tp].offset, skip_lost=settings.skip_lost):
                self._report.note(f"{tp}: offsets {lost.start} to {lost.end - 1} are lost")
                self._totals.lost += lost.end - lost.start
                missing = Tile(lost.end, missing.end)
            if missing.start < missing.end:
                tiles += [(tp, tile) for tile in cut(missing, settings.records_per_file)]
        return end, tiles

    def _archived(self, first: Positions) -> Positions:
        """Return the position after the last archived offset of each partition that has archived records."""
        names = {tp: _names(tp) for tp in first}
        self._marks = self._table.marks([name for three in names.values() for name in three])
        marks = self._marks
        found = {}
        for tp, (end, epoch, topic) in names.items():
            if end in marks:
                topic_id = first[tp].topic_id
                is_same = not topic_id or marks.get(topic) in (number_of(topic_id), number_of(""))
                found[tp] = Position(
                    marks[end], marks.get(epoch, -1), topic_id if is_same else _UNKNOWN
                )
        return found

    def _write(self, end: Positions, works: Sequence[SaveRecords]) -> None:
        results = run_tasks(self._spark, records.save, works)
        files = [records.file_of(one) for result in results for one in result["files"]]
        ends = {work.tp: work.tile.end for work in works}
        marks: dict[str, int] = {}
        for tp, offset in ends.items():
            numbers = (offset, end[tp].leader_epoch, number_of(end[tp].topic_id))
            marks |= zip(_names(tp), numbers, strict=True)
        self._table.commit(TableChange(files, marks, self._marks, _notes(ends)))
        self._marks |= marks
        self._totals.files += len(files)
        self._totals.bytes += sum(file.bytes for file in files)
        self._totals.nulled += sum(result["nulled"] for result in results)
        for work, result in zip(works, results, strict=True):
            self._totals.records[work.tp] += sum(one["rows"] for one in result["files"])
        self._totals.ends |= ends


def _names(tp: TopicPartition) -> tuple[str, str, str]:
    """Return the names of a partition's marks: the end of its archived offsets, its leader epoch and its topic."""
    place = f"minikafka.archive.{tp.topic}.{tp.partition}"
    return f"{place}.end", f"{place}.epoch", f"{place}.topic"


def _notes(ends: Mapping[TopicPartition, int]) -> dict[str, str]:
    return {"minikafka.archive": json.dumps({str(tp): offset for tp, offset in ends.items()})}


def _summary(settings: TableArchive, totals: _Totals) -> Summary:
    facts: dict[str, Any] = {
        "table": settings.table.shown,
        "files": totals.files,
        "records": totals.records.total(),
        "bytes": totals.bytes,
        "lost_offsets": totals.lost,
    }
    if settings.table.nulls_timestamps:
        facts["timestamps_nulled"] = totals.nulled
    rows = tuple((*tp, end, totals.records[tp]) for tp, end in sorted(totals.ends.items()))
    columns = ("topic", "partition", "end", "new_records")
    title = f"archive of {', '.join(settings.topics)}"
    return Summary(title, facts, (Table("partitions", columns, rows),))
