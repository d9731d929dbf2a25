"""The options of the window pipeline, and the series of its picture."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql import Row

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.window import pipeline
from minikafka.spark.pipelines.window.pipeline import Mark, WindowSettings
from minikafka.spark.source.options import Mode, parse
from minikafka.spark.wire.protocol import Isolation

SETTINGS = WindowSettings("one:1", ("a", "b"), size_s=60)


def test_windows_count_committed_records_and_fail_if_some_were_lost():
    options = parse(pipeline._source_options(SETTINGS), Mode.STREAM)
    assert options.subscription.topics == ("a", "b")
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.fail_on_data_loss
    assert not options.fail_on_far_times
    skipping = pipeline._source_options(replace(SETTINGS, skip_lost=True))
    assert not parse(skipping, Mode.STREAM).fail_on_data_loss


def test_account_of_records_adds_up_to_the_records_that_were_read():
    counts = {"records": 9, "late": 2, "without_time": 1, "malformed": 1, "without_number": 0}
    assert pipeline.account(counts, 3, 2) == {
        "records": 9,
        "records_counted": 3,
        "records_open": 2,
        "records_late": 2,
        "records_without_time": 1,
        "records_malformed": 1,
    }
    assert pipeline.account({"records": 3, "without_number": 1}, 3) == {
        "records": 3,
        "records_counted": 3,
        "records_without_time": 0,
        "records_malformed": 0,
        "records_without_number": 1,
    }


@pytest.mark.parametrize(("in_windows", "difference"), [(2, 1), (4, -1)])
def test_account_of_records_says_if_the_sum_does_not_hold(in_windows, difference):
    found = pipeline.account({"records": 4, "malformed": 1}, in_windows, 0)
    assert found["records_unaccounted"] == difference
    assert not pipeline._summary(SETTINGS, found, {}).ok


def test_watermark_follows_the_newest_time_and_never_goes_back():
    second = 1_000_000
    assert Mark().advanced(None, 60) is None
    assert Mark().advanced(90 * second, 60) == 30 * second
    assert Mark(30 * second).advanced(80 * second, 60) == 30 * second
    assert Mark(30 * second).advanced(None, 60) == 30 * second
    assert Mark().advanced(-(2**63) + 5, 60) == -(2**63)


def test_query_of_a_checkpoint_has_every_option_that_must_stay_the_same():
    changed = replace(SETTINGS, size_s=120, slide_s=30, by="key", value="$.v", time="$.t")
    before, now = SETTINGS.query(), changed.query()
    assert [name for name in before if before[name] == now[name]] == []
    assert list(before) == ["--size", "--slide", "--by", "--value", "--time"]
    assert replace(SETTINGS, watermark_s=5, skip_lost=True).query() == before


def test_repeated_micro_batch_keeps_the_watermark_of_its_first_attempt():
    marks = SimpleNamespace(mark={4: Mark(7), 5: Mark(99)}.get)
    counting = pipeline._Counting(SETTINGS, marks, lambda *_: None)
    assert counting._watermark(Mark(7), {"newest": 10**12}, 5) == 99
    assert counting._watermark(Mark(7), {"newest": 10**12}, 6) == 10**12 - 600_000_000


@pytest.mark.parametrize("topic", ["b", "windows"])
def test_dead_letter_topic_must_be_a_topic_of_its_own(topic):
    with pytest.raises(ConfigError, match=f"neither read nor written by this command, not {topic}"):
        replace(SETTINGS, to="windows", dead_letter=topic).check()


def test_uri_of_a_store_without_conditional_writes_is_refused_before_spark_starts():
    with pytest.raises(
        ConfigError, match=r"not known of ftp://; name a path, or a URI that begins"
    ):
        replace(SETTINGS, parquet="ftp://host/windows").check()
    replace(SETTINGS, parquet="s3a://bucket/windows").check()


def test_series_of_the_other_groups_is_drawn_last():
    rows = [
        Row(window_start=at * 60_000_000, group=group, count=count)
        for group, at, count in (("others", 0, 1), ("z", 0, 2), ("a", 0, 3), ("a", 1, 4))
    ]
    found = [(series.name, series.values) for series in pipeline._series(rows, "key")]
    assert found == [("a", [3, 4]), ("z", [2]), ("others", [1])]
