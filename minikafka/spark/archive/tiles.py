"""Tiles, the offset ranges of the files of an archive, and the file names for tiles.

A tile includes offsets without a record (removed by compaction, or transaction markers). Invariant: the
tiles of a partition do not overlap, so each record is in only one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from minikafka.base.errors import MinikafkaError

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
