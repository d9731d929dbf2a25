"""The pipeline `ledger` lists elections, ISR changes and controller terms, from real and from damaged ledgers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clusters.running_cluster import create_topic, kill, wait_for_leaders

from minikafka.spark.pipelines.ledger import LedgerSettings, run
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Report


def table(summary: Any, name: str) -> list[dict[str, Any]]:
    [found] = [one for one in summary.tables if one.name == name]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def write(directory: Path, *lines: dict[str, Any]) -> Path:
    """Write a ledger whose last line is cut off."""
    directory.mkdir(parents=True)
    texts = [json.dumps({"n": number, "cause": "", **line}) for number, line in enumerate(lines)]
    (directory / "ledger-000001.jsonl").write_text("\n".join([*texts, '{"time":9,"bro']))
    return directory


def state(
    leader: int, epoch: int, isr: list[int], op: str = "set", topic: str = "t"
) -> list[dict[str, Any]]:
    data = json.dumps({"leader": leader, "leader_epoch": epoch, "isr": isr})
    return [{"op": op, "path": f"/brokers/topics/{topic}/partitions/0/state", "data": data}]


def test_ledger_pipeline_computes_election_times_and_isr_changes_from_the_ledgers(spark, tmp_path):
    first = {"kind": "write", "outcome": "ok", "broker": 1, "cause": "1-2"}
    second = {"kind": "write", "outcome": "ok", "broker": 2, "cause": "2-1"}
    write(
        tmp_path / "broker-1-ledger",
        {"kind": "election", "outcome": "won", "epoch": 1, "time": 1_000, "broker": 1},
        {**first, "time": 2_000, "zxid": 10, "operations": state(1, 0, [1, 2, 3])},
    )
    write(
        tmp_path / "broker-2-ledger",
        {"kind": "broker", "fact": "connection lost", "to": 1, "time": 4_000, "broker": 2},
        {"kind": "broker", "fact": "connection lost", "to": 1, "time": 5_000, "broker": 2},
        {"kind": "broker", "fact": "connection lost", "to": 3, "time": 5_500, "broker": 2},
        {"kind": "broker", "fact": "connection lost", "to": 1, "time": 7_000, "broker": 2},
        {"kind": "election", "outcome": "took over", "epoch": 2, "time": 6_000, "broker": 2},
        {"kind": "event", "event": "BrokersChanged", "cause": "2-1", "time": 6_100, "broker": 2},
        {**second, "time": 6_250, "zxid": 20, "operations": state(2, 1, [2, 3])},
        {**second, "outcome": "failed", "time": 7_000, "zxid": 25, "operations": state(3, 2, [3])},
        {"kind": "isr", "outcome": "ok", "time": 8_250, "broker": 2, "zxid": 30, "topic": "t",
         "partition": 0, "leader_epoch": 1, "isr": [2, 3, 1]},
        {"kind": "lost", "lines": 4, "time": 9_000, "broker": 2},
    )  # fmt: skip
    settings = LedgerSettings((str(tmp_path),), str(tmp_path / "out"), str(tmp_path / "p.html"))
    summary = run(spark, settings, Report())
    assert "joined the ISR" in (tmp_path / "p.html").read_text()
    assert (summary.facts["damaged_lines"], summary.facts["lost_lines"]) == (2, 4)
    assert summary.document()["elections_in_all"] == 1
    [election] = table(summary, "elections")
    assert (election["from"], election["to"], election["event"]) == (1, 2, "BrokersChanged")
    assert (election["election_ms"], election["recovery_ms"]) == (150, 1_250)
    [partition] = table(summary, "partitions")
    assert partition["under_replicated_ms"] == 2_000
    assert (partition["left_isr"], partition["joined_isr"], partition["elections"]) == (1, 1, 1)
    assert [(one["controller"], one["ms"]) for one in table(summary, "controllers")] == [
        (1, 5_000),
        (2, None),
    ]
    assert [one["left_isr"] for one in table(summary, "brokers")] == [1, 0]
    assert spark.read.parquet(str(tmp_path / "out" / "elections")).count() == 1


def deleted_and_recreated(topic: str, zxid: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of a topic. `topic`: which line is lost, of the mark for the deletion and of the removal."""
    write_ok = {"kind": "write", "outcome": "ok", "broker": 1}
    mark = [{"op": "create", "path": f"/admin/delete_topics/{topic}", "data": None}]
    removal = [{"op": "delete", "path": f"/brokers/topics/{topic}", "data": None}]
    created, left = state(1, 0, [1, 2, 3], "create", topic), state(2, 1, [2, 3], topic=topic)
    yield {**write_ok, "time": 1_000, "zxid": zxid, "operations": created}
    yield {**write_ok, "time": 2_000, "zxid": zxid + 1, "operations": left}
    if topic != "mark":
        yield {**write_ok, "time": 5_000, "zxid": zxid + 2, "operations": mark}
    ended, again = state(-1, 2, [2], topic=topic), state(3, 0, [3], "create", topic)
    yield {**write_ok, "time": 5_000, "zxid": zxid + 3, "operations": ended}
    if topic != "removal":
        yield {**write_ok, "time": 5_000, "zxid": None, "operations": removal}
    yield {**write_ok, "time": 60_000, "zxid": zxid + 10, "operations": again}


def test_deleted_topic_ends_at_its_deletion_and_begins_again_when_recreated(spark, tmp_path):
    topics = ("nothing", "mark", "removal")
    lines = [
        line
        for number, topic in enumerate(topics)
        for line in deleted_and_recreated(topic, 100 * number)
    ]
    lines.sort(key=lambda line: line["time"])
    started = {"kind": "broker", "fact": "started", "time": 90_000, "broker": 1}
    write(tmp_path / "broker-1-ledger", *lines, started)
    found = table(run(spark, LedgerSettings((str(tmp_path),)), Report()), "partitions")
    assert {one["topic"] for one in found} == set(topics)
    assert len(found) == len(topics)
    for one in found:
        assert (one["under_replicated_ms"], one["offline_ms"]) == (3_000, 0)
        left = 2 if one["topic"] == "mark" else 1
        assert (one["left_isr"], one["joined_isr"]) == (left, 0)


def test_times_of_the_ledger_are_in_utc_in_every_time_zone(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    won = {"kind": "election", "outcome": "won", "broker": 1}
    write(
        tmp_path / "broker-1-ledger",
        {**won, "epoch": 1, "time": 1_793_511_000_123},
        {**won, "epoch": 2, "time": 10**14 * 3},
        {**won, "epoch": 3, "time": 2**62},
    )
    summary = run(spark, LedgerSettings((str(tmp_path),)), Report())
    monkeypatch.undo()
    time.tzset()
    times = [one["won"] for one in table(summary, "controllers")]
    assert times == ["2026-11-01T05:30:00.123Z", 10**14 * 3, None]


async def test_ledgers_of_a_real_cluster_show_the_election_after_a_kill(spark, cluster, tmp_path):
    await create_topic(cluster, "killed-leader", 3)
    await kill(cluster, 2)
    await wait_for_leaders(cluster, ["killed-leader"], 3, without=2)
    output = tmp_path / "out"
    run(spark, LedgerSettings((str(cluster.directory.path),), str(output)), Report())
    elections = spark.read.parquet(str(output / "elections")).where("topic = 'killed-leader'")
    assert [row["from"] for row in elections.collect()] == [2]
    assert elections.where("event IS NOT NULL AND recovery_ms >= election_ms").count() == 1
    partitions = spark.read.parquet(str(output / "partitions")).where("topic = 'killed-leader'")
    assert [row.left_isr for row in partitions.where("elections = 1").collect()] == [1]


def test_directory_without_ledgers_is_refused(spark, tmp_path):
    with pytest.raises(PipelineError, match="holds no ledger"):
        run(spark, LedgerSettings((str(tmp_path),)), Report())
