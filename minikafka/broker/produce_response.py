"""The response to a Produce request for any number of partitions."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.replication.purgatory import PendingPartition
from minikafka.wire.produce import encode_response

Topics = list[tuple[bytes, list[PendingPartition]]]
"""(topic, its partitions) of one request."""


def encoder(topics: Topics, correlation: int, version: int) -> Callable[[], bytes]:
    """Return the function that encodes the response to a request."""

    def encode() -> bytes:
        rows = [(topic, [_row(part) for part in parts]) for topic, parts in topics]
        return encode_response(correlation, version, rows)

    return encode


def _row(part: PendingPartition) -> tuple[int, int, int, int, int]:
    """Return the fields of one partition in the response."""
    start = part.partition.log.log_start_offset if part.partition is not None else -1
    return part.number, part.error, part.base_offset, part.append_time, start
