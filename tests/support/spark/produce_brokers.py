"""`FetchBrokers` that also serve the Spark sink: InitProducerId v1 and Produce v8, with acks=all only.

The brokers handle sequence numbers as Kafka does: a batch that is already in the log is acknowledged and not appended
again, and a batch with a gap before it is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from support.spark.fetch_brokers import Body, FetchBrokers, string

MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
OUT_OF_ORDER = 45
SEQUENCES = 1 << 31


@dataclass(frozen=True)
class Sent:
    """One batch of a Produce request."""

    broker: int
    topic: str
    partition: int
    producer: tuple[int, int]
    sequence: int
    count: int
    size: int
    timeout_ms: int


class ProduceBrokers(FetchBrokers):
    """Brokers with idempotent producers. A test may change the limits at any time."""

    def __init__(self, count: int = 1) -> None:
        self.max_message_bytes = 1 << 20
        self.sent: list[Sent] = []
        """Every batch that was sent, also batches that were refused."""
        self.produce_errors: list[int] = []
        """Error codes of the next batches. A batch with an error is not appended."""
        self.init_errors: list[int] = []
        self.appended_at = 0
        """The offset at which the last batch was appended."""
        self.lost_answers = 0
        """Number of Produce requests that are handled, but whose connection is closed without an answer."""
        self.omits_partitions = False
        """Answer without any partition, and append nothing."""
        self.on_produce: Callable[[], object] = lambda: None
        self.refused: tuple[int, str] | None = None
        """The index in the batch and the reason of a record that is refused, as INVALID_RECORD."""
        self.acknowledged: dict[tuple[str, int, tuple[int, int]], list[tuple[int, int]]] = {}
        """For each partition and producer, the (sequence, count) of the appended batches."""
        self.made_producers = 0
        super().__init__(count)

    def handlers(self) -> dict[tuple[int, int], Callable[[int, Body], bytes]]:
        return super().handlers() | {(0, 8): self._produce, (22, 1): self._init_producer}

    def _init_producer(self, index: int, body: Body) -> bytes:
        assert body.take("hi")[0] == -1, "no transactional id"
        code = self.init_errors.pop(0) if self.init_errors else 0
        self.made_producers += not code
        return struct.pack(">ihqh", 0, code, -1 if code else 1000 + self.made_producers, 0)

    def _produce(self, index: int, body: Body) -> bytes:
        self.on_produce()
        if self.omits_partitions:
            return struct.pack(">ii", 0, 0)
        self.transactional_id = body.string()
        acks, timeout_ms = body.take("hi")
        (topic_count,) = body.take("i")
        out = [struct.pack(">i", topic_count)]
        for _ in range(topic_count):
            topic = body.string()
            (count,) = body.take("i")
            out.append(string(topic) + struct.pack(">i", count))
            for _ in range(count):
                number, size = body.take("ii")
                batch = body.data[body.position : body.position + size]
                body.position += size
                sent = self._sent(index, topic, number, batch, timeout_ms)
                self.sent.append(sent)
                code = self._append(sent, batch) if acks == -1 else INVALID_REQUIRED_ACKS
                out.append(self._outcome(number, code))
        if self.lost_answers:
            self.lost_answers -= 1
            raise ConnectionAbortedError
        return b"".join(out) + struct.pack(">i", 0)

    def _sent(self, index: int, topic: str, number: int, batch: bytes, timeout_ms: int) -> Sent:
        producer, epoch, sequence, count = struct.unpack_from(">qhii", batch, 43)
        assert struct.unpack_from(">i", batch, 23) == (count - 1,)
        size = len(batch)
        return Sent(index, topic, number, (producer, epoch), sequence, count, size, timeout_ms)

    def _append(self, sent: Sent, batch: bytes) -> int:
        if code := self.check(sent.broker, sent.topic, sent.partition, -1):
            return code
        if self.produce_errors:
            return self.produce_errors.pop(0)
        if sent.size > self.max_message_bytes:
            return MESSAGE_TOO_LARGE
        if self.refused is not None:
            return 87
        if code := self.refused_in_transaction(sent):
            return code
        known = self.acknowledged.setdefault((sent.topic, sent.partition, sent.producer), [])
        if (sent.sequence, sent.count) in known[-5:]:
            return 0
        if known and sent.sequence != sum(known[-1]) % SEQUENCES:
            return OUT_OF_ORDER
        known.append((sent.sequence, sent.count))
        partition = self.topics[sent.topic][sent.partition]
        self.appended_at = partition.high_watermark
        partition.append(batch)
        return 0

    def refused_in_transaction(self, sent: Sent) -> int:
        """Return the error of a batch that a transaction does not allow; 0 if there is none."""
        assert self.transactional_id is None, "no transactional id"
        return 0

    def _outcome(self, number: int, code: int) -> bytes:
        out = struct.pack(
            ">ihqqqi", number, code, self.appended_at, -1, 0, self.refused is not None
        )
        if self.refused is not None:
            at, reason = self.refused
            out += struct.pack(">i", at) + string(reason)
        return out + string(None)
