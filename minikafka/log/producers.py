"""Idempotence state of one log: the last five batches of every producer (KIP-98), and its snapshots.

Invariant: the state is a function of the batches in the log up to its end, so that a new leader knows a
retry from its own log and appends no batch twice (S32). A snapshot file holds it as of the offset in its
name, but only the last batch of every producer, as in Kafka: where the state was loaded from one, a retry
of an older batch is out of order instead of known.

Beyond the five batches it is known how many sequence numbers in a row the log holds, so that a retry of what
lies before them is told from a gap. Kafka calls both out of order: its Java producer, which may have more than
five batches on their way when a leader goes away, then writes them twice, or tries until they expire.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import starmap
from struct import Struct
from typing import Final

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.ports import Storage
from minikafka.record.batch import Header
from minikafka.record.codecs import crc32c

logger = logging.getLogger(__name__)

APPEND: Final = -1
"""`check`: the batch is the next one."""
UNKNOWN: Final = -2
"""`check`: a later batch of a producer that nothing is remembered of."""
WRITTEN: Final = -3
"""`check`: a duplicate older than the batches that are remembered."""
SUFFIX: Final = ".snapshot"

_OUT_OF_ORDER: Final = -int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_FENCED: Final = -int(ErrorCode.INVALID_PRODUCER_EPOCH)
_BATCHES_KEPT: Final = 5
_LAST_SEQUENCE: Final = 0x7FFFFFFF
_RUN_MAX: Final = 0x3FFFFFFF
"""What lies further back cannot be told from what lies ahead, as sequence numbers begin anew at zero."""

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hIi")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the
open transaction."""
_CRC_END: Final = 6
_NONE: Final = -1


class ProducerState:
    """One producer id: its epoch and its last batches as (first sequence, last sequence, base offset).

    `run`: how many sequence numbers in a row, up to the last one, are known to be in the log.
    """

    __slots__ = ("batches", "epoch", "last_sequence", "run", "seen", "timestamp")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=_BATCHES_KEPT)
        self.last_sequence = _NONE
        self.run = 0
        self.timestamp = _NONE
        self.seen = True

    def holds(self, first: int, last: int) -> bool:
        """Whether the log has all these sequence numbers, before the batches that are remembered."""
        if not self.batches:
            return False
        remembered = self.last_sequence - self.batches[0][0] & _LAST_SEQUENCE
        behind = self.last_sequence - last & _LAST_SEQUENCE
        return remembered < behind <= (self.last_sequence - first & _LAST_SEQUENCE) < self.run


class ProducerStates:
    """Every producer that appended to this log and was not idle for too long."""

    __slots__ = ("_directory", "_states", "_storage")

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._states: dict[int, ProducerState] = {}

    def active(self) -> list[tuple[int, int, int, int]]:
        """(producer id, epoch, last sequence, time of its last batch or -1) of each that is remembered."""
        return [
            (producer_id, state.epoch, state.last_sequence, state.timestamp)
            for producer_id, state in self._states.items()
        ]

    def __len__(self) -> int:
        return len(self._states)

    # ---- per batch

    def check(self, header: Header) -> int:
        """What to do with a leader's batch of an idempotent producer.

        APPEND; >= 0: a duplicate, the base offset it already has; WRITTEN: one older than those; UNKNOWN:
        append it too, for what was known of the producer can have expired (KIP-360), unless its first batches
        may be about to come; else minus the Kafka error code.
        """
        state = self._states.get(header[9])
        if state is None:
            return UNKNOWN if header[11] else APPEND
        epoch, first = header[10], header[11]
        if epoch == state.epoch:
            before = state.last_sequence
            if first == before + 1 or (first == 0 and before == _LAST_SEQUENCE):
                return APPEND
            last = first + header[6] & _LAST_SEQUENCE
            for known_first, known_last, base_offset in state.batches:
                if known_first == first and known_last == last:
                    return base_offset
            return WRITTEN if state.holds(first, last) else _OUT_OF_ORDER
        if epoch < state.epoch:
            return _FENCED
        return APPEND if first == 0 else _OUT_OF_ORDER

    def written_below(self, producer_id: int) -> int:
        """The offset below which the log has what is WRITTEN: that of the oldest batch that is remembered."""
        return self._states[producer_id].batches[0][2]

    def update(self, header: Header, base_offset: int) -> None:
        """The batch is in the log at this offset. `header` is of a batch with a producer id."""
        epoch = header[10]
        state = self._states.get(header[9])
        if state is None or state.epoch != epoch:
            state = self._states[header[9]] = ProducerState(epoch)
        state.seen = True
        state.timestamp = header[8]
        first = header[11]
        if first < 0:  # a transaction marker: it may raise the epoch and has no sequence
            return
        follows = first == state.last_sequence + 1 & _LAST_SEQUENCE
        state.run = min((state.run if follows else 0) + header[6] + 1, _RUN_MAX)
        last = state.last_sequence = first + header[6] & _LAST_SEQUENCE
        state.batches.append((first, last, base_offset))

    def expire(self, wall_ms: int, expiration_ms: int) -> None:
        """Forget producers whose last batch is that old and who sent nothing since the last call."""
        idle = [
            producer_id
            for producer_id, state in self._states.items()
            if not state.seen and wall_ms - state.timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self._states[producer_id]
        for state in self._states.values():
            state.seen = False

    # ---- snapshots

    def clear(self) -> None:
        """Forget everything, the snapshots too."""
        self._states.clear()
        for offset in self.snapshot_offsets():
            self._remove(offset)

    def snapshot(self, offset: int) -> None:
        """Write `<offset>.snapshot`; the state must be that of a log which ends at the offset."""
        self._storage.write_atomically(self._path(offset), self.encode(), sync=False)

    def restore(self, offset: int) -> int:
        """Load the newest snapshot not above the offset; the offset to scan the log from (-1: its start).

        Newer snapshots belong to a log that is gone and are removed, as are unreadable ones.
        """
        self._states.clear()
        for snapshot in reversed(self.snapshot_offsets()):
            if snapshot <= offset and self._load(snapshot):
                return snapshot
            self._remove(snapshot)
        return -1

    def keep_snapshots(self, offsets: set[int]) -> None:
        """Remove all snapshots but the newest and those of these (segment base) offsets."""
        for offset in self.snapshot_offsets()[:-1]:
            if offset not in offsets:
                self._remove(offset)

    def snapshot_offsets(self) -> list[int]:
        """Offsets that have a snapshot file, rising."""
        names = (
            name[: -len(SUFFIX)]
            for name in self._storage.names(self._directory)
            if name.endswith(SUFFIX)
        )
        return sorted(int(name) for name in names if name.isdecimal())

    def encode(self) -> bytes:
        """Kafka's snapshot, version 1. It holds the last batch of each producer only."""
        entries = b"".join(starmap(_encode, self._states.items()))
        data = _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self._states)) + entries
        return (
            _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(data[_CRC_END:]), len(self._states))
            + entries
        )

    def _load(self, offset: int) -> bool:
        try:
            states = _decode(self._storage.read(self._path(offset)))
        except ValueError as error:
            logger.warning("producer snapshot %s is not used: %s", self._path(offset), error)
            return False
        except StorageFailed as failure:
            if isinstance(failure.cause, FileNotFoundError):
                return False
            raise
        self._states = states
        return True

    def _remove(self, offset: int) -> None:
        self._storage.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}{SUFFIX}"


def _encode(producer_id: int, state: ProducerState) -> bytes:
    first, last, base_offset = state.batches[-1] if state.batches else (_NONE, _NONE, _NONE)
    delta = last - first & _LAST_SEQUENCE
    return _SNAPSHOT_ENTRY.pack(
        producer_id, state.epoch, last, base_offset + delta, delta, state.timestamp, _NONE, _NONE
    )


def _decode(data: bytes) -> dict[int, ProducerState]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise ValueError("cut off")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION or crc32c(data[_CRC_END:]) != crc:
        raise ValueError("unknown version or wrong CRC")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise ValueError("cut off")
    states = {}
    for entry in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, last, last_offset, delta, timestamp, _, _ = entry
        state = states[producer_id] = ProducerState(epoch)
        state.timestamp = timestamp
        if last >= 0:
            state.last_sequence = last
            state.run = delta + 1
            state.batches.append((last - delta & _LAST_SEQUENCE, last, last_offset - delta))
    return states
