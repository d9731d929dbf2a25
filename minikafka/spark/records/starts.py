"""The positions of all records in a run of records, found without stepping from record to record.

A record is a length (zigzag varint), then that many bytes, the first of which is an unused attributes byte,
0. Each length leads to the next record, so the plain algorithm is a loop. Instead, collect every position
that looks like a start, and check these candidates. They are right exactly if the first is at 0, each leads
to the next, the last leads to the end, and the count is the one in the batch headers. The first guess suits
records without headers: they end with a header count of 0, so that a length stands between two zero bytes.

Bytes that defeat this guess take more time, but never change the result. For such bytes, each candidate
without a predecessor or without a successor is dropped, and the links between the others are followed by
pointer doubling. In the last attempt every byte is a candidate.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from minikafka.base.errors import CorruptBatch

Bytes: TypeAlias = npt.NDArray[np.uint8]
Positions: TypeAlias = npt.NDArray[np.int64]

INT_BYTES: Final = 5
LONG_BYTES: Final = 10
PADDING: Final = LONG_BYTES
"""Bytes that must follow the last record in the array, so that no guess reads beyond its end."""
_LONG_MAX: Final = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_ZIGZAG: Final = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(0x80)], dtype=np.int64)
"""The value of each varint of one byte."""
_NONE: Final = np.empty(0, dtype=np.int64)
_SHORTEST_RECORD: Final = 6
"""Bytes of the shortest record: attributes, timestamp, offset, two lengths and the header count."""


def varints(
    data: Bytes, positions: Positions, longest: int = INT_BYTES
) -> tuple[Positions, Positions]:
    """Return the zigzag varint at each position, and the position after it.

    At least one byte must follow the last varint, as `PADDING` does. Raises `CorruptBatch` if a varint has
    more than `longest` bytes, IndexError if it reaches beyond the end of `data`.
    """
    values, after, unfinished = _read(data, positions, longest)
    if unfinished.size:
        raise CorruptBatch(f"a record holds a number of more than {longest} bytes")
    return values, after


def _read(
    data: Bytes, positions: Positions, longest: int
) -> tuple[Positions, Positions, Positions]:
    """Read varints; return values, positions after them, and indexes of those longer than `longest`
    bytes.
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
    """Return the start of each record's body (after its length) and its end, over all sections together.

    `data` holds the records of the batches without gaps, then `PADDING` bytes. `section_starts` are
    the positions at which the records of each batch begin, `counts` the number in each (never 0).
    Raises `CorruptBatch` if the bytes cannot be divided in this way.
    """
    size = len(data) - PADDING
    for candidates in (_between_zeros, _likely, _all):
        starts, bodies, ends = _read_records(data, candidates(data[:size]))
        for narrowed in (_linked, _follow):
            if _is_chain(starts, ends, size):
                break
            kept = narrowed(starts, ends, size)
            starts, bodies, ends = starts[kept], bodies[kept], ends[kept]
        if _is_chain(starts, ends, size) and _agrees(starts, section_starts, counts):
            return bodies, ends
    raise CorruptBatch("record lengths do not add up to the batch header's record count")


def _between_zeros(data: Bytes) -> Positions:
    """Return, in order, each position after a zero byte that has 1 to `INT_BYTES` bytes before the next zero.

    The start of the data counts as a position after a zero byte.
    """
    zeros = np.concatenate(([-1], np.flatnonzero(data == 0)))
    gaps = np.diff(zeros)
    return zeros[:-1][(gaps > 1) & (gaps <= INT_BYTES + 1)] + 1


def _likely(data: Bytes) -> Positions:
    """Return every position where a varint followed by a zero byte could begin, in order."""
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
    """Read the length at each candidate; return the starts, bodies and ends of possible records."""
    lengths, bodies, unfinished = _read(data, starts, INT_BYTES)
    lengths[unfinished] = -1
    ends = bodies + lengths
    keep = (lengths >= _SHORTEST_RECORD) & (ends <= len(data) - PADDING)
    if keep.all():
        return starts, bodies, ends
    return starts[keep], bodies[keep], ends[keep]


def _linked(starts: Positions, ends: Positions, size: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the candidates that have a predecessor and a successor.

    A predecessor ends where the candidate starts, a successor starts where it ends. A candidate at 0 needs
    no predecessor, and one that ends at `size` needs no successor.
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
    """True if the records cover [0, size) without gaps in this order."""
    if not starts.size or starts[0] != 0 or ends[-1] != size:
        return False
    return bool(np.array_equal(ends[:-1], starts[1:]))


def _agrees(starts: Positions, section_starts: Positions, counts: Positions) -> bool:
    """True if every batch has the declared number of records and none crosses into the next batch."""
    if len(starts) != counts.sum():
        return False
    return bool(np.array_equal(starts[np.cumsum(counts) - counts], section_starts))


def _follow(starts: Positions, ends: Positions, size: int) -> Positions:
    """Return the indexes of the candidates on the path from position 0 to `size`.

    The result is empty if the path ends elsewhere. Pointer doubling finds it in log2(n) rounds.
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
