"""The check pipeline: compares the logs of all replicas with the histories, and reports anomalies.

The data stays in Spark. The driver receives only the limits of replicas, counts, and the first anomalies of
each kind with their leader epochs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from minikafka.checks.histories import READ, WRITE
from minikafka.checks.replicas import log_checks, logs, matching
from minikafka.checks.replicas.anomalies import COLUMNS, KINDS, together
from minikafka.checks.replicas.history_tables import OUTCOMES, Counts, Histories
from minikafka.checks.replicas.log_directories import (
    CheckedReplica,
    SegmentFile,
    find,
    log_directories,
    running_brokers,
)
from minikafka.checks.replicas.logs import PARTITION, Limits
from minikafka.spark.frames import kept
from minikafka.spark.parquet.table_directory import TableDirectory
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Fact, Report, Summary, Table
from minikafka.spark.pipelines.streams.tables import TableSettings, save_table
from minikafka.spark.storage.locations import check_options

_FIRST: Final = 5
"""Maximum number of anomalies of each kind that the summary shows."""
_SHOWN: Final = (*COLUMNS, "epochs")


@dataclass(frozen=True)
class CheckSettings:
    """The settings of the check. `topics`: only these topics are checked; all topics if empty.

    History rows of other topics are ignored. `output`: a directory or URI for the anomalies, with the options of its
    store, which may be secrets.
    """

    replicas: tuple[str, ...]
    histories: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    output: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    servers: str | None = None

    def check(self) -> None:
        """Raise `ConfigError` if `output` is invalid. Called before anything is read."""
        check_options([self.output], self.storage)
        if self.output:
            TableDirectory(self.output, self.storage)


def run(spark: SparkSession, settings: CheckSettings, report: Report) -> Summary:
    """Check logs and histories, and return the summary. `ok` is true if there is no anomaly."""
    return _Check(spark, settings, report).run()


class _Check:
    """One run of the check, with the facts for the summary."""

    def __init__(self, spark: SparkSession, settings: CheckSettings, report: Report) -> None:
        self.spark = spark
        self.settings = settings
        self.report = report
        self.facts: dict[str, Fact] = {}
        self.topics: set[str] = set()
        """The checked topics that have sends or reads in the histories."""

    def run(self) -> Summary:
        replicas, segments = self._replicas()
        sends, reads = self._histories()
        with self.report.stage("read batch headers"):
            found = kept(logs.batches(self.spark, segments))
            known = logs.limits(found, replicas)
            table = logs.limits_table(self.spark, known)
        size = sum(segment.size for segment in segments)
        findings = self._findings(found, table, known, size, sends, reads)
        with self.report.stage("collect anomalies"):
            anomalies = kept(together(findings))
            return self._summary(anomalies, self._counts(anomalies), found)

    def _replicas(self) -> tuple[list[CheckedReplica], list[SegmentFile]]:
        directories = log_directories(self.settings.replicas)
        replicas, segments = find(directories, self.settings.topics)
        if not segments:
            named = ", ".join(self.settings.topics) or "any topic"
            raise PipelineError(f"the log directories hold no segment of {named}")
        self.facts |= {"replicas": len(replicas), "segments": len(segments)}
        if running := ", ".join(map(str, running_brokers(directories))):
            self.facts["running_brokers"] = running
            self.report.note(
                f"these brokers are running: {running}; records that they write during the check may look"
                " like anomalies: stop the brokers for a reliable check"
            )
        return replicas, segments

    def _histories(self) -> tuple[DataFrame | None, DataFrame | None]:
        sends = reads = None
        settings = self.settings
        with self.report.stage("read histories"):
            if settings.histories:
                histories = Histories(settings.histories, WRITE, settings.servers)
                sends, found = histories.read(self.spark)
                counts = self._of_topics(found)
                for name in OUTCOMES:
                    rows = [count for (_, outcome), count in counts.items() if outcome == name]
                    self.facts[f"sends_{name}"] = sum(rows)
                sends = self._chosen(sends)
            if settings.reads:
                histories = Histories(settings.reads, READ, settings.servers)
                reads, found = histories.read(self.spark)
                self.facts["reads"] = sum(self._of_topics(found).values())
                reads = self._chosen(reads)
        return sends, reads

    def _chosen(self, table: DataFrame) -> DataFrame:
        topics = self.settings.topics
        return table.where(f.col("topic").isin(*topics)) if topics else table

    def _of_topics(self, counts: Counts) -> Counts:
        """Return only the counts of topics that are to be checked, and add these topics to `self.topics`."""
        wanted = self.settings.topics
        chosen = {key: count for key, count in counts.items() if not wanted or key[0] in wanted}
        self.topics |= {topic for topic, *_ in chosen}
        return chosen

    def _findings(
        self,
        found: DataFrame,
        table: DataFrame,
        known: Sequence[Limits],
        size: int,
        sends: DataFrame | None,
        reads: DataFrame | None,
    ) -> list[DataFrame]:
        findings = [log_checks.batch_findings(found, table)]
        short = log_checks.short_logs(self.spark, known)
        findings += [short] if short is not None else []
        with self.report.stage("compare replicas"):
            groups = kept(logs.groups(logs.valid_batches(found), table))
            apart = kept(logs.records(self.spark, groups.where("NOT shared"), size))
            findings.append(log_checks.undecodable(logs.undecodable(self.spark, groups, size)))
        findings.append(log_checks.divergences(apart, table))
        if sends is not None or reads is not None:
            with self.report.stage("join histories with logs"):
                present = self._present(groups, apart, table, size)
                findings += self._history_findings(present, table, sends, reads)
        return findings

    def _present(
        self, groups: DataFrame, apart: DataFrame, table: DataFrame, size: int
    ) -> DataFrame:
        """Return the records of the topics that occur in the histories, one row per offset."""
        is_named = f.col("topic").isin(*sorted(self.topics))
        records = logs.records(self.spark, groups.where("shared").where(is_named), size)
        both = records.unionByName(apart.where(is_named))
        return matching.present(both, table)

    def _history_findings(
        self,
        present: DataFrame,
        table: DataFrame,
        sends: DataFrame | None,
        reads: DataFrame | None,
    ) -> list[DataFrame]:
        findings: list[DataFrame] = []
        if sends is not None and reads is not None:
            present = kept(present)
        if sends is not None:
            matched = matching.match(sends, present, table)
            self.facts |= self._totals(matched)
            findings += matching.send_findings(matched)
        if reads is not None:
            findings += matching.read_findings(reads, present, table)
        return findings

    def _totals(self, matched: matching.Matched) -> dict[str, Fact]:
        [row] = matched.joined.selectExpr(
            "count(content) AS records",
            "count_if(matched) AS acknowledged_and_there",
            "count_if(sent IS NOT NULL AND is_removed) AS removed",
        ).collect()
        [other] = matched.claims.agg(
            f.sum(f.when(f.col("sent") == 0, f.col("left"))).alias("left")
        ).collect()
        return {**row.asDict(), "of_other_producers": other.left or 0}

    def _counts(self, anomalies: DataFrame) -> dict[str, int]:
        if self.settings.output:
            place = TableSettings(self.settings.output, storage=self.settings.storage)
            save_table(anomalies, place, "overwrite")
        rows = anomalies.groupBy("kind").agg(f.sum("count").alias("total")).collect()
        return {row.kind: row.total for row in rows}

    def _summary(self, anomalies: DataFrame, counts: dict[str, int], found: DataFrame) -> Summary:
        self.facts |= {kind: counts.get(kind, 0) for kind in KINDS}
        rows = self._first(anomalies, [kind for kind in KINDS if counts.get(kind)])
        title = "no anomaly" if not counts else f"{sum(counts.values()):,} anomalies"
        tables = (Table("first_anomalies", _SHOWN, tuple(self._with_epochs(rows, found))),)
        return Summary(title, self.facts, tables if rows else (), ok=not counts)

    def _first(self, anomalies: DataFrame, kinds: Sequence[str]) -> list[Row]:
        """Return the first anomalies of each kind, in order of topic, partition and offset."""
        if not kinds:
            return []
        order = Window.partitionBy("kind").orderBy(*PARTITION, "offset")
        ranked = anomalies.withColumn("rank", f.row_number().over(order))
        rows = ranked.where(f.col("rank") <= _FIRST).drop("rank").collect()
        return sorted(
            rows,
            key=lambda row: (
                kinds.index(row.kind),
                row.topic or "",
                row.partition or 0,
                row.offset or 0,
            ),
        )

    def _with_epochs(self, rows: Sequence[Row], found: DataFrame) -> Iterator[tuple[Fact, ...]]:
        """Yield the rows of `first_anomalies`: each anomaly with the leader epochs around its offset."""
        places = {(row.topic, row.partition) for row in rows if row.partition is not None}
        starts = self._epoch_starts(sorted(places), found)
        for row in rows:
            epochs = ""
            if row.offset is not None:
                epochs = surrounding(starts.get((row.topic, row.partition), []), row.offset)
            brokers = " ".join(map(str, row.brokers or ()))
            facts = {**row.asDict(), "brokers": brokers, "epochs": epochs}
            yield tuple(facts[name] for name in _SHOWN)

    def _epoch_starts(
        self, places: Sequence[tuple[str, int]], found: DataFrame
    ) -> dict[tuple[str, int], list[tuple[int, int]]]:
        starts: dict[tuple[str, int], list[tuple[int, int]]] = {}
        if places:
            wanted = self.spark.createDataFrame(places, "topic string, partition int")
            of_places = found.where("fault IS NULL").join(f.broadcast(wanted), list(PARTITION))
            first = of_places.groupBy(*PARTITION, "leader_epoch").agg(f.min("base_offset"))
            for topic, partition, epoch, start in first.collect():
                starts.setdefault((topic, partition), []).append((epoch, start))
        return starts


def surrounding(starts: Sequence[tuple[int, int]], offset: int) -> str:
    """Return a text with the leader epoch at `offset`, the epoch before and the epoch after.

    Example: `3 from 0, 4 from 120, 7 from 300`. The number after `from` is the first offset of the epoch.
    `starts`: (epoch, first offset) for each leader epoch of the partition.
    """
    ordered = sorted(starts, key=lambda entry: (entry[1], entry[0]))
    at = bisect_right([start for _, start in ordered], offset)
    return ", ".join(f"{epoch} from {start}" for epoch, start in ordered[max(at - 2, 0) : at + 1])
