"""The transaction coordinator of one broker, for the partitions of `__transaction_state` that the broker leads.

`TransactionCoordinator` is a `Core` (`base/coordinators.py`), which `broker/coordinators/host.py` runs. Invariants:
every caller is answered exactly once. A transaction ends once, as its first committed decision says, and its markers
are sent until every partition that it touched has one. A fenced producer changes nothing more. `now` is monotonic
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from minikafka.base.coordinators import Answer, Caller, LoadedRecord
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.transactions.deadlines import Deadlines
from minikafka.transactions.ending import Ending
from minikafka.transactions.initialization import Initialization
from minikafka.transactions.messages.commands import Command, DropMarkers, EndedTransaction
from minikafka.transactions.messages.requests import (
    AddPartitionsRequest,
    DescribeRequest,
    EndRequest,
    InitProducerIdRequest,
    ListRequest,
    VerifyRequest,
)
from minikafka.transactions.messages.responses import (
    AddPartitionsResponse,
    DescribeResponse,
    EndResponse,
)
from minikafka.transactions.outbox import Outbox
from minikafka.transactions.reports import describe, list_transactions, transactions_with
from minikafka.transactions.settings import TransactionSettings
from minikafka.transactions.state.loading import Load
from minikafka.transactions.state.metadata import Metadata, with_partitions
from minikafka.transactions.state.picture import Picture
from minikafka.transactions.state.transactional_id import TransactionalId
from minikafka.transactions.states import TransactionState
from minikafka.transactions.waiting import Waiting

_STATE = TransactionState


class TransactionCoordinator:
    """The transaction coordinator of one broker.

    `wall_ms` returns Unix milliseconds, for the times in records, the timeouts of transactions, and the expiry of
    ids. `partition_count`: the number of partitions of `__transaction_state`.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        wall_ms: Callable[[], int],
        partition_count: int = 50,
    ) -> None:
        self._wall_ms = wall_ms
        self._picture = Picture(partition_count)
        self._outbox = Outbox(self._picture)
        self._waiting = Waiting()
        self._ending = Ending(self._picture, self._outbox, self._waiting, wall_ms)
        self._initialization = Initialization(
            settings, self._picture, self._outbox, self._ending, wall_ms
        )
        self._deadlines = Deadlines(
            settings, self._picture, self._outbox, self._ending, self._waiting, wall_ms
        )

    @property
    def partition_count(self) -> int:
        """The number of partitions of `__transaction_state`."""
        return self._picture.partition_count

    @partition_count.setter
    def partition_count(self, count: int) -> None:
        self._picture.partition_count = count

    # ---- requests of producers

    def init_producer_id(
        self, request: InitProducerIdRequest, caller: Caller, now: int
    ) -> list[Command]:
        """Process an InitProducerId.

        The coordinator answers when the id and epoch are written, or immediately with an error. If the producer has
        an open transaction, it is aborted, and the answer is CONCURRENT_TRANSACTIONS: the producer tries again.
        """
        self._initialization.init(request, caller)
        return self._take(now)

    def allocated(self, token: int, producer_id: int, error: int, now: int) -> list[Command]:
        """Process the result of the `AllocateProducerId` with this token. `error`: 0 on success."""
        self._outbox.allocated(token, producer_id, error)
        return self._take(now)

    def add_partitions(
        self, request: AddPartitionsRequest, caller: Caller, now: int
    ) -> list[Command]:
        """Process an AddPartitionsToTxn or AddOffsetsToTxn.

        The coordinator answers when the partitions are written, or immediately with an error. It writes them also
        if the transaction has all of them: a former coordinator must not answer from its old picture. While the last
        transaction is ending, the request waits (`waiting.py`).
        """
        found = self._find_for(request)
        if not isinstance(found, ErrorCode) and found[0].is_prepared:
            self._waiting.hold(found[0], partial(self._add_after_wait, request, caller), now)
        else:
            self._add(request, caller)
        return self._take(now)

    def _add_after_wait(self, request: AddPartitionsRequest, caller: Caller, error: int) -> None:
        if error:
            self._outbox.answer(caller, _same_error(request.partitions, error))
        else:
            self._add(request, caller)

    def _add(self, request: AddPartitionsRequest, caller: Caller) -> None:
        def answer(error: int, now: int = 0) -> None:
            self._outbox.answer(caller, _same_error(request.partitions, error))

        found = self._find_for(request)
        if isinstance(found, ErrorCode):
            answer(found)
            return
        txn, stored = found
        if txn.is_busy:
            answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            txn.client = request.client
            added = frozenset(request.partitions)
            self._outbox.write(txn, with_partitions(stored, added, self._wall_ms()), answer)

    def verify(self, request: VerifyRequest, caller: Caller) -> list[Command]:
        """Process a leader's question whether partitions are in a transaction. The coordinator answers immediately."""
        found = self._find_for(request)
        if isinstance(found, ErrorCode):
            return [Answer(caller, _same_error(request.partitions, found))]
        txn, stored = found
        if txn.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
            return [Answer(caller, _same_error(request.partitions, error))]
        none, abortable = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
        errors = {tp: none if tp in stored.partitions else abortable for tp in request.partitions}
        return [Answer(caller, AddPartitionsResponse(errors))]

    def end(self, request: EndRequest, caller: Caller, now: int) -> list[Command]:
        """Process an EndTxn.

        The coordinator answers when the decision is written, or immediately with an error. A request for the end
        that the last transaction had is a repeated one, and succeeds. The last record is then written again: a
        former coordinator must not answer from its old picture.
        """

        def answer(error: int, now: int = now) -> None:
            self._outbox.answer(caller, EndResponse(error))

        found = self._find_for(request)
        if isinstance(found, ErrorCode):
            answer(found)
            return self._take(now)
        txn, stored = found
        if txn.is_busy:
            answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif stored.state is _STATE.ONGOING:
            self._ending.end(txn, request.committed, answer)
        elif stored.state is (
            _STATE.COMPLETE_COMMIT if request.committed else _STATE.COMPLETE_ABORT
        ):
            self._outbox.write(txn, stored, answer)
        else:
            answer(ErrorCode.INVALID_TXN_STATE)
        return self._take(now)

    def _find_for(
        self, request: AddPartitionsRequest | VerifyRequest | EndRequest
    ) -> tuple[TransactionalId, Metadata] | ErrorCode:
        """Return the id of a producer's request and its last record, or the error for the producer."""
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self._picture.find(request.transactional_id)
        if isinstance(found, ErrorCode):
            return found or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        txn, stored = found
        if stored.producer_id != request.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if txn.producer_epoch != request.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return found

    # ---- description and listing

    def describe(self, request: DescribeRequest, caller: Caller, now: int) -> list[Command]:
        """Process a DescribeTransactions. The coordinator answers immediately."""
        described = [describe(self._picture, name) for name in request.transactional_ids]
        return [Answer(caller, DescribeResponse(described))]

    def list_transactions(self, request: ListRequest, caller: Caller, now: int) -> list[Command]:
        """Process a ListTransactions. The coordinator answers immediately."""
        return [Answer(caller, list_transactions(self._picture, request, self._wall_ms()))]

    def explain(self, tp: TopicPartition) -> dict[str, Any]:
        """Return the transactions that have no marker in a partition yet (`reports.transactions_with`)."""
        return transactions_with(self._picture, tp, self._wall_ms())

    # ---- markers

    def markers_written(
        self, ended: EndedTransaction, partitions: Iterable[TopicPartition], now: int
    ) -> list[Command]:
        """Process the report that these partitions have the marker, or were deleted."""
        self._ending.markers_written(ended, partitions)
        return self._take(now)

    def fenced(self, ended: EndedTransaction, now: int) -> list[Command]:
        """Process the report that a partition's leader knows a later coordinator than the marker's."""
        self._ending.fenced(ended)
        return self._take(now)

    # ---- appends and time

    def appended(self, token: int, error: int, now: int) -> list[Command]:
        """Process the result of the `Append` with this token. `error`: 0 if the batch is committed."""
        self._outbox.appended(token, error, now)
        return self._take(now)

    def next_deadline(self) -> int | None:
        return self._deadlines.next_time()

    def handle_timer(self, now: int) -> list[Command]:
        """Process what is due: failed writes, transactions that have timed out, and expired ids."""
        self._deadlines.handle(now)
        return self._take(now)

    def _take(self, now: int) -> list[Command]:
        self._deadlines.start(now)
        return self._outbox.take()

    # ---- partitions

    def begin_load(self, partition: int, epoch: int) -> bool:
        """Begin to load a partition that this broker leads. `epoch`: the leader epoch.

        Return True if the host must read the partition. Return False if it is loaded, because this broker led it in
        an earlier epoch: the later markers have the new epoch. A load in progress is dropped and starts again.
        """
        if partition in self._picture.epochs:
            self._picture.epochs[partition] = epoch
            return False
        self._picture.loads[partition] = Load(partition, epoch)
        return True

    def load(self, partition: int, epoch: int, records: Iterable[LoadedRecord]) -> None:
        """Process the next records of a partition. No effect if no load of this epoch is in progress."""
        load = self._picture.loads.get(partition)
        if load is not None and load.epoch == epoch:
            load.add(records)

    def loaded(self, partition: int, epoch: int, now: int) -> list[Command]:
        """Start to serve a partition, and send the markers of its transactions that are ending.

        The call has no effect if no load of this epoch is in progress.
        """
        load = self._picture.loads.get(partition)
        if load is None or load.epoch != epoch:
            return []
        for txn in self._picture.add_all(load):
            if txn.is_prepared:
                self._ending.resume(txn)
        return self._take(now)

    def transaction_ended(self, partition: int, producer_id: int, committed: bool) -> list[Command]:
        """Do nothing: `__transaction_state` has no records of transactions."""
        return []

    def unload(self, partition: int) -> list[Command]:
        """Drop a partition that this broker no longer leads. Callers get NOT_COORDINATOR."""
        for txn in self._picture.remove_all(partition):
            self._outbox.drop(txn)
            self._waiting.drop(txn)
        self._outbox.add(DropMarkers(partition))
        return self._outbox.take()


def _same_error(partitions: Sequence[TopicPartition], error: int) -> AddPartitionsResponse:
    return AddPartitionsResponse(dict.fromkeys(partitions, error))
