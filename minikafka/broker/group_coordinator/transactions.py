"""A filter of the records of `__consumer_offsets`: those of a transaction count only after its commit marker.

Kafka writes offsets that a producer commits in a transaction (TxnOffsetCommit) to the same partitions. This broker
does not write them yet, but it reads a log that Kafka wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, TypeAlias

from minikafka.base.errors import CorruptBatch
from minikafka.record.batch import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    PRODUCER_ID,
    TRANSACTIONAL,
    records,
)

logger = logging.getLogger(__name__)

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]
_MARKER: Final = Struct(">hh")
"""Key of a marker: its version, and its type."""
_COMMIT: Final = 1


class CommittedRecords:
    """Reads whole batches in the order of the log and yields (key, value) of each record that is committed.

    A corrupt batch is logged and skipped, so that the groups in the other batches stay available.
    """

    def __init__(self) -> None:
        self._open: dict[int, list[KeyValue]] = {}
        """Records of open transactions, by producer id."""

    def records(self, chunk: bytes) -> Iterator[KeyValue]:
        """Yield the records in `chunk`; hold back a transaction's records until its commit marker is read."""
        view = memoryview(chunk)
        at = 0
        while len(view) - at >= HEADER_BYTES:
            header = HEADER.unpack_from(view, at)
            stop = at + OVERHEAD + header[BATCH_LENGTH]
            try:
                yield from self._records_of(view[at:stop], header)
            except CorruptBatch as error:
                logger.error("skipping a batch of groups: %s", error)
            at = stop

    def _records_of(self, batch: memoryview, header: Sequence[int]) -> Iterator[KeyValue]:
        producer_id = header[PRODUCER_ID]
        if header[ATTRIBUTES] & CONTROL:
            yield from self._ended(producer_id, batch)
        elif header[ATTRIBUTES] & TRANSACTIONAL:
            found = self._open.setdefault(producer_id, [])
            found += ((record.key, record.value) for record in records(batch))
        else:
            for record in records(batch):
                yield record.key, record.value

    def _ended(self, producer_id: int, batch: memoryview) -> list[KeyValue]:
        """Return the records of the producer's transaction if the marker commits it, else an empty list."""
        found = self._open.pop(producer_id, [])
        for record in records(batch, control=True):
            key = record.key or b""
            if len(key) >= _MARKER.size and _MARKER.unpack_from(key)[1] == _COMMIT:
                return found
        return []
