"""A blocking idempotent producer for the rows of one task (KIP-98).

The producer encodes further rows while `sending` has requests in flight. A new task has a new producer id, so records
written by a failed attempt stay in the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Final

import numpy as np

from minikafka.base.errors import MinikafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.encode import Producer, cut, encode, encode_all, sizes
from minikafka.spark.records.varints import Numbers
from minikafka.spark.sink.backlog import Batch
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.rows import Divided, RowRefused
from minikafka.spark.sink.sending import REQUEST_BYTES, Sender
from minikafka.spark.wire import producing
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, Unreachable, raise_if_final
from minikafka.spark.wire.producing import ProducedPartition

SEQUENCES: Final = 1 << 31
"""The number of sequence numbers, after which they begin at 0 again."""

Piece = tuple[TopicPartition, int, int]
"""A partition, and the start and the end of the rows of a batch in `Divided.order`."""


class WriteFailed(MinikafkaError):
    """The cluster refused a batch. The error text names the rows of the batch."""


class IdempotentProducer:
    """Sends rows to the leaders of the rows' partitions. The caller closes `leaders`.

    All methods raise `RowRefused`, `WriteFailed`, `Unreachable` and `KafkaError`.
    """

    def __init__(
        self, leaders: LeaderConnections, options: WriteOptions, checksum: Checksum
    ) -> None:
        self._leaders = leaders
        self._options = options
        self._checksum = checksum
        self._sender = Sender(
            leaders, options, refused=raise_if_refused, halves=self._halves_of_rows
        )
        self._identity: Producer | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def send(self, tables: Iterable[Divided]) -> int:
        """Encode all rows, and send the batches that may be sent now. `flush` sends the other batches.

        Return the number of rows.
        """
        self._sender.restart()
        total = 0
        for table in tables:
            total += len(table.order)
            size = sizes(table.rows)
            for pieces in windows(table, size, self._options.batch_bytes):
                self._sender.make_room()
                self._encode(table, pieces, size)
                self._sender.exchange_if_full()
        self._sender.exchange()
        return total

    def flush(self) -> None:
        """Return when all rows are acknowledged."""
        self._sender.flush()

    def _encode(self, table: Divided, pieces: list[Piece], size: Numbers) -> None:
        """Encode one batch for each piece, and add the batches to the sender."""
        if self._identity is None:
            deadline = Deadline(self._options.delivery_timeout_ms / 1000)
            self._identity = new_producer(self._leaders, deadline)
        codec = self._options.codec
        sequences = [self._take_sequences(tp, end - start) for tp, start, end in pieces]
        for tp, batch in encoded(
            table, pieces, size, sequences, codec, self._identity, self._checksum
        ):
            self._sender.add(tp, batch)

    def _take_sequences(self, tp: TopicPartition, count: int) -> int:
        """Return the sequence number of the next row of a partition, and reserve `count` numbers."""
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = (sequence + count) % SEQUENCES
        return sequence

    def _halves_of_rows(self, whole: Batch) -> tuple[Batch, Batch] | None:
        """Return the two halves of a batch of several rows. All rows keep their sequence numbers."""
        assert self._identity is not None
        assert whole.rows is not None
        if len(whole.rows) == 1:
            return None
        middle = len(whole.rows) // 2
        halves = []
        for start, end in ((0, middle), (middle, len(whole.rows))):
            rows = whole.rows.part(start, end)
            sequence = (whole.sequence + start) % SEQUENCES
            data = encode(rows, self._options.codec, self._identity, sequence, self._checksum)
            halves.append(Batch(sequence, whole.size // 2, data, rows))
        halves[1].size = whole.size - halves[0].size
        return halves[0], halves[1]


def windows(table: Divided, size: Numbers, most_bytes: int) -> Iterator[list[Piece]]:
    """Yield lists of pieces. The pieces of a list are encoded in one call.

    The first pieces of all partitions come first, then their second pieces, and so on. So one request has batches
    of many partitions.
    """
    total = np.cumsum(size[table.order])
    pieces = [
        [(tp, *borders) for borders in cut(total, start, end, most_bytes)]
        for tp, start, end in table.parts
    ]
    window: list[Piece] = []
    room = REQUEST_BYTES
    for piece in chain.from_iterable(zip_longest(*pieces)):
        if piece is None:
            continue
        window.append(piece)
        _, start, end = piece
        room -= int(total[end - 1]) - (int(total[start - 1]) if start else 0)
        if room <= 0:
            yield window
            window, room = [], REQUEST_BYTES
    if window:
        yield window


def encoded(
    table: Divided,
    pieces: Sequence[Piece],
    size: Numbers,
    sequences: Sequence[int],
    codec: int,
    identity: Producer,
    checksum: Checksum,
) -> Iterator[tuple[TopicPartition, Batch]]:
    """Yield one batch for each piece, with its partition. `sequences`: the first sequence number of each batch."""
    chosen = np.concatenate([table.order[start:end] for _, start, end in pieces])
    rows, total = table.rows.taken(chosen), np.cumsum(size[chosen])
    counts = [end - start for _, start, end in pieces]
    made = encode_all(rows, [*zip(counts, sequences, strict=True)], codec, identity, checksum)
    first = before = 0
    for (tp, _, _), count, sequence, data in zip(pieces, counts, sequences, made, strict=True):
        after = int(total[first + count - 1])
        yield tp, Batch(sequence, after - before, data, rows.part(first, first + count))
        first, before = first + count, after


def new_producer(leaders: LeaderConnections, deadline: Deadline) -> Producer:
    """Return a new producer id from any broker. Raises `Unreachable`, `KafkaError`."""
    while True:
        try:
            found = leaders.call_any(
                producing.INIT_PRODUCER_ID,
                producing.init_producer_request(),
                producing.parse_init_producer,
            )
            raise_if_final(found.error, "a producer id", producing.INIT_PRODUCER_ID, "")
            if not found.error:
                return Producer(found.id, found.epoch)
        except Unreachable:
            if not deadline.left():
                raise
        if not deadline.wait_to_retry():
            raise Unreachable("no broker gives out a producer id")


def raise_if_refused(tp: TopicPartition, batch: Batch, answer: ProducedPartition) -> None:
    """Raise an error that names the refused rows, if a retry cannot fix the error in `answer`."""
    rows = batch.rows
    assert rows is not None
    try:
        raise_if_final(answer.error, str(tp), producing.PRODUCE, tp.topic)
    except AnsweredError as error:
        if not answer.refused and len(rows) > 1:
            first, last = rows.numbers[0], rows.numbers[-1]
            text = f"rows {first} to {last} of the task were refused by {tp}: {error}"
            raise WriteFailed(_with(text, answer.message)) from error
        index, reason = answer.refused[0] if answer.refused else (0, answer.message)
        text = f"row {rows.numbers[index]} of the task was refused by {tp}: {error.code.name}"
        raise RowRefused(_with(text, reason or error.why)) from error


def _with(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text
