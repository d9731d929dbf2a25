"""Refusals of batches. After a retriable error for one batch, later batches of the connection are refused too."""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.kafka.records.header import (
    BASE_SEQUENCE,
    HEADER,
    HEADER_BYTES,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from minikafka.storage.replication.early import WAIT_MS
from minikafka.storage.replication.purgatory import MultiProduce

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
"""Producer id, epoch and first sequence number of a batch; the id is -1 if the batch is not idempotent."""
_LAST_SEQUENCE: Final = 0x7FFFFFFF


class BatchRefusal:
    """The refusal of one batch with a retriable error. The refusal applies to later batches too.

    `now`: time of the refusal (monotonic ms). Until the response is sent, the refusal applies to every batch of the
    partition. If the refused batch was the first batch of an idempotent producer, the refusal then applies to the
    producer's later batches for `WAIT_MS`. The client may have sent these batches before it received the response.
    The log would append them, because it does not know the producer. (A log that knows the producer refuses the
    later batches itself, because their sequence numbers are too high.)
    """

    __slots__ = ("error", "is_sent", "producer", "response", "until")

    def __init__(self, error: int, producer: Producer, now: int) -> None:
        self.error = error
        self.producer = producer
        self.until = now + WAIT_MS
        self.response: MultiProduce | None = None
        self.is_sent = False

    def applies_to(self, producer: Producer) -> bool:
        """True if a batch with this producer and first sequence number must be refused too."""
        producer_id, epoch, sequence = producer
        refused_id, refused_epoch, refused_sequence = self.producer
        return not self.is_sent or (
            (producer_id, epoch) == (refused_id, refused_epoch)
            and 0 < (sequence - refused_sequence & _LAST_SEQUENCE) <= _LAST_SEQUENCE // 2
        )

    def is_ended_by(self, producer: Producer) -> bool:
        """True if a batch with this producer and first sequence number ends the refusal.

        Call this only if `applies_to` is False. Then every batch with the refused producer id ends the refusal: it is
        the refused batch sent again, a batch with a lower sequence number, or a batch of another producer epoch.
        """
        return producer[0] == self.producer[0]

    def is_over(self, now: int) -> bool:
        """True if the refusal no longer applies to any batch."""
        producer_id, _, sequence = self.producer
        return self.is_sent and (producer_id < 0 or sequence > 0 or now >= self.until)


def producer_of(field: memoryview) -> Producer:
    """Return the producer of the batch in a records field; (-1, -1, -1) if the batch header is incomplete."""
    if len(field) < HEADER_BYTES:
        return -1, -1, -1
    header = HEADER.unpack_from(field)
    return header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
