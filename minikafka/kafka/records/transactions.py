"""Transactions in a log: the markers that end them, and the batches that were aborted.

A transaction of a producer begins with its first transactional batch, and ends with its next marker, a control batch
that commits or aborts it. Until then, it is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch
from minikafka.base.open_transactions import OpenTransactions
from minikafka.base.ports import Buffer
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.kafka.records.varints import read_varint

ABORT: Final = 0
COMMIT: Final = 1
"""`ABORT` and `COMMIT`: the types of a transaction marker, in the second field of its record's key."""
_MARKER_KEY: Final = Struct(">hh")
"""Fields in the key of a marker's record: version, type."""


VISIBLE, ABORTED, OPEN = 0, 1, 2
"""Outcomes of a batch: committed or not transactional; in an aborted transaction; in an open transaction."""


class Marker(NamedTuple):
    """The end of a producer's transaction. `committed` is False for an abort, and for a marker of unknown type."""

    producer_id: int
    committed: bool


class Aborted(NamedTuple):
    """An aborted transaction: its producer, its first offset still in the log, its marker's offset (-1: unknown).

    `last_stable_offset`: the last stable offset once the marker is committed, -1 if it is unknown.
    """

    producer_id: int
    first_offset: int
    last_offset: int = -1
    last_stable_offset: int = -1


def is_control(header: Header) -> bool:
    """Return True if the batch is a control batch, such as a transaction marker."""
    return bool(header[ATTRIBUTES] & CONTROL)


def marker_type(key: Buffer | None) -> int | None:
    """Return the type in the key of a control record, such as `ABORT`; None if the key is too short."""
    if key is None or len(key) < _MARKER_KEY.size:
        return None
    return int(_MARKER_KEY.unpack_from(key)[1])


def marker_type_in(records: memoryview) -> int | None:
    """Return the type of the control batch with these records, which are not compressed; None if it is invalid."""
    try:
        _, at = read_varint(records, 0)  # the length, which the attributes follow in one byte
        _, at = read_varint(records, at + 1)  # the timestamp
        _, at = read_varint(records, at)  # the offset
        size, at = read_varint(records, at)
    except CorruptBatch:
        return None
    return marker_type(records[at : at + size]) if size >= 0 else None


class AbortedScan:
    """A search for the aborted transactions of a log, which is read batch by batch.

    `open_`: producer id → first offset of each transaction that is open where the reading begins.
    """

    def __init__(self, open_: Mapping[int, int] = MappingProxyType({})) -> None:
        self._first_offsets: OpenTransactions[int] = OpenTransactions()
        for producer_id, first_offset in open_.items():
            self._first_offsets.add(producer_id, first_offset)

    def batch(self, header: Header) -> None:
        """Process a transactional batch that is not a marker."""
        if header[PRODUCER_ID] not in self._first_offsets:
            self._first_offsets.add(header[PRODUCER_ID], header[BASE_OFFSET])

    def marker(self, header: Header, kind: int | None) -> Aborted | None:
        """Process a control batch; return the transaction that it aborts.

        `kind`: the type of the marker, None if the batch has no record.
        """
        first_offsets = self._first_offsets.end(header[PRODUCER_ID])
        if kind != ABORT or not first_offsets:
            return None
        last_offset = header[BASE_OFFSET]
        last_stable_offset = min(self._first_offsets, default=last_offset + 1)
        return Aborted(header[PRODUCER_ID], first_offsets[0], last_offset, last_stable_offset)


class AbortedBatches:
    """The batches of aborted transactions in one pass over a log, which may begin at any batch.

    `aborted` are the aborted transactions of which a batch or the marker comes in the pass.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        """Aborted transactions that the pass has not reached yet, in decreasing order of first offset."""
        self._open: set[int] = set()
        """Producer ids of the aborted transactions that are open at the current batch."""

    def is_aborted(self, header: Header) -> bool:
        """Return True if the batch belongs to an aborted transaction. Must be called for every batch, in order."""
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        while self._coming and self._coming[-1].first_offset <= last_offset:
            self._open.add(self._coming.pop().producer_id)
        if header[ATTRIBUTES] & CONTROL:
            self._open.discard(header[PRODUCER_ID])
            return False
        return bool(header[ATTRIBUTES] & TRANSACTIONAL) and header[PRODUCER_ID] in self._open
