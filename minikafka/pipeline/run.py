"""Runs a pipeline that a file or a command defines: views over topics, SQL steps, and a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession

from minikafka.base.errors import ConfigError
from minikafka.pipeline.checkpoint_query import check_query
from minikafka.pipeline.columns import RECORDS, decoded, observed, with_watermark
from minikafka.pipeline.definition import ConsoleSink, Definition, Source
from minikafka.pipeline.places import PLACES, places_table
from minikafka.pipeline.report import Report
from minikafka.pipeline.sinks import save, shaped, stream_writer
from minikafka.pipeline.streams import Trigger, run_stream
from minikafka.pipeline.summary import Fact, Summary, Table
from minikafka.spark.datasource import FORMAT

_OUTPUT: Final = "output"
Counts = Mapping[str, Mapping[str, Any]]


def run(spark: SparkSession, definition: Definition, report: Report) -> Summary:
    """Run the pipeline until its end, and return the numbers of records read and written."""
    if definition.trigger is None:
        return _run_batch(spark, definition, report)
    return _run_stream(spark, definition, definition.trigger, report)


def _run_batch(spark: SparkSession, definition: Definition, report: Report) -> Summary:
    observations: dict[str, Observation] = {}

    def observe(frame: DataFrame, name: str) -> DataFrame:
        observations[name] = Observation(name)
        return observed(frame, observations[name])

    def read(source: Source) -> DataFrame:
        return spark.read.format(FORMAT).options(**source.options).load()

    frame = _views(spark, definition, read, observe)
    with report.stage(definition.name):
        save(frame, definition.sink, report)
    is_counted = not isinstance(definition.sink, ConsoleSink)
    counts = {name: found.get for name, found in observations.items()} if is_counted else {}
    return _summary(definition, counts, {})


def _run_stream(
    spark: SparkSession, definition: Definition, trigger: Trigger, report: Report
) -> Summary:
    def read(source: Source) -> DataFrame:
        return spark.readStream.format(FORMAT).options(**source.options).load()

    if definition.checkpoint:
        check_query(spark, definition.checkpoint, _query(definition))
    frame = _views(spark, definition, read, observed)
    with stream_writer(frame, definition.sink, definition.checkpoint, report) as writer:
        totals = run_stream(spark, writer, trigger, report, name=definition.name)
    return _summary(definition, totals.observed, {"batches": totals.batches})


def _query(definition: Definition) -> dict[str, str]:
    """Return the settings that a stream must keep when it continues from a checkpoint that has state."""
    schemas = {f"schema of {one.name}": one.decode.schema for one in definition.sources}
    return schemas | {f"step {one.name}": " ".join(one.sql.split()) for one in definition.steps}


def _views(
    spark: SparkSession,
    definition: Definition,
    read: Callable[[Source], DataFrame],
    observe: Callable[[DataFrame, str], DataFrame],
) -> DataFrame:
    """Define a view for each source and each step, and return the rows for the sink."""
    frame = None
    for source in definition.sources:
        frame = observe(decoded(read(source), source.decode), source.name)
        frame = with_watermark(frame, source.watermark, source.name)
        frame.createOrReplaceTempView(source.name)
    for step in definition.steps:
        frame = with_watermark(spark.sql(step.sql), step.watermark, step.name)
        frame.createOrReplaceTempView(step.name)
    if frame is None:
        raise ConfigError("a pipeline needs a source")
    return observe(shaped(frame, definition.sink), _OUTPUT)


def _summary(definition: Definition, counts: Counts, facts: Mapping[str, Fact]) -> Summary:
    """Return the summary, with a table of the sources if there are several.

    A console sink has no counts, because Spark stops reading when enough rows to print were read.
    """
    if isinstance(definition.sink, ConsoleSink):
        return Summary(definition.name, facts)
    sources = [counts.get(source.name, {}) for source in definition.sources]
    found = {
        **facts,
        "records_read": sum(count.get(RECORDS, 0) for count in sources),
        "malformed": sum(count.get("malformed", 0) for count in sources),
        "rows_written": counts.get(_OUTPUT, {}).get(RECORDS, 0),
    }
    if not any(source.decode.schema for source in definition.sources):
        del found["malformed"]
    rows = tuple(
        (source.name, count.get(RECORDS, 0), count.get("malformed"))
        for source, count in zip(definition.sources, sources, strict=True)
    )
    table = Table("sources", ("source", "records", "malformed"), rows)
    places = _malformed(sources)
    return Summary(definition.name, found, ((table,) if len(rows) > 1 else ()) + places)


def _malformed(sources: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Return a table with the places of the first malformed records; no table if there are none."""
    places = [place for count in sources for place in count.get(PLACES) or ()]
    return places_table("first_malformed", {PLACES: places})
