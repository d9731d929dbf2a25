"""The bodies of requests about one partition, and the text of a refusal."""

from __future__ import annotations

from typing import Any, Final

from minikafka.base.model import TopicPartition
from minikafka.client.metadata import Leader
from minikafka.client.network import request
from minikafka.kafka.wire import versions

_SHOWN_RECORDS: Final = 3
"""Number of bad records in the error of a refused batch."""


def produce_request(tp: TopicPartition, batch: bytes, acks: int, timeout_ms: int) -> Any:
    """Return a Produce request with one batch, outside of transactions."""
    partition = {"index": tp.partition, "records": batch}
    return request(
        versions.PRODUCE,
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[{"name": tp.topic, "partition_data": [partition]}],
    )


def offsets_request(
    tp: TopicPartition, leader: Leader, timestamp: int, isolation_level: int
) -> Any:
    """Return a ListOffsets request for one partition; `timestamp`: Unix ms, -1 for the end, -2 for the start."""
    partition = {
        "partition_index": tp.partition,
        "current_leader_epoch": leader.leader_epoch,
        "timestamp": timestamp,
    }
    return request(
        versions.LIST_OFFSETS,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": tp.topic, "partitions": [partition]}],
    )


def refused_batch(tp: TopicPartition, answer: Any) -> str:
    """Return the partition, and the first bad records of its batch with their messages (KIP-467)."""
    bad = answer.record_errors[:_SHOWN_RECORDS]
    return "; ".join(
        [str(tp), *(f"record {one.batch_index}: {one.batch_index_error_message}" for one in bad)]
    )
