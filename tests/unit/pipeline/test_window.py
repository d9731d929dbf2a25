"""The options of the window pipeline, and the series of its picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import Row

from minikafka.base.errors import ConfigError
from minikafka.pipeline import window
from minikafka.pipeline.window import WindowSettings
from minikafka.spark.source.options import Mode, parse
from minikafka.spark.wire.protocol import Isolation

SETTINGS = WindowSettings("one:1", ("a", "b"), size_s=60)


def test_windows_count_committed_records_and_fail_if_some_were_lost():
    options = parse(window._source_options(SETTINGS), Mode.STREAM)
    assert options.subscription.topics == ("a", "b")
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.fail_on_data_loss
    assert not options.fail_on_far_times
    skipping = window._source_options(replace(SETTINGS, skip_lost=True))
    assert not parse(skipping, Mode.STREAM).fail_on_data_loss


def test_invalid_records_are_counted_only_if_there_are_some():
    assert window._invalid({"without_time": 2, "without_number": 0}) == {"records_without_time": 2}
    assert window._invalid({"without_number": 1}) == {"records_without_number": 1}
    assert window._invalid({}) == {}


def test_query_of_a_checkpoint_has_every_option_that_must_stay_the_same():
    changed = replace(SETTINGS, size_s=120, slide_s=30, by="key", value="$.v", time="$.t")
    before, now = SETTINGS.query(), changed.query()
    assert [name for name in before if before[name] == now[name]] == []
    assert list(before) == ["--size", "--slide", "--by", "--value", "--time"]
    assert replace(SETTINGS, watermark_s=5, skip_lost=True).query() == before


def test_directory_that_is_a_uri_is_refused_before_spark_starts():
    with pytest.raises(ConfigError, match=r"a Parquet table is a directory .*, not a URI"):
        replace(SETTINGS, parquet="s3a://bucket/windows").check()


def test_series_of_the_other_groups_is_drawn_last():
    rows = [
        Row(window_start=at * 60_000_000, group=group, count=count)
        for group, at, count in (("others", 0, 1), ("z", 0, 2), ("a", 0, 3), ("a", 1, 4))
    ]
    found = [(series.name, series.values) for series in window._series(rows, "key")]
    assert found == [("a", [3, 4]), ("z", [2]), ("others", [1])]
