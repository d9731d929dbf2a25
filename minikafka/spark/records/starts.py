"""Finds the positions of all records in a run of records, for small records without a loop over the records.

A record is a length (zigzag varint) followed by this number of bytes. The first byte after the length is the
attributes byte, always 0. A loop would read each length to find the next record. Instead, `find` collects the
positions that look like the start of a record, the candidates. The candidates are correct if the first candidate
is at 0, each record ends where the next candidate starts, the last record ends at the end of the data, and the
number of candidates matches the batch headers.

Large records (`LARGE`) are found by that loop after all, because the search looks at every byte.

The first attempt suits records without headers. Such a record ends with a header count of 0, so the length of
the next record is between two zero bytes. For other data, up to two further attempts collect more candidates,
which takes more time. In the last attempt, every byte is a candidate. Each attempt drops wrong candidates: first
those without a predecessor or a successor, then those outside the chain that pointer doubling finds.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import CorruptBatch

Bytes: TypeAlias = npt.NDArray[np.uint8]
Positions: TypeAlias = npt.NDArray[np.int64]

INT_BYTES: Final = 5
LONG_BYTES: Final = 10
PADDING: Final = LONG_BYTES
"""Number of bytes to append after the last record, so that no read goes beyond the end of the array."""
_LONG_MAX: Final = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_ZIGZAG: Final = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(0x80)], dtype=np.int64)
"""The zigzag-decoded value of each one-byte varint."""
_NONE: Final = np.empty(0, dtype=np.int64)
LARGE: Final = 1024
"""Average size of the records (bytes) from which a loop over the records takes less time than a look at every byte."""
_LENGTH_BITS: Final = 7 * INT_BYTES
_SHORTEST_RECORD: Final = 6
"""Size of the shortest record: attributes, timestamp, offset, key length, value length and header count."""


def varints(
    data: Bytes, positions: Positions, longest: int = INT_BYTES
) -> tuple[Positions, Positions]:
    """Return the value of the zigzag varint at each position, and the position after the varint.

    For a whole column, this takes a twentieth of the time of `kafka/records/varints.py`.

    `data` must have at least one byte after the last varint. Raises `CorruptBatch` if a varint has more than
    `longest` bytes, and IndexError if a varint reaches beyond the end of `data`.
    """
    values, after, unfinished = read_varints(data, positions, longest)
    if unfinished.size:
        raise CorruptBatch(f"a record holds a number of more than {longest} bytes")
    return values, after


def read_varints(
    data: Bytes, positions: Positions, longest: int
) -> tuple[Positions, Positions, Positions]:
    """Read varints. Return their values, the positions after them, and the indexes of too long varints.

    A varint is too long if it has more than `longest` bytes.
    """
    first = data.take(positions)
    after = positions + 1
    if first.max(initial=0) < 0x80:
        return _ZIGZAG.take(first), after, _NONE
    second = data.take(after)
    has_second = first >> 7
    raw = ((second & 0x7F) * has_second).astype(np.int64) << 7
    raw |= first & 0x7F
    after += has_second
    unfinished = np.flatnonzero(has_second & (second >> 7))
    for index in range(2, longest):
        if not unfinished.size:
            break
        part = data[after[unfinished]].astype(np.int64)
        raw[unfinished] |= (part & 0x7F) << (7 * index)
        after[unfinished] += 1
        unfinished = unfinished[part > 0x7F]
    return ((raw >> 1) & _LONG_MAX) ^ -(raw & 1), after, unfinished


def find(data: Bytes, section_starts: Positions, counts: Positions) -> tuple[Positions, Positions]:
    """Return the start of each record's body (the bytes after the length) and the end of each record.

    `data`: the records of all batches without gaps, then `PADDING` bytes. `section_starts`: the position of
    each batch's first record. `counts`: the number of records in each batch (never 0). Raises `CorruptBatch`
    if `data` does not consist of these records.
    """
    size = len(data) - PADDING
    is_large = size >= LARGE * int(counts.sum())
    for candidates in (_walked if is_large else _between_zeros, _likely, _all):
        starts, bodies, ends = _read_records(data, candidates(data[:size]))
        for narrowed in (_linked, _follow):
            if _is_chain(starts, ends, size):
                break
            kept = narrowed(starts, ends, size)
            starts, bodies, ends = starts[kept], bodies[kept], ends[kept]
        if _is_chain(starts, ends, size) and _agrees(starts, section_starts, counts):
            return bodies, ends
    raise CorruptBatch("record lengths do not add up to the batch header's record count")


def _walked(data: Bytes) -> Positions:
    """Return the start of each record, in order, by a loop over the lengths. Ends early at an invalid length."""
    view, size = memoryview(data.data), len(data)
    starts = []
    position = 0
    with suppress(IndexError):  # a length that the data does not have whole
        while position < size:
            starts.append(position)
            byte = view[position]
            length, bits = byte & 0x7F, 7
            while byte > 0x7F and bits < _LENGTH_BITS:
                position += 1
                byte = view[position]
                length |= (byte & 0x7F) << bits
                bits += 7
            if length & 1:  # negative
                break
            position += 1 + (length >> 1)
    return np.array(starts, dtype=np.int64)


def _between_zeros(data: Bytes) -> Positions:
    """Return the start of each sequence of 1 to `INT_BYTES` nonzero bytes between two zero bytes, in order.

    At the start of the data, a sequence needs no zero byte before it.
    """
    zeros = np.concatenate(([-1], np.flatnonzero(data == 0)))
    gaps = np.diff(zeros)
    return zeros[:-1][(gaps > 1) & (gaps <= INT_BYTES + 1)] + 1


def _likely(data: Bytes) -> Positions:
    """Return, in order, each position that looks like the start of a record: a varint followed by a zero byte.

    The varint is the record's length, and the zero byte is the attributes byte.
    """
    first = np.flatnonzero(data[1:] == 0)
    first = first[data[first] < 0x80]
    found = np.zeros(len(data), dtype=np.bool_)
    found[first] = True
    for _ in range(1, INT_BYTES):
        first = first[first > 0] - 1
        first = first[data[first] > 0x7F]
        found[first] = True
    return np.flatnonzero(found)


def _all(data: Bytes) -> Positions:
    return np.arange(len(data), dtype=np.int64)


def _read_records(data: Bytes, starts: Positions) -> tuple[Positions, Positions, Positions]:
    """Return three positions of each candidate that can be a record: its start, its body's start, and its end.

    `starts`: the start of each candidate. A candidate is dropped if its length is invalid or exceeds the data.
    """
    lengths, bodies, unfinished = read_varints(data, starts, INT_BYTES)
    lengths[unfinished] = -1
    ends = bodies + lengths
    keep = (lengths >= _SHORTEST_RECORD) & (ends <= len(data) - PADDING)
    if keep.all():
        return starts, bodies, ends
    return starts[keep], bodies[keep], ends[keep]


def _linked(starts: Positions, ends: Positions, size: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the candidates that have a predecessor and a successor.

    The predecessor of a candidate ends where the candidate starts. The successor starts where the candidate
    ends. A candidate at 0 needs no predecessor, and a candidate that ends at `size` needs no successor.
    """
    known = np.zeros(size + 1, dtype=np.bool_)
    known[starts] = True
    known[size] = True
    keep = known[ends]
    reached = np.zeros(size + 1, dtype=np.bool_)
    reached[ends[keep]] = True
    reached[0] = True
    keep &= reached[starts]
    return keep


def _is_chain(starts: Positions, ends: Positions, size: int) -> bool:
    """True if the records cover [0, size) in order, without gaps or overlaps."""
    if not starts.size or starts[0] != 0 or ends[-1] != size:
        return False
    return bool(np.array_equal(ends[:-1], starts[1:]))


def _agrees(starts: Positions, section_starts: Positions, counts: Positions) -> bool:
    """True if every batch has the declared number of records, and no record crosses into the next batch."""
    if len(starts) != counts.sum():
        return False
    return bool(np.array_equal(starts[np.cumsum(counts) - counts], section_starts))


def _follow(starts: Positions, ends: Positions, size: int) -> Positions:
    """Return the indexes of the candidates that form a chain from position 0 to `size`.

    In a chain, each candidate starts where the previous candidate ends. The result is empty if there is no such
    chain. Pointer doubling finds the chain in log2(n) rounds.
    """
    if not starts.size or starts[0] != 0:
        return np.empty(0, dtype=np.int64)
    nowhere = len(starts)
    onward = np.searchsorted(starts, ends)
    found = np.append(starts, -1)[onward] == ends
    step = np.append(np.where(found, onward, nowhere), nowhere)
    path = np.zeros(1, dtype=np.int64)
    while path[-1] != nowhere:
        path = np.concatenate((path, step[path]))
        step = step[step]
    path = path[path < nowhere]
    return path if ends[path[-1]] == size else path[:0]
