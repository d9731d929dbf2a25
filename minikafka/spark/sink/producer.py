"""A blocking idempotent producer for the rows of one task (KIP-98).

Invariants: a batch is sent only after all in-sync replicas have acknowledged the previous batch of the same
partition. A retried batch keeps its sequence number, so the broker writes each batch of a task once. A new
task has a new producer id, so records written by a failed attempt stay in the topic.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.meanings import meaning
from minikafka.base.model import TopicPartition
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.encode import Producer, Rows, cut, encode
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.sink.rows import RowRefused
from minikafka.spark.wire import producing
from minikafka.spark.wire.connection import Connection
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import Address, Leaders, Unreachable, raise_if_final
from minikafka.spark.wire.producing import Produced

logger = logging.getLogger(__name__)

_SEQUENCES: Final = 1 << 31
_WRITTEN_BEFORE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE


class WriteFailed(MinikafkaError):
    """The cluster refused a batch. The error text names the rows of the batch."""


@dataclass
class _Batch:
    rows: Rows
    sequence: int
    data: bytearray


class IdempotentProducer:
    """Sends rows to the leaders of the rows' partitions. The caller closes `leaders`."""

    def __init__(self, leaders: Leaders, options: WriteOptions, checksum: Checksum) -> None:
        self._leaders = leaders
        self._options = options
        self._checksum = checksum
        self._deadline = Deadline(options.delivery_timeout_ms / 1000)
        self._identity: Producer | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, deque[_Batch]] = {}
        """For each partition, the batches that are not acknowledged yet, in order."""

    def send(self, parts: Iterable[tuple[TopicPartition, Rows]]) -> None:
        """Write the rows, and return when all rows are acknowledged.

        Raises `RowRefused`, `WriteFailed`, `Unreachable`, `KafkaError`.
        """
        self._deadline.restart()
        identity = self._identity = self._identity or self._new_identity()
        for tp, rows in parts:
            for run in cut(rows, self._options.batch_bytes):
                sequence = self._sequences.get(tp, 0)
                self._sequences[tp] = (sequence + len(run)) % _SEQUENCES
                data = encode(run, self._options.codec, identity, sequence, self._checksum)
                self._waiting.setdefault(tp, deque()).append(_Batch(run, sequence, data))
        while self._waiting:
            self._send_heads()

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

    def _send_heads(self) -> None:
        """Send the first batch of each partition, one request per leader, and handle the responses."""
        by_leader: dict[Address, list[TopicPartition]] = {}
        for tp in self._waiting:
            if address := self._leaders.address(tp):
                by_leader.setdefault(address, []).append(tp)
        asked = [(address, self._ask(address, tps)) for address, tps in by_leader.items()]
        failed = set(self._waiting) - {tp for tps in by_leader.values() for tp in tps}
        for address, connection in asked:
            failed |= self._take_outcomes(address, connection, by_leader[address])
        if failed:
            self._leaders.wait_and_refresh(sorted(failed), self._deadline)

    def _ask(self, address: Address, tps: list[TopicPartition]) -> Connection | None:
        """Send one Produce request, without waiting. Return the connection used, None if the leader is unreachable."""
        batches = {tp: self._waiting[tp][0].data for tp in tps}
        try:
            connection = self._leaders.connection(address)
            body = producing.produce_request(batches, self._options.request_timeout_ms)
            connection.send(producing.PRODUCE, body)
            return connection
        except OSError as error:
            logger.info("Lost broker %s:%d: %s", *address, error)
            self._leaders.drop(address)
            return None

    def _take_outcomes(
        self, address: Address, connection: Connection | None, tps: list[TopicPartition]
    ) -> set[TopicPartition]:
        """Handle a leader's response. Return the partitions whose batch must be sent again."""
        if connection is None:
            return set(tps)
        try:
            answers = producing.parse_produce(connection.receive())
        except OSError as error:
            logger.info("Lost broker %s:%d: %s", *address, error)
            self._leaders.drop(address)
            return set(tps)
        return {tp for tp in tps if tp not in answers or not self._is_done(tp, answers[tp])}

    def _is_done(self, tp: TopicPartition, answer: Produced) -> bool:
        """Apply a response to the first batch in the partition's queue. Return False if that batch must be sent again.

        A written batch leaves the queue. A batch that is too large is replaced by its two halves.
        """
        batches = self._waiting[tp]
        if answer.error in (ErrorCode.NONE, _WRITTEN_BEFORE):
            batches.popleft()
            if not batches:
                del self._waiting[tp]
            self._deadline.restart()
            return True
        if answer.error == _TOO_LARGE and len(batches[0].rows) > 1:
            self._cut_in_two(batches)
            return True
        _raise_if_refused(tp, batches[0].rows, answer)
        logger.info("%s refused a batch: %s", tp, ErrorCode(answer.error).name)
        return False

    def _cut_in_two(self, batches: deque[_Batch]) -> None:
        """Replace the first batch, which is too large, by two halves. All rows keep their sequence numbers."""
        assert self._identity is not None
        whole = batches.popleft()
        middle = len(whole.rows) // 2
        for start, end in ((middle, len(whole.rows)), (0, middle)):
            rows = whole.rows.part(start, end)
            sequence = (whole.sequence + start) % _SEQUENCES
            data = encode(rows, self._options.codec, self._identity, sequence, self._checksum)
            batches.appendleft(_Batch(rows, sequence, data))


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
