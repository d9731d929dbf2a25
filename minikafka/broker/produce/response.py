"""The response to a Produce request for any number of partitions."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.replication.purgatory import PendingPartition
from minikafka.wire.produce import encode_response

Topics = list[tuple[bytes, list[PendingPartition]]]
"""The topics of one Produce request, each with the results of its partitions."""


def encoder(topics: Topics, correlation: int, version: int) -> Callable[[], bytes]:
    """Return a function that encodes the response with the results that `topics` holds when the function is called."""

    def encode() -> bytes:
        rows = [(topic, [_row(part) for part in parts]) for topic, parts in topics]
        return encode_response(correlation, version, rows)

    return encode


def _row(part: PendingPartition) -> tuple[int, int, int, int, int]:
    """Return (number, error code, base offset, append time, log start offset) of one partition."""
    start = part.partition.log.log_start_offset if part.partition is not None else -1
    return part.number, part.error, part.base_offset, part.append_time, start
