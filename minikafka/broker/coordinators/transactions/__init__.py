"""The transaction coordinator of a broker, and the markers that it sends."""

from minikafka.broker.coordinators.transactions.service import (
    TransactionService,
    transactions_topic,
)

__all__ = ["TransactionService", "transactions_topic"]
