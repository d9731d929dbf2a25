"""The pipeline `window` counts records per time window on a real cluster, as a batch and as a stream."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow.dataset as ds
import pytest

from minikafka.base.errors import ConfigError
from minikafka.client import NewTopic
from minikafka.pipeline.failures import PipelineError
from minikafka.pipeline.report import Report
from minikafka.pipeline.window import WindowSettings, run
from minikafka.record.batch import Record
from minikafka.runtime.clock import SystemClock
from minikafka.spark.table.directory import OtherQuery

MINUTE = 60_000
START = SystemClock().wall_ms() // (10 * MINUTE) * 10 * MINUTE


def at(minute: float, user: str, ms: int = 1) -> Record:
    """Return a record whose time is `minute` minutes after `START`. The JSON value has the fields `user` and `ms`."""
    value = json.dumps({"user": user, "ms": ms}).encode()
    return Record(key=user.encode(), value=value, timestamp=START + int(minute * MINUTE))


def clock(minute: int) -> str:
    return f"{datetime.fromtimestamp(START / 1000 + 60 * minute, UTC):%Y-%m-%dT%H:%M:%S}.000Z"


async def test_counts_and_sums_by_a_json_field_are_listed_and_drawn(
    spark, cluster, client, tmp_path
):
    await client.create_topics(NewTopic("counted-clicks", 2, 3))
    await client.produce(
        "counted-clicks", [at(0, "a", 5), at(0.9, "a", 7), at(0.5, "b")], partition=0
    )
    await client.produce("counted-clicks", [at(1, "a", 2), Record(value=b"no json")], partition=1)
    settings = WindowSettings(
        cluster.bootstrap,
        ("counted-clicks",),
        size_s=60,
        by="$.user",
        value="$.ms",
        parquet=str(tmp_path / "windows"),
        plot=str(tmp_path / "clicks.html"),
    )
    found = run(spark, settings, Report())
    assert found.facts["records"] == 5
    rows = [row for row in found.tables[0].rows if row[2] is not None]
    assert rows == [
        (clock(0), clock(1), "a", 2, 12.0, 5.0, 7.0),
        (clock(0), clock(1), "b", 1, 1.0, 1.0, 1.0),
        (clock(1), clock(2), "a", 1, 2.0, 2.0, 2.0),
    ]
    assert "records per 60 s" in (tmp_path / "clicks.html").read_text()
    assert ds.dataset(tmp_path / "windows").to_table().num_rows == found.facts["windows"] == 4


def valued(ts: object, ms: object = 1) -> Record:
    return Record(value=json.dumps({"ts": ts, "ms": ms}).encode())


@pytest.mark.parametrize("with_checkpoint", [False, True])
async def test_records_with_an_invalid_time_or_number_are_counted_and_named(
    spark, cluster, client, tmp_path, monkeypatch, with_checkpoint
):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    topic = f"invalid-times-{with_checkpoint}".lower()
    await client.create_topics(NewTopic(topic, 1, 3))
    nanoseconds, microseconds = START * 1_000_000, 1_795_000_000_000_000
    records = [
        valued(START),
        valued(nanoseconds),
        valued(-(2**63)),
        valued((2**63 - 1) // 1000),
        valued(10**30),
        valued("yesterday"),
        valued(START, "many"),
        valued(microseconds),
    ]
    await client.produce(topic, records, partition=0)
    settings = WindowSettings(
        cluster.bootstrap,
        (topic,),
        size_s=60,
        value="$.ms",
        time="$.ts",
        parquet=str(tmp_path / "windows"),
        plot=None if with_checkpoint else str(tmp_path / "windows.html"),
        checkpoint=str(tmp_path / "checkpoint") if with_checkpoint else None,
    )
    found = run(spark, settings, Report())
    monkeypatch.undo()
    time.tzset()
    assert found.facts["records"] == 8
    assert found.facts["records_without_time"] == 5
    assert found.facts["records_without_number"] == 1
    assert found.tables[1].name == "first_invalid_records"
    assert found.tables[1].rows == tuple((topic, 0, offset) for offset in range(1, 6))
    rows = [(clock(0), clock(1), 2, 1.0, 1.0, 1.0)]
    if not with_checkpoint:
        start = microseconds // MINUTE * MINUTE
        rows.append((start, start + MINUTE, 1, 1.0, 1.0, 1.0))
        assert found.facts["windows_not_drawn"] == 1
        shown = datetime.fromtimestamp(START / 1000, UTC)
        assert f"{shown:%Y-%m-%d %H:%M:%S}" in (tmp_path / "windows.html").read_text()
    assert found.tables[0].rows == tuple(rows)


async def test_sliding_windows_go_to_a_topic_as_json(spark, cluster, client, contents):
    await client.create_topics(NewTopic("slides", 1, 3), NewTopic("slides-counts", 1, 3))
    await client.produce("slides", [at(0.5, "a"), at(1.5, "a")], partition=0)
    other = at(9, "a")._replace(key=b"\xff")
    await client.produce("slides", [other], partition=0)
    settings = WindowSettings(
        cluster.bootstrap, ("slides",), size_s=120, slide_s=60, by="key", to="slides-counts"
    )
    run(spark, settings, Report())
    counts = {}
    for record in await contents("slides-counts"):
        window = json.loads(record.value)
        assert record.key.decode() == window["group"]
        if window["group"] == "\N{REPLACEMENT CHARACTER}":
            continue
        started = datetime.fromisoformat(window["window_start"])
        counts[int(started.timestamp() - START / 1000) // 60] = window["count"]
    assert counts == {-1: 1, 0: 2, 1: 1}


async def test_stream_writes_each_window_once_when_the_watermark_passed(
    spark, cluster, client, tmp_path
):
    await client.create_topics(NewTopic("watched-clicks", 1, 3))
    settings = WindowSettings(
        cluster.bootstrap,
        ("watched-clicks",),
        size_s=60,
        watermark_s=60,
        parquet=str(tmp_path / "windows"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    await client.produce("watched-clicks", [at(0, "a"), at(0.5, "a"), at(4, "a")], partition=0)
    first = run(spark, settings, Report())
    assert [row[2] for row in first.tables[0].rows] == [2]
    await client.produce("watched-clicks", [at(0.6, "late"), at(9, "a")], partition=0)
    second = run(spark, settings, Report())
    assert [(row[0], row[2]) for row in second.tables[0].rows] == [(clock(0), 2), (clock(4), 1)]
    written = ds.dataset(tmp_path / "windows").to_table()
    assert sorted(written.column("count").to_pylist()) == [1, 2]
    with pytest.raises(OtherQuery, match="another stream, whose checkpoint was"):
        run(spark, replace(settings, checkpoint=str(tmp_path / "new")), Report())
    other = replace(settings, size_s=120, by="key")
    message = (
        "--size was 60 s and is 120 s now, --by was none and is key now; name a new checkpoint"
    )
    with pytest.raises(PipelineError, match=message):
        run(spark, other, Report())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slide_s": 90}, "slide of 90 s is longer"),
        ({"by": "user"}, r"--by must be one of key, topic, partition, \$.field"),
        ({"value": "ms"}, r"--value must be one of \$.field"),
        ({"checkpoint": "c"}, "--parquet DIR or --to TOPIC"),
        ({"parquet": "p", "to": "t"}, "not both"),
        ({"checkpoint": "c", "to": "t", "plot": "p.png"}, "--plot of a stream needs --parquet"),
        ({"plot": "p.pdf"}, r"\.png or \.html"),
    ],
)
def test_invalid_or_contradictory_window_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        WindowSettings("127.0.0.1:1", ("t",), size_s=60, **given).check()
