"""A stream with `commitOffsetsToGroup` commits what it has read, as the offsets of a consumer group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.source import group_commits
from minikafka.spark.source.group_commits import GroupCommits
from minikafka.spark.source.options import Mode, parse
from minikafka.spark.wire.leaders import Position, Unreachable
from minikafka.tools.cluster import LocalCluster


@pytest.fixture
async def client(cluster: LocalCluster):
    async with Client(cluster.bootstrap) as running:
        yield running


async def test_group_has_the_offsets_of_all_finished_micro_batches_after_each_run(
    spark, cluster, client, tmp_path: Path
):
    await client.create_topics(NewTopic("read-lines", 2, 3))

    def run() -> int:
        reader = spark.readStream.format("minikafka").option("subscribe", "read-lines")
        reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "4")
        frame = reader.option("commitOffsetsToGroup", "readers-of-lines").load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return len(query.recentProgress)

    written = (0, 0)
    for ends in ((5, 5), (5, 9), (5, 9)):
        for partition, end in enumerate(ends):
            missing = [Record(value=b"v")] * (end - written[partition])
            if missing:
                await client.produce("read-lines", missing, partition=partition)
        written = ends
        assert await asyncio.to_thread(run) >= 1
        found = await client.groups.offsets("readers-of-lines")
        read = {tp.partition: entry.offset for tp, entry in found.items()}
        assert read == dict(enumerate(ends))


def _commits(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None):
    """Return a function that commits `READ` with a further offset, and the outcomes of the requests in order."""
    sent = list(outcomes)

    def send(*_: object) -> None:
        if (outcome := sent.pop(0)) is not None:
            raise outcome

    commits = GroupCommits("group")
    monkeypatch.setattr(commits, "_send", send)
    options = parse({"kafka.bootstrap.servers": "one:9092", "subscribe": "lines"}, Mode.STREAM)
    return lambda offset: commits.commit(options, {TopicPartition("lines", 0): Position(offset, 1)})


REFUSED = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "group")


def test_first_commit_that_is_refused_fails_and_names_the_option(monkeypatch):
    commit = _commits(monkeypatch, REFUSED)
    with pytest.raises(ConfigError, match=r"option commitOffsetsToGroup: .* without members"):
        commit(1)


def test_commit_that_fails_later_is_one_warning_and_the_next_one_is_sent(monkeypatch, caplog):
    commit = _commits(monkeypatch, None, REFUSED, REFUSED, Unreachable("away"), None)
    for offset in (1, 2, 2, 3, 3, 3):
        commit(offset)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert group_commits.GROUP in caplog.text
