"""Where each record of a run of records begins, without stepping from record to record.

A record is a length (zigzag varint), then that many bytes, the first of which is an unused attributes
byte that is 0. The length of one record is what leads to the next, so walking is a loop by nature.
Instead: take every place that looks like a beginning, drop those that no other place leads to or that
lead nowhere, and check. What remains is right exactly if the first is at 0, each leads to the next,
the last leads to the end, and the number is the one the batch headers say: that is the induction a
walk would do, tested in one comparison. Bytes that defeat the guess cost more time (links are followed
by doubling, then every byte is a candidate) but never give another answer.
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
"""Bytes of anything that must follow the last record in the array, so that no guess reads beyond it."""
_LONG_MAX: Final = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_SHORTEST_RECORD: Final = 6
"""Attributes, timestamp, offset, key length, value length, header count: one byte each."""


def varints(
    data: Bytes, positions: Positions, longest: int = INT_BYTES
) -> tuple[Positions, Positions]:
    """The zigzag varint at each position and the position after it.

    Raises `CorruptBatch` for one of more than `longest` bytes, IndexError beyond the end of `data`.
    """
    values, after, unfinished = _read(data, positions, longest)
    if unfinished.size:
        raise CorruptBatch(f"a number of more than {longest} bytes inside a record")
    return values, after


def _read(
    data: Bytes, positions: Positions, longest: int
) -> tuple[Positions, Positions, Positions]:
    """As `varints`, and the indexes of the positions where no number of so few bytes ends."""
    first = data[positions]
    raw = first.astype(np.int64)
    after = positions + 1
    unfinished = np.flatnonzero(first > 0x7F)
    raw[unfinished] &= 0x7F
    for index in range(1, longest):
        if not unfinished.size:
            break
        part = data[after[unfinished]].astype(np.int64)
        raw[unfinished] |= (part & 0x7F) << (7 * index)
        after[unfinished] += 1
        unfinished = unfinished[part > 0x7F]
    return ((raw >> 1) & _LONG_MAX) ^ -(raw & 1), after, unfinished


def find(data: Bytes, section_starts: Positions, counts: Positions) -> tuple[Positions, Positions]:
    """Start of each record's body (after its length) and its end, of all sections laid end to end.

    `data` holds the records of the batches without gaps, then `PADDING` bytes. `section_starts` are
    the positions where the records of each batch begin, `counts` how many each has (none is 0).
    Raises `CorruptBatch` when no such division of the bytes exists.
    """
    size = len(data) - PADDING
    for candidates in (_likely, _all):
        starts, bodies, ends = _leading_somewhere(data, candidates(data[:size]))
        if not _is_chain(starts, ends, size):
            path = _follow(starts, ends)
            starts, bodies, ends = starts[path], bodies[path], ends[path]
        if _is_chain(starts, ends, size) and _agrees(starts, section_starts, counts):
            return bodies, ends
    raise CorruptBatch("record lengths do not add up to what the batch header says")


def _likely(data: Bytes) -> Positions:
    """Every place where a number could begin that is followed by a zero byte, in order."""
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


def _leading_somewhere(data: Bytes, starts: Positions) -> tuple[Positions, Positions, Positions]:
    """Of the candidates, those that another one leads to and that lead to another one or to the end."""
    size = len(data) - PADDING
    lengths, bodies, unfinished = _read(data, starts, INT_BYTES)
    lengths[unfinished] = -1
    ends = bodies + lengths
    keep = (lengths >= _SHORTEST_RECORD) & (ends <= size)
    starts, bodies, ends = starts[keep], bodies[keep], ends[keep]
    known = np.zeros(size + 1, dtype=np.bool_)
    known[starts] = True
    known[size] = True
    keep = known[ends]
    reached = np.zeros(size + 1, dtype=np.bool_)
    reached[ends[keep]] = True
    reached[0] = True
    keep &= reached[starts]
    return starts[keep], bodies[keep], ends[keep]


def _is_chain(starts: Positions, ends: Positions, size: int) -> bool:
    """Whether the records tile [0, size) in this order."""
    if not starts.size or starts[0] != 0 or ends[-1] != size:
        return False
    return bool(np.array_equal(ends[:-1], starts[1:]))


def _agrees(starts: Positions, section_starts: Positions, counts: Positions) -> bool:
    """Whether every batch has as many records as it says, none crossing into the next."""
    if len(starts) != counts.sum():
        return False
    return bool(np.array_equal(starts[np.cumsum(counts) - counts], section_starts))


def _follow(starts: Positions, ends: Positions) -> Positions:
    """Indexes of the candidates on the way from position 0, by pointer doubling: log2(n) rounds."""
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
    return path[path < nowhere]
