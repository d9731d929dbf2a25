"""The pipeline `lag` on a real cluster: its tables, its file of samples and its plot of the groups' lag."""

from __future__ import annotations

import asyncio
import json

import pyarrow.parquet as pq
import pytest

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.client.administration.group_offsets import OffsetAndMetadata
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines.lag import LagSettings, run
from minikafka.spark.pipelines.session.report import Report


async def test_lag_shows_a_falling_trend_and_the_reason_for_a_group_without_lag(
    spark, cluster, client, tmp_path
):
    await client.create_topics(NewTopic("lagging", 2, 3))
    for partition in range(2):
        await client.produce("lagging", [Record(value=b"v")] * 100, partition=partition)

    async def commit(offset: int) -> None:
        offsets = {TopicPartition("lagging", n): OffsetAndMetadata(offset) for n in range(2)}
        await client.groups.alter_offsets("slow", offsets)

    await commit(10)
    settings = LagSettings(
        cluster.bootstrap,
        ("slow", "silent"),
        duration_s=0.4,
        interval_s=0.2,
        output=str(tmp_path / "lag.parquet"),
        plot=str(tmp_path / "lag.png"),
    )
    loop = asyncio.get_running_loop()

    class CommittingAfterTheFirstSample(Report):
        def stream(self, bar) -> None:
            if bar.done == 1:
                asyncio.run_coroutine_threadsafe(commit(100), loop).result(60)

    found = await asyncio.to_thread(run, spark, settings, CommittingAfterTheFirstSample())
    by_group, by_partition, without = found.tables
    assert found.document()[without.name] == [{"group": "silent", "reason": "no committed offset"}]
    assert len(by_partition.rows) == 2
    [(group, samples, _, most, last, trend)] = by_group.rows
    assert (group, samples, most, last) == ("slow", 3, 180, 0)
    assert trend < 0
    table = pq.read_table(tmp_path / "lag.parquet")
    assert table.num_rows == 6
    assert set(table.column("end").to_pylist()) == {100}
    assert (tmp_path / "lag.png").stat().st_size > 5_000


async def test_one_sample_of_all_groups_is_written_as_json_lines(spark, cluster, client, tmp_path):
    await client.create_topics(NewTopic("lagging-once", 1, 3))
    await client.produce("lagging-once", [Record(value=b"v")] * 5, partition=0)
    at = {TopicPartition("lagging-once", 0): OffsetAndMetadata(3)}
    await client.groups.alter_offsets("once", at)
    settings = LagSettings(cluster.bootstrap, output=str(tmp_path / "lag.jsonl"))
    found = await asyncio.to_thread(run, spark, settings, Report())
    assert ("once", 1, 2.0, 2, 2, None) in found.tables[0].rows
    lines = (tmp_path / "lag.jsonl").read_text().splitlines()
    [line] = [json.loads(line) for line in lines if '"once"' in line]
    assert (line["topic"], line["committed"], line["end"], line["lag"]) == ("lagging-once", 3, 5, 2)


async def test_lag_of_a_group_without_committed_offsets_is_an_error_with_its_name(spark, cluster):
    settings = LagSettings(cluster.bootstrap, ("nobody",))
    with pytest.raises(MinikafkaError, match="nobody: no committed offset"):
        await asyncio.to_thread(run, spark, settings, Report())


def test_file_of_lag_samples_must_be_parquet_or_json_lines():
    with pytest.raises(ConfigError, match=r"\.parquet or \.jsonl, not 'lag\.csv'"):
        LagSettings("127.0.0.1:1", output="lag.csv").check()


def test_output_file_of_lag_samples_is_refused_when_its_directory_does_not_exist(tmp_path):
    with pytest.raises(ConfigError, match="missing does not exist"):
        LagSettings("127.0.0.1:1", output=str(tmp_path / "missing" / "lag.jsonl")).check()
