"""Requests and responses of DescribeProducers v0 and ListTransactions v0 (KIP-664). Kafka 3.0 and later serve them."""

from __future__ import annotations

from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.spark.wire.protocol import decoded, encoded

DESCRIBE_PRODUCERS: Final = (61, 0)
LIST_TRANSACTIONS: Final = (66, 0)
"""API key and version of each request of this module."""


def describe_producers_request(tp: TopicPartition) -> bytes:
    """Return the body of DescribeProducers v0 for one partition."""
    topic = {"name": tp.topic, "partition_indexes": [tp.partition]}
    return encoded(DESCRIBE_PRODUCERS, topics=[topic])


def parse_open_transactions(answer: memoryview) -> dict[int, int]:
    """Return the first offset of each open transaction in a DescribeProducers v0 response, by producer id."""
    return {
        producer.producer_id: producer.current_txn_start_offset
        for topic in decoded(DESCRIBE_PRODUCERS, answer).topics
        for partition in topic.partitions
        for producer in partition.active_producers
        if producer.current_txn_start_offset >= 0
    }


def list_transactions_request(producer_id: int) -> bytes:
    """Return the body of ListTransactions v0 for one producer, in any state."""
    return encoded(LIST_TRANSACTIONS, producer_id_filters=[producer_id])


def parse_transactional_ids(answer: memoryview) -> list[str]:
    """Return the transactional ids in a ListTransactions v0 response."""
    states = decoded(LIST_TRANSACTIONS, answer).transaction_states
    return [state.transactional_id for state in states]
