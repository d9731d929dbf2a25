"""The partitions of a fetch as tuples, which cost less than objects: in requests plain ones, in responses named ones.

The leader's sessions (`replication`) and the wire protocol (`wire`) both use this module, because they must not
import each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.ports import Slice

RequestRow: TypeAlias = tuple[int, int, int, int, int, int]
"""Fields: partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes."""
PARTITION: Final = 0
FETCH_OFFSET: Final = 2

AbortedTransactions: TypeAlias = Sequence[tuple[int, int]]
"""(producer id, first offset) of each aborted transaction in the records, for read_committed consumers."""


class PartitionData(NamedTuple):
    """One partition of a Fetch response.

    `slices`: the records, `size` bytes in total. `diverging`: KIP-595's diverging epoch and its end offset, or None.
    `aborted`: the aborted transactions for isolation level read_committed, otherwise None. `preferred`: the broker to
    read from instead of this one, or -1.
    """

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    slices: Sequence[Slice]
    size: int
    diverging: tuple[int, int] | None = None
    aborted: AbortedTransactions | None = None
    preferred: int = -1
