"""The values that a restore computes from archived records: a digest, and the runs of consecutive offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from minikafka.spark.parquet.archive_load import Digest, Runs
from minikafka.spark.parquet.archive_save import SCHEMA

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
HEADERS = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
ROWS = [
    {"key": None, "value": b"", "headers": None},
    {"key": b"", "value": None, "headers": HEADERS},
    {"key": b"\xff\x00", "value": b"\x80" * 70, "headers": HEADERS[::-1]},
]


def batch(rows: list[dict]) -> pa.RecordBatch:
    stamped = [
        {"offset": number, "timestamp": MOMENT, "timestampType": 0, "leaderEpoch": 0} | row
        for number, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(stamped, schema=SCHEMA)


def digest(*batches: pa.RecordBatch) -> str:
    found = Digest()
    for one in batches:
        found.add(one)
    return found.text()


def test_digest_of_records_does_not_depend_on_batch_boundaries_or_offsets():
    whole = batch(ROWS)
    assert digest(whole) == digest(whole.slice(0, 1), whole.slice(1)) == digest(batch(ROWS))
    moved = batch([row | {"offset": 7 + number} for number, row in enumerate(ROWS)])
    assert digest(moved) == digest(whole)


@pytest.mark.parametrize(
    "changed",
    [
        [ROWS[1], ROWS[0], ROWS[2]],
        [ROWS[0] | {"key": b""}, *ROWS[1:]],
        [ROWS[0] | {"value": None}, *ROWS[1:]],
        [ROWS[0], ROWS[1] | {"headers": HEADERS[::-1]}, ROWS[2]],
        [ROWS[0], ROWS[1] | {"headers": HEADERS[:1]}, ROWS[2]],
        [ROWS[0] | {"timestamp": MOMENT + timedelta(milliseconds=1)}, *ROWS[1:]],
        ROWS[:2],
    ],
)
def test_digest_changes_when_records_change_content_order_or_number(changed):
    assert digest(batch(changed)) != digest(batch(ROWS))


def runs(*files: list[int]) -> list[tuple[int, int, int, int]]:
    found = Runs()
    for offsets in files:
        found.start_file()
        found.add(np.array(offsets, dtype=np.int64))
    return found.listed()


def test_consecutive_offsets_in_several_files_are_listed_as_one_run():
    assert runs([5, 6, 7], [8, 9]) == [(5, 10, 0, 5)]
    assert runs([]) == []


def test_offset_gap_begins_a_new_run_that_counts_the_records_before_it():
    assert runs([0, 1, 5], [6, 9]) == [(0, 2, 0, 2), (5, 7, 2, 2), (9, 10, 4, 1)]


def test_more_than_1000_offset_runs_are_listed_as_one_run_per_file():
    first, second = list(range(0, 3_000, 2)), list(range(3_000, 6_000, 3))
    assert runs(first, second) == [(0, 2_999, 0, 1_500), (3_000, 5_998, 1_500, 1_000)]


def test_adjacent_runs_are_listed_apart_if_offsets_are_missing_in_one_of_them():
    first, last = list(range(0, 3_000, 2)), list(range(2_999, 3_010))
    assert runs(first, last) == [(0, 2_999, 0, 1_500), (2_999, 3_010, 1_500, 11)]
    before, gaps = list(range(5)), list(range(5, 3_000, 2))
    assert runs(before, gaps) == [(0, 5, 0, 5), (5, 3_000, 5, 1_498)]
