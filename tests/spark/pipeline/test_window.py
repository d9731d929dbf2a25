"""The pipeline `window` counts records per time window on a real cluster, as a batch and as a stream."""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow.dataset as ds
import pytest
from pyspark.sql import functions as f

from minikafka.base.errors import ConfigError
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.runtime.clock import SystemClock
from minikafka.spark.parquet.table_directory import OtherQuery
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Report
from minikafka.spark.pipelines.window import pipeline
from minikafka.spark.pipelines.window.counts import RECORDS, counted, metrics
from minikafka.spark.pipelines.window.pipeline import WindowSettings, run

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
    others = [at(1, "a", 2), Record(value=b'{"ms": 3}'), Record(value=b"no json")]
    await client.produce("counted-clicks", others, partition=1)
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
    assert found.facts["records"] == 6
    assert (found.facts["records_counted"], found.facts["records_malformed"]) == (5, 1)
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
    spark, cluster, client, contents, tmp_path, monkeypatch, with_checkpoint
):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    topic = f"invalid-times-{with_checkpoint}".lower()
    await client.create_topics(NewTopic(topic, 1, 3), NewTopic(f"{topic}-dead", 1, 3))
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
        valued(None),
        Record(value=None),
        Record(key=b"k", value=b"{", headers=(("h", b"1"), ("h", None)), timestamp=START),
        Record(value=valued(START).value + b" x"),
        Record(value=b""),
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
        dead_letter=f"{topic}-dead",
    )
    found = run(spark, settings, Report())
    monkeypatch.undo()
    time.tzset()
    assert found.facts["records"] == 13
    assert found.facts["records_without_time"] == 2
    assert found.facts["records_malformed"] == found.facts["dead_letters"] == 8
    open_ = found.facts.get("records_open", 0)
    assert found.facts["records_counted"] + open_ == 3
    assert open_ == found.facts.get("records_open_in_all", 0) == with_checkpoint
    dead = await contents(f"{topic}-dead")
    invalid = [records[offset] for offset in (1, 2, 3, 4, 5, 10, 11, 12)]
    assert [(one.key, one.value) for one in dead] == [(one.key, one.value) for one in invalid]
    assert dead[5].timestamp == START
    assert dead[5].headers == (
        ("h", b"1"),
        ("h", None),
        ("minikafka.errors.topic", topic.encode()),
        ("minikafka.errors.partition", b"0"),
        ("minikafka.errors.offset", b"10"),
        ("minikafka.errors.exception.message", b"the value is not JSON"),
    )
    assert dead[4].headers[-1][1] == b"$.ts is not a time: yesterday"
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


DEEP = b'{"ts":1772359200000,"d":' + b"[" * 1500 + b"]" * 1500 + b"}"
OTHER_RULES = "org.apache.spark.sql.execution.adaptive.AQEPropagateNothing"
RULES = "spark.sql.adaptive.optimizer.excludedRules"


@pytest.mark.parametrize("rules", [None, OTHER_RULES], ids=["our-rules", "own-rules"])
async def test_records_of_which_none_has_a_window_are_counted_once_in_every_path(
    spark, cluster, client, tmp_path, rules
):
    topic = f"no-windows-{rules is None}".lower()
    await client.create_topics(NewTopic(topic, 2, 3))
    values = [DEEP, b"[" * 100_000, b'{"ts":"soon"}', b"{}"]
    await client.produce(topic, [Record(value=value) for value in values], partition=0)
    before = spark.conf.get(RULES)
    settings = WindowSettings(cluster.bootstrap, (topic,), size_s=60, time="$.ts")
    stream = replace(settings, parquet=str(tmp_path / "w"), checkpoint=str(tmp_path / "c"))
    try:
        spark.conf.set(RULES, rules or before)
        for given in (settings, stream):
            found = run(spark, given, Report())
            names = ("records", "records_counted", "records_malformed", "records_without_time")
            assert [found.facts[name] for name in names] == [4, 0, 3, 1]
            assert found.tables[-1].rows == tuple((topic, 0, offset) for offset in range(4))
    finally:
        spark.conf.set(RULES, before)


async def test_empty_topic_has_no_windows(spark, cluster, client):
    await client.create_topics(NewTopic("no-records", 1, 3))
    found = run(spark, WindowSettings(cluster.bootstrap, ("no-records",), size_s=60), Report())
    assert (found.facts["records"], found.facts["windows"], found.ok) == (0, 0, True)


def test_each_record_is_in_a_window_or_late_at_the_microsecond_of_the_watermark(spark):
    size, slide = 60_000_000, 20_000_000
    settings = WindowSettings("", ("t",), size_s=60, slide_s=20)
    times = [n * slide + step for n in range(-1, 4) for step in (-1, 0, 1)]
    watermarks = [2 * slide + step for step in (-1, 0, 1)]
    rows = f.timestamp_micros("id").alias("_time")
    ids = spark.createDataFrame([(one,) for one in times], "id long").select(rows)
    place = "'t' topic", "0 partition", "0L offset", "CAST(NULL AS STRING) _error"
    records = ids.selectExpr("_time", *place)
    for watermark in watermarks:
        ends = [[start + size for start in windows_of(one, size, slide)] for one in times]
        late = sum(max(one) <= watermark for one in ends)
        in_part = sum(min(one) <= watermark < max(one) for one in ends)
        found = records.agg(*metrics(settings, watermark)).head()
        assert (found["late"], found["late_in_part"]) == (late, in_part)
        windows = counted(records, settings, watermark).collect()
        expected_ends = Counter(end for one in ends for end in one if end > watermark)
        assert {row["window_end"]: row["count"] for row in windows} == expected_ends
        assert sum(row[RECORDS] for row in windows) == len(times) - late


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
    await client.produce("watched-clicks", [at(0, "a"), at(0.5, "a"), at(2, "a")], partition=0)
    first = run(spark, settings, Report())
    assert [row[2] for row in first.tables[0].rows] == [2]  # it ends at the watermark
    await client.produce("watched-clicks", [at(0.6, "late"), at(9, "a")], partition=0)
    second = run(spark, settings, Report())
    names = ("records", "records_counted", "records_open", "records_late", "records_open_in_all")
    assert [first.facts[name] for name in names] == [3, 2, 1, 0, 1]
    assert [second.facts[name] for name in names] == [2, 0, 1, 1, 1]
    assert [(row[0], row[2]) for row in second.tables[0].rows] == [(clock(0), 2), (clock(2), 1)]
    written = ds.dataset(tmp_path / "windows").to_table()
    assert sorted(written.column("count").to_pylist()) == [1, 2]
    with pytest.raises(OtherQuery, match="another stream, whose checkpoint was"):
        run(spark, replace(settings, checkpoint=str(tmp_path / "new")), Report())
    (tmp_path / "old" / "state").mkdir(parents=True)
    with pytest.raises(PipelineError, match="was written by an earlier version"):
        run(spark, replace(settings, checkpoint=str(tmp_path / "old")), Report())
    other = replace(settings, size_s=120, by="key")
    message = (
        "--size was 60 s and is 120 s now, --by was none and is key now; name a new checkpoint"
    )
    with pytest.raises(PipelineError, match=message):
        run(spark, other, Report())


def windows_of(time: int, size: int, slide: int) -> list[int]:
    """Return the starts of the windows that contain a time, the newest first."""
    newest = time // slide * slide
    return list(range(newest, time - size, -slide))


def expected(runs: list[list[int]], size: int, slide: int, delay: int, batch: int):
    """Yield the account of each run over the times of its records, and at last the windows that were written."""
    watermark, counts, closed = -math.inf, Counter(), {}
    for times in runs:
        late = in_part = 0
        placed = []
        for first in range(0, len(times), batch):
            some = times[first : first + batch]
            for time_ in some:
                starts = windows_of(time_, size, slide)
                in_time = [start for start in starts if start + size > watermark]
                late += not in_time
                in_part += 0 < len(in_time) < len(starts)
                counts.update(in_time)
                placed += in_time[:1]
            watermark = max(watermark, max(some) - delay)
            done = [start for start in counts if start + size <= watermark]
            closed |= {start: counts.pop(start) for start in done}
        still_open = sum(start + size > watermark for start in placed)
        yield len(times), len(placed) - still_open, still_open, late, in_part
    yield closed


async def test_each_run_of_a_stream_accounts_for_every_record_that_it_read(
    spark, cluster, client, contents, tmp_path, monkeypatch
):
    topic, to, slide = "out-of-order", "out-of-order-windows", 25
    await client.create_topics(NewTopic(topic, 1, 3), NewTopic(to, 1, 3))
    monkeypatch.setattr(pipeline, "MAX_OFFSETS_PER_TRIGGER", "70")
    chance = random.Random(slide)
    runs = [[start + 15 * n - chance.randrange(1200) for n in range(100)] for start in (-800, 200)]
    settings = WindowSettings(
        cluster.bootstrap,
        (topic,),
        size_s=60,
        slide_s=slide,
        time="$.ts",
        watermark_s=300,
        to=to,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    *accounts, windows = expected(runs, 60, slide, 300, 70)
    names = ("records", "records_counted", "records_open", "records_late")
    for times, account in zip(runs, accounts, strict=True):
        await client.produce(topic, [valued(1000 * one) for one in times], partition=0)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_send", lambda *_: 1 / 0)
            with pytest.raises(Exception, match="ZeroDivisionError"):
                run(spark, settings, Report())
        facts = run(spark, settings, Report()).facts
        assert facts["batches"] == 2
        assert tuple(facts[name] for name in names) == account[:4]
        assert account[3] > 5
        assert facts.get("records_late_for_some_windows", 0) == account[4]
        assert "records_unaccounted" not in facts
    written = [json.loads(one.value) for one in await contents(to)]
    found = {
        datetime.fromisoformat(one["window_start"]).timestamp(): one["count"] for one in written
    }
    assert found == windows
    assert len(written) == len(windows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slide_s": 90}, "slide of 90 s is longer"),
        ({"by": "user"}, r"--by must be one of key, topic, partition, \$.field"),
        ({"value": "ms"}, r"--value must be one of \$.field"),
        ({"checkpoint": "c"}, "--parquet DIR or --to TOPIC"),
        ({"parquet": "p", "to": "t"}, "not both"),
        ({"checkpoint": "c", "to": "out", "plot": "p.png"}, "--plot of a stream needs --parquet"),
        ({"plot": "p.pdf"}, r"\.png or \.html"),
    ],
)
def test_invalid_or_contradictory_window_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        WindowSettings("127.0.0.1:1", ("t",), size_s=60, **given).check()
