"""Encoding of whole columns of numbers as zigzag varints, without a Python statement per record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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


def binary(columns: Sequence[Numbers], between: bytes = b"") -> pa.Array:
    """Return one binary value per row: the fixed bytes in `between`, then the row's numbers as zigzag varints.

    A row has one number from each column.
    """
    raws = [zigzag(column) for column in columns]
    lengths = [sizes(raw) for raw in raws]
    ends = np.cumsum(sum(lengths, np.zeros(len(raws[0]), dtype=np.int64)) + len(between))
    data = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    borders = np.concatenate(([0], ends))
    position = borders[:-1].copy()
    for byte in between:
        data[position] = byte
        position += 1
    for raw, length in zip(raws, lengths, strict=True):
        _write(data, position, raw, length)
        position += length
    buffers = [None, pa.py_buffer(borders.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(raws[0]), buffers)


def _write(
    data: npt.NDArray[np.uint8], position: Numbers, raw: npt.NDArray[np.uint64], length: Numbers
) -> None:
    rows = np.arange(len(raw))
    for index in range(int(length.max(initial=0))):
        rows = rows[length[rows] > index]
        part = (raw[rows] >> np.uint64(7 * index)) & np.uint64(0x7F)
        more = (length[rows] > index + 1).astype(np.uint64) << np.uint64(7)
        data[position[rows] + index] = part | more
