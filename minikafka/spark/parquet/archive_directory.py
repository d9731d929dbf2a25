"""The directory of an archive: the layout and the names of the files, and how a new file is added.

    topic=events/partition=0/00000000000000000000-00000000000001000000.parquet
    _runs/        one JSON file per run of the pipeline: its topics, its added files, and lost offsets
    _staging/ and _lock: see `staging`

No file under a name that begins with `_` ends in `.parquet`. A file covers a tile, which is a range of offsets. The
range includes offsets without a record (removed by compaction, or transaction markers). Invariant: no two tiles of a
partition cover the same offset, so each record is in only one file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.staging import StagingDirectory

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


_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")


class Overlap(MinikafkaError):
    """Two files of an archive hold the same offsets."""


class Tile(NamedTuple):
    """The offset range [start, end) of one file of an archive."""

    start: int
    end: int

    @property
    def file_name(self) -> str:
        """The name of the file. Equal ranges have equal names, and names sort by offset."""
        return f"{self.start:020d}-{self.end:020d}.parquet"


def from_file_name(name: str) -> Tile | None:
    """Return the tile of an archive file with this name; None for other files."""
    found = _NAME.fullmatch(name)
    return Tile(int(found[1]), int(found[2])) if found else None


def in_order(tiles: Iterable[Tile]) -> list[Tile]:
    """Return the tiles sorted by offset. Raises `Overlap`."""
    found = sorted(tiles)
    for one, other in pairwise(found):
        if other.start < one.end:
            raise Overlap(f"the files {one.file_name} and {other.file_name} overlap: remove one")
    return found


def gaps(tiles: Iterable[Tile], start: int, end: int) -> list[Tile]:
    """Return the parts of [start, end) that no tile covers. Raises `Overlap`."""
    found = []
    for tile in in_order(tiles):
        if start < min(tile.start, end):
            found.append(Tile(start, min(tile.start, end)))
        start = max(start, tile.end)
    if start < end:
        found.append(Tile(start, end))
    return found


def cut(tile: Tile, size: int) -> list[Tile]:
    """Split a range at the multiples of `size`. Two pipeline runs that read the same offsets get the same pieces."""
    first = (tile.start // size + 1) * size
    borders = [tile.start, *range(first, tile.end, size), tile.end]
    return [Tile(start, end) for start, end in pairwise(borders)]
