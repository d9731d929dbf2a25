"""Archive and restore of a real cluster's topics: unusual records, offset gaps, interrupted and repeated runs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from support.clients.topics import create_again

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.runtime.clock import SystemClock
from minikafka.spark.parquet.archive_directory import (
    ArchiveDirectory,
    file_name,
    from_file_name,
)
from minikafka.spark.pipelines import archive, restore
from minikafka.spark.pipelines.archive import ArchiveSettings
from minikafka.spark.pipelines.restore import RestoreSettings
from minikafka.spark.pipelines.session.failures import PipelineError, explain
from minikafka.spark.pipelines.session.report import Report, Summary
from minikafka.spark.storage.local import LocalFiles
from minikafka.tools.cluster import LocalCluster

NOW = SystemClock().wall_ms()
ODD = [
    Record(key=None, value=None, timestamp=NOW),
    Record(key=b"", value=b"", timestamp=NOW - 5),
    Record(key=b"\xff\xfe", value=b"\x00\x80" * 50, timestamp=NOW + 1),
    Record(
        value=b"v", headers=(("a", b"1"), ("a", None), ("", b""), ("ä", b"\xff")), timestamp=NOW
    ),
    Record(value=b"v", headers=(("a", None), ("a", b"1")), timestamp=NOW),
]
FOREVER = {"retention.ms": "-1"}
Run = Callable[..., Summary]


@pytest.fixture
def save(spark, cluster: LocalCluster, tmp_path: Path) -> Run:
    """Return a function that runs the pipeline `archive` for topics, into the test's archive."""

    def run(*topics: str, **given) -> Summary:
        settings = ArchiveSettings(cluster.bootstrap, topics, str(tmp_path / "archive"), **given)
        return archive.run(spark, settings, Report())

    return run


@pytest.fixture
def load(spark, cluster: LocalCluster, tmp_path: Path) -> Run:
    """Return a function that runs the pipeline `restore` for a topic, from the test's archive."""

    def run(topic: str, to: str, directory: str = "", **given) -> Summary:
        directory = directory or str(tmp_path / "archive")
        settings = RestoreSettings(cluster.bootstrap, directory, topic, to, **given)
        return restore.run(spark, settings, Report())

    return run


async def read(client: Client, topic: str) -> list[tuple]:
    """Return the fields of each record that a restore preserves, in order of partition and offset."""
    found = []
    (info,) = await client.describe_topics(topic)
    starts = await client.list_offsets(topic, "earliest")
    ends = await client.list_offsets(topic, "latest")
    for partition in sorted(info.partitions):
        offset = starts[partition]
        while offset < ends[partition]:
            fetched = await client.fetch(topic, partition, offset)
            offset = fetched.next_offset
            found += [
                (partition, one.key, one.value, tuple(one.headers), one.timestamp)
                for one in fetched.records
            ]
    return found


async def fill(client: Client, topic: str, partition: int, first: int, count: int) -> None:
    records = [Record(value=b"%d" % number) for number in range(first, first + count)]
    await client.produce(topic, records, partition=partition)


async def test_null_empty_and_binary_keys_values_and_headers_are_restored_unchanged(
    spark, client, save, load, tmp_path
):
    await client.create_topics(NewTopic("odd", 3, 3), NewTopic("odd-again", 3, 3))
    for partition in range(2):
        await client.produce("odd", ODD, partition=partition)
        await fill(client, "odd", partition, 0, 100)
    saved = await asyncio.to_thread(save, "odd", records_per_file=30)
    assert (saved.facts["records"], saved.facts["files"]) == (210, 8)

    rows = spark.read.parquet(str(tmp_path / "archive"))
    assert {"topic", "partition", "offset", "leaderEpoch", "timestampType"} <= set(rows.columns)
    places = rows.select("topic", "partition", "offset").collect()
    wanted = [("odd", partition, offset) for partition in range(2) for offset in range(105)]
    assert sorted(tuple(place) for place in places) == wanted
    others = ds.dataset(tmp_path / "archive", partitioning="hive").to_table()
    assert others.num_rows == 210

    result = await asyncio.to_thread(load, "odd", "odd-again", compression="zstd")
    assert result.ok
    assert await read(client, "odd-again") == await read(client, "odd")
    assert {row[:5] for row in result.tables[1].rows} == {(0, 0, 104, 0, 104), (1, 0, 104, 0, 104)}


async def test_archive_run_again_adds_only_the_new_records(client, save, tmp_path):
    await client.create_topics(NewTopic("again", 1, 3))
    await fill(client, "again", 0, 0, 50)
    assert (await asyncio.to_thread(save, "again")).facts["records"] == 50
    nothing = await asyncio.to_thread(save, "again")
    assert (nothing.facts["files"], nothing.facts["records"]) == (0, 0)
    await fill(client, "again", 0, 50, 7)
    assert (await asyncio.to_thread(save, "again")).facts["records"] == 7
    offsets = ds.dataset(tmp_path / "archive").to_table().column("offset").to_pylist()
    assert sorted(offsets) == list(range(57))


async def test_archive_run_after_a_crash_adds_the_missing_records(
    client, save, load, tmp_path, monkeypatch
):
    await client.create_topics(NewTopic("crash", 1, 3), NewTopic("crash-again", 1, 3))
    await fill(client, "crash", 0, 0, 100)
    move, moved = LocalFiles.move, []

    def die_at_the_third(self, staged, final):
        if len(moved) == 2:
            raise InterruptedError
        move(self, staged, final)
        moved.append(from_file_name(final.name))

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "move", die_at_the_third)
        with pytest.raises(InterruptedError):
            await asyncio.to_thread(save, "crash", records_per_file=10)
    assert [tile.end for tile in moved] == [10, 20]
    (tmp_path / "archive" / "_staging").mkdir(exist_ok=True)
    (tmp_path / "archive" / "_staging" / "left").write_text("half a file")
    await asyncio.to_thread(save, "crash", records_per_file=10)
    offsets = ds.dataset(tmp_path / "archive").to_table().column("offset").to_pylist()
    assert sorted(offsets) == list(range(100))
    assert (await asyncio.to_thread(load, "crash", "crash-again")).ok


async def test_archive_without_one_of_its_files_is_not_restored(client, save, load, tmp_path):
    await client.create_topics(NewTopic("holes", 1, 3), NewTopic("holes-again", 1, 3))
    await fill(client, "holes", 0, 0, 30)
    await asyncio.to_thread(save, "holes", records_per_file=10)
    directory = ArchiveDirectory(str(tmp_path / "archive"))
    tp = TopicPartition("holes", 0)
    last = Path(directory.url, file_name(tp, directory.tiles(tp)[-1]))
    shutil.move(last, tmp_path / "kept")
    with pytest.raises(MinikafkaError, match="lacks the offsets 20 to 29 of holes-0"):
        await asyncio.to_thread(load, "holes", "holes-again")


async def test_archive_passes_over_deleted_offsets_only_with_skip_lost(client, save, load, cluster):
    await client.create_topics(NewTopic("gaps", 1, 3), NewTopic("gaps-again", 1, 3))
    await fill(client, "gaps", 0, 0, 10)
    await client.admin.delete_records({TopicPartition("gaps", 0): 4})
    assert (await asyncio.to_thread(save, "gaps")).facts["records"] == 6
    await fill(client, "gaps", 0, 10, 10)
    await client.admin.delete_records({TopicPartition("gaps", 0): 15})
    with pytest.raises(MinikafkaError, match="offsets 10 to 14 of gaps-0 were deleted"):
        await asyncio.to_thread(save, "gaps")
    saved = await asyncio.to_thread(save, "gaps", skip_lost=True)
    assert (saved.facts["records"], saved.facts["lost_offsets"]) == (5, 5)
    assert (await asyncio.to_thread(save, "gaps")).facts["files"] == 0
    await fill(client, "gaps-again", 0, 100, 3)
    with pytest.raises(MinikafkaError, match="gaps-again is not empty: it holds 3 offsets"):
        await asyncio.to_thread(load, "gaps", "gaps-again")
    result = await asyncio.to_thread(load, "gaps", "gaps-again", append=True)
    assert result.ok
    assert result.tables[1].rows == ((0, 4, 9, 3, 8, 6), (0, 15, 19, 9, 13, 5))


async def test_restore_refuses_unsuitable_topics_and_warns_of_short_retention(
    client, save, load, tmp_path
):
    day_ms = 86_400_000
    old = [Record(value=b"v", timestamp=NOW - 400 * day_ms)]
    stamped = {"message.timestamp.type": "LogAppendTime"}
    await client.create_topics(
        NewTopic("old", 2, 3, FOREVER),
        NewTopic("narrow", 1, 3),
        NewTopic("stamped", 2, 3, stamped),
        NewTopic("week", 2, 3),
        NewTopic("forever", 2, 3, FOREVER),
    )
    await client.produce("old", old, partition=1)
    await asyncio.to_thread(save, "old")
    with pytest.raises(MinikafkaError, match="has 1 partitions, the archived one had 2"):
        await asyncio.to_thread(load, "old", "narrow")
    with pytest.raises(MinikafkaError, match="CreateTime"):
        await asyncio.to_thread(load, "old", "stamped")
    with pytest.raises(MinikafkaError, match="holds old, not odd"):
        await asyncio.to_thread(load, "odd", "week")
    with pytest.raises(MinikafkaError, match="empty is no archive: name a directory"):
        await asyncio.to_thread(load, "old", "week", directory=str(tmp_path / "empty"))
    with pytest.raises(MinikafkaError, match="topics create nowhere --partitions 2"):
        await asyncio.to_thread(load, "old", "nowhere")
    warned = await asyncio.to_thread(load, "old", "week")
    assert "topics alter week --config retention.ms=-1" in str(warned.facts["warning"])
    quiet = await asyncio.to_thread(load, "old", "forever")
    assert quiet.ok
    assert "warning" not in quiet.facts


async def test_archive_of_a_deleted_topic_is_refused(client, save):
    await client.create_topics(NewTopic("gone", 1, 3))
    await fill(client, "gone", 0, 0, 20)
    await asyncio.to_thread(save, "gone")
    await client.delete_topics("gone")
    with pytest.raises(Exception, match="gone: no such topic") as caught:
        await asyncio.to_thread(save, "gone")
    assert "Traceback" not in str(explain(caught.value))


@pytest.mark.parametrize("partitions", [2, 1], ids=["equal", "fewer"])
async def test_topic_that_was_created_again_needs_a_new_archive(client, save, partitions):
    topic = f"reborn-{partitions}"
    await client.create_topics(NewTopic(topic, 2, 3))
    await fill(client, topic, 1, 0, 20)
    await asyncio.to_thread(save, topic)
    await client.delete_topics(topic)
    await create_again(client, NewTopic(topic, partitions, 3))
    await fill(client, topic, 0, 0, 5)
    with pytest.raises(
        PipelineError, match="of the former log; archive to a new directory"
    ) as caught:
        await asyncio.to_thread(save, topic)
    assert f"{topic}-1 was deleted" in str(caught.value)
