"""A blocking idempotent producer for the rows of one task (KIP-98).

The producer sends a request without waiting for the answers to earlier requests, and encodes further rows while
requests are in flight. `backlog` has the rules that keep the order of the rows. A retried batch keeps its sequence
number, so the broker writes each batch of a task once. A new task has a new producer id, so records written by a
failed attempt stay in the topic.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final

import numpy as np

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.meanings import meaning
from minikafka.base.model import TopicPartition
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.encode import Producer, Rows, cut, encode, encode_all, sizes
from minikafka.spark.records.varints import Numbers
from minikafka.spark.sink.backlog import Backlog, Batch
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.rows import Divided, RowRefused
from minikafka.spark.wire import producing
from minikafka.spark.wire.connection import Connection, readable
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import Address, Leaders, Unreachable, raise_if_final
from minikafka.spark.wire.producing import Produced

logger = logging.getLogger(__name__)

_SEQUENCES: Final = 1 << 31
_WRITTEN: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE
_REQUEST_BYTES: Final = 1 << 20
"""Approximate maximum size of a Produce request with several batches, and of the rows that are encoded in one call."""
_UNACKNOWLEDGED_BYTES: Final = 8 << 20
"""Size of the batches, before compression, from which no further rows are encoded until a batch is acknowledged."""

Piece = tuple[TopicPartition, int, int]
"""A partition, and the start and the end of the rows of a batch in `Divided.order`."""


class WriteFailed(MinikafkaError):
    """The cluster refused a batch. The error text names the rows of the batch."""


@dataclass
class _Request:
    """A Produce request in flight."""

    batches: dict[TopicPartition, Batch]
    deadline: Deadline


class IdempotentProducer:
    """Sends rows to the leaders of the rows' partitions. The caller closes `leaders`.

    All methods raise `RowRefused`, `WriteFailed`, `Unreachable` and `KafkaError`.
    """

    def __init__(self, leaders: Leaders, options: WriteOptions, checksum: Checksum) -> None:
        self._leaders = leaders
        self._options = options
        self._checksum = checksum
        self._deadline = Deadline(options.delivery_timeout_ms / 1000)
        self._identity: Producer | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._backlogs: dict[TopicPartition, Backlog] = {}
        self._waiting: dict[TopicPartition, None] = {}
        """The partitions with batches that are not acknowledged."""
        self._ready: dict[TopicPartition, None] = {}
        """The partitions that may have a batch to send, in the order in which they send."""
        self._requests: dict[Address, deque[_Request]] = {}
        """The requests in flight to each leader, in order."""
        self._unacknowledged = 0
        """Size in bytes, before compression, of the batches that are not acknowledged."""
        self._fresh = 0
        """Size in bytes, before compression, of the batches that were encoded since requests were sent."""

    def send(self, tables: Iterable[Divided]) -> None:
        """Encode all rows, and send the batches that may be sent now. `flush` sends the other batches."""
        self._deadline.restart()
        for table in tables:
            size = sizes(table.rows)
            for pieces in _windows(table, size, self._options.batch_bytes):
                while self._unacknowledged > _UNACKNOWLEDGED_BYTES:
                    self._advance()
                self._encode(table, pieces, size)
                if self._fresh >= _REQUEST_BYTES:
                    self._exchange()
        self._exchange()

    def flush(self) -> None:
        """Return when all rows are acknowledged."""
        self._deadline.restart()
        while self._waiting:
            self._advance()

    def _encode(self, table: Divided, pieces: list[Piece], size: Numbers) -> None:
        """Encode one batch for each piece, and add the batches to the backlogs."""
        identity = self._identity = self._identity or self._new_identity()
        chosen = np.concatenate([table.order[start:end] for _, start, end in pieces])
        rows, total = table.rows.taken(chosen), np.cumsum(size[chosen])
        parts = [(end - start, self._take_sequences(tp, end - start)) for tp, start, end in pieces]
        made = encode_all(rows, parts, self._options.codec, identity, self._checksum)
        first = before = 0
        for (tp, _, _), (count, sequence), data in zip(pieces, parts, made, strict=True):
            after = int(total[first + count - 1])
            batch = Batch(rows.part(first, first + count), sequence, after - before, data)
            self._backlog(tp).add(batch)
            self._waiting[tp] = self._ready[tp] = None
            first, before = first + count, after
        self._unacknowledged += before
        self._fresh += before

    def _take_sequences(self, tp: TopicPartition, count: int) -> int:
        """Return the sequence number of the next row of a partition, and reserve `count` numbers."""
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = (sequence + count) % _SEQUENCES
        return sequence

    def _backlog(self, tp: TopicPartition) -> Backlog:
        if tp not in self._backlogs:
            self._backlogs[tp] = Backlog(self._options.in_flight)
        return self._backlogs[tp]

    def _new_identity(self) -> Producer:
        """Return a new producer id from any broker. Raises `Unreachable`, `KafkaError`."""
        while True:
            try:
                found = self._leaders.call_any(
                    producing.INIT_PRODUCER_ID,
                    producing.init_producer_request(),
                    producing.parse_init_producer,
                )
                raise_if_final(found.error, "a producer id")
                if not found.error:
                    return Producer(found.id, found.epoch)
            except Unreachable:
                if not self._deadline.left():
                    raise
            if not self._deadline.wait_to_retry():
                raise Unreachable("no broker gives out a producer id")

    def _advance(self) -> None:
        """Send the batches that may be sent, then wait for an answer, or for a leader if none is known."""
        self._exchange()
        stuck = [tp for tp in self._waiting if self._backlogs[tp].is_stuck]
        if stuck:
            self._leaders.wait_and_refresh(sorted(stuck), self._deadline)
            for tp in stuck:
                self._backlogs[tp].needs_leader = False
                self._ready[tp] = None
        elif self._waiting and not self._receive(min(self._deadline.left(), self._patience())):
            self._give_up()

    def _exchange(self) -> None:
        """Send the batches that may be sent, and handle the answers that have arrived."""
        self._send_requests()
        while self._receive(0.0):
            self._send_requests()

    def _send_requests(self) -> None:
        self._fresh = 0
        while requests := self._next_requests():
            for address, batches in requests.items():
                self._send(address, batches)

    def _next_requests(self) -> dict[Address, dict[TopicPartition, Batch]]:
        """Return the next request of each leader, with one batch of each partition that may send one."""
        found: dict[Address, dict[TopicPartition, Batch]] = {}
        room: dict[Address, int] = {}
        for tp in list(self._ready):
            batch = self._backlogs[tp].next_batch()
            address = self._leaders.address(tp)
            if batch is None or address is None:
                del self._ready[tp]
                self._backlogs[tp].needs_leader |= batch is not None
                continue
            if address not in room:
                is_free = len(self._requests.get(address, ())) < self._options.in_flight
                room[address] = _REQUEST_BYTES if is_free else 0
            if room[address] > 0:
                found.setdefault(address, {})[tp] = batch
                room[address] -= len(batch.data)
        return found

    def _send(self, address: Address, batches: dict[TopicPartition, Batch]) -> None:
        """Send a Produce request without waiting."""
        waiting = self._requests.setdefault(address, deque())
        waiting.append(_Request(batches, Deadline(self._options.request_timeout_ms / 1000)))
        for tp, batch in batches.items():
            self._backlogs[tp].sent(batch)
            # The partition becomes the last one, so that every partition has its turn.
            self._ready[tp] = self._ready.pop(tp)
        body = {tp: batch.data for tp, batch in batches.items()}
        try:
            connection = self._leaders.connection(address)
            connection.send(
                producing.PRODUCE,
                producing.produce_request(body, self._options.request_timeout_ms),
            )
        except OSError as error:
            self._lose(address, error)

    def _receive(self, timeout_s: float) -> bool:
        """Handle the next answer of each leader, if any arrives in time. Return False if none arrives."""
        asked = {self._leaders.connection(address): address for address in self._requests}
        found = readable(asked, timeout_s) if asked else []
        for connection in found:
            self._take_answers(asked[connection], connection)
        return bool(found)

    def _take_answers(self, address: Address, connection: Connection) -> None:
        try:
            answers = producing.parse_produce(connection.receive())
        except OSError as error:
            self._lose(address, error)
            return
        request = self._requests[address].popleft()
        if not self._requests[address]:
            del self._requests[address]
        for tp, batch in request.batches.items():
            self._apply(tp, batch, answers.get(tp))

    def _apply(self, tp: TopicPartition, batch: Batch, answer: Produced | None) -> None:
        """Apply the answer for one batch. `answer`: None if the answer lacks the partition."""
        backlog = self._backlogs[tp]
        if answer is None:
            backlog.lost(batch)
        elif answer.error in _WRITTEN:
            self._unacknowledged -= backlog.written(batch)
            self._deadline.restart()
        elif answer.error == _TOO_LARGE and len(batch.rows) > 1:
            backlog.replace(batch, self._halves(batch))
        else:
            if not backlog.has_gap_before(batch, answer.error):
                _raise_if_refused(tp, batch.rows, answer)
            logger.info("%s refused a batch: error code %d", tp, answer.error)
            backlog.refused(batch, answer.error)
        self._ready[tp] = None
        if not backlog:
            del self._waiting[tp]

    def _halves(self, whole: Batch) -> tuple[Batch, Batch]:
        """Return the two halves of a batch that is too large. All rows keep their sequence numbers."""
        assert self._identity is not None
        middle = len(whole.rows) // 2
        halves = []
        for start, end in ((0, middle), (middle, len(whole.rows))):
            rows = whole.rows.part(start, end)
            sequence = (whole.sequence + start) % _SEQUENCES
            data = encode(rows, self._options.codec, self._identity, sequence, self._checksum)
            halves.append(Batch(rows, sequence, whole.size // 2, data))
        halves[1].size = whole.size - halves[0].size
        return halves[0], halves[1]

    def _lose(self, address: Address, error: OSError) -> None:
        """Close the connection to a leader. The batches in flight to it are sent again later."""
        logger.info("Lost broker %s:%d: %s", *address, error)
        self._leaders.drop(address)
        for request in self._requests.pop(address, ()):
            for tp, batch in request.batches.items():
                self._backlogs[tp].lost(batch)

    def _patience(self) -> float:
        """Return the time for which the oldest request may remain without an answer."""
        return min(waiting[0].deadline.left() for waiting in self._requests.values())

    def _give_up(self) -> None:
        """Close the connections to leaders that do not answer in time. Raises `Unreachable` at the delivery timeout."""
        silent = [
            address for address, sent in self._requests.items() if not sent[0].deadline.left()
        ]
        for address in silent:
            self._lose(address, TimeoutError("no answer within the request timeout"))
        if not (silent or self._deadline.left()):
            names = ", ".join(map(str, sorted(self._waiting)))
            raise Unreachable(f"no leader answers for {names}")


def _windows(table: Divided, size: Numbers, most_bytes: int) -> Iterator[list[Piece]]:
    """Yield lists of pieces, which are encoded in one call.

    The first pieces of all partitions come first, then their second pieces, and so on. So one request has batches
    of many partitions.
    """
    total = np.cumsum(size[table.order])
    pieces = [
        [(tp, *borders) for borders in cut(total, start, end, most_bytes)]
        for tp, start, end in table.parts
    ]
    window: list[Piece] = []
    room = _REQUEST_BYTES
    for piece in chain.from_iterable(zip_longest(*pieces)):
        if piece is None:
            continue
        window.append(piece)
        _, start, end = piece
        room -= int(total[end - 1]) - (int(total[start - 1]) if start else 0)
        if room <= 0:
            yield window
            window, room = [], _REQUEST_BYTES
    if window:
        yield window


def _raise_if_refused(tp: TopicPartition, rows: Rows, answer: Produced) -> None:
    """Raise an error that names the refused rows, if a retry cannot fix the error in `answer`."""
    try:
        raise_if_final(answer.error, str(tp))
    except KafkaError as error:
        if not answer.refused and len(rows) > 1:
            first, last = rows.numbers[0], rows.numbers[-1]
            text = f"rows {first} to {last} of the task were refused by {tp}: {error}"
            raise WriteFailed(_with(text, answer.message)) from error
        index, reason = answer.refused[0] if answer.refused else (0, answer.message)
        text = f"row {rows.numbers[index]} of the task was refused by {tp}: {error.code.name}"
        raise RowRefused(_with(text, reason or meaning(error.code))) from error


def _with(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text
