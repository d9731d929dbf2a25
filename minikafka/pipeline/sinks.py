"""The sinks of a pipeline: topics, Parquet files, the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from minikafka.base.errors import ConfigError
from minikafka.pipeline.columns import as_json
from minikafka.pipeline.definition import ConsoleSink, ParquetSink, Sink, TopicSink
from minikafka.pipeline.report import Report
from minikafka.pipeline.summary import Fact, Table
from minikafka.spark.datasource import FORMAT

_ROWS: Final = "rows"


def shaped(frame: DataFrame, sink: Sink) -> DataFrame:
    """Return the rows with the columns that the sink writes."""
    if isinstance(sink, TopicSink) and sink.as_json:
        return as_json(frame, sink.key)
    if isinstance(sink, ParquetSink):
        known = {name.lower() for name in frame.columns}
        if missing := [name for name in sink.partition_by if name.lower() not in known]:
            raise ConfigError(
                f"[sink] partition_by: there is no column {', '.join(missing)}: the columns are "
                f"{', '.join(frame.columns)}"
            )
    return frame


def save(frame: DataFrame, sink: Sink, report: Report) -> None:
    """Write a table to the sink."""
    if isinstance(sink, ConsoleSink):
        report.table(_shown(frame, sink.rows, _ROWS))
    elif isinstance(sink, TopicSink):
        frame.write.format(FORMAT).mode("append").options(**sink.options).save()
    else:
        writer = frame.write.mode(sink.mode).option("compression", sink.compression)
        writer.partitionBy(*sink.partition_by).parquet(sink.path)


def stream_writer(
    frame: DataFrame, sink: Sink, checkpoint: str | None, report: Report
) -> DataStreamWriter:
    """Return the writer of a stream, complete except for its trigger."""
    writer = frame.writeStream.outputMode(sink.mode)
    if checkpoint:
        writer = writer.option("checkpointLocation", checkpoint)
    if isinstance(sink, ConsoleSink):
        return writer.foreachBatch(_printer(sink, report))
    if isinstance(sink, TopicSink) and sink.mode == "update":
        # Spark does not support the output mode "update" for Python data sources.
        return writer.foreachBatch(lambda batch, _: save(batch, sink, report))
    if isinstance(sink, TopicSink):
        return writer.format(FORMAT).options(**sink.options)
    writer = writer.format("parquet").option("path", sink.path)
    return writer.option("compression", sink.compression).partitionBy(*sink.partition_by)


def _printer(sink: ConsoleSink, report: Report) -> Callable[[DataFrame, int], None]:
    def show(frame: DataFrame, batch: int) -> None:
        table = _shown(frame, sink.rows, f"batch {batch}")
        if table.rows:
            report.table(table)

    return show


def _shown(frame: DataFrame, rows: int, name: str) -> Table:
    found = [tuple(map(_fact, row)) for row in frame.limit(rows).collect()]
    return Table(name, tuple(frame.columns), tuple(found))


def _fact(value: Any) -> Fact:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return str(value)
