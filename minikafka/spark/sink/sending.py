"""Sends the encoded batches of a producer to the leaders of their partitions, without waiting for each answer.

`backlog` has the rules that keep the order of the batches. A batch that is sent again keeps its sequence number, so
the broker writes each batch once (KIP-98).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.known_cluster import Address
from minikafka.base.model import TopicPartition
from minikafka.spark.sink.backlog import Backlog, Batch
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.wire import producing
from minikafka.spark.wire.connection import BlockingConnection, readable
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, Unreachable
from minikafka.spark.wire.producing import ProducedPartition

logger = logging.getLogger(__name__)

_WRITTEN: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE
REQUEST_BYTES: Final = 1 << 20
"""Approximate maximum size of a Produce request with several batches."""
_UNACKNOWLEDGED_BYTES: Final = 8 << 20
"""Size of the batches, before compression, from which `make_room` waits until a batch is acknowledged."""


@dataclass
class _Request:
    """A Produce request in flight."""

    batches: dict[TopicPartition, Batch]
    deadline: Deadline


class Sender:
    """Sends batches to leaders. The caller closes `leaders`.

    `refused(tp, batch, answer)` raises if a retry cannot fix the error of a batch. `halves(batch)` returns two batches
    in place of one that is too large, or None if it cannot be divided. All methods raise `Unreachable`, `KafkaError`
    and the errors of `refused`.
    """

    def __init__(
        self,
        leaders: LeaderConnections,
        options: WriteOptions,
        *,
        refused: Callable[[TopicPartition, Batch, ProducedPartition], None],
        halves: Callable[[Batch], tuple[Batch, Batch] | None],
        transactional_id: str | None = None,
    ) -> None:
        self._leaders = leaders
        self._options = options
        self._refused = refused
        self._halves = halves
        self._transactional_id = transactional_id
        self._deadline = Deadline(options.delivery_timeout_ms / 1000)
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
        """Size in bytes, before compression, of the batches that were added since requests were sent."""

    def restart(self) -> None:
        """Restart the time limit for the next acknowledgement. Callers do this when they had other work."""
        self._deadline.restart()

    def make_room(self) -> None:
        """Wait until only few bytes are not acknowledged."""
        while self._unacknowledged > _UNACKNOWLEDGED_BYTES:
            self._advance()

    def add(self, tp: TopicPartition, batch: Batch) -> None:
        """Add a batch after the other batches of its partition. `exchange` or `flush` sends it."""
        if tp not in self._backlogs:
            self._backlogs[tp] = Backlog(self._options.in_flight)
        self._backlogs[tp].add(batch)
        self._waiting[tp] = self._ready[tp] = None
        self._unacknowledged += batch.size
        self._fresh += batch.size

    def exchange_if_full(self) -> None:
        """Send requests if the batches that were added since the last request fill a request."""
        if self._fresh >= REQUEST_BYTES:
            self.exchange()

    def flush(self) -> None:
        """Return when all batches are acknowledged."""
        self._deadline.restart()
        while self._waiting:
            self._advance()

    def exchange(self) -> None:
        """Send the batches that may be sent, and handle the answers that have arrived."""
        self._send_requests()
        while self._receive(0.0):
            self._send_requests()

    def _advance(self) -> None:
        """Send the batches that may be sent, then wait for an answer, or for a leader if none is known."""
        self.exchange()
        stuck = [tp for tp in self._waiting if self._backlogs[tp].is_stuck]
        if stuck:
            self._leaders.wait_and_refresh(sorted(stuck), self._deadline)
            for tp in stuck:
                self._backlogs[tp].needs_leader = False
                self._ready[tp] = None
        elif self._waiting and not self._receive(min(self._deadline.left(), self._patience())):
            self._give_up()

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
                room[address] = REQUEST_BYTES if is_free else 0
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
                producing.produce_request(
                    body, self._options.request_timeout_ms, self._transactional_id
                ),
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

    def _take_answers(self, address: Address, connection: BlockingConnection) -> None:
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

    def _apply(self, tp: TopicPartition, batch: Batch, answer: ProducedPartition | None) -> None:
        """Apply the answer for one batch. `answer`: None if the answer lacks the partition."""
        backlog = self._backlogs[tp]
        if answer is None:
            backlog.lost(batch)
        elif answer.error in _WRITTEN:
            batch.base_offset = answer.base_offset
            self._unacknowledged -= backlog.written(batch)
            self._deadline.restart()
        elif answer.error == _TOO_LARGE and (halves := self._halves(batch)):
            backlog.replace(batch, halves)
        else:
            if not backlog.has_gap_before(batch, answer.error):
                self._refused(tp, batch, answer)
            logger.info("%s refused a batch: error code %d", tp, answer.error)
            backlog.refused(batch, answer.error)
        self._ready[tp] = None
        if not backlog:
            del self._waiting[tp]

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
