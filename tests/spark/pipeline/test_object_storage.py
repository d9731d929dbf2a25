"""Archives and tables in a bucket of S3 whose server fails one request in ten, read by other clients of S3."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow.dataset as ds
import pytest
from support.spark.s3_server import BUCKET, FailingProxy, file_system, keys, needs_s3, options

from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines import archive, restore
from minikafka.spark.pipelines.archive import ArchiveSettings
from minikafka.spark.pipelines.restore import RestoreSettings
from minikafka.spark.pipelines.session.failures import explain
from minikafka.spark.pipelines.session.report import Report
from minikafka.spark.pipelines.streams.tables import (
    TableSettings,
    read_table,
    save_table,
    table_stream,
)
from minikafka.spark.storage.stored import StoredFiles

pytestmark = needs_s3


class Killed(RuntimeError):
    """Stands for a `kill -9` of the driver."""


@pytest.fixture
def failing() -> Iterator[FailingProxy]:
    file_system()
    proxy = FailingProxy(every=10)
    yield proxy
    proxy.close()


def rows(prefix: str) -> list[tuple]:
    """Return the rows that pyarrow's own client of S3 reads."""
    table = ds.dataset(f"{BUCKET}/{prefix}", filesystem=file_system(), partitioning="hive")
    return sorted(tuple(row.values()) for row in table.to_table().to_pylist())


def test_stream_into_a_bucket_has_each_row_once_although_its_driver_fails(
    spark, tmp_path, failing, monkeypatch
):
    (tmp_path / "lines").mkdir()
    settings = TableSettings(f"s3://{BUCKET}/stream", ("first",), storage=options(failing.endpoint))

    def run() -> None:
        text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "lines"))
        frame = text.selectExpr("value line", "left(value, 1) first")
        place = str(tmp_path / "checkpoint")
        with table_stream(spark, settings, place) as add:
            writer = frame.writeStream.foreachBatch(add).option("checkpointLocation", place)
            writer.trigger(availableNow=True).start().awaitTermination()

    def killed(*_: object) -> None:
        raise Killed

    (tmp_path / "lines" / "0.txt").write_text("a1\nb/1\n")
    for step in ("decide", "publish"):
        with monkeypatch.context() as patch:
            patch.setattr(StoredFiles, step, killed)
            with pytest.raises(Exception, match="Killed"):
                run()
        assert [key for key in keys("stream") if key.endswith(".parquet")] == []
    run()
    (tmp_path / "lines" / "1.txt").write_text("a2\n")
    run()
    assert rows("stream") == [("a1", "a"), ("a2", "a"), ("b/1", "b")]
    assert not [key for key in keys("stream") if key.startswith(("_staging", "_lock"))]
    assert failing.failed > 3


def test_batch_into_a_bucket_appends_and_overwrites(spark, failing):
    settings = TableSettings(f"s3://{BUCKET}/batch", storage=options(failing.endpoint))
    for mode, first in (("append", 0), ("append", 2), ("overwrite", 4)):
        save_table(spark.range(first, first + 2), settings, mode)
        found = [number for (number,) in rows("batch")]
        assert found == list(range(first if mode == "overwrite" else 0, first + 2))


async def test_archive_in_a_bucket_is_continued_and_restored(spark, cluster, client, failing):
    await client.create_topics(NewTopic("bucket-old", 2, 1), NewTopic("bucket-new", 2, 1))
    storage, url = options(failing.endpoint), f"s3://{BUCKET}/archive"
    settings = ArchiveSettings(
        cluster.bootstrap, ("bucket-old",), url, records_per_file=10, storage=storage
    )
    for start in (0, 25):
        for partition in range(2):
            sent = [Record(value=b"v" * number) for number in range(start, start + 25)]
            await client.produce("bucket-old", sent, partition=partition)
        found = await asyncio.to_thread(archive.run, spark, settings, Report())
        assert found.facts["records"] == 50
    table = ds.dataset(f"{BUCKET}/archive", filesystem=file_system(), partitioning="hive")
    read = table.to_table().to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in read) == [
        (partition, offset) for partition in range(2) for offset in range(50)
    ]
    back = RestoreSettings(cluster.bootstrap, url, "bucket-old", "bucket-new", storage=storage)
    assert (await asyncio.to_thread(restore.run, spark, back, Report())).ok


def test_failure_in_a_task_names_the_place_and_no_secret(spark):
    wrong = {**options(), "secret_access_key": "hidden-secret", "region": "us-east-1"}
    settings = TableSettings("s3://no-such-bucket/table", storage=wrong)
    with pytest.raises(Exception, match="no such bucket") as caught:
        save_table(spark.range(2), settings, "append")
    text = str(explain(caught.value))
    assert "s3://no-such-bucket/table" in text
    assert "hidden-secret" not in text
    assert "\n" not in text


def test_table_in_a_bucket_is_read_without_a_connector_of_hadoop(spark):
    settings = TableSettings(f"s3://{BUCKET}/read", storage=options())
    table = spark.range(3).selectExpr("id", "timestamp_seconds(id) `at.it`", "null::string nothing")
    save_table(table, settings, "overwrite")
    wanted = sorted(map(str, table.select("`at.it`", "id").collect()))
    schema = table.select("`at.it`", "id").schema
    assert sorted(map(str, read_table(spark, settings, schema).collect())) == wanted
