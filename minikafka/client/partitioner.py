"""Kafka's partitioner: a key goes to the same partition as with every other Kafka client.

A key's partition is its 32-bit murmur2 hash, sign bit cleared, modulo the number of partitions
(Kafka's default partitioner; librdkafka calls it `murmur2_random`).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_WORD: Final = Struct("<I")
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Return the murmur2 hash with Kafka's seed, as an unsigned 32-bit number."""
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for (word,) in _WORD.iter_unpack(data[:whole]):
        mixed = (word * _FACTOR) & _MASK
        mixed = ((mixed ^ (mixed >> 24)) * _FACTOR) & _MASK
        value = ((value * _FACTOR) & _MASK) ^ mixed
    if whole < len(data):
        value ^= int.from_bytes(data[whole:], "little")
        value = (value * _FACTOR) & _MASK
    value = ((value ^ (value >> 13)) * _FACTOR) & _MASK
    return value ^ (value >> 15)
