"""The batches of one partition that are not acknowledged yet, and the order in which they are sent (KIP-98).

Invariants:
- The sequence number of a row is set when the row is encoded, and never changes.
- At most the first five batches of a backlog may have been sent. A broker recognizes as duplicates only
  the last five batches of a producer. So it recognizes each batch that is sent again.
- The first batch of a partition is sent alone. A broker that does not know the producer yet may append any batch,
  so a second batch could get ahead of the first one.
- After an error, no batch of the partition is sent until the broker has answered every batch in flight, or its
  connection is closed. Then all batches that are not acknowledged are sent again, in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.spark.records.encode import Rows

_GAP_BEFORE: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


@dataclass(eq=False)
class Batch:
    """An encoded batch. `size`: its approximate number of bytes before compression."""

    sequence: int
    size: int
    data: bytearray
    rows: Rows | None = None
    """The rows from which the batch was encoded; None if another process has encoded it."""
    is_in_flight: bool = False
    is_written: bool = False
    base_offset: int = -1
    """The offset of the first record, after the broker has acknowledged the batch. Then the content is dropped."""


class Backlog:
    """The batches of one partition, in order of their sequence numbers. `most`: maximum number in flight, 1 to 5."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._batches: deque[Batch] = deque()
        self._is_known = False
        """True if the brokers know the producer: a batch of this partition was acknowledged."""
        self._must_wait = False
        """True after an error, until no batch is in flight."""
        self.in_flight = 0
        """The number of batches in flight."""
        self.needs_leader = False
        """True if the leader must be looked up again before batches are sent."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def is_stuck(self) -> bool:
        """True if the leader must be looked up, and no batch is in flight."""
        return self.needs_leader and not self.in_flight

    def add(self, batch: Batch) -> None:
        """Add a batch at the end."""
        self._batches.append(batch)

    def next_batch(self) -> Batch | None:
        """Return the batch to send now; None if none may be sent."""
        if self._must_wait or self.needs_leader:
            return None
        most = self._most if self._is_known else 1
        for batch in islice(self._batches, most):
            if not (batch.is_in_flight or batch.is_written):
                return batch
        return None

    def sent(self, batch: Batch) -> None:
        """Note that a batch was sent."""
        batch.is_in_flight = True
        self.in_flight += 1

    def lost(self, batch: Batch) -> None:
        """Let a batch be sent again, because the answer of the broker is missing or lacks the partition."""
        self._failed(batch)
        self.needs_leader = True

    def refused(self, batch: Batch, error: int) -> None:
        """Let a batch be sent again, because the broker refused it with an error that a retry can fix."""
        self._failed(batch)
        self.needs_leader |= not self.has_gap_before(batch, error)

    def has_gap_before(self, batch: Batch, error: int) -> bool:
        """True if a batch was refused only because an earlier batch was not written."""
        return error in _GAP_BEFORE and batch is not self._batches[0]

    def written(self, batch: Batch) -> int:
        """Handle an acknowledgement. Return the size of the batches that left the backlog."""
        batch.is_written = self._is_known = True
        self._landed(batch)
        freed = 0
        while self._batches and self._batches[0].is_written:
            left = self._batches.popleft()
            left.data, left.rows = bytearray(), None  # its owner may keep it for its offset
            freed += left.size
        return freed

    def _failed(self, batch: Batch) -> None:
        self._must_wait = True
        self._landed(batch)

    def _landed(self, batch: Batch) -> None:
        batch.is_in_flight = False
        self.in_flight -= 1
        self._must_wait &= self.in_flight > 0

    def replace(self, batch: Batch, halves: tuple[Batch, Batch]) -> None:
        """Replace a batch that is too large by two halves, which are sent later."""
        at = self._batches.index(batch)
        self._batches[at] = halves[0]
        self._batches.insert(at + 1, halves[1])
        self._failed(batch)
