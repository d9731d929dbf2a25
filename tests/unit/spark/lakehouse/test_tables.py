"""Tables of Delta Lake and Iceberg on a local disk: commits, races of two writers, schemas, and upkeep."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from support.spark.lakes import READERS, arrow_of, iceberg_table, rows_of, settings_of, staged

from minikafka.base.errors import ConfigError
from minikafka.runtime.clock import SystemClock
from minikafka.spark.lakehouse import iceberg, tables
from minikafka.spark.lakehouse.columns import SchemaNarrows
from minikafka.spark.lakehouse.iceberg_upkeep import replaced_before
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.tables import (
    DELTA,
    FORMATS,
    ICEBERG,
    NoAnswer,
    NotCommitted,
    Overtaken,
    TableChange,
    TableError,
)
from minikafka.spark.pipelines import compact

START = datetime(2026, 3, 1, 10, tzinfo=UTC)
SCHEMA = pa.schema(
    [("topic", pa.string()), ("offset", pa.int64()), ("time", pa.timestamp("us", "UTC"))]
)
DAY_S = 24 * 3600
each_format = pytest.mark.parametrize("format", FORMATS)


def rows(first: int, count: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return rows with consecutive offsets, one every 20 minutes; the last one has no time."""
    found = [
        {"topic": "clicks", "offset": number, "time": START + timedelta(minutes=20 * number)}
        for number in range(first, first + count)
    ]
    found[-1]["time"] = None
    return pa.RecordBatch.from_pylist(found, schema=schema)


def _before(number: int) -> dict[str, int]:
    return {"minikafka.batch": number - 1} if number else {}


def offsets_of(format: str, place: Path, reader: str = "") -> list[int]:
    return [offset for (offset,) in rows_of(format, place, "offset", reader=reader)]


@each_format
def test_two_writers_of_the_same_rows_commit_only_one_time(tmp_path, format):
    """Two drivers of one stream after a network cut: the slower one must not add the rows again."""
    settings = settings_of(format, tmp_path)
    first, second = open_table(settings), open_table(settings)
    files = [staged(one, rows(0, 3)) for one in (first, second)]
    first.commit(TableChange(files[0], {"minikafka.batch": 0}))
    with pytest.raises(Overtaken, match="another process has added rows of the same stream"):
        second.commit(TableChange(files[1], {"minikafka.batch": 0}))
    assert offsets_of(format, tmp_path) == [0, 1, 2]


@each_format
def test_writer_that_is_overtaken_between_its_check_and_its_commit_adds_nothing(
    tmp_path, monkeypatch, format
):
    settings = settings_of(format, tmp_path)
    first, second = open_table(settings), open_table(settings)
    files = [staged(one, rows(0, 3)) for one in (first, second)]
    commit = type(second)._attempt
    others = [lambda: first.commit(TableChange(files[0], {"minikafka.batch": 0}))]

    def late(self, *given, **named):
        if self is second and others:
            others.pop()()
        return commit(self, *given, **named)

    monkeypatch.setattr(type(second), "_attempt", late)
    with pytest.raises(Overtaken):
        second.commit(TableChange(files[1], {"minikafka.batch": 0}))
    assert offsets_of(format, tmp_path) == [0, 1, 2]


@each_format
def test_commit_whose_response_is_lost_is_not_made_again(tmp_path, monkeypatch, format):
    table = open_table(settings_of(format, tmp_path))
    attempt = type(table)._attempt
    lost = [NotCommitted("the response is lost"), NoAnswer("the catalog is away")]

    def loses(self, state, change):
        attempt(self, state, change)
        raise lost.pop()

    monkeypatch.setattr(type(table), "_attempt", loses)
    for number in range(2):
        files, marks = staged(table, rows(3 * number, 3)), {"minikafka.batch": number}
        table.commit(TableChange(files, marks, _before(number)))
    assert not lost
    assert offsets_of(format, tmp_path) == list(range(6))


def test_catalog_that_comes_back_during_a_commit_gets_the_rows(tmp_path, monkeypatch):
    table = open_table(settings_of(ICEBERG, tmp_path))
    files = staged(table, rows(0, 3))
    newest = type(table).newest
    away = [NoAnswer("the catalog is away")] * 2

    def fails(self):
        if away:
            raise away.pop()
        return newest(self)

    monkeypatch.setattr(type(table), "newest", fails)
    table.commit(TableChange(files, {"minikafka.batch": 0}))
    assert offsets_of(ICEBERG, tmp_path) == [0, 1, 2]


def test_commit_waits_while_another_process_has_locked_the_catalog_file(tmp_path, monkeypatch):
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=0.05"}
    table = open_table(settings_of(ICEBERG, tmp_path, catalog=catalog))
    files = staged(table, rows(0, 3))
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
        other.execute("begin exclusive")
        pauses: list[int] = []

        def release(number: int) -> None:
            pauses.append(number)
            if len(pauses) == 2:
                other.execute("rollback")

        monkeypatch.setattr(tables, "_pause", release)
        table.commit(TableChange(files, {"minikafka.batch": 0}))
    assert pauses == [0, 1]
    assert offsets_of(ICEBERG, tmp_path) == [0, 1, 2]


@each_format
def test_writers_of_different_rows_both_commit(tmp_path, monkeypatch, format):
    settings = settings_of(format, tmp_path)
    first, second = open_table(settings), open_table(settings)
    files = [staged(first, rows(0, 3)), staged(second, rows(3, 3))]
    commit = type(second)._attempt
    others = [lambda: first.commit(TableChange(files[0], {"minikafka.a": 1}))]

    def late(self, *given, **named):
        if self is second and others:
            others.pop()()
        return commit(self, *given, **named)

    monkeypatch.setattr(type(second), "_attempt", late)
    second.commit(TableChange(files[1], {"minikafka.b": 2}))
    for reader in READERS[format]:
        assert offsets_of(format, tmp_path, reader) == list(range(6))
    assert second.marks(["minikafka.a", "minikafka.b"]) == {"minikafka.a": 1, "minikafka.b": 2}


@each_format
@pytest.mark.parametrize("partition_by", [[], ["hour(time)", "topic"], ["date(time)"]])
def test_compaction_and_expiry_keep_rows_marks_and_files_that_readers_need(
    tmp_path, format, partition_by
):
    settings = settings_of(format, tmp_path, partition_by=partition_by)
    table = open_table(settings)
    for number in range(4):
        marks = {"minikafka.batch": number}
        table.commit(TableChange(staged(table, rows(10 * number, 10)), marks, _before(number)))
    before = list(tmp_path.rglob("*.parquet"))
    old, young = (tmp_path / "data" / f"{name}.parquet" for name in ("old", "young"))
    old.write_text("killed long ago")
    os.utime(old, (1, 1))
    young.write_text("of a running task")

    done = compact.run(compact.CompactSettings(settings, 1 << 20, 7 * DAY_S))
    merged = done.facts["files_merged"]
    assert done.facts["files_written"] < merged
    assert done.facts["files_removed"] == 1
    assert all(file.exists() for file in before)
    assert not old.exists()
    wanted = list(range(40))
    assert offsets_of(format, tmp_path) == wanted

    now_ms = SystemClock().wall_ms() + 1000
    assert table.expire(0, now_ms).files >= merged
    assert table.expire(0, now_ms).files == 0
    assert sum(not file.exists() for file in before) == merged
    assert young.exists()
    for reader in READERS[format]:
        assert offsets_of(format, tmp_path, reader) == wanted
    assert table.marks(["minikafka.batch"]) == {"minikafka.batch": 3}
    assert table.compact(1 << 20).merged == 0
    table.commit(TableChange(staged(table, rows(40, 5)), {"minikafka.batch": 4}, _before(4)))
    assert offsets_of(format, tmp_path) == list(range(45))


@each_format
def test_reader_of_an_older_state_reads_on_during_compaction_and_expiry(tmp_path, format):
    settings = settings_of(format, tmp_path)
    table = open_table(settings)
    for number in range(3):
        table.commit(TableChange(staged(table, rows(5 * number, 5))))
    if format == DELTA:
        held = DeltaTable(str(tmp_path))
        batches = iter(held.to_pyarrow_dataset().scanner(columns=["offset"]).to_batches())
        again = DeltaTable(str(tmp_path), version=held.version()).to_pyarrow_dataset
    else:
        found = iceberg_table(tmp_path)
        batches = iter(found.scan(selected_fields=("offset",)).to_arrow_batch_reader())
        snapshot = found.current_snapshot().snapshot_id
        again = iceberg_table(tmp_path).scan(snapshot_id=snapshot).to_arrow
    first = next(batches)
    done = compact.run(compact.CompactSettings(settings, 1 << 20, DAY_S))
    assert done.facts["files_merged"] == 3
    rest = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert sorted(first.column("offset").to_pylist() + rest) == list(range(15))
    read = again() if format == ICEBERG else again().to_table()
    assert sorted(read.column("offset").to_pylist()) == list(range(15))


def test_manifests_of_a_commit_that_was_killed_are_removed_after_a_day(tmp_path, monkeypatch):
    table = open_table(settings_of(ICEBERG, tmp_path))
    table.commit(TableChange(staged(table, rows(0, 3))))
    kept = set((tmp_path / "metadata").iterdir())
    files = staged(table, rows(3, 3))
    monkeypatch.setattr(SqlCatalog, "commit_table", Mock(side_effect=RuntimeError("killed")))
    with pytest.raises(TableError, match="killed"):
        table.commit(TableChange(files))
    left = set((tmp_path / "metadata").iterdir()) - kept
    draft = tmp_path / "metadata" / f"version-hint.{'0' * 16}"
    draft.write_text("killed")
    now_ms = SystemClock().wall_ms()
    assert table.expire(0, now_ms).files == 0
    assert table.expire(0, now_ms + 1000 * DAY_S + 1000).files == len(left) + 2
    assert set((tmp_path / "metadata").iterdir()) == kept
    assert offsets_of(ICEBERG, tmp_path) == [0, 1, 2]


def test_snapshot_that_was_replaced_a_moment_ago_is_kept_however_old_it_is(tmp_path):
    table = open_table(settings_of(ICEBERG, tmp_path))
    for number in range(3):
        table.commit(TableChange(staged(table, rows(number, 2))))
    snapshots = table.newest().metadata.snapshots
    limit_ms = snapshots[1].timestamp_ms + 1
    assert table.expire(0, limit_ms).snapshots == 1


def test_snapshot_that_another_program_made_current_again_counts_as_replaced_later(tmp_path):
    table = open_table(settings_of(ICEBERG, tmp_path))
    for number in range(2):
        table.commit(TableChange(staged(table, rows(number, 2))))
    first, second = (one.snapshot_id for one in table.newest().metadata.snapshots)
    iceberg_table(tmp_path).manage_snapshots().rollback_to_snapshot(first).commit()
    table.commit(TableChange(staged(table, rows(2, 2))))
    state = table.newest()
    returned_ms = state.metadata.snapshot_log[2].timestamp_ms
    assert replaced_before(state, returned_ms) == []
    assert replaced_before(state, returned_ms + 1) == [second]


@each_format
def test_stream_that_commits_during_a_compaction_loses_nothing(tmp_path, monkeypatch, format):
    table = open_table(settings_of(format, tmp_path))
    for number in range(3):
        marks = {"minikafka.batch": number}
        table.commit(TableChange(staged(table, rows(2 * number, 2)), marks, _before(number)))
    if format == ICEBERG:
        replace = type(table)._replace
        stream = open_table(settings_of(format, tmp_path))
        others = [stream]

        def late(self, *given, **named):
            if self is table and others:
                files, marks = staged(stream, rows(6, 2)), {"minikafka.batch": 3}
                others.pop().commit(TableChange(files, marks, _before(3)))
            replace(self, *given, **named)

        monkeypatch.setattr(type(table), "_replace", late)
    assert table.compact(1 << 20).merged == 3
    assert offsets_of(format, tmp_path) == list(range(8 if format == ICEBERG else 6))


@each_format
def test_column_is_added_and_a_narrower_column_is_refused(tmp_path, format):
    table = open_table(settings_of(format, tmp_path))
    table.commit(TableChange(staged(table, rows(0, 2))))
    wider = SCHEMA.append(pa.field("more", pa.list_(pa.field("element", pa.string()))))
    table.commit(TableChange(staged(table, rows(2, 2, wider))))
    assert arrow_of(format, tmp_path).num_rows == 4
    with pytest.raises(SchemaNarrows, match="the rows have no column more, which"):
        table.prepare(SCHEMA)
    narrow = wider.set(1, pa.field("offset", pa.int32()))
    with pytest.raises(SchemaNarrows, match="column offset is int now, and bigint in"):
        table.prepare(narrow)


def test_int_becomes_bigint_in_an_iceberg_table_only(tmp_path):
    before, after = (pa.schema([("n", kind)]) for kind in (pa.int32(), pa.int64()))
    for kind in FORMATS:
        table = open_table(settings_of(kind, tmp_path / kind))
        one = pa.RecordBatch.from_pylist([{"n": 1}], schema=before)
        table.commit(TableChange(staged(table, one)))
        if kind == DELTA:
            with pytest.raises(SchemaNarrows, match="column n is bigint now, and int in"):
                table.prepare(after)
            continue
        wide = pa.RecordBatch.from_pylist([{"n": 1 << 40}], schema=after)
        table.commit(TableChange(staged(table, wide)))
        assert rows_of(kind, tmp_path / kind, "n") == [(1,), (1 << 40,)]


@each_format
def test_other_partitioning_than_that_of_the_table_is_refused(tmp_path, format):
    open_table(settings_of(format, tmp_path, partition_by=["date(time)"])).prepare(SCHEMA)
    with pytest.raises(ConfigError, match="is partitioned by"):
        open_table(settings_of(format, tmp_path)).prepare(SCHEMA)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["offset(time)"], r"offset\(time\) must be a column, date\(COLUMN\) or hour\(COLUMN\)"),
        (["place"], "there is no column place: the columns are topic"),
        (["date(offset)"], r"date\(offset\) needs a timestamp, and offset is of the type int64"),
        (
            ["time"],
            r"column time is of the type timestamp\[us, tz=UTC\]: use date\(time\) or hour\(time\)",
        ),
    ],
)
@each_format
def test_partitioning_that_is_not_possible_is_refused(tmp_path, format, given, reason):
    with pytest.raises(ConfigError, match=reason):
        open_table(settings_of(format, tmp_path, partition_by=given)).prepare(SCHEMA)


def test_catalog_that_does_not_answer_is_named_in_one_sentence(tmp_path):
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9"}
    table = open_table(settings_of(ICEBERG, tmp_path, catalog=catalog))
    with pytest.raises(TableError) as failed:
        table.exists()
    assert str(failed.value) == (
        "catalog: http://127.0.0.1:9 does not answer: check its address and credentials, and that it runs; a"
        " restart continues, and adds each row once"
    )


def test_catalog_that_accepts_connections_and_is_silent_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(iceberg, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        catalog = {"type": "rest", "uri": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        table = open_table(settings_of(ICEBERG, tmp_path, catalog=catalog))
        with pytest.raises(TableError, match="does not answer: check its address"):
            table.exists()


@pytest.mark.parametrize("password", ["secret", "a@secret", "a/secret", "a#secret"])
def test_password_in_the_address_of_a_catalog_is_not_shown(tmp_path, password):
    catalog = {"type": "sql", "uri": f"postgresql+nothing://user:{password}@host/db"}
    settings = settings_of(ICEBERG, tmp_path, catalog=catalog)
    with pytest.raises(TableError) as failed:
        open_table(settings).exists()
    assert "secret" not in str(failed.value) + settings.shown + repr(settings)
