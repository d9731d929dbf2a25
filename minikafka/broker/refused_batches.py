"""Batches that were refused with a retriable error, and what that means for the later ones of a connection."""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.record.batch import (
    BASE_SEQUENCE,
    HEADER,
    HEADER_BYTES,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from minikafka.replication.early import WAIT_MS
from minikafka.replication.purgatory import MultiProduce

RETRIABLE: Final = frozenset(
    map(
        int,
        (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        ),
    )
)
"""Errors after which a client sends the same batch again."""
Producer = tuple[int, int, int]
"""Producer id, epoch and first sequence number of a batch; producer id -1 without a producer."""
_LAST_SEQUENCE: Final = 0x7FFFFFFF


class Refusal:
    """A batch that was refused with a retriable error at `now` (monotonic ms).

    It applies to every batch of the partition until the response is sent. If it was the first batch of an idempotent
    producer, it then applies to the producer's later ones for `WAIT_MS`: the client may have sent them before it
    received the response, and the log, which does not know the producer, would take them. (Those of a known producer
    come too early for the log.)
    """

    __slots__ = ("error", "is_sent", "producer", "response", "until")

    def __init__(self, error: int, producer: Producer, now: int) -> None:
        self.error = error
        self.producer = producer
        self.until = now + WAIT_MS
        self.response: MultiProduce | None = None
        self.is_sent = False

    def applies_to(self, producer: Producer) -> bool:
        """True if this batch is refused too."""
        producer_id, epoch, sequence = producer
        refused_id, refused_epoch, refused_sequence = self.producer
        return not self.is_sent or (
            (producer_id, epoch) == (refused_id, refused_epoch)
            and 0 < (sequence - refused_sequence & _LAST_SEQUENCE) <= _LAST_SEQUENCE // 2
        )

    def is_ended_by(self, producer: Producer) -> bool:
        """True if this batch, to which it does not apply, is the refused one or an earlier one of its producer."""
        return producer[0] == self.producer[0]

    def is_over(self, now: int) -> bool:
        """True if it applies to no batch any more."""
        producer_id, _, sequence = self.producer
        return self.is_sent and (producer_id < 0 or sequence > 0 or now >= self.until)


def producer_of(buf: bytearray, start: int, end: int) -> Producer:
    """Return the producer of the batch [start, end); -1 three times if there is no whole header."""
    if end - start < HEADER_BYTES:
        return -1, -1, -1
    header = HEADER.unpack_from(buf, start)
    return header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
