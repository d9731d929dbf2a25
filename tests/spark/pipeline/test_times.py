"""Rows with times of every type are printed in UTC, also outside the years of Python's datetime."""

from __future__ import annotations

import time

from minikafka.spark.pipelines.times import facts_of

FAR = "timestamp_millis(1795000000000000)"
NEAR = "timestamp_millis(1793511000123)"


def test_times_in_columns_of_every_type_are_printed_in_utc(spark, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    frame = spark.sql(
        f"select {NEAR} a, {FAR} a, array({NEAR}, null) list, map('k', {FAR}) map,"
        f" named_struct('s', {NEAR}, 'n', 1) struct, cast(null as struct<s: timestamp>) none,"
        " date '2026-11-01' date, date_from_unix_date(100000000) far, X'41FF' bytes, 1.5D number"
    )
    [row] = facts_of(frame)
    monkeypatch.undo()
    time.tzset()
    near, far = "2026-11-01T05:30:00.123Z", 1_795_000_000_000_000
    lists = (f"['{near}', None]", f"{{'k': {far}}}", f"Row(s='{near}', n=1)")
    ends = ("2026-11-01", "+275760-09-13", "A\N{REPLACEMENT CHARACTER}", 1.5)
    assert row == (near, far, *lists, None, *ends)
