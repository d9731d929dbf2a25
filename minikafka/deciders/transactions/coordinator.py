"""The transaction coordinator of one broker, for the partitions of `__transaction_state` that the broker leads.

`TransactionCoordinator` is a decider (`deciders/decider.py`), whose host is `TransactionHost`.
Invariants: every caller is answered exactly once. A transaction ends once, as its first committed decision says, and
its markers are sent until every partition that it touched has one. A fenced producer changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from minikafka.base.coordinators import (
    LeadershipBegun,
    LeadershipEnded,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TransactionEnded,
)
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import ClockAdvanced, Outcome, Procedure, Procedures, TimerDue
from minikafka.deciders.transactions.commands import (
    AddPartitionsResponse,
    Command,
    DescribeTransactionsResponse,
    DropMarkers,
    EndResponse,
)
from minikafka.deciders.transactions.context import (
    Context,
    LoadingTransactions,
    TransactionalId,
    TransactionSettings,
)
from minikafka.deciders.transactions.ending import Deadlines, Ending, Waiting
from minikafka.deciders.transactions.events import (
    AddPartitionsRequest,
    DescribeTransactionsRequest,
    EndRequest,
    Event,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MarkersFenced,
    MarkersWritten,
    ProducerRequest,
    VerifyRequest,
)
from minikafka.deciders.transactions.initialization import Initialization
from minikafka.deciders.transactions.reports import describe, list_transactions
from minikafka.deciders.transactions.states import (
    TransactionMetadata,
    TransactionState,
    with_partitions,
)
from minikafka.deciders.transactions.writes import Writes

_STATE = TransactionState


class TransactionCoordinator:
    """The transaction coordinator of one broker. The arguments are those of `Context`. Callers only read `context`."""

    def __init__(
        self,
        settings: TransactionSettings,
        wall_ms: Callable[[], int],
        partition_count: int = 50,
        machine_ms: Callable[[], int] | None = None,
    ) -> None:
        context = self.context = Context(settings, wall_ms, partition_count, machine_ms or wall_ms)
        procedures = self._procedures = Procedures()
        writes = self._writes = Writes(context, procedures)
        self._waiting = Waiting(context, procedures)
        self._ending = Ending(context, procedures, writes, self._waiting)
        self._initialization = Initialization(context, procedures, writes, self._ending)
        self._deadlines = Deadlines(context, procedures, writes, self._waiting, self._ending)

    def handle(self, event: Event, now: int) -> list[Command]:  # noqa: C901, PLR0912
        """Process an event, and return the commands for the host, in their order."""
        assert now >= self.context.now, "time runs back"
        self.context.now = now
        match event:
            case InitProducerIdRequest():
                self._procedures.start(self._initialization.init(event))
            case AddPartitionsRequest():
                self._procedures.start(self._add_partitions(event))
            case VerifyRequest():
                self._procedures.answer(event.caller, self._verify(event))
            case EndRequest():
                self._procedures.start(self._end(event))
            case DescribeTransactionsRequest():
                described = [describe(self.context, name) for name in event.transactional_ids]
                self._procedures.answer(event.caller, DescribeTransactionsResponse(described))
            case ListTransactionsRequest():
                self._procedures.answer(event.caller, list_transactions(self.context, event))
            case MarkersWritten():
                self._ending.markers_written(event)
            case MarkersFenced():
                self._ending.markers_fenced(event)
            case Outcome():
                self._procedures.resume(event)
            case TimerDue():
                self._deadlines.handle()
            case ClockAdvanced():
                self._deadlines.remove_expired_now()
            case LeadershipBegun():
                self._begin_load(event)
            case RecordsRead():
                self._load(event)
            case LoadFinished():
                self._finish_load(event)
            case LeadershipEnded():
                self._drop(event.partition)
            case TransactionEnded():
                pass  # `__transaction_state` has no records of transactions
            case _:
                assert_never(event)
        self._deadlines.start()
        return self._procedures.take()

    def next_deadline(self) -> int | None:
        """Return the time (monotonic ms) of the next `TimerDue`; None if no timer is running."""
        return self._deadlines.next_time()

    # ---- requests of producers

    def _add_partitions(self, request: AddPartitionsRequest) -> Procedure[None]:
        """Write the partitions, also if the transaction has all of them.

        A former coordinator, which does not know yet that it was replaced, must not answer from its old context.
        """
        found = self._find_for(request)
        error: int = ErrorCode.NONE
        if not isinstance(found, ErrorCode) and found[0].is_prepared:
            error = yield from self._waiting.until_complete(found[0])
            found = self._find_for(request)  # the producer may be fenced since, or the id be gone
        if error:
            pass
        elif isinstance(found, ErrorCode):
            error = found
        elif found[0].is_busy:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            txn, stored = found
            txn.client = request.client
            added = frozenset(request.partitions)
            metadata = with_partitions(
                stored, added, self.context.wall_ms(), self.context.machine_ms()
            )
            error = yield from self._writes.write(txn, metadata)
        self._procedures.answer(request.caller, _same_error(request.partitions, error))

    def _verify(self, request: VerifyRequest) -> AddPartitionsResponse:
        found = self._find_for(request)
        if isinstance(found, ErrorCode):
            return _same_error(request.partitions, found)
        txn, stored = found
        if txn.is_prepared:
            return _same_error(request.partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        none, abortable = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
        errors = {tp: none if tp in stored.partitions else abortable for tp in request.partitions}
        return AddPartitionsResponse(errors)

    def _end(self, request: EndRequest) -> Procedure[None]:
        """Write the decision, answer, and send the markers.

        A request for the end that the last transaction had is a repeated one, and succeeds. The last record is then
        written again: a former coordinator must not answer from its old context.
        """
        found = self._find_for(request)
        if isinstance(found, ErrorCode):
            self._procedures.answer(request.caller, EndResponse(found))
            return
        txn, stored = found
        complete = _STATE.COMPLETE_COMMIT if request.committed else _STATE.COMPLETE_ABORT
        error: int = ErrorCode.INVALID_TXN_STATE
        if txn.is_busy:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif stored.state is complete:
            error = yield from self._writes.write(txn, stored)
        elif stored.state is _STATE.ONGOING:
            error = yield from self._ending.decide(txn, request.committed)
        # The answer goes first: the producer need not wait for the markers.
        self._procedures.answer(request.caller, EndResponse(error))
        if not error and txn.is_prepared:
            self._ending.send_markers(txn)

    def _find_for(
        self, request: ProducerRequest
    ) -> tuple[TransactionalId, TransactionMetadata] | ErrorCode:
        """Return the id of a producer's request and its last record, or the error for the producer."""
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self.context.find(request.transactional_id)
        if isinstance(found, ErrorCode):
            return found or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        txn, stored = found
        if stored.producer_id != request.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if txn.producer_epoch != request.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return found

    # ---- the partitions of the topic

    def _begin_load(self, event: LeadershipBegun) -> None:
        """Let the host read a partition, unless this broker led it in an earlier epoch and still has it.

        The later markers then have the new epoch. A load in progress is dropped and starts again.
        """
        partition, epoch = event
        if partition in self.context.epochs:
            self.context.epochs[partition] = epoch
            return
        self.context.loads[partition] = LoadingTransactions(partition, epoch)
        self._procedures.emit(LoadPartition(partition, epoch))

    def _load(self, event: RecordsRead) -> None:
        load = self._load_of(event.partition, event.epoch)
        if load is not None:
            load.add(event.records)

    def _finish_load(self, event: LoadFinished) -> None:
        """Serve a partition, and send the markers of its transactions that are ending."""
        load = self._load_of(event.partition, event.epoch)
        if load is None:
            return
        self.context.partition_count = event.partition_count
        for name in sorted(load.ids.keys() & self.context.ids.keys()):
            # The number of partitions was changed, so two of them have the id. The one that is loaded last counts.
            former = self.context.ids[name]
            self.context.remove(former)
            self._give_up(former)
        for txn in self.context.add_all(load):
            if txn.is_prepared:
                self._ending.send_markers(txn)

    def _load_of(self, partition: int, epoch: int) -> LoadingTransactions | None:
        """Return the load of a partition in this epoch; None if another epoch has begun since, or none is loaded."""
        load = self.context.loads.get(partition)
        return load if load is not None and load.epoch == epoch else None

    def _drop(self, partition: int) -> None:
        """Drop a partition that this broker no longer leads. Callers get NOT_COORDINATOR."""
        for txn in self.context.remove_all(partition):
            self._give_up(txn)
        self._procedures.emit(DropMarkers(partition))

    def _give_up(self, txn: TransactionalId) -> None:
        """Answer NOT_COORDINATOR to the requests about an id that is no longer in the context."""
        assert not self.context.has(txn)
        self._writes.give_up(txn)
        self._waiting.drop(txn)


def _same_error(partitions: Sequence[TopicPartition], error: int) -> AddPartitionsResponse:
    return AddPartitionsResponse(dict.fromkeys(partitions, error))
