"""Descriptions and lists of transactional ids (KIP-664, KIP-994)."""

from __future__ import annotations

from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.deciders.transactions.commands import (
    DescribedTransaction,
    ListedTransaction,
    ListTransactionsResponse,
)
from minikafka.deciders.transactions.context import Context
from minikafka.deciders.transactions.events import ListTransactionsRequest
from minikafka.deciders.transactions.states import TransactionMetadata, TransactionState


def describe(context: Context, name: str) -> DescribedTransaction:
    """Return the description of a transactional id. While a transaction ends, it has the partitions without marker."""
    if not name:
        return DescribedTransaction(name, ErrorCode.INVALID_REQUEST)
    found = context.find(name)
    if isinstance(found, ErrorCode):
        return DescribedTransaction(name, found or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    txn, stored = found
    partitions = sorted(txn.remaining if txn.is_prepared else stored.partitions)
    return DescribedTransaction(
        name,
        ErrorCode.NONE,
        stored.state.value,
        stored.timeout_ms,
        stored.started_ms,
        stored.producer_id,
        txn.producer_epoch,
        partitions,
    )


def list_transactions(
    context: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Return the transactional ids that pass the filters of the request."""
    if context.loads:
        return ListTransactionsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    names = {state.value for state in TransactionState}
    unknown = [name for name in request.states if name not in names]
    listed = [
        ListedTransaction(txn.name, txn.stored.producer_id, txn.stored.state.value)
        for txn in context.ids.values()
        if txn.stored is not None and _passes(txn.stored, request, context.machine_ms())
    ]
    return ListTransactionsResponse(ErrorCode.NONE, unknown, listed)


def transactions_with(context: Context, tp: TopicPartition) -> dict[str, Any]:
    """Return the transactions without marker in a partition, as JSON-able values for `minikafka why`.

    `coordinator_epoch` shows the newest of several brokers that coordinate an id. `age_ms`: time since the start of
    the transaction. `loading`: True if some transactions are not known yet.
    """
    found = [
        {
            "transactional_id": txn.name,
            "producer_id": txn.stored.producer_id,
            "client": txn.client or None,
            "coordinator_epoch": context.epochs.get(txn.partition, NO_EPOCH),
            "state": txn.stored.state.value,
            "age_ms": max(context.machine_ms() - txn.stored.started_ms, 0),
            "timeout_ms": txn.stored.timeout_ms,
        }
        for txn in context.ids.values()
        if txn.stored is not None
        if tp in (txn.remaining if txn.is_prepared else txn.stored.partitions)
    ]
    return {"open": found, "loading": bool(context.loads)}


def _passes(stored: TransactionMetadata, request: ListTransactionsRequest, now_ms: int) -> bool:
    """True if an id passes all filters. As in Kafka, an id that never had a transaction passes every duration."""
    if request.producer_ids and stored.producer_id not in request.producer_ids:
        return False
    if request.states and stored.state.value not in request.states:
        return False
    return request.min_duration_ms < 0 or now_ms - stored.started_ms > request.min_duration_ms
