"""The map of a cleaning: key → offset of its latest record, in a bounded amount of memory.

Kafka's map takes 24 bytes for each key, so the size of its buffer bounds the number of keys that one cleaning
can map. This map has the same bound for the same settings. A small number of keys is kept in a dict, which is
fast but takes ten times as much memory. When the dict would take more than half of the buffer, the keys are
moved to buckets, which take 24 bytes for each key.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Final

from minikafka.kafka.records.entries import DecodedRecord

ENTRY_BYTES: Final = 24
"""Memory for one key in Kafka's map and in a bucket: 16 bytes identify the key, 8 are the offset."""

_DICT_ENTRY_BYTES: Final = 264
"""Upper bound of the memory for one key in the dict: key, offset, and share of the hash table."""
_KEY_MAX: Final = 64
"""For a key of more bytes than this, the dict holds a hash of the key."""
_BUCKET_ENTRIES: Final = 48
_SHORT: Final = 15
"""A bucket holds a key of at most this many bytes unchanged, and a longer key as a hash of this size."""
_HASHED: Final = b"\xff"
_PAD: Final = [bytes(_SHORT - size) + bytes((size,)) for size in range(_SHORT + 1)]
_OFFSET: Final = Struct(">q")


class OffsetMap:
    """The latest offset of each key. The dirty (not yet cleaned) records up to `latest_offset` are mapped."""

    __slots__ = ("_buckets", "_count", "_dict_max", "_latest", "_mask", "capacity", "latest_offset")

    def __init__(self, memory: int, load_factor: float) -> None:
        self.capacity = int(memory // ENTRY_BYTES * load_factor)
        """Maximum number of keys in the map."""
        self.latest_offset = -1
        self._latest: dict[bytes | int, int] = {}
        self._dict_max = memory // 2 // _DICT_ENTRY_BYTES
        self._buckets: list[bytearray] = []
        self._mask = self._count = 0

    def __len__(self) -> int:
        return len(self._latest) + self._count

    def put_all(self, entries: Iterable[DecodedRecord], count: int, start_offset: int) -> bool:
        """Map the keys of `count` records, which are in offset order; skip records below `start_offset`.

        Return True if the map was full before the last of these records; `latest_offset` is then the
        offset of the last mapped record.
        """
        if len(self) + count > self.capacity:
            return self._put_while_room(entries, start_offset)
        found: dict[bytes, int] = {
            entry.key: entry.offset
            for entry in entries
            if entry.key is not None and entry.offset >= start_offset
        }
        self._put(found)
        return False

    def _put_while_room(self, entries: Iterable[DecodedRecord], start_offset: int) -> bool:
        for entry in entries:
            if entry.key is not None and entry.offset >= start_offset:
                if len(self) >= self.capacity:
                    return True
                self._put({entry.key: entry.offset})
                self.latest_offset = entry.offset
        return False

    def _put(self, found: dict[bytes, int]) -> None:
        if not self._buckets and len(self._latest) + len(found) > self._dict_max:
            self._move_to_buckets()
        if self._buckets:
            self._put_in_buckets(zip(map(_identity, found), found.values(), strict=True))
        elif max(map(len, found), default=0) <= _KEY_MAX:
            self._latest.update(found.items())
        else:
            self._latest.update((_short(key), offset) for key, offset in found.items())

    def latest(self, keys: Iterable[bytes | None]) -> list[int]:
        """Return the latest offset of each of these keys, -1 for a key that is None or not in the map."""
        if self._buckets:
            return self._latest_in_buckets(keys)
        get = self._latest.get
        return [
            -1 if key is None else get(key if len(key) <= _KEY_MAX else _short(key), -1)
            for key in keys
        ]

    def _latest_in_buckets(self, keys: Iterable[bytes | None]) -> list[int]:
        """Do the work of `latest` when the keys of the map are in buckets.

        The code of `_identity` is inlined, which halves the time.
        """
        buckets, mask, unpack = self._buckets, self._mask, _OFFSET.unpack_from
        found = []
        for key in keys:
            at = -1
            if key is not None:
                size = len(key)
                identity = (
                    key + _PAD[size]
                    if size <= _SHORT
                    else blake2b(key, digest_size=_SHORT).digest() + _HASHED
                )
                bucket = buckets[hash(identity) & mask]
                at = bucket.find(identity)
                while at > 0 and at % ENTRY_BYTES:
                    at = bucket.find(identity, at + 1)
            found.append(-1 if at < 0 else unpack(bucket, at + 16)[0])
        return found

    def _move_to_buckets(self) -> None:
        number = 1 << (self.capacity // _BUCKET_ENTRIES).bit_length()
        self._mask = number - 1
        self._buckets = [bytearray() for _ in range(number)]
        while self._latest:
            key, offset = self._latest.popitem()
            identity = _identity(key) if isinstance(key, bytes) else _of_hash(key)
            self._put_in_buckets(((identity, offset),))
        self._latest = {}  # frees the memory that the emptied dict still holds

    def _put_in_buckets(self, entries: Iterable[tuple[bytes, int]]) -> None:
        buckets, mask, pack, pack_into = self._buckets, self._mask, _OFFSET.pack, _OFFSET.pack_into
        for identity, offset in entries:
            bucket = buckets[hash(identity) & mask]
            at = bucket.find(identity)
            while at > 0 and at % ENTRY_BYTES:  # skip a match that spans two entries
                at = bucket.find(identity, at + 1)
            if at < 0:
                bucket += identity + pack(offset)
                self._count += 1
            else:
                pack_into(bucket, at + 16, offset)


def _identity(key: bytes) -> bytes:
    """Return 16 bytes that identify the key; the last byte is the length of a short key, 255 for a hash."""
    if len(key) <= _SHORT:
        return key + _PAD[len(key)]
    return blake2b(key, digest_size=_SHORT).digest() + _HASHED


def _short(key: bytes) -> bytes | int:
    """Return the dict key for a record's key: the record's key itself, or the hash of a long key.

    The hash is an int, so it never equals a record's key, which is bytes.
    """
    if len(key) <= _KEY_MAX:
        return key
    return int.from_bytes(blake2b(key, digest_size=_SHORT).digest(), "big")


def _of_hash(number: int) -> bytes:
    return number.to_bytes(_SHORT, "big") + _HASHED
