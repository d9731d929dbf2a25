"""The states of transactional batches in rising order of offsets, and segments that were deleted."""

from __future__ import annotations

import gc
import sys

import pyarrow as pa
import pytest

from minikafka.kafka.records.transactions import ABORT, ABORTED, COMMIT, OPEN, VISIBLE
from minikafka.spark.replicas import _Opened, read_states

ROWS = [
    (1, "t", 0, 0, 7, None),
    (1, "t", 0, 2, 8, None),
    (1, "t", 0, 3, 7, ABORT),
    (1, "t", 0, 4, 7, None),
    (1, "t", 0, 5, 8, COMMIT),
    (1, "t", 0, 6, 8, None),
    (1, "t", 0, 7, 7, COMMIT),
    (1, "t", 0, 8, 8, ABORT),
    (1, "t", 0, 9, 7, None),
    (2, "t", 0, 0, 7, None),
    (2, "t", 1, 0, 7, None),
    (2, "t", 1, 1, 7, COMMIT),
]
STATES = [
    ABORTED, VISIBLE, ABORTED, VISIBLE, VISIBLE, ABORTED, VISIBLE, ABORTED, OPEN,
    OPEN,
    VISIBLE, VISIBLE,
]  # fmt: skip
NAMES = ("broker", "topic", "partition", "base_offset", "producer_id", "marker")
TYPES = (pa.int32(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int32())


@pytest.mark.parametrize("size", [1, 5, len(ROWS)])
def test_batch_has_the_state_of_its_producers_next_marker(size: int) -> None:
    tables = [
        pa.RecordBatch.from_arrays(
            [pa.array(c, kind) for c, kind in zip(zip(*part, strict=True), TYPES, strict=True)],
            NAMES,
        )
        for part in (ROWS[at : at + size] for at in range(0, len(ROWS), size))
    ]
    found = [row for table in read_states(tables) for row in table.to_pylist()]
    found.sort(key=lambda row: (row["broker"], row["partition"], row["base_offset"]))
    assert [row.pop("state") for row in found] == STATES
    assert found == [row for table in tables for row in table.to_pylist()]


def test_tables_without_transactions_yield_no_rows() -> None:
    assert list(read_states([])) == []


def test_segment_that_was_deleted_during_a_check_raises_one_error(tmp_path, monkeypatch):
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with pytest.raises(FileNotFoundError):
        _Opened(str(tmp_path / "gone.log"))
    gc.collect()
    assert unraisable == []
