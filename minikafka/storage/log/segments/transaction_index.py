"""The transaction index of one segment: the aborted transactions whose markers lie in the segment.

The file `<base offset>.txnindex` has Kafka's format. An entry is written to it when the marker is appended. Kafka
creates the file with the first entry, and so does this broker. Invariant: the entries are in the order of the markers,
and only a marker that is in the segment has an entry. Without its marker, an entry would hide later transactions of
the same producer from consumers.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Storage
from minikafka.kafka.records.transactions import Aborted

logger = logging.getLogger(__name__)

TXN_INDEX: Final = ".txnindex"
ENTRY: Final = Struct(">hqqqq")
"""Fields: version, producer id, first offset, offset of the marker, last stable offset after the marker."""
_VERSION: Final = 0
_FIELDS: Final = 4
_MARKER: Final = 2


class TransactionIndex:
    """The entries of one segment, in memory and in the file at `path`."""

    __slots__ = ("_numbers", "_on_disk", "_storage", "is_complete", "path")

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path
        self._numbers = array("q")
        """The fields of all entries, one after another: producer id, first offset, marker, last stable offset."""
        self._on_disk = 0
        """Number of entries in the file, -1 if the file has other entries."""
        self.is_complete = True
        """False while the entries must be rebuilt from the log."""

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def __iter__(self) -> Iterator[Aborted]:
        for at in range(0, len(self._numbers), _FIELDS):
            yield Aborted(*self._numbers[at : at + _FIELDS])

    def add(self, aborted: Aborted) -> None:
        """Add the aborted transaction whose marker is appended to the segment.

        If no descriptor is free, the file gets the entry with the next `add` or `write`. Raises StorageFailed.
        """
        self._numbers.extend(aborted)
        try:
            self._write_new()
        except StorageFailed as failure:
            if not failure.lacks_descriptors:
                raise

    def _write_new(self) -> None:
        file = self._storage.open(self.path, create=True)
        try:
            file.pwritev((self._encode(self._on_disk),), self._on_disk * ENTRY.size)
        finally:
            file.close()
        self._on_disk = len(self)

    def collect(self, offset: int, end: int, found: list[tuple[int, int]]) -> bool:
        """Append (producer id, first offset) of each transaction with batches from `offset` to below `end` to `found`.

        Return True if no later segment has another such transaction.
        """
        numbers = self._numbers
        if not numbers:  # most segments: a log may have thousands
            return False
        slots = range(len(numbers) // _FIELDS)
        first = bisect_left(slots, offset, key=lambda slot: numbers[slot * _FIELDS + _MARKER])
        for at in range(first * _FIELDS, len(numbers), _FIELDS):
            producer_id, start, _, last_stable_offset = numbers[at : at + _FIELDS]
            if start < end:
                found.append((producer_id, start))
            if last_stable_offset >= end:
                return True
        return False

    def replace(self, entries: Iterable[Aborted], *, is_complete: bool = True) -> None:
        """Replace all entries, in memory only."""
        self.is_complete = is_complete
        self._numbers = array("q", [number for aborted in entries for number in aborted])
        self._on_disk = -1

    def truncate(self, offset: int) -> None:
        """Remove the entries of the markers at the offset or above it. Raises StorageFailed."""
        kept = [aborted for aborted in self if aborted.last_offset < offset]
        if len(kept) < len(self):
            self.replace(kept)
            self.write()

    def write(self, *, suffix: str = "", sync: bool = False) -> None:
        """Write the file if it lacks an entry or has an entry too many; the file of no entries is removed.

        `suffix`: added to the name, for a file that does not exist yet. Raises StorageFailed.
        """
        if not len(self):
            if self._on_disk:
                self._storage.remove(self.path + suffix)
        elif self._on_disk != len(self):
            data = self._encode(0)
            self._storage.write_atomically(self.path + suffix, data, sync=sync)
        self._on_disk = len(self)

    def _encode(self, first: int) -> bytes:
        numbers = self._numbers
        return b"".join(
            ENTRY.pack(_VERSION, *numbers[at : at + _FIELDS])
            for at in range(first * _FIELDS, len(numbers), _FIELDS)
        )

    def load(self, end_offset: int | None = None) -> None:
        """Read the file; if it is invalid, the index is incomplete. Raises StorageFailed.

        `end_offset`: the offset after the segment, None if it is unknown.
        """
        entries = decode(self._storage.read(self.path))
        if entries is not None and entries and end_offset is not None:
            entries = entries if entries[-1].last_offset < end_offset else None
        self.replace(entries or (), is_complete=entries is not None)
        if self.is_complete:
            self._on_disk = len(self)
        else:
            logger.warning("%s is invalid", self.path)


def decode(data: bytes) -> list[Aborted] | None:
    """Return the entries of a file, None if an entry is invalid."""
    if len(data) % ENTRY.size:
        return None
    entries: list[Aborted] = []
    before = -1
    for version, *fields in ENTRY.iter_unpack(data):
        aborted = Aborted(*fields)
        if version != _VERSION or not before < aborted.last_offset > aborted.first_offset >= 0:
            return None
        before = aborted.last_offset
        entries.append(aborted)
    return entries
