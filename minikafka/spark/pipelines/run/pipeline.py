"""Runs a pipeline that a file or a command defines: views over topics, SQL steps, and a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.datasource import FORMAT
from minikafka.spark.pipelines.run.batches import planned
from minikafka.spark.pipelines.run.columns import (
    MALFORMED,
    REASON,
    RECORDS,
    decoded,
    malformed,
    observed,
    with_watermark,
    without_duplicates,
)
from minikafka.spark.pipelines.run.definition import (
    ConsoleSink,
    Decode,
    Definition,
    SourceView,
    Step,
)
from minikafka.spark.pipelines.run.lakes import LakeSink
from minikafka.spark.pipelines.run.sinks import save, shaped, stream_output
from minikafka.spark.pipelines.session.failures import explain
from minikafka.spark.pipelines.session.report import Fact, Report, Summary, Table
from minikafka.spark.pipelines.streams import dead_letters
from minikafka.spark.pipelines.streams.checkpoints import check_query
from minikafka.spark.pipelines.streams.dead_letters import PLACES, places_table
from minikafka.spark.pipelines.streams.streams import Trigger, run_stream
from minikafka.spark.progress import metrics_of
from minikafka.spark.registry.options import parse_decode
from minikafka.spark.registry.records import reading
from minikafka.spark.security_options import connection_of
from minikafka.spark.source.options import GROUP

_OUTPUT: Final = "output"
_LETTERS: Final = "dead letters of {}"
"""Name of the stream of a source's dead letters, and of the observation in it."""
_STEP: Final = "rows of {}"
"""Name of the observation of the rows of a step."""
_UNIQUE: Final = "{} {} duplicates were dropped"
"""Name of the observations before and after a step drops duplicates."""
Counts = Mapping[str, Mapping[str, Any]]


def run(spark: SparkSession, definition: Definition, report: Report) -> Summary:
    """Run the pipeline until its end, and return the numbers of records read and written."""
    definition = _with_schemas(definition)
    if definition.trigger is None:
        return _run_batch(spark, definition, report)
    return _run_stream(spark, definition, definition.trigger, report)


def _with_schemas(definition: Definition) -> Definition:
    """Return the definition with the schemas of all sources whose records need a schema registry."""
    sources = (
        replace(
            one,
            decode=_with_schema(one, one.decode, "decode"),
            decode_key=one.decode_key and _with_schema(one, one.decode_key, "decode_key", "key"),
        )
        for one in definition.sources
    )
    return replace(definition, sources=tuple(sources))


def _with_schema(source: SourceView, decode: Decode, table: str, part: str = "value") -> Decode:
    if not decode.uses_registry:
        return decode
    try:
        return replace(decode, reading=reading(parse_decode(decode.format, decode.options, part)))
    except MinikafkaError as error:
        raise ConfigError(f"[source.{source.name}] {table}: {error}") from error


def _run_batch(spark: SparkSession, definition: Definition, report: Report) -> Summary:
    observations: dict[str, Observation] = {}
    content = None
    if isinstance(definition.sink, LakeSink):
        definition, content = planned(definition)

    def observe(frame: DataFrame, name: str) -> DataFrame:
        observations[name] = Observation(name)
        return observed(frame, observations[name])

    def read(source: SourceView) -> DataFrame:
        return spark.read.format(FORMAT).options(**source.options).load()

    frame = _views(spark, definition, read, observe)
    with report.stage(definition.name):
        facts = save(frame, definition.sink, report, content)
        dead = [
            dead_letters.send(
                _letters(spark.read, one), connection_of(one.options), one.dead_letter
            )
            for one in definition.sources
            if one.dead_letter
        ]
    is_counted = not isinstance(definition.sink, ConsoleSink)
    counts = {name: metrics_of(found) for name, found in observations.items()} if is_counted else {}
    return _summary(definition, counts, {}, sum(dead) if dead else None, more=facts)


def _run_stream(
    spark: SparkSession, definition: Definition, trigger: Trigger, report: Report
) -> Summary:
    def read(source: SourceView) -> DataFrame:
        return spark.readStream.format(FORMAT).options(**source.options).load()

    frame = _views(spark, definition, read, observed)
    if definition.checkpoint:
        check_query(spark, definition.checkpoint, _query(definition))
    others = {_LETTERS.format(one.name): one for one in definition.sources if one.dead_letter}
    with stream_output(frame, definition.sink, definition.checkpoint, report) as output:
        totals = run_stream(
            spark,
            output.writer,
            trigger,
            report,
            name=definition.name,
            others=[_letter_writer(spark, definition, *item) for item in others.items()],
        )
    rows = output.committed(totals)
    counts = dict(totals.observed) | ({} if rows is None else {_OUTPUT: {RECORDS: rows}})
    dead = [dead_letters.number(counts.get(name, {})) for name in others]
    facts: dict[str, Fact] = {"batches": totals.batches}
    letters = sum(dead) if dead else None
    return _summary(definition, counts, facts, letters, totals.dropped, more=output.facts())


def _letters(reader: DataFrameReader | DataStreamReader, source: SourceView) -> DataFrame:
    """Return the dead letters of a source, which are read apart from its view."""
    options = {**source.options, "includeHeaders": "true"}
    options.pop(GROUP, None)  # the stream of the view commits what was read
    found = malformed(
        reader.format(FORMAT).options(**options).load(), source.decode, source.decode_key
    )
    return dead_letters.letters(found, f.col(REASON))


def _letter_writer(
    spark: SparkSession, definition: Definition, name: str, source: SourceView
) -> DataStreamWriter:
    """Return the writer of a stream of dead letters, which has its own place in the checkpoint."""
    letters = dead_letters.counted(_letters(spark.readStream, source), name)
    writer = letters.writeStream.format(FORMAT).queryName(name)
    writer = writer.options(**connection_of(source.options), topic=str(source.dead_letter))
    if definition.checkpoint is None:
        return writer
    place = f"{definition.checkpoint.rstrip('/')}/dead-letters/{source.name}"
    return writer.option("checkpointLocation", place)


def _query(definition: Definition) -> dict[str, str]:
    """Return the settings that a stream must keep when it continues from a checkpoint that has state."""
    schemas = {f"schema of {one.name}": one.decode.schema for one in definition.sources}
    steps = {f"step {one.name}": " ".join(one.sql.split()) for one in definition.steps}
    unique = {
        f"drop_duplicates of {one.name}": ", ".join(one.drop_duplicates)
        for one in definition.steps
        if one.drop_duplicates
    }
    return schemas | steps | unique


def _views(
    spark: SparkSession,
    definition: Definition,
    read: Callable[[SourceView], DataFrame],
    observe: Callable[[DataFrame, str], DataFrame],
) -> DataFrame:
    """Define a view for each source and each step, and return the rows for the sink."""
    frame = None
    for source in definition.sources:
        frame = observe(_decoded(read(source), source), source.name)
        if source.dead_letter:
            frame = frame.where(f.col(MALFORMED).isNull())
        frame = with_watermark(frame, source.watermark, source.name)
        frame.createOrReplaceTempView(source.name)
    for step in definition.steps:
        frame = with_watermark(spark.sql(step.sql), step.watermark, step.name)
        if step.drop_duplicates:
            before, after = _UNIQUE.format(step.name, "before"), _UNIQUE.format(step.name, "after")
            unique = without_duplicates(observe(frame, before), step.drop_duplicates, step.name)
            frame = observe(unique, after)
        if definition.trigger is not None:
            frame = observe(frame, _STEP.format(step.name))
        frame.createOrReplaceTempView(step.name)
    if frame is None:
        raise ConfigError("a pipeline needs a source")
    return observe(shaped(frame, definition.sink), _OUTPUT)


def _decoded(frame: DataFrame, source: SourceView) -> DataFrame:
    """Return the records of a source as columns. Raises ConfigError for a schema or option that Spark refuses."""
    try:
        return decoded(frame, source.decode, source.decode_key)
    except ConfigError as error:
        text = str(error)
    except AnalysisException as error:
        text = f"schema {source.decode.schema!r} is not valid: {explain(error)}"
    raise ConfigError(f"[source.{source.name}] decode: {text}")


def _summary(
    definition: Definition,
    counts: Counts,
    facts: Mapping[str, Fact],
    dead: int | None,
    dropped: Mapping[str, int] | None = None,
    more: Mapping[str, Fact] | None = None,
) -> Summary:
    """Return the summary, with a table of the sources if there are several.

    A console sink has no counts, because Spark stops reading when enough rows to print were read.
    `dead`: the number of dead letters, or None without a topic for them. `dropped`: the rows that Spark's
    operators with state have dropped, by reason; None for a batch. `more`: facts about the sink.
    """
    letters = {} if dead is None else {"dead_letters": dead}
    if isinstance(definition.sink, ConsoleSink):
        return Summary(definition.name, {**facts, **letters})
    sources = [counts.get(source.name, {}) for source in definition.sources]
    found = {
        **facts,
        "records_read": sum(count.get(RECORDS, 0) for count in sources),
        "malformed": sum(count.get("malformed", 0) for count in sources),
        **letters,
        **_dropped(definition, counts, dropped or {}),
        "rows_written": counts.get(_OUTPUT, {}).get(RECORDS, 0),
        **(more or {}),
    }
    if not any(source.finds_malformed for source in definition.sources):
        del found["malformed"]
    tables = _of_sources(definition, sources) + _of_steps(definition, counts) + _malformed(sources)
    return Summary(definition.name, found, tables, "rows_unaccounted" not in found)


def _of_sources(definition: Definition, counts: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Return a table with the counts of each source, if there are several."""
    rows = tuple(
        (source.name, count.get(RECORDS, 0), count.get("malformed"))
        for source, count in zip(definition.sources, counts, strict=True)
    )
    return (Table("sources", ("source", "records", "malformed"), rows),) if len(rows) > 1 else ()


def _of_steps(definition: Definition, counts: Counts) -> tuple[Table, ...]:
    """Return a table with the rows of each step of a stream, if there are several."""
    found = [(step.name, counts.get(_STEP.format(step.name))) for step in definition.steps]
    rows = tuple((name, count.get(RECORDS, 0)) for name, count in found if count is not None)
    return (Table("steps", ("step", "rows"), rows),) if len(found) > 1 and rows else ()


def _dropped(
    definition: Definition, counts: Counts, dropped: Mapping[str, int]
) -> Mapping[str, Fact]:
    """Return the numbers of dropped duplicates and late rows, if the pipeline can have them.

    `rows_unaccounted` is the difference between these numbers, which Spark's operators report, and the rows that
    are observed before and after the steps that drop duplicates.
    """
    found: dict[str, Fact] = {}
    steps = [step.name for step in definition.steps if step.drop_duplicates]
    if steps:
        found = {"duplicates_dropped": dropped["duplicates"], "late_dropped": dropped["late"]}
        before, after = (
            sum(counts.get(_UNIQUE.format(name, when), {}).get(RECORDS, 0) for name in steps)
            for when in ("before", "after")
        )
        if rest := before - after - dropped["duplicates"] - dropped["late"]:
            found["rows_unaccounted"] = rest
    views: list[SourceView | Step] = [*definition.sources, *definition.steps]
    if any(view.watermark for view in views):
        found |= {"late_groups_dropped": dropped["late_groups"]}
    return found


def _malformed(sources: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Return a table with the places of the first malformed records; no table if there are none."""
    places = [place for count in sources for place in count.get(PLACES) or ()]
    return places_table("first_malformed", {PLACES: places})
