"""The samples of lag, from a client that answers without a cluster, and their file and picture."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest

from minikafka.base.model import TopicPartition
from minikafka.spark.pipelines import lag
from minikafka.spark.pipelines.lag import SUFFIXES

MOMENT_MS = 1_700_000_000_000
MOMENT = datetime.fromtimestamp(MOMENT_MS / 1000, UTC)
COMMITTED = {
    "shop": {TopicPartition("t", 0): 7, TopicPartition("t", 1): 9, TopicPartition("gone", 0): 1},
    "idle": {},
    "old": {TopicPartition("gone", 0): 1},
}
ENDS = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 4}


class Groups:
    async def list_groups(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(group=name) for name in COMMITTED]

    async def offsets(self, name: str) -> dict[TopicPartition, SimpleNamespace]:
        return {tp: SimpleNamespace(offset=at) for tp, at in COMMITTED[name].items()}


class Client:
    """A client of a cluster in which partition 1 of `t` has no leader, if `leaderless` is set."""

    def __init__(self, *, leaderless: bool = False) -> None:
        self.groups = Groups()
        self.admin = self
        self.leaderless = leaderless

    async def describe(self, topics: list[str]) -> tuple[None, list[SimpleNamespace]]:
        assert topics in (["gone", "t"], ["gone"])
        leaders = {0: 1, 1: -1 if self.leaderless else 2, 2: 3}
        partitions = {number: SimpleNamespace(leader=leader) for number, leader in leaders.items()}
        return None, [SimpleNamespace(name="t", partitions=partitions)]

    async def log_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {tp: ENDS[tp] for tp in wanted}


async def sample(client: Client, *groups: str) -> list[tuple]:
    found, _ = await lag._sample(client, groups, MOMENT_MS)
    assert {row["time"] for row in found} <= {MOMENT}
    return [
        (row["group"], row["partition"], row["committed"], row["end"], row["lag"]) for row in found
    ]


async def test_lag_is_the_log_end_minus_the_committed_offset_and_never_negative():
    assert await sample(Client(), "shop") == [("shop", 0, 7, 10, 3), ("shop", 1, 9, 4, 0)]


async def test_partitions_without_a_leader_and_of_deleted_topics_are_left_out():
    assert await sample(Client(leaderless=True), "shop") == [("shop", 0, 7, 10, 3)]


async def test_all_groups_are_sampled_if_none_is_named():
    assert [row[0] for row in await sample(Client())] == ["shop", "shop"]
    assert await sample(Client(), "idle") == []


async def test_group_without_a_row_has_the_reason():
    _, without = await lag._sample(Client(), (), MOMENT_MS)
    assert without == {
        "idle": "no committed offset",
        "old": "its partitions with a committed offset have no leader, or their topics were deleted",
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_samples_are_written_to_a_file(tmp_path, suffix):
    row = {
        "time": MOMENT,
        "group": "shop",
        "topic": "t",
        "partition": 0,
        "committed": 7,
        "end": 10,
        "lag": 3,
    }
    path = tmp_path / f"lag{suffix}"
    table = pa.Table.from_pylist([row], schema=lag._SCHEMA)
    path.write_bytes(lag._encoded(table, str(path)))
    if suffix == ".jsonl":
        assert json.loads(path.read_text()) == row | {"time": "2023-11-14T22:13:20.000Z"}
    else:
        assert pa.parquet.read_table(path).to_pylist() == [row]


def test_picture_adds_the_partitions_of_a_group_and_the_groups_with_the_least_lag(monkeypatch):
    monkeypatch.setattr(lag.plot, "SERIES_MAX", 3)
    later = MOMENT + timedelta(seconds=5)
    lags = {"a": (5, 1), "b": (9, 9), "c": (1, 2), "d": (3, 1)}
    samples = [
        {"group": group, "time": time, "lag": lag_ / 2}
        for group, both in lags.items()
        for time, lag_ in zip((MOMENT, later), both, strict=True)
        for _ in range(2)
    ]
    picture = lag._picture("lag", samples)
    assert [(series.name, list(series.values)) for series in picture.series] == [
        ("b", [9, 9]),
        ("a", [5, 1]),
        ("others", [4, 3]),
    ]
