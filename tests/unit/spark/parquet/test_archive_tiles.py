"""Tiles (the offset ranges of archive files): names, gaps, overlaps, and cuts at multiples of a size."""

from __future__ import annotations

import pytest

from minikafka.spark.parquet.archive_directory import (
    Overlap,
    Tile,
    cut,
    from_file_name,
    gaps,
    in_order,
)


def test_file_name_says_the_range_and_sorts_by_offset():
    tiles = [Tile(0, 9), Tile(9, 10), Tile(10, 2**63 - 1)]
    assert [from_file_name(tile.file_name) for tile in tiles] == tiles
    assert sorted(tile.file_name for tile in tiles) == [tile.file_name for tile in tiles]


@pytest.mark.parametrize("name", ["_lock", "1-2.parquet", f"{0:020d}-{1:020d}.parquet.5fa0"])
def test_file_name_that_is_not_two_padded_offsets_and_parquet_is_no_tile(name):
    assert from_file_name(name) is None


def test_gaps_are_the_offset_ranges_that_no_tile_covers():
    tiles = [Tile(20, 30), Tile(5, 10), Tile(10, 15)]
    assert gaps(tiles, 0, 40) == [Tile(0, 5), Tile(15, 20), Tile(30, 40)]
    assert gaps(tiles, 7, 12) == []
    assert gaps([], 3, 3) == []
    assert gaps([Tile(50, 60)], 0, 40) == [Tile(0, 40)]


def test_overlapping_tiles_are_refused():
    with pytest.raises(Overlap, match="overlap"):
        in_order([Tile(0, 10), Tile(9, 12)])


def test_offset_range_is_cut_into_tiles_at_multiples_of_the_tile_size():
    assert cut(Tile(0, 250), 100) == [Tile(0, 100), Tile(100, 200), Tile(200, 250)]
    assert cut(Tile(130, 250), 100) == [Tile(130, 200), Tile(200, 250)]
    assert cut(Tile(100, 200), 100) == [Tile(100, 200)]
