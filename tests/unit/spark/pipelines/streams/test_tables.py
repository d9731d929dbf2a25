"""Streams that a Parquet table refuses, before Spark runs a micro-batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.parquet.table_directory import MicroBatch, OtherQuery, TableDirectory
from minikafka.spark.pipelines.streams import tables
from minikafka.spark.pipelines.streams.tables import TableSettings, table_stream


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return a function that starts a stream with a checkpoint of the given query into the test's directory."""

    def open_table(query: str | None, *, by_batch: bool = False) -> None:
        monkeypatch.setattr(tables, "query_id", lambda spark, checkpoint: query)
        settings = TableSettings(str(tmp_path))
        with table_stream(None, settings, "/checkpoint", by_batch=by_batch):
            pass

    return open_table


def write(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("rows")


def test_new_stream_of_windows_is_refused_by_a_directory_with_rows(start, tmp_path):
    start(None, by_batch=True)
    write(tmp_path / "batch=000000000000" / "part-0.parquet")
    with pytest.raises(OtherQuery, match="and the checkpoint /checkpoint is new: name a new"):
        start(None, by_batch=True)
    start("a stream of a former version", by_batch=True)
    start(None)


def test_stream_of_another_query_is_refused(start, tmp_path):
    TableDirectory(str(tmp_path)).add_micro_batch("one", MicroBatch("/known", 0, "plan"), [])
    start("one")
    for query in ("two", None):
        with pytest.raises(OtherQuery, match="whose checkpoint was /known"):
            start(query)


def test_stream_into_a_table_of_the_sink_of_spark_is_refused(start, tmp_path):
    write(tmp_path / "_spark_metadata" / "0")
    with pytest.raises(ConfigError, match="written by Spark's own file sink"):
        start("one")
