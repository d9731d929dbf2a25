"""`check-kafka-data` on directories as Apache Kafka writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from click.testing import CliRunner, Result

from minikafka.tools.cli.foreground.check_kafka_data import check_kafka_data

META = "#\nversion=0\nbroker.id=1\ncluster.id=abc\n"


def directory(path: Path, meta: str | None = META) -> Path:
    (path / "t-0").mkdir()
    if meta is not None:
        (path / "meta.properties").write_text(meta)
    return path


def batch(magic: int) -> bytes:
    if magic == 2:
        new = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1000)
        new.append(0, timestamp=1, key=b"k", value=b"v", headers=[])
        return bytes(new.build())
    old = LegacyRecordBatchBuilder(magic, 0, 1000)
    old.append(0, timestamp=1, key=b"k", value=b"v")
    return bytes(old.build())


def check(*directories: Path) -> tuple[Result, list[dict[str, Any]]]:
    done = CliRunner().invoke(check_kafka_data, [*map(str, directories), "--json"])
    return done, json.loads(done.stdout)["obstacles"] if done.stdout else []


def state(path: Path) -> dict[Path, tuple[int, ...]]:
    """Return what a change of the tree would change: inodes, modes, sizes and times of all names."""
    found = ((one, one.lstat()) for one in [path, *path.rglob("*")])
    return {
        one: (stat.st_ino, stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        for one, stat in found
    }


def files(path: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_directory_with_batches_of_format_2_has_no_obstacle(tmp_path: Path) -> None:
    segment = directory(tmp_path) / "t-0" / f"{0:020}.log"
    segment.write_bytes(batch(2) * 3)
    done, found = check(tmp_path)
    assert (done.exit_code, found) == (0, [])


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_format_is_named_with_its_place(tmp_path: Path, magic: int) -> None:
    segment = directory(tmp_path) / "t-0" / f"{0:020}.log"
    segment.write_bytes(batch(2) * 2 + batch(magic))
    before = files(tmp_path), state(tmp_path)
    done, found = check(tmp_path)
    assert done.exit_code == 1
    place = 2 * len(batch(2))
    assert [(one["path"], one["what"]) for one in found] == [
        (str(segment), f"records in message format {magic}, from byte {place} on")
    ]
    assert (files(tmp_path), state(tmp_path)) == before


def test_batch_that_is_cut_short_is_no_obstacle(tmp_path: Path) -> None:
    segment = directory(tmp_path) / "t-0" / f"{0:020}.log"
    segment.write_bytes(batch(2) + batch(2)[:30] + b"\0" * 100)
    assert check(tmp_path)[1] == []


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (None, "no meta.properties"),
        ("version=1\nnode.id=1\ncluster.id=a\n", "KRaft"),
        ("version=7\n", "unknown version '7'"),
        (META + "minikafka.coordination=leaders\n", "mode leaders"),
        ("nonsense", "it is invalid"),
    ],
)
def test_obstacle_in_the_properties_of_the_directory_is_named(
    tmp_path: Path, meta: str | None, expected: str
) -> None:
    done, found = check(directory(tmp_path, meta))
    assert done.exit_code == 1
    assert [expected in one["what"] for one in found] == [True]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__cluster_metadata-0", "KRaft"),
        ("__remote_log_metadata-3", "tiered storage"),
    ],
)
def test_directory_that_cannot_be_taken_over_is_named(
    tmp_path: Path, name: str, expected: str
) -> None:
    (directory(tmp_path) / name).mkdir()
    [one] = check(tmp_path)[1]
    assert one["path"] == str(tmp_path / name)
    assert expected in one["what"]


@pytest.mark.parametrize("target", ["t-0", "missing"])
def test_replica_that_is_a_link_is_named(tmp_path: Path, target: str) -> None:
    (directory(tmp_path) / "u-0").symlink_to(tmp_path / target)
    assert [one["what"] for one in check(tmp_path)[1]] == ["a symbolic link"]


def test_only_regular_files_are_read_and_nothing_is_changed(tmp_path: Path) -> None:
    replica = directory(tmp_path) / "t-0"
    os.mkfifo(replica / f"{0:020}.log")  # nobody writes to it
    (replica / f"{1:020}.log").mkdir()
    (replica / f"{2:020}.log").symlink_to("missing")
    (replica / f"{3:020}.log").write_bytes(batch(2))
    (tmp_path / "u-1").write_text("no directory")
    before = state(tmp_path)
    assert check(tmp_path)[1] == []
    assert state(tmp_path) == before


def test_replica_that_kafka_has_deleted_is_no_obstacle(tmp_path: Path) -> None:
    (directory(tmp_path) / f"t-1.{0:032x}-delete").mkdir()
    assert check(tmp_path)[1] == []


def test_directory_without_anything_of_kafka_is_an_error(tmp_path: Path) -> None:
    done, _ = check(tmp_path)
    assert done.exit_code == 1
    assert "is not a log directory of Kafka" in str(done.exception)


def test_text_says_where_the_obstacle_is_and_what_to_do(tmp_path: Path) -> None:
    (directory(tmp_path) / "__cluster_metadata-0").mkdir()
    done = CliRunner().invoke(check_kafka_data, [str(tmp_path)])
    assert done.stdout == (
        f"{tmp_path}/__cluster_metadata-0: metadata of KRaft; use the directories of a cluster with ZooKeeper\n"
    )
