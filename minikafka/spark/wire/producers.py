"""Encoding of DescribeProducers v0 and ListTransactions v0 (KIP-664), and parsing of the responses.

The module follows the rules of `protocol`. Both versions are flexible (KIP-482). Kafka 3.0 and later serve them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.record.varints import uvarint
from minikafka.spark.wire.protocol import (
    DESCRIBE_PRODUCERS,
    LIST_TRANSACTIONS,
    NO_TAGS,
    Reader,
    compact_string,
)

__all__ = ["DESCRIBE_PRODUCERS", "LIST_TRANSACTIONS"]

_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


def describe_producers_request(tp: TopicPartition) -> bytes:
    """Return the body of DescribeProducers v0 for one partition."""
    entry = compact_string(tp.topic) + uvarint(2) + _INT32.pack(tp.partition) + NO_TAGS
    return uvarint(2) + entry + NO_TAGS


def parse_open_transactions(answer: memoryview) -> dict[int, int]:
    """Return the first offset of each open transaction in a DescribeProducers v0 response, by producer id."""
    reader = Reader(answer)
    found = {}
    reader.int32()  # throttle time
    for _ in range(reader.compact_count()):
        reader.compact_string()  # topic
        for _ in range(reader.compact_count()):
            reader.int32()  # partition
            reader.int16()  # error
            reader.compact_string()  # message
            for _ in range(reader.compact_count()):
                producer_id = reader.int64()
                for _ in range(2):
                    reader.int32()  # epoch, last sequence number
                reader.int64()  # last timestamp
                reader.int32()  # coordinator epoch
                start = reader.int64()
                reader.skip_tags()
                if start >= 0:
                    found[producer_id] = start
            reader.skip_tags()
        reader.skip_tags()
    return found


def list_transactions_request(producer_id: int) -> bytes:
    """Return the body of ListTransactions v0 for one producer, in any state."""
    return uvarint(1) + uvarint(2) + _INT64.pack(producer_id) + NO_TAGS


def parse_transactional_ids(answer: memoryview) -> list[str]:
    """Return the transactional ids in a ListTransactions v0 response."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    reader.int16()  # error
    for _ in range(reader.compact_count()):
        reader.compact_string()  # unknown filter
    found = []
    for _ in range(reader.compact_count()):
        found.append(reader.compact_string())
        reader.int64()  # producer id
        reader.compact_string()  # state
        reader.skip_tags()
    return found
