"""Kafka's default partitioner for whole columns of keys.

A key gets the same partition as in the Java client: the key's 32-bit murmur2 hash with the sign bit cleared,
modulo the number of partitions. Rows without a key fill one partition at a time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)
_PADDING: Final = 4


def partitions(keys: pa.Array, count: int, first: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the partition of each record. `keys`: binary or null. `count`: the number of partitions.

    A record without a key gets the partition of its number in `first`, modulo `count`. Records of one Arrow batch
    have equal numbers. This is like Kafka's sticky partitioner, which fills one partition at a time.
    """
    if keys.null_count == len(keys):
        return (first % count).astype(np.int32)
    hashes = murmur2(keys) & np.uint32(0x7FFFFFFF)
    found = (hashes % np.uint32(count)).astype(np.int32)
    if keys.null_count:
        is_null = np.asarray(keys.is_null())
        found[is_null] = first[is_null] % count
    return found


def murmur2(keys: pa.Array) -> Words:
    """Return the murmur2 hash of each key, with Kafka's seed. A null key is hashed like an empty key."""
    starts, lengths, data = _bytes(keys)
    values = _SEED ^ lengths.astype(np.uint32)
    rows = np.arange(len(keys))
    whole = lengths & ~np.int64(3)
    for position in range(0, int(whole.max(initial=0)), 4):
        rows = rows[whole[rows] > position]
        mixed = _word(data, starts[rows] + position) * _FACTOR
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _FACTOR
        values[rows] = (values[rows] * _FACTOR) ^ mixed
    rows = np.flatnonzero(whole < lengths)
    left = lengths[rows] - whole[rows]
    kept = np.uint32(0xFFFFFFFF) >> (np.uint32(32) - 8 * left.astype(np.uint32))
    tails = _word(data, starts[rows] + whole[rows]) & kept
    values[rows] = (values[rows] ^ tails) * _FACTOR
    values = (values ^ (values >> np.uint32(13))) * _FACTOR
    return values ^ (values >> np.uint32(15))


def _bytes(
    keys: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the start and the length (0 for null) of each key, and the bytes of all keys followed by padding."""
    _, borders, content = keys.buffers()
    offsets = np.frombuffer(borders, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    positions = offsets.astype(np.int64)
    lengths = np.diff(positions)
    if keys.null_count:
        lengths[np.asarray(keys.is_null())] = 0
    data = np.zeros((content.size if content is not None else 0) + _PADDING, dtype=np.uint8)
    if content is not None:
        data[:-_PADDING] = np.frombuffer(content, np.uint8)
    return positions[:-1], lengths, data


def _word(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> Words:
    """Return the four bytes at each position as a little-endian number."""
    word = data[positions].astype(np.uint32)
    for index in range(1, 4):
        word |= data[positions + index].astype(np.uint32) << np.uint32(8 * index)
    return word
