"""The state of each producer id of one log, in little memory, and the number of ids that a broker may keep.

Only the few producers that have appended last are objects. All others are packed into bytes: 180 bytes per producer
with one remembered batch instead of a kilobyte. A client can use a new producer id for every batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import starmap
from struct import Struct
from typing import Final

logger = logging.getLogger(__name__)

NONE: Final = -1
LAST_SEQUENCE: Final = 0x7FFFFFFF
BATCHES_KEPT: Final = 5
UNPACKED_MAX: Final = 32
"""Maximum number of producers of a log that are objects. If more producers append in turn, their states are packed
and unpacked, which takes 3 µs per batch."""

_HEAD: Final = Struct(">qIhiiq")
"""Fields of a packed state: timestamp, round, epoch, `run`, coordinator epoch, first offset of the open transaction.
The batches follow."""
_BATCH: Final = Struct(">iiq")
"""Fields: first sequence, last sequence, base offset."""


class ProducerStateEntry:
    """State of one producer id: its epoch, and its last batches as (first sequence, last sequence, base offset).

    `run` counts the consecutive sequence numbers, up to `last_sequence`, that are known to be in the log. `round`
    is the round (`ProducerTable.round`) of the producer's last append. `transaction_start` is the first offset of
    the open transaction, -1 if none is open. `coordinator_epoch` is the transaction coordinator's epoch in the
    producer's last marker, -1 without a marker.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_sequence",
        "round",
        "run",
        "timestamp",
        "transaction_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = self.transaction_start = NONE
        self.batches: list[tuple[int, int, int]] = []
        self.last_sequence = NONE
        self.run = 0
        self.timestamp = NONE
        self.round = 0

    def holds(self, first: int, last: int) -> bool:
        """True if the log has the sequence numbers `first` to `last`, and `last` precedes every batch in `batches`."""
        if not self.batches:
            return False
        oldest_first, _, _ = self.batches[0]
        remembered = self.last_sequence - oldest_first & LAST_SEQUENCE
        behind = self.last_sequence - last & LAST_SEQUENCE
        return remembered < behind <= (self.last_sequence - first & LAST_SEQUENCE) < self.run

    def last_offset(self) -> int:
        """Return the last offset of the newest remembered batch, -1 if no batch is remembered."""
        if not self.batches:
            return NONE
        first, last, base_offset = self.batches[-1]
        return base_offset + (last - first & LAST_SEQUENCE)


def _pack(state: ProducerStateEntry) -> bytes:
    head = _HEAD.pack(
        state.timestamp,
        state.round,
        state.epoch,
        state.run,
        state.coordinator_epoch,
        state.transaction_start,
    )
    return head + b"".join(starmap(_BATCH.pack, state.batches))


def _unpack(data: bytes) -> ProducerStateEntry:
    timestamp, round_, epoch, run, coordinator_epoch, transaction_start = _HEAD.unpack_from(data)
    state = ProducerStateEntry(epoch)
    state.timestamp, state.round, state.run = timestamp, round_, run
    state.coordinator_epoch, state.transaction_start = coordinator_epoch, transaction_start
    state.batches = list(_BATCH.iter_unpack(data[_HEAD.size :]))
    if state.batches:
        state.last_sequence = state.batches[-1][1]
    return state


class ProducerRoom:
    """The number of producer ids that all logs of a broker keep, and its maximum (`minikafka.producer.ids.max`).

    `begin_round` counts the ids again, because logs can be deleted.
    """

    __slots__ = ("_is_refusing", "count", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.count = 0
        self._is_refusing = False

    def is_full(self) -> bool:
        """True if no further producer id may be added. The first refusal of a round is logged."""
        if self.count < self.maximum:
            return False
        if not self._is_refusing:
            self._is_refusing = True
            logger.warning(
                "new producer ids are refused: this broker keeps %d, the maximum is minikafka.producer.ids.max=%d",
                self.count,
                self.maximum,
            )
        return True

    def begin_round(self, count: int) -> None:
        """Set the number of ids, which the caller has counted."""
        self.count = count
        self._is_refusing = False


class ProducerTable:
    """The states of one log's producers by producer id. A state that `get` returns is valid until the next call.

    Time is counted in rounds. `expire` begins the next round.
    """

    __slots__ = ("_oldest", "_packed", "_unpacked", "room", "round")

    def __init__(self, room: ProducerRoom) -> None:
        self.room = room
        self.round = 0
        self._unpacked: dict[int, ProducerStateEntry] = {}
        self._packed: dict[int, bytes] = {}
        """The packed states. Except for the last `UNPACKED_MAX`, they are in the order of the last append."""
        self._oldest = 0
        """A lower limit for the timestamps of the packed states."""

    def __len__(self) -> int:
        return len(self._unpacked) + len(self._packed)

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer, None if the producer is unknown."""
        state = self._unpacked.get(producer_id)
        if state is None and producer_id in self._packed:
            state = _unpack(self._packed.pop(producer_id))
            self._add(producer_id, state)
        return state

    def put(self, producer_id: int, state: ProducerStateEntry) -> None:
        """Set the state of a producer, which may be new."""
        if producer_id in self._unpacked:
            self._unpacked[producer_id] = state
            return
        if self._packed.pop(producer_id, None) is None:
            self.room.count += 1
        self._add(producer_id, state)

    def _add(self, producer_id: int, state: ProducerStateEntry) -> None:
        if len(self._unpacked) >= UNPACKED_MAX:
            oldest = min(known.timestamp for known in self._unpacked.values())
            self._oldest = min(self._oldest, oldest) if self._packed else oldest
            for known_id, known in self._unpacked.items():
                self._packed[known_id] = _pack(known)
            self._unpacked.clear()
        self._unpacked[producer_id] = state

    def items(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        """Yield (producer id, state) of each producer that is known from the beginning of the iteration to its end."""
        for producer_id in [*self._packed, *self._unpacked]:
            state = self._unpacked.get(producer_id)
            if state is None and producer_id in self._packed:
                state = _unpack(self._packed[producer_id])
            if state is not None:
                yield producer_id, state

    def clear(self) -> None:
        """Forget every producer."""
        self.room.count -= len(self)
        self._unpacked.clear()
        self._packed.clear()

    def expire(self, newest: int) -> None:
        """Forget the idle producers whose last timestamp is at most `newest`, and begin the next round.

        A producer is idle if it has appended nothing in this round and has no open transaction.
        """
        idle = [
            producer_id
            for producer_id, state in self._unpacked.items()
            if state.round < self.round
            and state.transaction_start < 0
            and state.timestamp <= newest
        ]
        if self._packed and self._oldest <= newest:
            heads = {one: _HEAD.unpack_from(data) for one, data in self._packed.items()}
            idle += [
                producer_id
                for producer_id, (timestamp, round_, *_, transaction_start) in heads.items()
                if round_ < self.round and transaction_start < 0 and timestamp <= newest
            ]
            self._oldest = min(timestamp for timestamp, *_ in heads.values())
        self._forget(idle)
        self.round += 1

    def forget_idle(self, rounds: int, most: int) -> None:
        """Forget up to `most` producers without an open transaction that have not appended for `rounds` whole rounds.

        Those that have not appended for the longest are the first.
        """
        limit = self.round - rounds
        idle: list[int] = []
        for producer_id, data in self._packed.items():
            _, round_, *_, transaction_start = _HEAD.unpack_from(data)
            if round_ >= limit or len(idle) >= most:
                break
            if transaction_start < 0:
                idle.append(producer_id)
        idle += [
            producer_id
            for producer_id, state in self._unpacked.items()
            if state.round < limit and state.transaction_start < 0
        ]
        self._forget(idle[:most])

    def _forget(self, producer_ids: list[int]) -> None:
        for producer_id in producer_ids:
            if self._packed.pop(producer_id, None) is None:
                del self._unpacked[producer_id]
        self.room.count -= len(producer_ids)
