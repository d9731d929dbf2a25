"""Bodies of the calls between a transaction coordinator and the leaders of partitions.

Invariant: a value returned by a `decode…` function has the declared types, and every error is a Kafka error code. All
other bodies raise KafkaError(INVALID_REQUEST). A response has the errors in the order of the request's rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.broker.rpc.fields import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    Body,
    as_boolean,
    as_error,
    as_integer,
    as_map,
    as_row,
    as_rows,
    as_text,
    as_topic_partition,
    invalid,
)

WRITE_MARKERS: Final = "write_markers"
"""Call of a coordinator to a leader. Request: the markers of ended transactions. Response: an error per partition, sent
when the markers are committed.
"""
VERIFY_TRANSACTIONS: Final = "verify_transactions"
"""Call of a leader to a coordinator. Request: producers, each with partitions. Response: for each partition, an error
that is 0 if the producer's open transaction contains it.
"""
CALLS: Final = frozenset({WRITE_MARKERS, VERIFY_TRANSACTIONS})
_TRANSACTIONAL_ID: Final = re.compile(r"(?s).{0,32767}")

Errors = Sequence[Sequence[int]]
"""For each row of a request, the error code of each of its partitions."""


class MarkerRow(NamedTuple):
    """One marker, and the partitions that get it: each with the leader epoch in the sender's metadata.

    A leader in another epoch refuses the marker. `coordinator_epoch`: the leader epoch of the coordinator.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: Sequence[tuple[TopicPartition, int]]


class VerifyRow(NamedTuple):
    """The question whether the open transaction of a producer contains these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]


def encode_markers(rows: Iterable[MarkerRow]) -> Body:
    """Return the body of the call `write_markers`."""
    return {"markers": [[*row[:4], [[*tp, epoch] for tp, epoch in row.partitions]] for row in rows]}


def decode_markers(body: object) -> tuple[MarkerRow, ...]:
    """Return the markers in the body of the call `write_markers`. Raises KafkaError(INVALID_REQUEST)."""
    return as_rows(as_map(body, {"markers": []})["markers"], _marker)


def encode_verifications(rows: Iterable[VerifyRow]) -> Body:
    """Return the body of the call `verify_transactions`."""
    return {"producers": [[*row[:3], [list(tp) for tp in row.partitions]] for row in rows]}


def decode_verifications(body: object) -> tuple[VerifyRow, ...]:
    """Return the questions in the body of the call `verify_transactions`. Raises KafkaError(INVALID_REQUEST)."""
    return as_rows(as_map(body, {"producers": []})["producers"], _verification)


def encode_errors(errors: Errors) -> Body:
    """Return the response to both calls."""
    return {"errors": [[int(error) for error in row] for row in errors]}


def decode_errors(body: object, lengths: Sequence[int]) -> Errors:
    """Return the errors in the response. Raises KafkaError(INVALID_REQUEST).

    `lengths`: for each row of the request, the number of its partitions.
    """
    unknown = [[int(ErrorCode.UNKNOWN_SERVER_ERROR)] * length for length in lengths]
    rows = as_map(body, {"errors": unknown})["errors"]
    found = [list(as_rows(row, as_error)) for row in as_rows(rows, _same)]
    if [len(row) for row in found] != list(lengths):
        raise invalid("the errors do not fit the partitions of the request")
    return found


def _same(row: object) -> object:
    return row


def _marker(row: object) -> MarkerRow:
    producer_id, producer_epoch, coordinator_epoch, committed, partitions = as_row(row, 5)
    return MarkerRow(
        as_integer(producer_id, 0, INT64_MAX),
        as_integer(producer_epoch, 0, INT16_MAX),
        as_integer(coordinator_epoch, 0, INT32_MAX),
        as_boolean(committed),
        as_rows(partitions, _partition_and_epoch),
    )


def _partition_and_epoch(row: object) -> tuple[TopicPartition, int]:
    *tp, epoch = as_row(row, 3)
    return as_topic_partition(tp), as_integer(epoch, 0, INT32_MAX)


def _verification(row: object) -> VerifyRow:
    transactional_id, producer_id, producer_epoch, partitions = as_row(row, 4)
    return VerifyRow(
        as_text(transactional_id, _TRANSACTIONAL_ID),
        as_integer(producer_id, 0, INT64_MAX),
        as_integer(producer_epoch, -1, INT16_MAX),
        as_rows(partitions, as_topic_partition),
    )
