"""InitProducerId with a transactional id: new ids, raised epochs, fencing, and recovery (KIP-360)."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.deciders.decider import Procedure, Procedures
from minikafka.deciders.transactions.commands import InitProducerIdResponse
from minikafka.deciders.transactions.context import Context, TransactionalId
from minikafka.deciders.transactions.ending import Ending
from minikafka.deciders.transactions.events import InitProducerIdRequest
from minikafka.deciders.transactions.records import is_too_long
from minikafka.deciders.transactions.states import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
    created,
    initialized,
    is_exhausted,
    next_epochs,
)
from minikafka.deciders.transactions.writes import Writes


class Initialization:
    """The requests of producers that start, or that recover after an error."""

    def __init__(
        self, context: Context, procedures: Procedures, writes: Writes, ending: Ending
    ) -> None:
        self._context = context
        self._procedures = procedures
        self._writes = writes
        self._ending = ending

    def init(self, request: InitProducerIdRequest) -> Procedure[None]:
        """Process an InitProducerId."""
        txn = self._context.ids.get(request.transactional_id)
        error: int = self._refusal(request) or self._conflict(txn, request)
        if error:
            self._refuse(request, error)
            return
        if txn is None:
            txn = self._context.create(request.transactional_id)
        elif txn.record.state is TransactionState.ONGOING:
            yield from self._abort(txn, request)
            return
        metadata = yield from self._next_record(txn, request)
        if isinstance(metadata, ErrorCode):
            error = metadata
        else:
            error = yield from self._writes.write(txn, metadata)
        if isinstance(metadata, ErrorCode) or error:
            self._forget_new(txn)
            self._refuse(request, error)
            return
        response = InitProducerIdResponse(0, metadata.producer_id, metadata.producer_epoch)
        self._procedures.answer(request.caller, response)

    def _refuse(self, request: InitProducerIdRequest, error: int) -> None:
        self._procedures.answer(request.caller, InitProducerIdResponse(error))

    def _refusal(self, request: InitProducerIdRequest) -> ErrorCode:
        """Return the error of a request that no coordinator accepts."""
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
        name = request.transactional_id
        if has_id != has_epoch or not name or is_too_long(name):
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.timeout_ms <= self._context.settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def _conflict(self, txn: TransactionalId | None, request: InitProducerIdRequest) -> ErrorCode:
        if txn is None:
            return self._context.refusal(request.transactional_id)
        if txn.is_busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.PRODUCER_FENCED if _is_fenced(request, txn.record) else ErrorCode.NONE

    def _abort(self, txn: TransactionalId, request: InitProducerIdRequest) -> Procedure[None]:
        """Abort the open transaction. The producer tries again after it."""
        error = yield from self._ending.fence(txn)
        self._refuse(request, error or ErrorCode.CONCURRENT_TRANSACTIONS)
        if not error:
            self._ending.send_markers(txn)

    def _next_record(
        self, txn: TransactionalId, request: InitProducerIdRequest
    ) -> Procedure[TransactionMetadata | ErrorCode]:
        """Return the record with the producer's id and epoch, or the error for the producer.

        A new producer id is allocated for a new transactional id, and if the epochs of the old producer id are
        exhausted.
        """
        stored, timeout_ms, wall_ms = txn.stored, request.timeout_ms, self._context.wall_ms
        is_last = stored is not None and request.producer_epoch in (
            NO_PRODUCER_EPOCH,
            stored.producer_epoch,
        )
        if stored is None or (is_last and is_exhausted(stored.producer_epoch)):
            producer_id = yield from self._writes.allocate(txn)
            if isinstance(producer_id, ErrorCode):
                return producer_id
            if stored is None:
                return created(producer_id, timeout_ms, wall_ms())
            last_epoch = request.producer_epoch
            return initialized(stored, (producer_id, 0), last_epoch, timeout_ms, wall_ms())
        epochs = next_epochs(stored, request.producer_epoch)
        if epochs is None:
            return ErrorCode.PRODUCER_FENCED
        producer, last_epoch = (stored.producer_id, epochs[0]), epochs[1]
        return initialized(stored, producer, last_epoch, timeout_ms, wall_ms())

    def _forget_new(self, txn: TransactionalId) -> None:
        """Remove an id whose first record could not be written."""
        if txn.stored is None and self._context.has(txn):
            self._context.remove(txn)


def _is_fenced(request: InitProducerIdRequest, stored: TransactionMetadata) -> bool:
    """True if the producer has an id and epoch, and another producer has started since.

    Only the producer of an open transaction may abort it. Kafka 3.9 lets a fenced producer do so, too. Between
    transactions, the epoch is checked when it is raised. A producer whose epochs were exhausted may still send its
    former id, if it did not receive the response with the new one.
    """
    producer = (request.producer_id, request.producer_epoch)
    if request.producer_id == NO_PRODUCER_ID:
        return False
    if not stored.is_between:
        return producer != (stored.producer_id, stored.producer_epoch)
    if request.producer_id == stored.producer_id:
        return False
    return request.producer_id != stored.last_producer_id or not is_exhausted(
        request.producer_epoch
    )
