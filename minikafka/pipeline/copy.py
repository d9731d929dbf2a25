"""Topics to a topic, of the same cluster or another, through an SQL query."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from minikafka.pipeline.report import Report
from minikafka.pipeline.streams import AVAILABLE_NOW, MAX_OFFSETS_PER_TRIGGER, Trigger, run_stream
from minikafka.pipeline.summary import Summary


@dataclass(frozen=True)
class CopySettings:
    """What to copy. `sql`: a query over the view `source`; None copies the records unchanged."""

    topics: tuple[str, ...]
    to: str
    from_servers: str
    to_servers: str
    checkpoint: str
    sql: str | None = None
    trigger: Trigger = AVAILABLE_NOW
    origin_header: str | None = None


def run(spark: SparkSession, settings: CopySettings, report: Report) -> Summary:
    """Copy what is there now, or all that comes until Ctrl-C, and return the counts."""
    source = (
        spark.readStream.format("minikafka")
        .option("kafka.bootstrap.servers", settings.from_servers)
        .option("subscribe", ",".join(settings.topics))
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", MAX_OFFSETS_PER_TRIGGER)
        .option("includeHeaders", "true")
        .load()
    )
    frame = _columns(spark, source, settings.sql)
    writer = (
        frame.writeStream.format("minikafka")
        .option("kafka.bootstrap.servers", settings.to_servers)
        .option("topic", settings.to)
        .option("checkpointLocation", settings.checkpoint)
    )
    if settings.origin_header:
        writer = writer.option("originHeader", settings.origin_header)
    name = f"copy {', '.join(settings.topics)} to {settings.to}"
    totals = run_stream(spark, writer, settings.trigger, report, name=name)
    facts = {
        "batches": totals.batches,
        "records_read": totals.rows_read,
        "records_written": totals.rows_written or 0,
    }
    return Summary(name, facts)


def _columns(spark: SparkSession, source: DataFrame, sql: str | None) -> DataFrame:
    if sql is None:
        return source.select("key", "value", "headers", "timestamp")
    source.createOrReplaceTempView("source")
    return spark.sql(sql)
