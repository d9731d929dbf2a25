"""A real cluster's topics in tables of Delta Lake and Iceberg, by archives and pipelines: each record once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.clients.topics import create_again
from support.spark.lakes import READERS, arrow_of, rows_of, settings_of

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.runtime.clock import SystemClock
from minikafka.spark.lakehouse.delta import DeltaLakeTable
from minikafka.spark.lakehouse.iceberg import IcebergTable
from minikafka.spark.lakehouse.tables import DELTA, FORMATS, ICEBERG
from minikafka.spark.pipelines import archive
from minikafka.spark.pipelines.archive import ArchiveSettings
from minikafka.spark.pipelines.run.definition import Overrides, parse
from minikafka.spark.pipelines.run.pipeline import run
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Report, Summary

FAR_MS = 253_402_300_800_000
"""The first millisecond of the year 10000."""
NOW_MS = SystemClock().wall_ms() // 1_000 * 1_000
"""A whole second. With an old time, a retention pass would delete the records during the test."""


@pytest.fixture
def save(spark, cluster, tmp_path: Path):
    """Return a function that archives topics to the table of a format in the test's directory."""

    async def run(format: str, *topics: str, **given) -> Summary:
        place = tmp_path / format
        table = settings_of(format, place, partition_by=["date(timestamp)"], timestamps="null")
        settings = ArchiveSettings(cluster.bootstrap, topics, str(place), table=table, **given)
        return await asyncio.to_thread(archive.run, spark, settings, Report())

    return run


def dies_after(commit):
    """Return a commit after which the driver dies."""

    def dies(self, change):
        commit(self, change)
        raise RuntimeError("killed")

    return dies


async def test_archive_in_a_table_has_each_record_once_although_the_driver_dies_after_a_commit(
    client: Client, save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await client.create_topics(NewTopic("tabled", 2, 1), NewTopic("other", 1, 1))
    odd = [
        Record(key=None, value=None, headers=(("a", b"1"), ("a", None)), timestamp=NOW_MS),
        Record(key=b"k", value=b"far", timestamp=FAR_MS),
    ]
    for partition in range(2):
        await client.produce("tabled", odd, partition=partition)
    await client.produce("other", odd, partition=0)
    wanted = {("tabled", partition, offset) for partition in range(2) for offset in range(2)}
    for kind, table in zip(FORMATS, (DeltaLakeTable, IcebergTable), strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(table, "commit", dies_after(table.commit))
            with pytest.raises(RuntimeError, match="killed"):
                await save(kind, "tabled")
        assert (await save(kind, "tabled")).facts["records"] == 0
        found = (await save(kind, "other", "tabled")).facts
        assert (found["records"], found["timestamps_nulled"]) == (2, 1)
        for reader in READERS[kind]:
            rows = rows_of(kind, tmp_path / kind, "topic", "partition", "offset", reader=reader)
            assert rows == sorted([*wanted, ("other", 0, 0), ("other", 0, 1)])
        first = arrow_of(kind, tmp_path / kind).to_pylist()
        row = next(row for row in first if (row["topic"], row["offset"]) == ("other", 0))
        assert row["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
        assert int(row["timestamp"].timestamp() * 1000) == NOW_MS
        assert row["leaderEpoch"] >= 0


async def test_topic_that_was_created_again_is_not_mixed_into_an_archive_in_a_table(
    client: Client, save, tmp_path: Path
):
    await client.create_topics(NewTopic("renewed", 1, 1))
    await client.produce("renewed", [Record(value=b"old", timestamp=NOW_MS)], partition=0)
    await save("delta", "renewed")
    await client.delete_topics("renewed")
    await create_again(client, NewTopic("renewed", 1, 1))
    await client.produce("renewed", [Record(value=b"new", timestamp=NOW_MS)] * 3, partition=0)
    with pytest.raises(PipelineError, match="holds records of the former log; archive to a new"):
        await save("delta", "renewed")
    assert rows_of("delta", tmp_path / "delta", "value") == [(b"old",)]


SINK = """
    [pipeline]
    name = "lake"
    {head}
    [source.laked]
    topic = "laked"
    startingOffsets = "earliest"
    [sink]
    kind = "{kind}"
    path = "{path}"
    mode = "append"
    partition_by = "hour(timestamp)"
    timestamps = "null"
"""


@pytest.mark.parametrize("kind", FORMATS)
async def test_pipeline_of_a_file_adds_each_record_to_a_table_once(
    spark, cluster, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    topic = f"laked-{kind}"
    await client.create_topics(NewTopic(topic, 1, 1))
    path, checkpoint = tmp_path / "table", f'checkpoint = "{tmp_path / "checkpoint"}"'
    text = SINK.format(head=checkpoint, kind=kind, path=path).replace('"laked"', f'"{topic}"')
    stream = parse(text, "f.toml", Overrides(lambda: cluster.bootstrap))
    counts = []
    for times in ([NOW_MS, FAR_MS], [NOW_MS]):
        await client.produce(topic, [Record(timestamp=time) for time in times], partition=0)
        found = (await asyncio.to_thread(run, spark, stream, Report())).facts
        counts.append((found["rows_written"], found["timestamps_nulled"]))
    assert counts == [(2, 1), (1, 0)]
    batch = text.replace(checkpoint, 'trigger = "batch"')
    definition = parse(batch, "f.toml", Overrides(lambda: cluster.bootstrap))
    table = {DELTA: DeltaLakeTable, ICEBERG: IcebergTable}[kind]
    with monkeypatch.context() as patch:
        patch.setattr(table, "commit", dies_after(table.commit))
        with pytest.raises(RuntimeError, match="killed"):
            await asyncio.to_thread(run, spark, definition, Report())
    found = (await asyncio.to_thread(run, spark, definition, Report())).facts
    assert (found["rows_written"], found["timestamps_nulled"]) == (0, 0)
    for reader in READERS[kind]:
        assert rows_of(kind, path, "offset", reader=reader) == [(0,), (0,), (1,), (1,), (2,), (2,)]
    await client.produce(topic, [Record(timestamp=NOW_MS)], partition=0)
    found = (await asyncio.to_thread(run, spark, definition, Report())).facts
    assert (found["records_read"], found["rows_written"]) == (4, 4)
