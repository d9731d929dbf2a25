"""The directory of an archive: the layout of the files, and how a new file is added.

    topic=events/partition=0/00000000000000000000-00000000000001000000.parquet
    _runs/        one JSON file per run of the pipeline: its topics, its added files, and lost offsets
    _staging/ and _lock: see `staging`

No file under a name that begins with `_` ends in `.parquet`. Invariant: no two files of a partition cover the same
offset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from minikafka.base.model import TopicPartition
from minikafka.spark.archive.tiles import Tile, from_file_name, in_order
from minikafka.spark.staging import StagingDirectory

RUNS: Final = "_runs"
_TOPIC: Final = "topic="
_PARTITION: Final = "partition="


class ArchiveDirectory(StagingDirectory):
    """An archive on a file system that the driver and all executors see under the same path."""

    kind = "archive"

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

    def commit(self, staged: Path, tp: TopicPartition, tile: Tile) -> None:
        """Move a staged file to the partition's directory.

        Raises `Overlap` if any offset would be in two files of the partition, and `ConfigError` if the
        driver does not see the staged file.
        """
        self.check_staged(staged)
        in_order([*self.tiles(tp), tile])
        self.publish(staged, self.file(tp, tile))

    def write_run(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write the current facts about a run to the run's file in `_runs/`, and replace the old file."""
        self.write_facts(RUNS, name, facts)

    def runs(self) -> list[dict[str, Any]]:
        """Return the facts about all runs, as written by `write_run`, the oldest run first."""
        return list(self.facts(RUNS).values())
