"""The directory of an archive: the layout and the names of the files, and how a new file is added.

    topic=events/partition=0/00000000000000000000-00000000000001000000.parquet
    _runs/        one JSON file per run of the pipeline: its topics, its added files, and lost offsets
    _staging/, _commits/ and _lock: see `storage`

No file under a name that begins with `_` ends in `.parquet`. A file covers a tile, which is a range of offsets. The
range includes offsets without a record (removed by compaction, or transaction markers). Invariant: no two tiles of a
partition cover the same offset, so each record is in only one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.storage.locations import open_files

RUNS: Final = "_runs"
_TOPIC: Final = "topic="
_PARTITION: Final = "partition="
_ADDED: Final = "added"
"""The name of the decision with the files that the driver has added last."""


class ArchiveDirectory:
    """An archive at a path or URI. `storage`: the options of the store of a URI. Raises `ConfigError`."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.files = open_files(url, storage or {}, "archive")
        self.url = self.files.url

    def locked(self) -> AbstractContextManager[None]:
        """Be the only writer during the `with` body. Raises `DirectoryBusy`."""
        return self.files.locked(self._recover)

    def _recover(self) -> None:
        """Add the files that a crashed run has decided to add."""
        if decided := self.files.decisions().get(_ADDED):
            self.files.publish(decided["files"])

    def topics(self) -> list[str]:
        """Return the archived topics, sorted."""
        return _named(self.files.folders(), _TOPIC)

    def partitions(self, topic: str) -> list[int]:
        """Return the archived partitions of a topic, sorted."""
        return sorted(map(int, _named(self.files.folders(f"{_TOPIC}{topic}"), _PARTITION)))

    def tiles(self, tp: TopicPartition) -> list[Tile]:
        """Return the offset ranges (tiles) of a partition's files, sorted. Raises `Overlap`."""
        names = (name.rpartition("/")[2] for name in self.files.names(_place(tp)))
        return in_order(tile for name in names if (tile := from_file_name(name)))

    def open(self, tp: TopicPartition, tile: Tile) -> pa.NativeFile:
        """Open the file for an offset range of a partition."""
        return self.files.open(file_name(tp, tile))

    def add(self, staged: Mapping[str, tuple[TopicPartition, Tile]]) -> None:
        """Add staged files, given by name, to their partitions.

        Raises `Overlap` if any offset would be in two files of a partition, and a MinikafkaError if the driver does
        not see a staged file.
        """
        self.files.check_staged(staged)
        for tp in {tp for tp, _ in staged.values()}:
            in_order([*self.tiles(tp), *(tile for other, tile in staged.values() if other == tp)])
        moves = {name: file_name(*place) for name, place in staged.items()}
        self.files.add(_ADDED, moves)

    def write_run(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write the current facts about a run to the run's file in `_runs/`, and replace the old file."""
        self.files.write_facts(RUNS, name, facts)

    def runs(self) -> list[dict[str, Any]]:
        """Return the facts about all runs, as written by `write_run`, the oldest run first."""
        return list(self.files.facts(RUNS).values())


def _named(folders: Iterable[str], prefix: str) -> list[str]:
    """Return the values in names of folders such as `topic=events`, sorted."""
    return sorted(name.removeprefix(prefix) for name in folders if name.startswith(prefix))


def _place(tp: TopicPartition) -> str:
    return f"{_TOPIC}{tp.topic}/{_PARTITION}{tp.partition}"


def file_name(tp: TopicPartition, tile: Tile) -> str:
    """Return the name of the file for an offset range of a partition."""
    return f"{_place(tp)}/{tile.file_name}"


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
