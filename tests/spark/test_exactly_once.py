"""Micro-batches and tables that are written with `exactlyOnce`, read back with `read_committed`."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import functions as f

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark import append_to_topics
from minikafka.tools.cluster import LocalCluster


@pytest.fixture
async def client(cluster: LocalCluster):
    async with Client(cluster.bootstrap) as running:
        yield running


@pytest.fixture
def servers(cluster: LocalCluster) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap}


def values(spark, servers: dict[str, str], topic: str, level: str = "read_committed") -> Counter:
    given = {"subscribe": topic, "kafka.isolation.level": level}
    rows = spark.read.format("minikafka").options(**servers, **given).load().collect()
    return Counter(bytes(row["value"]) for row in rows)


def stream(spark, servers: dict[str, str], topic: str):
    given = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "700"}
    return spark.readStream.format("minikafka").options(**servers, **given).load()


def run(writer, checkpoint: Path) -> None:
    started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    started.start().awaitTermination()


def forget_last_commit(checkpoint: Path) -> None:
    """Remove the last file of Spark's commit log, as if the driver had died before it wrote the file."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


async def test_micro_batch_is_in_the_topic_once_after_its_commit_log_was_lost(
    spark, cluster, client, servers, tmp_path
):
    await client.create_topics(NewTopic("once-from", 2, 3), NewTopic("once-to", 3, 3))
    for partition in range(2):
        records = [
            Record(value=b"%d " % number + bytes(500)) for number in range(partition, 1_000, 2)
        ]
        await client.produce("once-from", records, partition=partition)
    frame = stream(spark, servers, "once-from").select("value")
    options = servers | {"topic": "once-to", "exactlyOnce": "true"}
    for _ in range(2):
        run(frame.writeStream.format("minikafka").options(**options), tmp_path)
        found = values(spark, servers, "once-to")
        assert len(found) == found.total() == 1_000
        forget_last_commit(tmp_path)
    staged = [one for one in await client.list_topics() if one.startswith("__minikafka-staged-")]
    assert len(staged) == 1
    everything = servers | {"subscribePattern": "once-to|staged"}
    assert spark.read.format("minikafka").options(**everything).load().count() == 1_000


async def test_rows_of_a_failed_attempt_of_a_task_are_not_written(spark, client, servers):
    await client.create_topics(NewTopic("once-attempts", 1, 3))

    def failing(number: int) -> str:
        if number == 1_999 and not TaskContext.get().attemptNumber():
            raise ValueError("the first attempt fails at its last row")
        return f"{number} {'x' * 300}"

    call = f.udf(failing, "string", useArrow=False).asNondeterministic()
    frame = spark.range(0, 2_000, 1, 2).select(call("id").alias("value"))
    options = servers | {"topic": "once-attempts", "exactlyOnce": "true"}
    frame.write.format("minikafka").mode("append").options(**options).save()
    found = values(spark, servers, "once-attempts", "read_uncommitted")
    assert len(found) == found.total() == 2_000


async def test_table_with_a_row_that_cannot_be_written_leaves_no_row(spark, client, servers):
    await client.create_topics(NewTopic("once-none", 1, 3))
    rows = [("a",), ("v" * 2_000_000,)]
    options = servers | {"topic": "once-none", "exactlyOnce": "true"}
    writer = spark.createDataFrame(rows, "value string").write.format("minikafka").mode("append")
    with pytest.raises(Exception, match=r"row \d of task .* MESSAGE_TOO_LARGE"):
        writer.options(**options).save()
    assert not values(spark, servers, "once-none")


async def test_foreach_batch_writes_each_micro_batch_once_with_one_id_per_write(
    spark, client, servers, tmp_path
):
    topics = ("once-each", "once-good", "once-bad")
    await client.create_topics(*(NewTopic(topic, 1, 3) for topic in topics))
    await client.produce("once-each", [Record(value=b"%d" % n) for n in range(100)], partition=0)
    good = append_to_topics(servers | {"topic": "once-good", "exactlyOnce": "true"})
    same = append_to_topics(servers | {"topic": "once-bad", "exactlyOnce": "true"})
    frame = stream(spark, servers, "once-each").select("value")

    def both(batch, number: int) -> None:
        good(batch, number)
        same(batch, number)

    with pytest.raises(Exception, match="give each write of a foreachBatch its own transactional"):
        run(frame.writeStream.foreachBatch(both), tmp_path / "both")
    for _ in range(2):
        run(frame.writeStream.foreachBatch(good), tmp_path / "both")
        assert values(spark, servers, "once-good").total() == 100
        forget_last_commit(tmp_path / "both")
    assert not values(spark, servers, "once-bad")


async def test_foreach_batch_writes_each_target_once_although_targets_change_and_runs_fail(
    spark, client, servers, tmp_path
):
    targets = "once-first", "once-second", "once-third"
    await client.create_topics(*(NewTopic(topic, 1, 3) for topic in ("once-many", *targets)))
    frame = stream(spark, servers, "once-many").select("value")

    async def produce(first: int) -> None:
        records = [Record(value=b"%d" % number) for number in range(first, first + 100)]
        await client.produce("once-many", records, partition=0)

    def write(*topics: str, until: str = "") -> None:
        """Write to topics in one foreachBatch, which fails as if the driver had died after the topic `until`."""
        options = servers | {"exactlyOnce": "true"}
        appends = [
            append_to_topics(options | {"topic": topic, "transactionalIdPrefix": topic})
            for topic in topics
        ]

        def each(batch, number: int) -> None:
            for topic, append in zip(topics, appends, strict=True):
                append(batch, number)
                if topic == until:
                    raise RuntimeError("the driver has died")

        run(frame.writeStream.foreachBatch(each), tmp_path)

    await produce(0)
    with pytest.raises(Exception, match="the driver has died"):
        write("once-first", until="once-first")
    write("once-first", "once-second")
    await produce(100)
    with pytest.raises(Exception, match="the driver has died"):
        write("once-first", "once-third", until="once-third")
    with pytest.raises(Exception, match="the driver has died"):
        write(*targets, until="once-second")
    write(*targets)
    forget_last_commit(tmp_path)
    write("once-third", "once-first")
    expected = [range(200), range(200), range(100, 200)]
    for topic, numbers in zip(targets, expected, strict=True):
        assert values(spark, servers, topic) == Counter(b"%d" % number for number in numbers)


@pytest.mark.parametrize("way", ["writer of a topic", "foreachBatch of files"])
async def test_micro_batch_from_a_restored_checkpoint_with_other_records_is_refused(
    spark, client, servers, tmp_path, way
):
    is_of_files = way.endswith("files")
    source, target = f"restored-from-{is_of_files:d}", f"restored-to-{is_of_files:d}"
    await client.create_topics(NewTopic(source, 1, 3), NewTopic(target, 1, 3))
    (tmp_path / "in").mkdir()
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"

    async def add(number: int) -> None:
        lines = [f"{number} {line}" for line in range(10)]
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(lines))
        await client.produce(source, [Record(value=one.encode()) for one in lines], partition=0)

    options = servers | {"topic": target, "exactlyOnce": "true"}
    if is_of_files:
        writer = spark.readStream.text(str(tmp_path / "in")).writeStream
        writer = writer.foreachBatch(append_to_topics(options))
    else:
        writer = stream(spark, servers, source).select("value").writeStream
        writer = writer.format("minikafka").options(**options)
    for number in range(2):
        await add(number)
        run(writer, checkpoint)
        if not number:
            shutil.copytree(checkpoint, backup)
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    await add(2)
    for _ in range(2):
        with pytest.raises(Exception, match="micro-batch 1 now has other offsets"):
            run(writer, checkpoint)
    found = values(spark, servers, target)
    assert found == Counter(
        f"{number} {line}".encode() for number in range(2) for line in range(10)
    )


async def test_query_may_begin_to_write_to_a_topic_with_any_micro_batch(
    spark, client, servers, tmp_path
):
    topics = ("begins-from", "begins-first", "begins-second")
    await client.create_topics(*(NewTopic(topic, 1, 3) for topic in topics))
    options = servers | {"topic": "begins-first", "exactlyOnce": "true"}
    others = servers | {"topic": "begins-second", "transactionalIdPrefix": "second"}
    second = append_to_topics(others | {"exactlyOnce": "true"})

    def each(batch, number: int) -> None:
        if not batch.isEmpty():
            batch.write.format("minikafka").mode("append").options(**options).save()
            if number == 2:
                second(batch, number)

    frame = stream(spark, servers, "begins-from").select("value").where("value != 'skipped'")
    for value in (b"skipped", b"1", b"2"):
        await client.produce("begins-from", [Record(value=value)], partition=0)
        run(frame.writeStream.foreachBatch(each), tmp_path)
    forget_last_commit(tmp_path)
    run(frame.writeStream.foreachBatch(each), tmp_path)
    assert values(spark, servers, "begins-first") == Counter([b"1", b"2"])
    assert values(spark, servers, "begins-second") == Counter([b"2"])
