"""The leader's checks of batches in transactions: fenced markers, and verification (KIP-890, part 1).

A producer's batch that opens a transaction in a log must be verified first: the transaction coordinator must know the
partition as part of the producer's transaction. Otherwise no marker would ever end the transaction in this log.

Invariant: a guard is valid until the next marker of its producer. So no batch is appended after the marker that ended
the transaction in which the batch was verified.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.kafka.records.batch import end_of_transaction
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    CONTROL,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)
from minikafka.storage.log.producers import ProducerStates

NO_GUARD: Final = 0
"""The guard of a batch that was not verified."""
NOT_TRANSACTIONAL: Final = -1
"""The guard of a batch whose request has no transactional id. A transactional batch with this guard is refused."""
_GUARDS_MAX: Final = 10_000
_FENCED_COORDINATOR: Final = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_FENCED_PRODUCER: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NO_TRANSACTION: Final = int(ErrorCode.INVALID_TXN_STATE)


class Verifications:
    """The verifications that a leader has begun for one partition: one guard for each producer.

    Guards are numbers above 0 that are never used again. If too many producers are verified at once, the oldest guard
    becomes invalid.
    """

    __slots__ = ("_first", "_guards", "_last")

    def __init__(self) -> None:
        self._guards: dict[int, tuple[int, int]] = {}
        """Producer id → (producer epoch, guard)."""
        self._last = self._first = NO_GUARD
        """`_last`: the newest guard. `_first`: the newest guard of this leader's earlier leader epochs."""

    def begin_leader_epoch(self) -> None:
        """Invalidate every guard, because another leader may have appended markers."""
        self._guards.clear()
        self._first = self._last

    def guard_of(self, producers: ProducerStates, header: Header) -> int:
        """Return the guard of a batch whose verification begins, `NO_GUARD` if it needs none.

        Verifications of a producer at the same time share their guard.
        """
        if not header[ATTRIBUTES] & TRANSACTIONAL:
            return NO_GUARD
        return self.guard_for(producers, header[PRODUCER_ID], header[PRODUCER_EPOCH])

    def guard_for(self, producers: ProducerStates, producer_id: int, epoch: int) -> int:
        """Return the guard of a producer's next transactional batch, `NO_GUARD` if its transaction is open."""
        if producers.is_in_transaction(producer_id, epoch):
            return NO_GUARD
        known = self._guards.get(producer_id)
        if known is not None and known[0] == epoch:
            return known[1]
        if len(self._guards) >= _GUARDS_MAX:
            del self._guards[next(iter(self._guards))]
        self._last += 1
        self._guards[producer_id] = epoch, self._last
        return self._last

    def refusal(
        self,
        producers: ProducerStates,
        batch: memoryview,
        header: Header,
        guard: int,
        internal: bool,
    ) -> int:
        """Return the error code of a producer's batch that its transaction does not allow, 0 if it may be appended.

        `internal`: one of the broker's own coordinators wrote the batch. An allowed batch ends its producer's
        verification: it is a marker, or the producer's transaction is open from now on.
        """
        error = _refusal_of_internal(producers, batch, header) if internal else 0
        if not error and not header[ATTRIBUTES] & CONTROL:
            error = self._refusal_of_data(producers, header, guard)
        if not error:
            self._guards.pop(header[PRODUCER_ID], None)
        return error

    def _refusal_of_data(self, producers: ProducerStates, header: Header, guard: int) -> int:
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        is_open = producers.is_in_transaction(producer_id, epoch)
        if not header[ATTRIBUTES] & TRANSACTIONAL:
            return _NO_TRANSACTION if is_open else 0
        if (is_open and guard >= NO_GUARD) or (
            guard and self._guards.get(producer_id) == (epoch, guard)
        ):
            return 0
        return _NOT_LEADER if NO_GUARD < guard <= self._first else _NO_TRANSACTION


def _refusal_of_internal(producers: ProducerStates, batch: memoryview, header: Header) -> int:
    """Return the error code of a coordinator's batch from a former epoch, 0 if the batch is not fenced.

    A marker is fenced if the log has a marker of a later coordinator of the producer's transactional id.
    """
    epoch, coordinator_epoch = producers.epochs_of(header[PRODUCER_ID])
    if header[PRODUCER_EPOCH] < epoch:
        return _FENCED_PRODUCER
    if header[ATTRIBUTES] & CONTROL and end_of_transaction(batch)[1] < coordinator_epoch:
        return _FENCED_COORDINATOR
    return 0
