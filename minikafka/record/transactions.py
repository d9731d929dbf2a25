"""Transactions in a log: the markers that end them, and the batches that were aborted.

A transaction of a producer begins with its first transactional batch, and ends with its next marker, a control batch
that commits or aborts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from minikafka.record.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    HEADER,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
    records,
)

ABORT: Final = 0
COMMIT: Final = 1
"""`ABORT` and `COMMIT`: the types of a transaction marker, in the second field of its record's key."""
_MARKER_KEY: Final = Struct(">hh")
"""Fields in the key of a marker's record: version, type."""


class Marker(NamedTuple):
    """The end of a producer's transaction. `committed` is False for an abort, and for a marker of unknown type."""

    producer_id: int
    committed: bool


class Aborted(NamedTuple):
    """An aborted transaction: its producer, its first offset still in the log, its marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int


def marker_type(key: bytes | None) -> int | None:
    """Return the type in the key of a control record (int16 version, int16 type), None if the key is too short."""
    if key is None or len(key) < _MARKER_KEY.size:
        return None
    return int(_MARKER_KEY.unpack_from(key)[1])


def marker_of(batch: memoryview) -> Marker:
    """Return the transaction marker in a control batch. Raises CorruptBatch."""
    kinds = [marker_type(record.key) for record in records(batch, control=True)]
    return Marker(HEADER.unpack_from(batch)[PRODUCER_ID], COMMIT in kinds)


class AbortedScan:
    """A search for aborted transactions in a log, which is read batch by batch from the beginning."""

    def __init__(self) -> None:
        self.aborted: list[Aborted] = []
        self._open: dict[int, int] = {}

    @property
    def has_open(self) -> bool:
        """True if the scan has found the beginning of a transaction but not its marker."""
        return bool(self._open)

    def batch(self, header: Header) -> None:
        """Process a transactional batch that is not a marker."""
        self._open.setdefault(header[PRODUCER_ID], header[BASE_OFFSET])

    def marker(self, header: Header, kind: int | None) -> None:
        """Process a control batch; `kind` is its type, None if the batch has no record."""
        first_offset = self._open.pop(header[PRODUCER_ID], None)
        if kind == ABORT and first_offset is not None:
            self.aborted.append(Aborted(header[PRODUCER_ID], first_offset, header[BASE_OFFSET]))


class Transactions:
    """The transactions in progress during one pass over the log, which may begin at any segment.

    `find_aborted` is called once, when the pass meets the first transactional batch.
    """

    def __init__(self, find_aborted: Callable[[], Iterable[Aborted]]) -> None:
        self._find_aborted = find_aborted
        self._coming: list[Aborted] | None = None
        """Aborted transactions that the pass has not reached yet, in decreasing order of first offset."""
        self._aborted: dict[int, bool] = {}
        """Producer id of each aborted transaction in progress → True if the pass has met a batch of it."""
        self._committed: set[int] = set()

    def is_aborted(self, header: Header) -> bool:
        """Return True if the batch, which is not a control batch, belongs to an aborted transaction."""
        if not header[ATTRIBUTES] & TRANSACTIONAL:
            return False
        self._begin_up_to(header)
        producer_id = header[PRODUCER_ID]
        if producer_id in self._aborted:
            self._aborted[producer_id] = True
            return True
        self._committed.add(producer_id)
        return False

    def is_marker_needless(self, header: Header, kind: int | None) -> bool:
        """Return True if the marker can be removed, because no batch of its transaction is left.

        `kind`: `ABORT` or `COMMIT`, None for a marker whose record was removed by an earlier cleaning.
        """
        self._begin_up_to(header)
        producer_id = header[PRODUCER_ID]
        if kind is None:
            return True
        if kind == ABORT:
            return not self._aborted.pop(producer_id, False)
        if kind == COMMIT:
            is_needless = producer_id not in self._committed
            self._committed.discard(producer_id)
            return is_needless
        return False

    def _begin_up_to(self, header: Header) -> None:
        if self._coming is None:
            start = header[BASE_OFFSET]
            found = [each for each in self._find_aborted() if each.last_offset >= start]
            self._coming = sorted(found, key=lambda each: each.first_offset, reverse=True)
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        while self._coming and self._coming[-1].first_offset <= last_offset:
            self._aborted.setdefault(self._coming.pop().producer_id, False)


def is_control(header: Header) -> bool:
    """Return True if the batch is a control batch, such as a transaction marker."""
    return bool(header[ATTRIBUTES] & CONTROL)
