"""Archives and tables in a bucket whose server fails one request in ten, read by another client of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow.dataset as ds
import pytest
from support.spark.store_servers import BUCKET, FailingProxy, Server, running

from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines import archive, ledger, restore
from minikafka.spark.pipelines.archive import ArchiveSettings
from minikafka.spark.pipelines.ledger import LedgerSettings
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


class Killed(RuntimeError):
    """Stands for a `kill -9` of the driver."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        found.file_system()
        yield found


@pytest.fixture
def failing(server) -> Iterator[FailingProxy]:
    if server.kind == "hdfs":
        pytest.skip("requests of HDFS are not HTTP")
    proxy = FailingProxy(server, every=10)
    yield proxy
    proxy.close()


def rows(server: Server, prefix: str) -> list[tuple]:
    """Return the rows that pyarrow's own client of the server reads."""
    place, files = f"{BUCKET}/{prefix}", server.file_system()
    table = ds.dataset(place, filesystem=files, partitioning="hive")
    return sorted(tuple(row.values()) for row in table.to_table().to_pylist())


def _settings(server: Server, failing: FailingProxy, name: str, *columns: str) -> TableSettings:
    return TableSettings(server.url(name), columns, storage=server.options(failing.endpoint))


def test_stream_into_a_bucket_has_each_row_once_although_its_driver_fails(
    spark, server, tmp_path, failing, monkeypatch
):
    (tmp_path / "lines").mkdir()
    settings = _settings(server, failing, "stream", "first")

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
        assert [key for key in server.keys("stream") if key.endswith(".parquet")] == []
    run()
    (tmp_path / "lines" / "1.txt").write_text("a2\n")
    run()
    assert rows(server, "stream") == [("a1", "a"), ("a2", "a"), ("b/1", "b")]
    assert not [key for key in server.keys("stream") if key.startswith(("_staging", "_lock"))]
    assert failing.failed > 3


def test_batch_into_a_bucket_appends_and_overwrites(spark, server, failing):
    settings = _settings(server, failing, "batch")
    for mode, first in (("append", 0), ("append", 2), ("overwrite", 4)):
        save_table(spark.range(first, first + 2), settings, mode)
        found = [number for (number,) in rows(server, "batch")]
        assert found == list(range(first if mode == "overwrite" else 0, first + 2))


async def test_archive_in_a_bucket_is_continued_and_restored(
    spark, server, cluster, client, failing
):
    await client.create_topics(NewTopic("bucket-old", 2, 1), NewTopic("bucket-new", 2, 1))
    storage, url = server.options(failing.endpoint), server.url("archive")
    settings = ArchiveSettings(
        cluster.bootstrap, ("bucket-old",), url, records_per_file=10, storage=storage
    )
    for start in (0, 25):
        for partition in range(2):
            sent = [Record(value=b"v" * number) for number in range(start, start + 25)]
            await client.produce("bucket-old", sent, partition=partition)
        found = await asyncio.to_thread(archive.run, spark, settings, Report())
        assert found.facts["records"] == 50
    table = ds.dataset(f"{BUCKET}/archive", filesystem=server.file_system(), partitioning="hive")
    read = table.to_table().to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in read) == [
        (partition, offset) for partition in range(2) for offset in range(50)
    ]
    back = RestoreSettings(cluster.bootstrap, url, "bucket-old", "bucket-new", storage=storage)
    assert (await asyncio.to_thread(restore.run, spark, back, Report())).ok


def test_ledger_writes_its_tables_and_its_picture_into_a_bucket(spark, server, cluster, failing):
    storage, url = server.options(failing.endpoint), server.url("ledger")
    settings = LedgerSettings((str(cluster.directory.path),), url, f"{url}/elections.html", storage)
    facts = ledger.run(spark, settings, Report()).facts
    assert len(rows(server, "ledger/elections")) == facts["elections_in_all"]
    assert rows(server, "ledger/controllers")
    assert "elections.html" in server.keys("ledger")


def test_failure_in_a_task_names_the_place_and_no_secret(spark, server):
    if server.kind != "s3":
        pytest.skip("the options are of S3")
    wrong = {**server.options(), "secret_access_key": "hidden-secret"}
    settings = TableSettings("s3://no-such-bucket/table", storage=wrong)
    with pytest.raises(Exception, match="no such bucket") as caught:
        save_table(spark.range(2), settings, "append")
    text = str(explain(caught.value))
    assert "s3://no-such-bucket/table" in text
    assert "hidden-secret" not in text
    assert "\n" not in text


def test_table_in_a_bucket_is_read_without_a_connector_of_hadoop(spark, server):
    settings = TableSettings(server.url("read"), storage=server.options())
    table = spark.range(3).selectExpr("id", "timestamp_seconds(id) `at.it`", "null::string nothing")
    save_table(table, settings, "overwrite")
    wanted = sorted(map(str, table.select("`at.it`", "id").collect()))
    schema = table.select("`at.it`", "id").schema
    assert sorted(map(str, read_table(spark, settings, schema).collect())) == wanted
