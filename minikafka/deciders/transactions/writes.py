"""The two questions of a transactional id: the append of its next record, and the allocation of a producer id."""

from __future__ import annotations

from minikafka.base.coordinators import TRANSACTION_ERRORS, Append
from minikafka.base.errors import ErrorCode
from minikafka.deciders.decider import Outcome, Procedure, Procedures
from minikafka.deciders.transactions.commands import AllocateProducerId
from minikafka.deciders.transactions.context import Context, TransactionalId
from minikafka.deciders.transactions.records import transaction_key, transaction_value
from minikafka.deciders.transactions.states import TransactionMetadata


class Writes:
    """The appends and allocations in progress. An id has at most one of them (`TransactionalId.token`)."""

    def __init__(self, context: Context, procedures: Procedures) -> None:
        self._context = context
        self._procedures = procedures

    def write(self, txn: TransactionalId, metadata: TransactionMetadata | None) -> Procedure[int]:
        """Append the next record of an id; None is a tombstone. Return the error for the client, 0 if it is committed.

        The context has a committed record before the procedure returns.
        """
        value = None if metadata is None else transaction_value(metadata)
        # From here to the outcome the id is busy, so no other record of it can be written, and `stored` stays.
        token = self._begin(txn)
        error: int = yield Append(txn.partition, [(transaction_key(txn.name), value)], token)
        txn.token = None
        if not error:
            if metadata is None:
                self._context.remove(txn)
            else:
                self._context.store(txn, metadata)
        return TRANSACTION_ERRORS.get(error, error)

    def allocate(self, txn: TransactionalId) -> Procedure[int | ErrorCode]:
        """Allocate a producer id for a transactional id. Return the producer id, or the error for the client."""
        producer_id: int | ErrorCode = yield AllocateProducerId(self._begin(txn))
        txn.token = None
        return producer_id

    def _begin(self, txn: TransactionalId) -> int:
        assert txn.token is None, "one change of an id is written at a time"
        txn.token = self._procedures.new_token()
        return txn.token

    def give_up(self, txn: TransactionalId) -> None:
        """End the append or the allocation of an id that this broker no longer coordinates.

        It may still succeed. Its outcome has then no effect: the next coordinator has read the log, or will.
        """
        if txn.token is not None:
            self._procedures.resume(Outcome(txn.token, ErrorCode.NOT_COORDINATOR))
        assert txn.token is None, "an id of another coordinator begins something"
