"""Merging of small files and removal of old snapshots of an Iceberg table, which pyiceberg leaves to its users."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from minikafka.base.errors import ConfigError
from minikafka.spark.lakehouse.places import is_remote, local_path, storage_of
from minikafka.spark.lakehouse.stage import KEEP, FileStage, LakeFile

_LABEL: Final = "compact"
_ANY: Final = re.compile(".*")
_OF_COMMITS: Final = re.compile(r".*\.avro|version-hint\.[0-9a-f]{16}")
"""The files in the directory `metadata` that a commit writes first. Its other files belong to other states."""


def retries() -> fs.S3RetryStrategy:
    """Return how requests to S3 are repeated, as pyiceberg's property `s3.retry-strategy-impl` wants it."""
    return fs.AwsStandardS3RetryStrategy(max_attempts=10)


def small_files(table: Any, target_bytes: int) -> list[list[Any]]:
    """Return groups of scan tasks whose files are to be merged: of one partition, and together below the target.

    Files of an older partitioning, which another engine has changed, stay as they are.
    """
    tasks = defaultdict(list)
    for task in table.scan().plan_files():
        if task.delete_files:
            raise ConfigError(
                f"{'.'.join(table.name())} has files with deleted rows: compact it with the engine that deletes them"
            )
        is_current = task.file.spec_id == table.metadata.default_spec_id
        if is_current and task.file.file_size_in_bytes < target_bytes:
            tasks[tuple(_values(task.file))].append(task)
    return [group for found in tasks.values() for group in _groups(found, target_bytes)]


def whole_files(table: Any) -> set[str]:
    """Return the locations of the data files of which no row is deleted."""
    return {task.file.file_path for task in table.scan().plan_files() if not task.delete_files}


def _groups(tasks: Sequence[Any], target_bytes: int) -> Iterator[list[Any]]:
    group: list[Any] = []
    size = 0
    for task in sorted(tasks, key=lambda one: one.file.file_path):
        if group and size + task.file.file_size_in_bytes > target_bytes:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(task)
        size += task.file.file_size_in_bytes
    if len(group) > 1:
        yield group


def merged(table: Any, schema: pa.Schema, directory: str, tasks: Sequence[Any]) -> LakeFile:
    """Write the rows of the files of one partition to a new file."""
    storage = storage_of(directory, table.io.properties)
    stage = FileStage(schema, (), directory, _LABEL, timestamps=KEEP, storage=storage)
    [file] = stage.files(_rows(table, tasks))
    return file._replace(key=tuple(_values(tasks[0].file)))


def _rows(table: Any, tasks: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    reading, expressions = (
        import_module("pyiceberg.io.pyarrow"),
        import_module("pyiceberg.expressions"),
    )
    scan = reading.ArrowScan(table.metadata, table.io, table.schema(), expressions.AlwaysTrue())
    for task in tasks:
        yield from scan.to_record_batches([task])


def _values(file: Any) -> list[Any]:
    return [file.partition[index] for index in range(len(file.partition))]


def replaced_before(table: Any, limit_ms: int) -> list[int]:
    """Return the ids of the snapshots that were replaced by a later one before a time, in Unix milliseconds.

    The age of a snapshot says less: an old snapshot may have been the newest one until a moment ago, also because
    another program has returned to it.
    """
    protected = {ref.snapshot_id for ref in table.metadata.refs.values()}
    next_ms = {
        one.parent_snapshot_id: one.timestamp_ms
        for one in sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
        if one.parent_snapshot_id is not None
    }
    log = table.metadata.snapshot_log
    next_ms |= {one.snapshot_id: after.timestamp_ms for one, after in pairwise(log)}
    return [
        one.snapshot_id
        for one in table.metadata.snapshots
        if one.snapshot_id not in protected
        and next_ms.get(one.snapshot_id, one.timestamp_ms) < limit_ms
    ]


def files_of(table: Any) -> tuple[set[str], set[str]]:
    """Return the locations of the data files, and of the manifests and lists of them, of all snapshots."""
    data: set[str] = set()
    manifests: dict[str, Any] = {}
    lists = set()
    for snapshot in table.metadata.snapshots:
        lists.add(snapshot.manifest_list)
        manifests |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
    for manifest in manifests.values():
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        data |= {entry.data_file.file_path for entry in entries}
    return data, lists | manifests.keys()


def remove(table: Any, locations: set[str]) -> int:
    """Remove files of the table, and return the number of removed files."""
    number = 0
    for location in sorted(locations):
        try:
            table.io.delete(location)
            number += 1
        except FileNotFoundError:
            continue
    return number


def orphans(table: Any, known: set[str], limit_ms: int) -> set[str]:
    """Return the paths of data files and manifests that no snapshot has, and that were written before a time.

    A commit that is interrupted or loses a race leaves manifests. `known`: the files of all snapshots.
    """
    names = {location.rpartition("/")[2] for location in known}
    limit = datetime.fromtimestamp(limit_ms / 1000, UTC)
    root = local_path(table.location())
    return {
        f"{directory}/{found.base_name}"
        for directory, name in ((f"{root}/data", _ANY), (f"{root}/metadata", _OF_COMMITS))
        for found in _files_in(table, directory)
        if name.fullmatch(found.base_name) and found.base_name not in names and found.mtime < limit
    }


def _files_in(table: Any, directory: str) -> list[fs.FileInfo]:
    files, place = _listing(table, directory)
    selector = fs.FileSelector(place, recursive=True, allow_not_found=True)
    return [found for found in files.get_file_info(selector) if found.is_file]


def _listing(table: Any, directory: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a directory of the table, and the path in it."""
    if not is_remote(directory):
        return fs.LocalFileSystem(), directory
    scheme, place, path = table.io.parse_location(directory, table.io.properties)
    return table.io.fs_by_scheme(scheme, place), path
