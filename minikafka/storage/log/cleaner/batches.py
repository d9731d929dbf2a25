"""The choice of the records in one batch that a cleaning keeps, as in Kafka's Cleaner and MemoryRecords.filterTo.

A record stays if it is the latest record of its key. A delete marker (a record without a value) stays only until its
delete horizon. The horizon is set when a cleaning first keeps the marker: bit 6 of the attributes is set, and
the base timestamp of the batch becomes the horizon. A batch keeps its base offset, last offset, leader epoch,
producer fields and codec, so that offsets and sequence numbers stay the same. The last batch of an active
producer stays even without records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress as selected
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch
from minikafka.base.ports import Buffer
from minikafka.kafka.records.codecs import compress, crc32c
from minikafka.kafka.records.entries import (
    DecodedRecord,
    Entries,
    entries_of,
    spans,
    with_timestamp_delta,
)
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    COUNT,
    CRC,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    OVERHEAD,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.kafka.records.transactions import (
    ABORT,
    COMMIT,
    Aborted,
    AbortedBatches,
    is_control,
    marker_type,
)
from minikafka.storage.log.cleaner.offset_map import OffsetMap

_UINT32: Final = Struct(">I")


class LastBatch(NamedTuple):
    """The newest batch of an active producer: last offset (-1 if only markers are known), producer epoch."""

    last_offset: int
    epoch: int


class KeepRules(NamedTuple):
    """The rules by which a cleaning keeps records and batches, apart from the map of keys. Times are Unix ms.

    `kept_end`: the batch that ends at this offset stays even without records; -1: no such batch.
    """

    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastBatch]
    kept_end: int = -1


class BatchFilter:
    """The filter for batches in the second pass of a cleaning; call `kept` for every batch, in order."""

    def __init__(self, offsets: OffsetMap, transactions: Transactions, rules: KeepRules) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._rules = rules
        self.records_read = self.records_kept = 0

    def kept(self, batch: memoryview, header: Header) -> Buffer:
        """Return the batch with only the records that stay, b"" if the batch is removed. Raises CorruptBatch.

        At least `PADDING` bytes must follow the batch in memory, for `entries_of`.
        """
        check_crc(batch, header)
        entries = entries_of(batch, header)
        self.records_read += header[COUNT]
        needless = self._is_needless(header, entries)
        must_stay = self._must_stay(header)
        kept = self._kept_records(header, entries, needless)
        if not any(kept):
            return emptied(header) if must_stay else b""
        decoded = list(selected(entries.decoded, kept))
        self.records_kept += len(decoded)
        needs_horizon = not header[ATTRIBUTES] & DELETE_HORIZON and (
            (needless and is_control(header)) or any(entry.value is None for entry in decoded)
        )
        if len(decoded) == len(kept) and not needs_horizon:
            return batch
        horizon = header[BASE_TIMESTAMP] if header[ATTRIBUTES] & DELETE_HORIZON else NO_TIMESTAMP
        if needs_horizon:
            horizon = self._rules.now_ms + self._rules.delete_retention_ms
        return rebuilt(header, entries, decoded, kept, horizon)

    def _is_needless(self, header: Header, entries: Entries) -> bool:
        """Return True for an aborted transaction's batch, or a marker whose transaction has no batch left."""
        if is_control(header):
            kind = marker_type(entries.decoded[0].key) if entries.decoded else None
            return self._transactions.is_marker_needless(header, kind)
        return self._transactions.is_aborted(header)

    def _must_stay(self, header: Header) -> bool:
        """True if the batch stays even without records.

        The batch stays if it ends at `kept_end`, or if it is the last batch or marker of an active producer.
        """
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        if last_offset == self._rules.kept_end:
            return True
        last = self._rules.producers.get(header[PRODUCER_ID]) if header[PRODUCER_ID] >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return last.last_offset == last_offset
        return is_control(header) and header[PRODUCER_EPOCH] == last.epoch

    def _kept_records(self, header: Header, entries: Entries, needless: bool) -> Sequence[bool]:
        """Return one flag for each record: True if the record stays."""
        has_horizon = bool(header[ATTRIBUTES] & DELETE_HORIZON)
        is_past_horizon = has_horizon and header[BASE_TIMESTAMP] <= self._rules.now_ms
        if is_control(header):
            return [not (needless and is_past_horizon)] * len(entries.decoded)
        if needless:
            return [False] * len(entries.decoded)
        decoded, mapped_to = entries.decoded, self._offsets.latest_offset
        latest = self._offsets.latest([entry.key for entry in decoded])
        return [
            offset > mapped_to
            or (
                offset >= newest
                and entry.key is not None
                and (not is_past_horizon or entry.value is not None)
            )
            for entry, newest in zip(decoded, latest, strict=True)
            for offset in (entry.offset,)
        ]


def check_crc(batch: memoryview, header: Header) -> None:
    """Raise CorruptBatch if the batch has a wrong CRC: rebuilding it with a new CRC would hide the damage."""
    if crc32c(batch[CRC_START:]) != header[CRC]:
        raise CorruptBatch(f"the batch at offset {header[BASE_OFFSET]} has a wrong CRC")


def emptied(header: Header) -> bytes:
    """Return the batch without records: a header with the same producer, sequence, offsets and largest timestamp."""
    attributes = header[ATTRIBUTES] & ~(CODEC_MASK | DELETE_HORIZON)
    return _sealed(header, attributes, NO_TIMESTAMP, header[MAX_TIMESTAMP], 0, b"")


def rebuilt(
    header: Header,
    entries: Entries,
    decoded: Sequence[DecodedRecord],
    kept: Sequence[bool],
    horizon: int,
) -> bytes:
    """Return the batch with only the records that stay.

    `kept` has a flag for each record of the batch, True if it stays. `decoded`: the records that stay.
    `horizon`: the delete horizon of the batch (Unix ms), `NO_TIMESTAMP` without one.
    """
    attributes = header[ATTRIBUTES] & ~DELETE_HORIZON
    if horizon != NO_TIMESTAMP:
        attributes |= DELETE_HORIZON
    base_timestamp = decoded[0].timestamp if horizon == NO_TIMESTAMP else horizon
    body = _body(header, entries, decoded, kept, base_timestamp)
    codec = attributes & CODEC_MASK
    max_timestamp = max(entry.timestamp for entry in decoded)
    return _sealed(
        header,
        attributes,
        base_timestamp,
        max_timestamp,
        len(decoded),
        compress(codec, body) if codec else body,
    )


def _body(
    header: Header,
    entries: Entries,
    decoded: Sequence[DecodedRecord],
    kept: Sequence[bool],
    base_timestamp: int,
) -> bytes:
    """Return the bytes of the kept records, without compression, for a batch with this base timestamp."""
    body = entries.body
    ends = spans(body, len(kept))
    if base_timestamp == header[BASE_TIMESTAMP] and not header[ATTRIBUTES] & LOG_APPEND_TIME:
        return b"".join(
            body[ends[slot] : ends[slot + 1]] for slot, stays in enumerate(kept) if stays
        )
    records = (body[ends[slot] : ends[slot + 1]] for slot, stays in enumerate(kept) if stays)
    return b"".join(
        with_timestamp_delta(record, entry.timestamp - base_timestamp)
        for record, entry in zip(records, decoded, strict=True)
    )


def _sealed(
    header: Header,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    body: bytes,
) -> bytes:
    """Return the batch with new attributes, timestamps and records, and with a new CRC."""
    fields = list(header)
    fields[BATCH_LENGTH] = HEADER_BYTES - OVERHEAD + len(body)
    fields[ATTRIBUTES] = attributes
    fields[BASE_TIMESTAMP], fields[MAX_TIMESTAMP] = base_timestamp, max_timestamp
    fields[COUNT] = count
    batch = bytearray(HEADER.pack(*fields))
    batch += body
    _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


class Transactions:
    """The transactions in progress during one pass over the log, which may begin at any segment.

    A marker stays while batches of its transaction are in the log, and then for the delete retention time.

    `find_aborted` is called once, when the pass meets the first transactional batch or marker.
    """

    def __init__(self, find_aborted: Callable[[], Iterable[Aborted]]) -> None:
        self._find_aborted = find_aborted
        self._aborted: AbortedBatches | None = None
        self._met: set[int] = set()
        """Producers of which the pass has met a batch in the transaction in progress."""
        self.needed_markers: set[int] = set()
        """Offsets of the markers of whose transactions the pass has met a batch."""

    def is_aborted(self, header: Header) -> bool:
        """Return True if the batch, which is not a control batch, belongs to an aborted transaction."""
        if not header[ATTRIBUTES] & TRANSACTIONAL:
            return False
        self._met.add(header[PRODUCER_ID])
        return self._batches(header).is_aborted(header)

    def is_marker_needless(self, header: Header, kind: int | None) -> bool:
        """Return True if the marker can be removed, because no batch of its transaction is left.

        `kind`: `ABORT` or `COMMIT`, None for a marker whose record was removed by an earlier cleaning.
        """
        self._batches(header).is_aborted(header)  # ends the transaction
        was_met = header[PRODUCER_ID] in self._met
        if was_met:
            self.needed_markers.add(header[BASE_OFFSET])
        self._met.discard(header[PRODUCER_ID])
        return kind is None or (kind in (ABORT, COMMIT) and not was_met)

    def _batches(self, header: Header) -> AbortedBatches:
        if self._aborted is None:
            start = header[BASE_OFFSET]
            found = (each for each in self._find_aborted() if each.last_offset >= start)
            self._aborted = AbortedBatches(found)
        return self._aborted
