"""The transaction coordinator of a broker, and the markers that it sends."""

from minikafka.broker.coordinators.transactions.service import (
    TransactionHost,
    transactions_topic,
)

__all__ = ["TransactionHost", "transactions_topic"]
