"""The sinks of a pipeline: topics, Parquet files, tables of Delta Lake and Iceberg, the console."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from minikafka.base.errors import ConfigError
from minikafka.spark import append_to_topics
from minikafka.spark.datasource import FORMAT
from minikafka.spark.key_stores import prepared
from minikafka.spark.lakehouse.append import LakeWriter, SingleBatch
from minikafka.spark.pipelines.run.columns import as_records
from minikafka.spark.pipelines.run.definition import ConsoleSink, ParquetSink, Sink, TopicSink
from minikafka.spark.pipelines.run.lakes import LakeSink
from minikafka.spark.pipelines.session.report import Fact, Report, Table
from minikafka.spark.pipelines.streams.checkpoints import CheckpointFiles
from minikafka.spark.pipelines.streams.lakes import LakeStream
from minikafka.spark.pipelines.streams.streams import StreamTotals
from minikafka.spark.pipelines.streams.tables import TableSettings, save_table, table_stream
from minikafka.spark.pipelines.times import facts_of
from minikafka.spark.sink.once.commit import rows_of_run
from minikafka.spark.sink.options import ONCE_FROM, parse

_ROWS: Final = "rows"
_OTHER_MODES: Final = ', or set mode = "append" or "overwrite" in the file'


def shaped(frame: DataFrame, sink: Sink) -> DataFrame:
    """Return the rows with the columns that the sink writes."""
    if isinstance(sink, TopicSink) and sink.encode is not None:
        return as_records(frame, sink.encode, sink.encode_key)
    if isinstance(sink, ParquetSink):
        known = {name.lower() for name in frame.columns}
        if missing := [name for name in sink.partition_by if name.lower() not in known]:
            raise ConfigError(
                f"[sink] partition_by: there is no column {', '.join(missing)}: the columns are "
                f"{', '.join(frame.columns)}"
            )
    return frame


def save(
    frame: DataFrame, sink: Sink, report: Report, content: SingleBatch | None
) -> Mapping[str, Fact]:
    """Write a table to the sink. Return further facts about the result.

    `content`: what the batch consists of, for a sink that adds a batch once.
    """
    if isinstance(sink, LakeSink):
        assert content is not None, "a batch into a table is planned before"
        added = LakeWriter(sink.settings).add_batch(frame, content, sink.mode, _OTHER_MODES)
        if added.is_repeated:
            report.note(f"{sink.settings.shown} has the rows of this batch: nothing was added")
        return _nulled(sink, added.nulled)
    if isinstance(sink, ConsoleSink):
        report.table(_shown(frame, sink.rows, _ROWS))
    elif isinstance(sink, TopicSink):
        frame.write.format(FORMAT).mode("append").options(**sink.options).save()
    else:
        save_table(frame, _table(sink), sink.mode, instead=_OTHER_MODES)
    return {}


def _nulled(sink: LakeSink, number: int) -> Mapping[str, Fact]:
    return {"timestamps_nulled": number} if sink.settings.nulls_timestamps else {}


class StreamOutput(NamedTuple):
    """The writer of a stream, complete except for its trigger, and the number of rows that a run has committed.

    A micro-batch that runs again is observed, but not committed again. `committed` returns None for a sink that writes
    all observed rows.
    """

    writer: DataStreamWriter
    committed: Callable[[StreamTotals], int | None]
    facts: Callable[[], Mapping[str, Fact]] = dict
    """Returns further facts about the result."""


@contextmanager
def stream_output(
    frame: DataFrame, sink: Sink, checkpoint: str | None, report: Report
) -> Iterator[StreamOutput]:
    """Yield the output of a stream. The stream must end in the `with` body."""
    writer = _writer(frame, sink, checkpoint, report)
    if isinstance(sink, ParquetSink):
        assert checkpoint is not None, "a stream into files has a checkpoint"
        with table_stream(frame.sparkSession, _table(sink), checkpoint) as table:
            yield StreamOutput(writer.foreachBatch(table), lambda _: table.rows)
    elif isinstance(sink, LakeSink):
        assert checkpoint is not None, "a stream into a table has a checkpoint"
        lake = LakeStream(frame.sparkSession, sink.settings, checkpoint)
        yield StreamOutput(
            writer.foreachBatch(lake), lambda _: lake.rows, lambda: _nulled(sink, lake.nulled)
        )
    elif isinstance(sink, TopicSink) and parse(sink.options).exactly_once:
        options = prepared(parse(sink.options))
        yield StreamOutput(writer, lambda totals: rows_of_run(options, totals.query, totals.run))
    else:
        yield StreamOutput(writer, lambda _: None)


def _writer(
    frame: DataFrame, sink: Sink, checkpoint: str | None, report: Report
) -> DataStreamWriter:
    writer = frame.writeStream.outputMode(sink.mode)
    if checkpoint:
        writer = writer.option("checkpointLocation", checkpoint)
    if isinstance(sink, ConsoleSink):
        return writer.foreachBatch(_printer(sink, report))
    if isinstance(sink, TopicSink):
        options = _options(frame.sparkSession, sink, checkpoint)
        if sink.mode == "update":
            return writer.foreachBatch(append_to_topics(options))
        return writer.format(FORMAT).options(**options)
    return writer


def _options(spark: SparkSession, sink: TopicSink, checkpoint: str | None) -> Mapping[str, str]:
    """Return the options of the sink. With `exactlyOnce`, they name the first micro-batch that Spark has not planned.

    No earlier run can have written it. So a checkpoint that was used without `exactlyOnce`, or whose marker has
    expired, can be used.
    """
    given = parse(sink.options)
    if not given.exactly_once or given.first_batch is not None or checkpoint is None:
        return sink.options
    names = CheckpointFiles(spark, checkpoint).names("offsets")
    planned = max((int(name) for name in names if name.isdecimal()), default=-1)
    return {**sink.options, ONCE_FROM: str(planned + 1)}


def _table(sink: ParquetSink) -> TableSettings:
    return TableSettings(sink.path, sink.partition_by, sink.compression, sink.storage)


def _printer(sink: ConsoleSink, report: Report) -> Callable[[DataFrame, int], None]:
    def show(frame: DataFrame, batch: int) -> None:
        table = _shown(frame, sink.rows, f"batch {batch}")
        if table.rows:
            report.table(table)

    return show


def _shown(frame: DataFrame, rows: int, name: str) -> Table:
    return Table(name, tuple(frame.columns), facts_of(frame.limit(rows)))
