"""InitProducerId with a transactional id: new ids, raised epochs, fencing, and recovery (KIP-360)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from minikafka.base.coordinators import Caller
from minikafka.base.errors import ErrorCode
from minikafka.transactions.ending import Ending
from minikafka.transactions.messages.requests import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
)
from minikafka.transactions.messages.responses import InitProducerIdResponse
from minikafka.transactions.outbox import Outbox
from minikafka.transactions.settings import TransactionSettings
from minikafka.transactions.state.metadata import (
    Metadata,
    created,
    initialized,
    is_exhausted,
    next_epochs,
)
from minikafka.transactions.state.picture import Picture
from minikafka.transactions.state.records import is_too_long
from minikafka.transactions.state.transactional_id import TransactionalId
from minikafka.transactions.states import TransactionState


class Initialization:
    """The requests of producers that start, or that recover after an error."""

    def __init__(
        self,
        settings: TransactionSettings,
        picture: Picture,
        outbox: Outbox,
        ending: Ending,
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._picture = picture
        self._outbox = outbox
        self._ending = ending
        self._wall_ms = wall_ms

    def init(self, request: InitProducerIdRequest, caller: Caller) -> None:
        """Process an InitProducerId."""
        txn = self._picture.ids.get(request.transactional_id)
        error = self._refusal(request) or self._conflict(txn, request)
        if error:
            self._refuse(caller, error)
        elif txn is None:
            txn = self._picture.create(request.transactional_id)
            self._outbox.allocate(txn, partial(self._allocated, txn, request, caller))
        else:
            self._restart(txn, request, caller)

    def _refuse(self, caller: Caller, error: int) -> None:
        self._outbox.answer(caller, InitProducerIdResponse(error))

    def _refusal(self, request: InitProducerIdRequest) -> ErrorCode:
        """Return the error of a request that no coordinator accepts."""
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
        name = request.transactional_id
        if has_id != has_epoch or not name or is_too_long(name):
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def _conflict(self, txn: TransactionalId | None, request: InitProducerIdRequest) -> ErrorCode:
        if txn is None:
            return self._picture.refusal(request.transactional_id)
        if txn.is_busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        assert txn.stored is not None
        return ErrorCode.PRODUCER_FENCED if _is_fenced(request, txn.stored) else ErrorCode.NONE

    def _restart(
        self, txn: TransactionalId, request: InitProducerIdRequest, caller: Caller
    ) -> None:
        stored = txn.stored
        assert stored is not None
        if stored.state is TransactionState.ONGOING:
            self._ending.fence(txn, partial(self._fenced, caller))
            return
        if is_exhausted(stored.producer_epoch) and request.producer_epoch in (
            NO_PRODUCER_EPOCH,
            stored.producer_epoch,
        ):
            self._outbox.allocate(txn, partial(self._allocated, txn, request, caller))
            return
        epochs = next_epochs(stored, request.producer_epoch)
        if epochs is None:
            self._refuse(caller, ErrorCode.PRODUCER_FENCED)
            return
        producer, last_epoch = (stored.producer_id, epochs[0]), epochs[1]
        self._write(txn, self._initialized(stored, producer, last_epoch, request), caller)

    def _initialized(
        self,
        stored: Metadata,
        producer: tuple[int, int],
        last_epoch: int,
        request: InitProducerIdRequest,
    ) -> Metadata:
        return initialized(stored, producer, last_epoch, request.timeout_ms, self._wall_ms())

    def _fenced(self, caller: Caller, error: int) -> None:
        """Let the producer try again after its open transaction is aborted."""
        self._refuse(caller, error or ErrorCode.CONCURRENT_TRANSACTIONS)

    def _allocated(
        self,
        txn: TransactionalId,
        request: InitProducerIdRequest,
        caller: Caller,
        error: int,
        producer_id: int,
    ) -> None:
        """Begin with a new producer id: the transactional id is new, or its epochs are exhausted."""
        if error:
            self._forget_new(txn)
            self._refuse(caller, error)
            return
        if txn.stored is None:
            metadata = created(producer_id, request.timeout_ms, self._wall_ms())
        else:
            last_epoch = request.producer_epoch
            metadata = self._initialized(txn.stored, (producer_id, 0), last_epoch, request)
        self._write(txn, metadata, caller)

    def _write(self, txn: TransactionalId, metadata: Metadata, caller: Caller) -> None:
        def written(error: int, now: int) -> None:
            if error:
                self._forget_new(txn)
                self._refuse(caller, error)
                return
            response = InitProducerIdResponse(0, metadata.producer_id, metadata.producer_epoch)
            self._outbox.answer(caller, response)

        self._outbox.write(txn, metadata, written)

    def _forget_new(self, txn: TransactionalId) -> None:
        """Remove an id whose first record could not be written."""
        if txn.stored is None and self._picture.ids.get(txn.name) is txn:
            self._picture.remove(txn)


def _is_fenced(request: InitProducerIdRequest, stored: Metadata) -> bool:
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
