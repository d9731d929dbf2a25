"""The directory of an archive: the layout of the files, and how a new file is added.

    topic=events/partition=0/00000000000000000000-00000000000001000000.parquet
    _staging/     files that tasks are writing
    _runs/        one JSON file per run of the pipeline: its topics, its added files, and lost offsets
    _lock         held by the driver that writes

Spark, pyarrow and pandas ignore names that begin with `_`, and no file under these names ends in `.parquet`.
Invariant: only the driver that holds the lock moves a staged file to the partition's directory. The driver
moves a file only if the file is complete and synced, and if no other file covers the same offsets. The next
run removes files that a crashed run left in `_staging`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.archive.tiles import Tile, from_file_name, in_order

_STAGING: Final = "_staging"
_RUNS: Final = "_runs"
_LOCK: Final = "_lock"
_TOPIC: Final = "topic="
_PARTITION: Final = "partition="


class ArchiveBusy(MinikafkaError):
    """Another process writes the archive."""


class ArchiveDirectory:
    """An archive on a file system that the driver and all executors see under the same path."""

    def __init__(self, path: str) -> None:
        """Set the path of the archive. Raises `ConfigError` if the path is a URI."""
        if "://" in path:
            text = f"{path}: an archive is a directory that the driver and all executors share"
            raise ConfigError(f"{text}, not a URI; mount the file system and give its path")
        self.path = Path(path).absolute()

    def topics(self) -> list[str]:
        """Return the archived topics, sorted."""
        return sorted(found.name.removeprefix(_TOPIC) for found in self.path.glob(f"{_TOPIC}*"))

    def partitions(self, topic: str) -> list[int]:
        """Return the archived partitions of a topic, sorted."""
        found = (self.path / f"{_TOPIC}{topic}").glob(f"{_PARTITION}*")
        return sorted(int(place.name.removeprefix(_PARTITION)) for place in found)

    def tiles(self, tp: TopicPartition) -> list[Tile]:
        """Return the offset ranges (tiles) of a partition's files, sorted. Raises `Overlap`."""
        place = self._place(tp)
        names = os.listdir(place) if place.is_dir() else []
        return in_order(tile for name in names if (tile := from_file_name(name)))

    def file(self, tp: TopicPartition, tile: Tile) -> Path:
        """Return the path of the file for an offset range of a partition."""
        return self._place(tp) / tile.file_name

    def _place(self, tp: TopicPartition) -> Path:
        return self.path / f"{_TOPIC}{tp.topic}" / f"{_PARTITION}{tp.partition}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the archive during the `with` body. First remove staged files of crashed runs.

        Raises `ArchiveBusy` if another process holds the lock.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"another process writes the archive {self.path}: wait for it, or end it"
                raise ArchiveBusy(text) from None
            shutil.rmtree(self.path / _STAGING, ignore_errors=True)
            yield
            shutil.rmtree(self.path / _STAGING, ignore_errors=True)

    def staged_file(self, tp: TopicPartition, tile: Tile) -> Path:
        """Return a new path in `_staging` for a task to write. Every call returns a different path."""
        place = self.path / _STAGING
        place.mkdir(exist_ok=True)
        return place / f"{tp}-{tile.file_name}.{os.urandom(6).hex()}"

    def commit(self, staged: Path, tp: TopicPartition, tile: Tile) -> None:
        """Move a staged file to the partition's directory.

        Raises `Overlap` if any offset would be in two files of the partition, and `ConfigError` if the
        driver does not see the staged file.
        """
        if not staged.exists():
            raise ConfigError(
                f"{staged} was written by an executor, and the driver does not see it:"
                " an archive is a directory that the driver and all executors share"
            )
        in_order([*self.tiles(tp), tile])
        place = self._place(tp)
        place.mkdir(parents=True, exist_ok=True)
        os.replace(staged, place / tile.file_name)
        _sync(place)

    def write_run(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write the current facts about a run to the run's file in `_runs/`, and replace the old file."""
        place = self.path / _RUNS
        place.mkdir(exist_ok=True)
        draft = place / f"{name}.draft"
        draft.write_text(json.dumps(facts, indent=1) + "\n")
        os.replace(draft, place / f"{name}.json")
        _sync(place)

    def runs(self) -> list[dict[str, Any]]:
        """Return the facts about all runs, as written by `write_run`, the oldest run first."""
        found = sorted((self.path / _RUNS).glob("*.json"))
        return [json.loads(file.read_text()) for file in found]


def _sync(place: Path) -> None:
    """Fsync a directory, so that the names of new files in it survive a crash."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
