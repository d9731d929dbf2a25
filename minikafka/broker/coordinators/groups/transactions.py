"""A filter for the records of `__consumer_offsets`: it drops the records of uncommitted transactions.

Kafka also writes offsets that a producer commits in a transaction (TxnOffsetCommit) to `__consumer_offsets`.
This broker does not write transactional offsets yet, but it can read a log that Kafka wrote.
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
"""Format of the key of a transaction marker: version and type."""
_COMMIT: Final = 1


class CommittedRecords:
    """A reader of whole batches, in log order, that yields (key, value) of each committed record.

    A corrupt batch is logged and skipped, so that the groups in the other batches stay available.
    """

    def __init__(self) -> None:
        self._open: dict[int, list[KeyValue]] = {}
        """Records of open transactions, by producer id."""

    def records(self, chunk: bytes) -> Iterator[KeyValue]:
        """Yield (key, value) of the records in `chunk`.

        The records of a transaction are yielded only when its commit marker is read.
        """
        view = memoryview(chunk)
        at = 0
        while len(view) - at >= HEADER_BYTES:
            header = HEADER.unpack_from(view, at)
            stop = at + OVERHEAD + header[BATCH_LENGTH]
            try:
                yield from self._records_of(view[at:stop], header)
            except CorruptBatch as error:
                logger.error("skipping a corrupt batch of group records: %s", error)
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
        """Return the records of the producer's open transaction if the marker is a commit, else an empty list."""
        found = self._open.pop(producer_id, [])
        for record in records(batch, control=True):
            key = record.key or b""
            if len(key) >= _MARKER.size and _MARKER.unpack_from(key)[1] == _COMMIT:
                return found
        return []
