"""Encoding of the requests of a transaction (KIP-98), and parsing of the responses.

The module follows the rules of `protocol`. Only OffsetFetch is flexible (KIP-482), because only version 7 waits for
the end of a transaction (KIP-447). Kafka 2.5 and later serve all these versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.record.varints import uvarint
from minikafka.spark.wire.protocol import (
    NO_TAGS,
    Reader,
    by_topic,
    compact_string,
    string,
)

FIND_COORDINATOR: Final = (10, 2)
ADD_PARTITIONS: Final = (24, 1)
ADD_OFFSETS: Final = (25, 1)
END: Final = (26, 1)
TXN_OFFSET_COMMIT: Final = (28, 2)
API_VERSIONS: Final = (18, 0)
"""API key and version of each request of this module. `protocol` has OFFSET_FETCH."""

OF_GROUPS: Final = 0
OF_TRANSACTIONS: Final = 1
"""Kinds of coordinators."""

_PRODUCER: Final = Struct(">qh")
_INT32: Final = Struct(">i")
_OFFSET: Final = Struct(">iqi")
_UNKNOWN_EPOCH: Final = -1
_NOT_ATTEMPTED: Final = ErrorCode.OPERATION_NOT_ATTEMPTED
_API: Final = Struct(">hhh")


class Found(NamedTuple):
    """A FindCoordinator response."""

    error: int
    address: tuple[str, int]


class Outcome(NamedTuple):
    """A response that has nothing but an error code."""

    error: int


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for one partition, with its metadata. Offset -1: there is none."""

    error: int
    offset: int
    metadata: str


class Identity(NamedTuple):
    """A transactional id with its producer id and its epoch."""

    transactional_id: str
    producer_id: int
    epoch: int


def find_coordinator_request(key: str, kind: int) -> bytes:
    """Return the body of FindCoordinator v2. `kind`: `OF_GROUPS` or `OF_TRANSACTIONS`."""
    return string(key) + bytes([kind])


def parse_find_coordinator(answer: memoryview) -> Found:
    """Parse the body of a FindCoordinator v2 response."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    error = reader.int16()
    reader.nullable_string()  # message
    reader.int32()  # broker id
    return Found(error, (reader.string(), reader.int32()))


def add_partitions_request(identity: Identity, partitions: Iterable[TopicPartition]) -> bytes:
    """Return the body of AddPartitionsToTxn v1."""
    return by_topic({tp: (_INT32.pack(tp.partition),) for tp in partitions}, _head(identity))


def parse_add_partitions(answer: memoryview) -> Outcome:
    """Return the first error of an AddPartitionsToTxn v1 or TxnOffsetCommit v2 response that names a cause."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    errors = []
    for _ in range(reader.count()):
        reader.string()  # topic
        for _ in range(reader.count()):
            reader.int32()  # partition
            errors.append(reader.int16())
    return Outcome(_first_cause(errors))


def add_offsets_request(identity: Identity, group: str) -> bytes:
    """Return the body of AddOffsetsToTxn v1."""
    return _head(identity) + string(group)


def end_request(identity: Identity, *, commit: bool) -> bytes:
    """Return the body of EndTxn v1."""
    return _head(identity) + bytes([commit])


def parse_outcome(answer: memoryview) -> Outcome:
    """Return the error of an AddOffsetsToTxn v1 or EndTxn v1 response."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    return Outcome(reader.int16())


def txn_offset_commit_request(
    identity: Identity, group: str, tp: TopicPartition, offset: int, metadata: str
) -> bytes:
    """Return the body of TxnOffsetCommit v2 for one partition, by a client that is no member of the group."""
    entry = _OFFSET.pack(tp.partition, offset, _UNKNOWN_EPOCH) + string(metadata)
    producer = _PRODUCER.pack(identity.producer_id, identity.epoch)
    return by_topic({tp: (entry,)}, string(identity.transactional_id) + string(group) + producer)


def offset_fetch_request(group: str, tp: TopicPartition) -> bytes:
    """Return the body of OffsetFetch v7 for one partition.

    The coordinator refuses the request, as UNSTABLE_OFFSET_COMMIT, while a transaction with an offset is open.
    """
    topic = compact_string(tp.topic) + uvarint(2) + _INT32.pack(tp.partition) + NO_TAGS
    return compact_string(group) + uvarint(2) + topic + bytes([True]) + NO_TAGS


def parse_offset_fetch(answer: memoryview) -> CommittedOffset:
    """Parse the body of an OffsetFetch v7 response for one partition."""
    reader = Reader(answer)
    reader.int32()  # throttle time
    found = []
    for _ in range(reader.compact_count()):
        reader.compact_string()  # topic
        for _ in range(reader.compact_count()):
            reader.int32()  # partition
            offset = reader.int64()
            reader.int32()  # leader epoch
            metadata = reader.compact_string()
            found.append(CommittedOffset(reader.int16(), offset, metadata))
            reader.skip_tags()
        reader.skip_tags()
    error = reader.int16()
    return CommittedOffset(error, -1, "") if error or not found else found[0]


def parse_api_versions(answer: memoryview) -> dict[int, int]:
    """Return the highest version of each request that a broker serves, from an ApiVersions v0 response."""
    reader = Reader(answer)
    reader.int16()  # error
    served = (_API.unpack(reader.take(_API.size)) for _ in range(reader.count()))
    return {key: highest for key, _, highest in served}


def _head(identity: Identity) -> bytes:
    producer = _PRODUCER.pack(identity.producer_id, identity.epoch)
    return string(identity.transactional_id) + producer


def _first_cause(errors: Iterable[int]) -> int:
    """Return the first error other than OPERATION_NOT_ATTEMPTED, which names no cause; else that error, or 0."""
    found = [error for error in errors if error]
    causes = [error for error in found if error != _NOT_ATTEMPTED]
    return next(iter(causes or found), 0)
