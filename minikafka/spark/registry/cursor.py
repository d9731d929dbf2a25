"""Reads Avro's binary encoding in all records of a batch at once, without a Python statement per record.

A cursor has the position of each record's next byte, and each read moves all positions. A record that is damaged, or
so unusual that a loop is faster, is refused: its values mean nothing, and the caller reads it in another way.

Invariant: a position is never behind the end of its record, whatever its bytes are.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.spark.records.starts import LONG_BYTES, Bytes, Positions, read_varints

Mask: TypeAlias = npt.NDArray[np.bool_]
_DECIMAL_BYTES: Final = 16
_WHOLE: Final = pa.decimal128(38, 0)
_MANY_TURNS: Final = 16
_FEW_ROWS: Final = 100
"""After so many items of each array, arrays that have more are refused if only a few are left."""


class Cursor:
    """The position of the next byte of each record, and which records are refused.

    `data` has 16 bytes after the last record, which reads may touch.
    """

    def __init__(self, data: Bytes, at: Positions, ends: Positions) -> None:
        self.data = data
        self.at = at
        self.ends = ends
        self.refused: Mask = np.zeros(len(at), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.at)

    def of(self, rows: Positions, read: Callable[[Cursor], Any]) -> Any:
        """Return what a function reads in some of the records."""
        part = Cursor(self.data, self.at[rows], self.ends[rows])
        found = read(part)
        self.at[rows] = part.at
        self.refused[rows] |= part.refused
        return found

    def accepted(self, values: Positions, least: int, most: int) -> Positions:
        """Return numbers of the records. Those that are not in [least, most] are refused, and become 0."""
        wrong = (values < least) | (values > most)
        if not wrong.any():
            return values
        self.refused |= wrong
        return np.where(wrong, 0, values)

    def varints(self) -> Positions:
        """Read a number in zigzag encoding."""
        values, after, too_long = read_varints(self.data, self.at, LONG_BYTES)
        self.refused[too_long] = True
        beyond = after > self.ends
        if beyond.any():
            self.refused |= beyond
            after = np.minimum(after, self.ends)
        self.at = after
        return values

    def numbers(self, kind: str) -> npt.NDArray[Any]:
        """Read a number of fixed width."""
        width = np.dtype(kind).itemsize
        starts, _ = self._spans(width)
        every = np.ndarray((len(self.data) - width + 1,), kind, self.data, strides=(1,))
        return every[starts]

    def _spans(self, lengths: Positions | int) -> tuple[Positions, Positions]:
        """Read this number of bytes, and return where they start and end."""
        starts = self.at
        wrong = (lengths > self.ends - starts) | np.less(lengths, 0)
        if wrong.any():
            self.refused |= wrong
            lengths = np.where(wrong, 0, lengths)
        self.at = starts + lengths
        return starts, self.at

    def binary(self, lengths: Positions | int) -> pa.Array:
        """Read this number of bytes as a binary value.

        The records are in order, so an Arrow array can be made whose elements are value, gap, value and so on. Arrow's
        `take` copies the values.
        """
        count = len(self)
        borders = np.empty(2 * count, dtype=np.int64)
        borders[::2], borders[1::2] = self._spans(lengths)
        view = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(),
            max(2 * count - 1, 0),
            [None, pa.py_buffer(borders), pa.py_buffer(self.data)],
        )
        return view.take(pa.array(np.arange(0, 2 * count, 2))).cast(pa.binary())

    def text(self, lengths: Positions) -> pa.Array:
        """Read this number of bytes as text. Bytes that are no UTF-8 are refused."""
        found = self.binary(lengths)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([_is_damaged(one) for one in found.to_pylist()])
            self.refused |= wrong
            return pc.if_else(pa.array(wrong), b"", found).cast(pa.string())

    def decimals(self, lengths: Positions | int, kind: pa.DataType) -> pa.Array:
        """Read numbers of several bytes, the highest first. Those with too many digits are refused."""
        starts, ends = self._spans(lengths)
        sizes = ends - starts
        places = np.arange(_DECIMAL_BYTES)
        sign = np.where((sizes > 0) & (self.data[starts] > 0x7F), np.uint8(0xFF), np.uint8(0))
        given = self.data[(ends - 1)[:, None] - places]
        low_first = np.where(places < sizes[:, None], given, sign[:, None])
        buffers = [None, pa.py_buffer(low_first)]
        whole = pa.Array.from_buffers(_WHOLE, len(self), buffers)
        most = pa.scalar(Decimal(10**kind.precision - 1), _WHOLE)
        least = pa.scalar(Decimal(1 - 10**kind.precision), _WHOLE)
        is_fitting = pc.and_(pc.less_equal(whole, most), pc.greater_equal(whole, least))
        self.refused |= (sizes > _DECIMAL_BYTES) | ~np.asarray(is_fitting)
        return pa.Array.from_buffers(kind, len(self), buffers)

    def items(
        self, read: Callable[[Cursor], pa.Array], kind: pa.DataType
    ) -> tuple[Positions, pa.Array]:
        """Read arrays: the first items of all records, then the second ones, and so on.

        Returns the borders of each record's items, and the items. `kind`: their type.
        """
        rows = np.arange(len(self))
        left = np.zeros(len(self), dtype=np.int64)
        parts, owners = [pa.nulls(0, kind)], [rows[:0]]
        while (rows := self._within_blocks(rows, left)).size:
            if len(parts) > _MANY_TURNS and len(rows) < _FEW_ROWS:
                self.refused[rows] = True
                break
            parts.append(self.of(rows, read))
            owners.append(rows)
            left[rows] -= 1
        owner = np.concatenate(owners)
        order = pa.array(np.argsort(owner, kind="stable"))
        borders = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(self)))))
        return borders, pa.concat_arrays(parts).take(order)

    def _within_blocks(self, rows: Positions, left: Positions) -> Positions:
        """Return those of the rows whose arrays have another item, and begin the next block where one has ended.

        `left`: the number of items that are left of each row's block.
        """
        ended = rows[left[rows] == 0]
        if ended.size:
            left[ended] = self.of(ended, _begin_block)
        return rows[(left[rows] > 0) & ~self.refused[rows]]


def _begin_block(cursor: Cursor) -> Positions:
    """Read the number of items of a block. If it is negative, the size of the block in bytes follows.

    An array ends with a block without items.
    """
    counts = cursor.varints()
    with_size = np.flatnonzero(counts < 0)
    if with_size.size:
        cursor.of(with_size, Cursor.varints)
        counts = np.abs(counts)
    wrong = (counts < 0) | (counts > cursor.ends - cursor.at)
    cursor.refused |= wrong
    return np.where(wrong, 0, counts)


def _is_damaged(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def equal_keys(borders: Positions, keys: pa.Array) -> Positions:
    """Return the maps that have a key twice."""
    known = keys.dictionary_encode()
    owners = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
    pairs = np.sort(owners * len(known.dictionary) + np.asarray(known.indices))
    found: Positions = pairs[1:][pairs[1:] == pairs[:-1]] // max(len(known.dictionary), 1)
    return found
