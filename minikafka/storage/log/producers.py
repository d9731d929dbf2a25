"""The producers of one log: their last five batches (KIP-98), their transactions, and snapshots of both.

Invariant: the state depends only on the batches in the log, so a new leader recognizes a retry from its own
log and appends no batch twice (S32). A snapshot file holds the state at the offset in its name. Kafka's
snapshot format has room only for the last batch of each producer. The earlier batches are stored after Kafka's
entries, where Kafka's reader ignores them. A snapshot that Kafka wrote lacks the earlier batches; after loading
it, a retry of an earlier batch is answered as out of order, not as a duplicate.

The state also counts each producer's consecutive sequence numbers in the log, beyond the last five batches.
The count distinguishes a retry of an old batch from a gap in the sequence. Kafka answers both cases with
OUT_OF_ORDER_SEQUENCE_NUMBER. The Java producer may have more than five batches in flight when a leader fails;
after this error it writes batches twice, or retries them until they expire.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Iterator
from itertools import starmap
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.config.keys import INT_MAX
from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.names import offsets_of
from minikafka.base.ports import Storage
from minikafka.kafka.records.codecs import crc32c
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.kafka.records.transactions import ABORT, Aborted
from minikafka.storage.log.producer_table import (
    BATCHES_KEPT,
    LAST_SEQUENCE,
    ProducerRoom,
    ProducerStateEntry,
    ProducerTable,
)

logger = logging.getLogger(__name__)

APPEND: Final = -1
"""Result of `check`: the batch continues the producer's sequence."""
UNKNOWN: Final = -2
"""Result of `check`: the producer is unknown, and the batch is not the producer's first batch."""
WRITTEN: Final = -3
"""Result of `check`: a duplicate of a batch that is older than the producer's last five batches."""
EARLY: Final = -4
"""Result of `check`: the producer is known, but the log lacks batches before this batch."""
FULL: Final = -5
"""Result of `check`: the producer is unknown, and the broker keeps as many producer ids as it may."""
SUFFIX: Final = ".snapshot"
OPEN: Final = -1
"""Value in `ProducerStates.transactions` of a transaction that has no marker yet."""

_OUT_OF_ORDER: Final = -int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_FENCED: Final = -int(ErrorCode.INVALID_PRODUCER_EPOCH)
_RUN_MAX: Final = 0x3FFFFFFF
"""Limit of `run`. Sequence numbers wrap around to 0, so beyond the limit old numbers would look like future numbers."""

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hIi")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
"""Fields: producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of
the open transaction (-1: none)."""
_EARLIER_ENTRY: Final = Struct(">qii")
"""Fields: producer id, `run`, number of `_EARLIER_BATCH` entries that follow (all remembered batches but the last)."""
_EARLIER_BATCH: Final = Struct(">iiq")
"""Fields: first sequence, last sequence, base offset."""
_CRC_END: Final = 6
_NONE: Final = -1
_IN_TRANSACTION: Final = TRANSACTIONAL | CONTROL


class ActiveProducer(NamedTuple):
    """One producer as DescribeProducers shows it; -1 stands for a missing value."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class ProducerStates:
    """Every producer that appended to this log and has not expired.

    `transactions`: first offset of each unstable transaction → offset of its marker, or `OPEN` without a marker, in
    rising order of first offsets. A transaction is unstable until the high watermark has passed its marker.
    """

    __slots__ = ("_ended", "_states", "_storage", "directory", "transactions")

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self.directory = directory
        self._states = ProducerTable(ProducerRoom(INT_MAX))
        self.transactions: dict[int, int] = {}
        self._ended: deque[int] = deque()
        """First offsets of the unstable transactions that have a marker, in the order of the markers."""

    def share(self, room: ProducerRoom) -> None:
        """Count the producer ids of this log in `room`."""
        room.count += len(self._states)
        self._states.room = room

    def adopt(self, other: ProducerStates) -> None:
        """Take over the producers of another log with the same batches. That log must not be used any longer."""
        self._states, self.transactions, self._ended = (
            other._states,
            other.transactions,
            other._ended,
        )

    def active(self) -> Iterator[ActiveProducer]:
        """Yield every producer that has not expired."""
        for producer_id, state in self._states.items():
            yield ActiveProducer(
                producer_id,
                state.epoch,
                state.last_sequence,
                state.timestamp,
                state.coordinator_epoch,
                state.transaction_start,
            )

    def last_batches(self) -> list[tuple[int, int, int]]:
        """Return (id, last offset of the newest batch, epoch) of each producer.

        The last offset is -1 if only markers are known.
        """
        return [
            (producer_id, state.last_offset(), state.epoch)
            for producer_id, state in self._states.items()
        ]

    def __len__(self) -> int:
        return len(self._states)

    # ---- per batch

    def check(self, header: Header) -> int:
        """Check the sequence of an idempotent producer's batch before a leader appends the batch. Return

            APPEND    for the next batch
            >= 0      for a duplicate of one of the last five batches: the base offset of that batch
            WRITTEN   for a duplicate of an older batch
            UNKNOWN   for a batch of an unknown producer that is not the producer's first batch
            FULL      for a batch of an unknown producer, if the broker keeps as many producer ids as it may
            EARLY     for a batch after a gap in the producer's sequence numbers
            else      a negated Kafka error code, for any other batch

        The producer of an UNKNOWN batch may have expired (KIP-360), so the batch may be appended. But the batch must
        not be appended while the producer's first batches may still arrive.
        """
        state = self._states.get(header[PRODUCER_ID])
        if state is None:
            if self._states.room.is_full():
                return FULL
            return UNKNOWN if header[BASE_SEQUENCE] else APPEND
        epoch, first = header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        if epoch == state.epoch:
            before = state.last_sequence
            if first == before + 1 or (first == 0 and before == LAST_SEQUENCE):
                return APPEND
            last = first + header[LAST_OFFSET_DELTA] & LAST_SEQUENCE
            for known_first, known_last, base_offset in state.batches:
                if known_first == first and known_last == last:
                    return base_offset
            if state.holds(first, last):
                return WRITTEN
            return EARLY if 0 < first - before & LAST_SEQUENCE <= _RUN_MAX else _OUT_OF_ORDER
        if epoch < state.epoch:
            return _FENCED
        return APPEND if first == 0 else EARLY

    def last_of(self, producer_id: int) -> tuple[int, int]:
        """Return (epoch, last sequence number) of a producer, -1 for an unknown value."""
        state = self._states.get(producer_id)
        return (_NONE, _NONE) if state is None else (state.epoch, state.last_sequence)

    def epochs_of(self, producer_id: int) -> tuple[int, int]:
        """Return the producer's epoch, and its coordinator's epoch in the last marker; -1 for an unknown value."""
        state = self._states.get(producer_id)
        return (_NONE, _NONE) if state is None else (state.epoch, state.coordinator_epoch)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction in this log, and this is its current epoch."""
        state = self._states.get(producer_id)
        return state is not None and state.transaction_start >= 0 and state.epoch == epoch

    def written_below(self, producer_id: int) -> int:
        """Return the base offset of the producer's oldest remembered batch.

        Every batch for which `check` returns WRITTEN lies below this offset.
        """
        state = self._states.get(producer_id)
        assert state is not None
        _, _, base_offset = state.batches[0]
        return base_offset

    def update(self, header: Header, base_offset: int) -> None:
        """Update the state with a batch that has a producer id and was appended at this offset."""
        epoch = header[PRODUCER_EPOCH]
        state = self._states.get(header[PRODUCER_ID])
        if state is None or state.epoch != epoch:
            former, state = state, ProducerStateEntry(epoch)
            self._states.put(header[PRODUCER_ID], state)
            if former is not None:
                state.transaction_start = former.transaction_start
                state.coordinator_epoch = former.coordinator_epoch
        if header[ATTRIBUTES] & _IN_TRANSACTION:
            self._update_transaction(state, header, base_offset)
        state.round = self._states.round
        state.timestamp = header[MAX_TIMESTAMP]
        first = header[BASE_SEQUENCE]
        if first < 0:  # a transaction marker has no sequence number, but may raise the epoch
            return
        follows = first == state.last_sequence + 1 & LAST_SEQUENCE
        state.run = min((state.run if follows else 0) + header[LAST_OFFSET_DELTA] + 1, _RUN_MAX)
        last = state.last_sequence = first + header[LAST_OFFSET_DELTA] & LAST_SEQUENCE
        batches = state.batches
        batches.append((first, last, base_offset))
        if len(batches) > BATCHES_KEPT:
            del batches[0]

    def _update_transaction(
        self, state: ProducerStateEntry, header: Header, base_offset: int
    ) -> None:
        """Update the producer's transaction: its first transactional batch opens the transaction, a marker ends it."""
        if not header[ATTRIBUTES] & CONTROL:
            if state.transaction_start < 0:
                state.transaction_start = base_offset
                self.transactions[base_offset] = OPEN
        elif state.transaction_start >= 0:
            self.transactions[state.transaction_start] = base_offset
            self._ended.append(state.transaction_start)
            state.transaction_start = _NONE

    def end_transaction(
        self, header: Header, base_offset: int, kind: int | None, coordinator_epoch: int
    ) -> Aborted | None:
        """Update the state with a marker at this offset; return the transaction that it aborts, if there is one."""
        before = self._states.get(header[PRODUCER_ID])
        first = _NONE if before is None else before.transaction_start
        self.update(header, base_offset)
        state = self._states.get(header[PRODUCER_ID])
        assert state is not None
        state.coordinator_epoch = coordinator_epoch
        if kind != ABORT or first < 0:
            return None
        still_open = (start for start, marker in self.transactions.items() if marker == OPEN)
        last_stable_offset = next(still_open, base_offset + 1)
        return Aborted(header[PRODUCER_ID], first, base_offset, last_stable_offset)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the earliest unstable transaction, None if there is none.

        Transactions whose marker lies below the high watermark are stable and are removed from `transactions`.
        """
        transactions, ended = self.transactions, self._ended
        while ended and transactions[ended[0]] < high_watermark:
            del transactions[ended.popleft()]
        return next(iter(transactions), None)

    def expire(self, wall_ms: int, expiration_ms: int) -> None:
        """Forget idle producers that have no open transaction.

        A producer is idle if it has appended nothing since the last call of this method, and its last batch is
        at least `expiration_ms` old.
        """
        self._states.expire(wall_ms - expiration_ms)

    def forget_idle(self, rounds: int, most: int) -> None:
        """Forget up to `most` producers that have appended nothing for this number of intervals between `expire` calls.

        Producers with an open transaction are kept.
        """
        self._states.forget_idle(rounds, most)

    # ---- snapshots

    def clear(self) -> None:
        """Forget every producer and delete the snapshots."""
        self._clear()
        for offset in self.snapshot_offsets():
            self._remove(offset)

    def snapshot(self, offset: int) -> None:
        """Write the snapshot file `<offset>.snapshot`; `offset` must be the log end offset."""
        self._storage.write_atomically(self._path(offset), self.encode(), sync=False)

    def restore(self, offset: int) -> int:
        """Load the newest valid snapshot at or below the offset; return the snapshot's offset, -1 if there is none.

        The caller then updates the state with the batches after the snapshot. Snapshots above the
        offset, which belong to truncated records, and invalid snapshots are deleted.
        """
        self._clear()
        for snapshot in reversed(self.snapshot_offsets()):
            if snapshot <= offset and self._load(snapshot):
                return snapshot
            self._remove(snapshot)
        return -1

    def open_transactions_at(self, offset: int) -> tuple[int, dict[int, int]]:
        """Return (offset, producer id → first offset of its open transaction) of the newest snapshot up to `offset`.

        Return (0, {}) if there is no valid snapshot. The state does not change.
        """
        for snapshot in reversed(self.snapshot_offsets()):
            states = self._read(snapshot) if snapshot <= offset else None
            if states is not None:
                starts = {one: state.transaction_start for one, state in states.items()}
                return snapshot, {one: start for one, start in starts.items() if start >= 0}
        return 0, {}

    def keep_snapshots(self, offsets: set[int]) -> None:
        """Delete all snapshots except the newest and the snapshots at `offsets`, the base offsets of segments."""
        for offset in self.snapshot_offsets()[:-1]:
            if offset not in offsets:
                self._remove(offset)

    def remove_snapshot(self, offset: int) -> None:
        """Delete the snapshot at this offset, if there is one."""
        self._remove(offset)

    def remove_snapshots_above(self, offset: int) -> None:
        """Delete the snapshots above this offset: after an unclean stop, the recovery point or the start of the log.

        After a power loss, a snapshot of records that were truncated may be back. A snapshot at the start of the log
        stays, because the batches before it are gone.
        """
        for snapshot in self.snapshot_offsets():
            if snapshot > offset:
                self._remove(snapshot)

    def snapshot_offsets(self) -> list[int]:
        """Return the offsets that have a snapshot file, in rising order."""
        return offsets_of(self._storage.names(self.directory), SUFFIX)

    def encode(self) -> bytes:
        """Return the content of a snapshot file: Kafka's format, version 1, with an extension at the end.

        Kafka's entries hold the last batch of each producer. The extension holds each producer's earlier batches,
        and its number of consecutive sequence numbers (`ProducerStateEntry.run`).
        """
        entries, earlier = bytearray(), bytearray()
        for producer_id, state in self._states.items():
            entries += _encode(producer_id, state)
            earlier += _encode_earlier(producer_id, state)
        entries += earlier
        data = _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self._states)) + entries
        return (
            _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(data[_CRC_END:]), len(self._states))
            + entries
        )

    def _read(self, offset: int) -> dict[int, ProducerStateEntry] | None:
        """Return the states in the snapshot at this offset, None if the file is missing or invalid."""
        try:
            return _decode(self._storage.read(self._path(offset)))
        except ValueError as error:
            logger.warning("ignoring the producer snapshot %s: %s", self._path(offset), error)
            return None
        except StorageFailed as failure:
            if isinstance(failure.cause, FileNotFoundError):
                return None
            raise

    def _load(self, offset: int) -> bool:
        states = self._read(offset)
        if states is None:
            return False
        for producer_id, state in states.items():
            state.round = self._states.round
            self._states.put(producer_id, state)
        starts = sorted(state.transaction_start for state in states.values())
        self.transactions = {start: OPEN for start in starts if start >= 0}
        return True

    def _clear(self) -> None:
        self._states.clear()
        self.transactions.clear()
        self._ended.clear()

    def _remove(self, offset: int) -> None:
        self._storage.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self.directory}/{offset:020d}{SUFFIX}"


def _encode(producer_id: int, state: ProducerStateEntry) -> bytes:
    first, last, base_offset = state.batches[-1] if state.batches else (_NONE, _NONE, _NONE)
    delta = last - first & LAST_SEQUENCE
    return _SNAPSHOT_ENTRY.pack(
        producer_id,
        state.epoch,
        last,
        base_offset + delta,
        delta,
        state.timestamp,
        state.coordinator_epoch,
        state.transaction_start,
    )


def _encode_earlier(producer_id: int, state: ProducerStateEntry) -> bytes:
    """Return the entry of one producer in the extension of a snapshot (the part after Kafka's entries).

    The entry contains `state.run` and all batches except the last, which Kafka's entry contains. Return b"" if the
    state has no batches, or if `run` counts only sequence numbers of the last batch.
    """
    if not state.batches:
        return b""
    *earlier, (first, last, _) = state.batches
    if state.run <= last - first + 1:
        return b""
    batches = b"".join(starmap(_EARLIER_BATCH.pack, earlier))
    return _EARLIER_ENTRY.pack(producer_id, state.run, len(earlier)) + batches


def _decode(data: bytes) -> dict[int, ProducerStateEntry]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise ValueError("it is too short")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION or crc32c(data[_CRC_END:]) != crc:
        raise ValueError("its version is unknown or its CRC is wrong")
    end = _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size
    if not count >= 0 or len(data) < end:
        raise ValueError("its length does not fit its number of entries")
    states = {}
    for entry in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size : end]):
        producer_id, epoch, last, last_offset, delta, timestamp, coordinator_epoch, start = entry
        state = states[producer_id] = ProducerStateEntry(epoch)
        state.timestamp = timestamp
        state.coordinator_epoch = coordinator_epoch
        state.transaction_start = start
        if last >= 0:
            state.last_sequence = last
            state.run = delta + 1
            state.batches.append((last - delta & LAST_SEQUENCE, last, last_offset - delta))
    _decode_earlier(states, data, end)
    return states


def _decode_earlier(states: dict[int, ProducerStateEntry], data: bytes, position: int) -> None:
    """Read a snapshot's extension, and add its content to `states`.

    The extension has, for each producer, `ProducerStateEntry.run` and all remembered batches but the last.
    `position`: where the extension begins in `data`. Raises ValueError if the extension is invalid.
    """
    try:
        while position < len(data):
            producer_id, run, count = _EARLIER_ENTRY.unpack_from(data, position)
            position += _EARLIER_ENTRY.size
            state = states[producer_id]
            state.run = run
            for number in range(count):
                batch = _EARLIER_BATCH.unpack_from(data, position + number * _EARLIER_BATCH.size)
                state.batches.insert(number, batch)
            position += count * _EARLIER_BATCH.size
    except (struct.error, KeyError, IndexError) as error:
        raise ValueError("its list of earlier batches is invalid") from error
