"""The log of a replica as the isolation checker sees it: records and markers, and the outcome of each transaction.

Transactions are followed from the first batch to the last, without the brokers' code for aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from minikafka.base.errors import CorruptBatch
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Buffer
from minikafka.checks.histories import digest_of, text_of
from minikafka.checks.isolation.operations import OFFSETS_TOPIC, offset_digest
from minikafka.deciders.groups.records import OffsetKey, read_key, read_offset
from minikafka.kafka.records.batch import Record, records_of
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from minikafka.kafka.records.transactions import COMMIT, marker_type

RECORD: Final = "record"
COMMITTED: Final = "commit marker"
ABORTED: Final = "abort marker"
VISIBLE: Final = "visible"
HIDDEN: Final = "aborted"
OPEN: Final = "open"


class Stored(NamedTuple):
    """A record or marker in a log. `kind`: `RECORD`, or the kind of a marker."""

    offset: int
    kind: str
    digest: bytes
    producer_id: int = -1
    epoch: int = -1
    transactional: bool = False
    timestamp: int = -1
    key: bytes | None = None
    value: str | None = None
    """The value as text, if it is short."""


def stored(data: Buffer, tp: TopicPartition) -> Iterator[Stored]:
    """Yield the records and markers of a segment file, up to its end or a partial batch. Raises CorruptBatch."""
    view = memoryview(data)
    at = 0
    while len(view) - at >= HEADER_BYTES:
        header = HEADER.unpack_from(view, at)
        stop = at + OVERHEAD + header[BATCH_LENGTH]
        if header[BATCH_LENGTH] < HEADER_BYTES - OVERHEAD:
            return  # the zeros at the end of a segment that was not closed
        if stop > len(view):
            return
        is_control = bool(header[ATTRIBUTES] & CONTROL)
        is_transactional = bool(header[ATTRIBUTES] & TRANSACTIONAL)
        producer = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        for record in records_of(view[at + HEADER_BYTES : stop], header):
            kind = _marker(record) if is_control else RECORD
            digest = b"" if is_control else _digest(record, tp)
            yield Stored(
                record.offset,
                kind,
                digest,
                *producer,
                transactional=is_transactional,
                timestamp=record.timestamp,
                key=record.key,
                value=text_of(record.value),
            )
        at = stop


def _marker(record: Record) -> str:
    return COMMITTED if marker_type(record.key) == COMMIT else ABORTED


def _digest(record: Record, tp: TopicPartition) -> bytes:
    if tp.topic != OFFSETS_TOPIC or record.key is None or record.value is None:
        return digest_of(record.value)
    try:
        key = read_key(record.key)
        if isinstance(key, OffsetKey):
            return offset_digest(key.group, key.tp, read_offset(record.value).offset)
    except ValueError as error:
        raise CorruptBatch(f"{tp} at offset {record.offset}: {error}") from error
    return digest_of(record.value)


class PartitionLog:
    """The log of one partition below its high watermark, on which its replicas agree.

    `outcomes`: `VISIBLE`, `HIDDEN` or `OPEN` for each record, by offset. `last_stable`: the first offset of an open
    transaction, None if there is none. `is_whole` is False if records were removed, by retention or the cleaner.
    `is_dense` is False if the cleaner removed them: retention only raises `start`, the first offset.
    `epochs_back`: each entry with a producer epoch below an earlier one of its producer, and that epoch.
    """

    def __init__(self, entries: Iterable[Stored], start: int = 0) -> None:
        self.records: dict[int, Stored] = {}
        self.outcomes: dict[int, str] = {}
        self.epochs_back: list[tuple[Stored, int]] = []
        self.is_whole = start == 0
        self.is_dense = True
        self._epochs: dict[int, int] = {}
        open_offsets: dict[int, list[int]] = {}
        self.start = start
        expected = 0
        for entry in entries:
            self.is_whole = self.is_whole and entry.offset == expected
            if expected == 0:
                self.start = max(start, entry.offset)
            elif entry.offset != expected:
                self.is_dense = False
            expected = entry.offset + 1
            self._follow_epoch(entry)
            if entry.kind != RECORD:
                outcome = VISIBLE if entry.kind == COMMITTED else HIDDEN
                ended = open_offsets.pop(entry.producer_id, [])
                self.outcomes.update(dict.fromkeys(ended, outcome))
                continue
            self.records[entry.offset] = entry
            self.outcomes[entry.offset] = OPEN if entry.transactional else VISIBLE
            if entry.transactional:
                open_offsets.setdefault(entry.producer_id, []).append(entry.offset)
        self.last_stable = min((offsets[0] for offsets in open_offsets.values()), default=None)

    def _follow_epoch(self, entry: Stored) -> None:
        highest = self._epochs.get(entry.producer_id, -1)
        if entry.epoch < highest:
            self.epochs_back.append((entry, highest))
        elif entry.producer_id >= 0:
            self._epochs[entry.producer_id] = entry.epoch

    def may_have_removed(self, offset: int) -> bool:
        """True if retention or the cleaner may have removed a record; `offset`: -1 if it is not known."""
        return not self.is_dense or (not self.is_whole and offset < self.start)

    def is_readable(self, offset: int) -> bool:
        """True if a read_committed consumer receives the record at this offset."""
        visible = self.outcomes.get(offset) == VISIBLE
        return visible and (self.last_stable is None or offset < self.last_stable)
