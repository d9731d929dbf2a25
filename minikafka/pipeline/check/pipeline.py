"""`run`: reads the logs of all replicas and the histories, and returns the verdict.

Data stays in Spark: only the limits of replicas, counts, and the first anomalies of each kind come to the
driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from minikafka.pipeline.check import log_checks, logs, matching
from minikafka.pipeline.check.anomalies import COLUMNS, KINDS, together
from minikafka.pipeline.check.epochs import surrounding
from minikafka.pipeline.check.histories import (
    OUTCOMES,
    check_reads,
    check_sends,
    read_reads,
    read_sends,
)
from minikafka.pipeline.check.kept import kept
from minikafka.pipeline.check.logs import PARTITION, Limits
from minikafka.pipeline.check.replicas import (
    Replica,
    SegmentFile,
    find,
    log_directories,
    running_brokers,
)
from minikafka.pipeline.failures import PipelineError
from minikafka.pipeline.report import Report
from minikafka.pipeline.summary import Fact, Summary, Table

_FIRST: Final = 5
"""Anomalies of each kind that the summary shows."""
_SHOWN: Final = (*COLUMNS, "epochs")


@dataclass(frozen=True)
class CheckSettings:
    """What to check. `topics`: all, if empty; histories of other topics are ignored."""

    replicas: tuple[str, ...]
    histories: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    output: str | None = None
    servers: str | None = None


def run(spark: SparkSession, settings: CheckSettings, report: Report) -> Summary:
    """Check logs and histories; the summary is `ok` if there is no anomaly."""
    return _Check(spark, settings, report).run()


class _Check:
    """One run: the tables that several steps read, and the facts of the summary."""

    def __init__(self, spark: SparkSession, settings: CheckSettings, report: Report) -> None:
        self.spark = spark
        self.settings = settings
        self.report = report
        self.facts: dict[str, Fact] = {}

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

    def _replicas(self) -> tuple[list[Replica], list[SegmentFile]]:
        directories = log_directories(self.settings.replicas)
        replicas, segments = find(directories, self.settings.topics)
        if not segments:
            raise PipelineError("the log directories hold no segment of these topics")
        self.facts |= {"replicas": len(replicas), "segments": len(segments)}
        if running := ", ".join(map(str, running_brokers(directories))):
            self.facts["running_brokers"] = running
            self.report.note(
                f"these brokers are running: {running}; what they write during the check may look"
                " like an anomaly, stop them for a verdict"
            )
        return replicas, segments

    def _histories(self) -> tuple[DataFrame | None, DataFrame | None]:
        sends = reads = None
        with self.report.stage("read histories"):
            if self.settings.histories:
                sends = kept(read_sends(self.spark, self.settings.histories, self.settings.servers))
                check_sends(sends)
                sends = self._of_topics(sends)
                self.facts |= self._outcomes(sends)
            if self.settings.reads:
                reads = kept(read_reads(self.spark, self.settings.reads, self.settings.servers))
                check_reads(reads)
                reads = self._of_topics(reads)
                self.facts["reads"] = reads.count()
        return sends, reads

    def _of_topics(self, table: DataFrame) -> DataFrame:
        topics = self.settings.topics
        return table.where(f.col("topic").isin(*topics)) if topics else table

    def _outcomes(self, sends: DataFrame) -> dict[str, Fact]:
        rows = sends.groupBy("outcome").count().collect()
        counted: dict[str, int] = {row["outcome"]: row["count"] for row in rows}
        return {f"sends_{name}": counted.get(name, 0) for name in OUTCOMES}

    def _findings(
        self,
        found: DataFrame,
        table: DataFrame,
        known: Sequence[Limits],
        size: int,
        sends: DataFrame | None,
        reads: DataFrame | None,
    ) -> list[DataFrame]:
        findings = list(log_checks.batch_findings(found, table))
        short = log_checks.short_logs(self.spark, known)
        findings += [short] if short is not None else []
        with self.report.stage("compare replicas"):
            groups = kept(logs.groups(logs.valid_batches(found), table))
            apart = kept(logs.records(self.spark, groups.where("NOT shared"), size))
        findings.append(log_checks.divergences(apart, table))
        histories = [history for history in (sends, reads) if history is not None]
        if histories:
            with self.report.stage("join histories with logs"):
                present = self._present(groups, apart, table, histories, size)
                findings += self._history_findings(present, table, sends, reads)
        return findings

    def _present(
        self,
        groups: DataFrame,
        apart: DataFrame,
        table: DataFrame,
        histories: Sequence[DataFrame],
        size: int,
    ) -> DataFrame:
        """Return the records of the topics that histories name."""
        named = histories[0].select("topic")
        for history in histories[1:]:
            named = named.unionByName(history.select("topic"))
        topics = [row.topic for row in named.distinct().collect()]
        shared = groups.where("shared").where(f.col("topic").isin(*topics))
        records = logs.records(self.spark, shared, size)
        both = records.unionByName(apart.where(f.col("topic").isin(*topics)))
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
            findings += matching.findings(matched)
        if reads is not None:
            findings += matching.read_findings(reads, present, table)
        return findings

    def _totals(self, matched: matching.Matched) -> dict[str, Fact]:
        removed = f.col("sent").isNotNull() & f.col("content").isNull() & f.expr("offset < floor")
        [row] = matched.joined.agg(
            f.count("content").alias("records"),
            f.count_if("matched").alias("acknowledged_and_there"),
            f.count_if(removed).alias("removed"),
        ).collect()
        [other] = matched.claims.agg(
            f.sum(f.when(f.col("sent") == 0, f.col("left"))).alias("left")
        ).collect()
        return {**row.asDict(), "of_other_producers": other.left or 0}

    def _counts(self, anomalies: DataFrame) -> dict[str, int]:
        if self.settings.output:
            anomalies.write.mode("overwrite").parquet(self.settings.output)
        rows = anomalies.groupBy("kind").agg(f.sum("count").alias("total")).collect()
        return {row.kind: row.total for row in rows}

    def _summary(self, anomalies: DataFrame, counts: dict[str, int], found: DataFrame) -> Summary:
        self.facts |= {kind: counts.get(kind, 0) for kind in KINDS}
        rows = self._first(anomalies, [kind for kind in KINDS if counts.get(kind)])
        title = "no anomaly" if not counts else f"{sum(counts.values()):,} anomalies"
        tables = (Table("first_anomalies", _SHOWN, tuple(self._with_epochs(rows, found))),)
        return Summary(title, self.facts, tables if rows else (), ok=not counts)

    def _first(self, anomalies: DataFrame, kinds: Sequence[str]) -> list[Row]:
        """Return the first anomalies of each kind, by topic, partition and offset."""
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
        """Yield the rows of the table, with the leader epochs around each offset."""
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
