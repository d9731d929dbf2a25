"""Idempotent producers of one partition against a `MemoryCluster`, by the rules of librdkafka and Kafka's Java client.

The producers follow the sources of librdkafka 2.16 (`rd_kafka_handle_Produce_error`, `rd_kafka_toppar_producer_serve`)
and of Kafka 3.9 (`Sender`, `TransactionManager.canRetry`, `RecordAccumulator.shouldStopDrainBatchesForPartition`) in
three points: which batches may be in flight, in which order batches are retried, and when a sequence error is final.
A real producer may end with a fatal error, or raise its epoch and then write records twice. In these cases the
producers here raise `GaveUp`.
"""

from __future__ import annotations

import abc
import asyncio
import random
from bisect import insort
from collections import deque
from functools import partial

from minikafka.base.errors import ErrorCode
from minikafka.client.connection import BrokerConnection
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.codec import decode_response, request
from minikafka.kafka.wire.versions import PRODUCE
from minikafka.simulation.cluster import MemoryCluster

TOPIC = "t"
VERSION = 9
PRODUCER_ID = 1000
IN_FLIGHT = 5
REQUEST_TIMEOUT_MS = 30_000
BACKOFF_SECONDS = 0.1
TURN_SECONDS = 0.005
BATCH_MAX = 3
DISCONNECTED = -1
"""The outcome of a request whose connection was lost."""
WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
REFRESHING = (
    DISCONNECTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
RETRIED = (
    *REFRESHING,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


class GaveUp(Exception):
    """An error after which the producer no longer guarantees that each record is written once and in order."""


class Batch:
    """A batch of the records numbered `first` to `last`; record numbers are also sequence numbers."""

    __slots__ = ("broker", "first", "is_sent", "last", "not_before")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.broker = -1
        self.is_sent = False
        self.not_before = 0.0

    def __lt__(self, other: Batch) -> bool:
        return self.first < other.first

    def __repr__(self) -> str:
        return f"{self.first}-{self.last}"

    def encode(self) -> bytes:
        """Return the encoded record batch; the value of each record is its number."""
        records = [Record(0, 1000, None, b"%d" % n) for n in range(self.first, self.last + 1)]
        return build(records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=self.first)


class IdempotentProducer(abc.ABC):
    """A producer that sends the records 0 to `total` - 1 to partition 0 of `TOPIC` while `run` is awaited."""

    def __init__(self, cluster: MemoryCluster, seed: int, total: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.total = total
        self.made = 0
        """Number of records that the application has passed to the producer."""
        self.acknowledged: set[int] = set()
        self.leader = self.epoch = -1
        self.is_stale = True
        self.error: GaveUp | None = None
        self.story: list[str] = []
        self._connections: dict[int, BrokerConnection] = {}

    async def run(self) -> None:
        """Send every record and wait for all acknowledgements. Raises GaveUp."""
        while len(self.acknowledged) < self.total:
            if self.error:
                raise self.error
            self.made = min(self.total, self.made + self.chance.choice((0, 0, 1, 2)))
            if self.is_stale and self.chance.random() < 0.3:
                self._refresh()
            if await self._is_connected():
                self.send_ready()
            await asyncio.sleep(TURN_SECONDS)

    def _refresh(self) -> None:
        """Read the leader from the metadata of a random running broker. This metadata may be out of date."""
        brokers = list(self.cluster.brokers.values())
        broker = self.chance.choice(brokers) if brokers else None
        if broker is None:
            return
        if self.leader not in broker.metadata.brokers:
            self.leader_left()
        state = broker.metadata.topics.get(TOPIC, {}).get(0)
        if state and state.leader in broker.metadata.brokers and state.leader_epoch >= self.epoch:
            self.is_stale = False
            self.epoch = state.leader_epoch
            if self.leader != state.leader:
                self.leader = state.leader
                self.leader_changed()

    async def _is_connected(self) -> bool:
        connection = self._connections.get(self.leader)
        if connection is not None and connection.is_open:
            return True
        if self.leader < 0:
            return False
        try:
            self._connections[self.leader] = await self.cluster.transport.connect(
                partial(BrokerConnection, "producer", self.cluster.clock),
                "127.0.0.1",
                9092 + self.leader,
            )  # type: ignore[assignment]
        except OSError:
            self.is_stale = True
            return False
        return True

    @property
    def now(self) -> float:
        """Current time of the event loop in seconds."""
        return asyncio.get_running_loop().time()

    def transmit(self, batch: Batch) -> None:
        """Send one batch to the leader, in a separate request."""
        batch.broker, batch.is_sent = self.leader, True
        self.story.append(f"{self.now:.3f} {batch} to {self.leader}")
        rows = [{"index": 0, "records": batch.encode()}]
        body = request(
            PRODUCE,
            VERSION,
            transactional_id=None,
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[{"name": TOPIC, "partition_data": rows}],
        )
        try:
            sent = self._connections[self.leader].request(
                PRODUCE, VERSION, body, REQUEST_TIMEOUT_MS
            )
        except OSError:
            asyncio.get_running_loop().call_soon(self._completed, batch, DISCONNECTED)
        else:
            sent.add_done_callback(partial(self._responded, batch))

    def _responded(self, batch: Batch, response: asyncio.Future[bytes]) -> None:
        if response.exception() is not None:
            self._completed(batch, DISCONNECTED)
        else:
            answer = decode_response(PRODUCE, VERSION, response.result())
            self._completed(batch, int(answer.responses[0].partition_responses[0].error_code))

    def _completed(self, batch: Batch, error: int) -> None:
        self.story.append(f"{self.now:.3f} {batch} from {batch.broker}: {error}")
        if error in REFRESHING:
            self.is_stale = True
        try:
            self.completed(batch, error)
        except GaveUp as gave_up:
            self.error = self.error or gave_up

    def gave_up(self, batch: Batch, error: int, why: str) -> GaveUp:
        """Return the GaveUp exception for a batch that failed with this error."""
        story = "\n".join(self.story[-60:])
        return GaveUp(f"{why}: batch {batch} met error {error}\n{story}")

    @abc.abstractmethod
    def send_ready(self) -> None:
        """Send all batches that may be sent now. Called when the connection to the leader is open."""

    @abc.abstractmethod
    def completed(self, batch: Batch, error: int) -> None:
        """Handle the response to a batch, or the loss of the batch's connection (DISCONNECTED). Raises GaveUp."""

    def leader_changed(self) -> None:  # noqa: B027 - not every producer does anything
        """Handle a change of the leader in the metadata."""

    def leader_left(self) -> None:  # noqa: B027
        """Handle metadata whose list of brokers does not contain the leader."""


class Librdkafka(IdempotentProducer):
    """librdkafka's rules: after a failure, no batch is sent until all batches in flight are answered."""

    def __init__(self, cluster: MemoryCluster, seed: int, total: int) -> None:
        super().__init__(cluster, seed, total)
        self.queue: list[int] = []
        self.queued = 0
        self.ends: dict[int, int] = {}
        """First -> last record of each batch to be sent again. A retried batch keeps the same records."""
        self.not_before: dict[int, float] = {}
        self.in_flight = 0
        self.drains = False
        self.next_acknowledged = self.next_failed = 0
        self.last_acknowledged = -1

    def leader_changed(self) -> None:
        self.drains = True

    def leader_left(self) -> None:
        # As in rd_kafka_toppar_forget_leader, the producer then accepts older leader epochs.
        self.leader = self.epoch = -1

    def send_ready(self) -> None:
        while self.queued < self.made:
            self.queue.append(self.queued)
            self.queued += 1
        if self.drains and self.in_flight:
            return
        self.drains = False
        for _ in range(IN_FLIGHT - self.in_flight):
            if not self.queue or self.not_before.get(self.queue[0], 0.0) > self.now:
                return
            first = self.queue[0]
            last = self.ends.get(first, first + self.chance.randrange(BATCH_MAX))
            count = next(
                (n for n, number in enumerate(self.queue) if number != first + n or number > last),
                len(self.queue),
            )
            batch = Batch(first, first + count - 1)
            del self.queue[:count]
            self.in_flight += count
            self.transmit(batch)

    def completed(self, batch: Batch, error: int) -> None:
        self.in_flight -= batch.last - batch.first + 1
        if error == ErrorCode.NONE:
            self._written(batch)
        elif batch.broker == self.leader:
            self._failed(batch, error)
        else:
            # librdkafka has one thread per broker. The batch is no longer in flight, so the new leader's thread may
            # send before the former leader's thread handles the error.
            later = self.chance.choice((0.0, 0.003, 0.02))
            asyncio.get_running_loop().call_later(later, self._failed_late, batch, error)

    def _failed_late(self, batch: Batch, error: int) -> None:
        try:
            self._failed(batch, error)
        except GaveUp as gave_up:
            self.error = self.error or gave_up

    def _written(self, batch: Batch) -> None:
        following = batch.last + 1
        if self.last_acknowledged < batch.first - 1:
            implied = [number for number in self.queue if number <= batch.last]
            self.acknowledged.update(implied)
            self.queue = [number for number in self.queue if number > batch.last]
        elif batch.first not in (self.next_acknowledged, self.last_acknowledged + 1) and (
            batch.first == self.next_failed
        ):
            raise self.gave_up(batch, 0, "it succeeded where a failure was expected")
        if self.next_failed == self.next_acknowledged:
            self.next_failed = following
        self._acknowledge(batch)

    def _acknowledge(self, batch: Batch) -> None:
        self.next_acknowledged = batch.last + 1
        self.last_acknowledged = max(self.last_acknowledged, batch.last)
        self.acknowledged.update(range(batch.first, batch.last + 1))

    def _failed(self, batch: Batch, error: int) -> None:
        self.ends[batch.first] = batch.last
        following = batch.last + 1
        if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.next_failed = following
            self._acknowledge(batch)
        elif error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch.first == self.next_acknowledged:
                raise self.gave_up(batch, error, "fatal: sequence desynchronization")
            if batch.first < self.next_acknowledged:
                raise self.gave_up(batch, error, "fatal: rewound sequence number")
            raise self.gave_up(batch, error, "epoch raised: skipped sequence numbers")
        elif error in RETRIED:
            self.next_failed = following
            self.drains = True
            for number in range(batch.first, following):
                insort(self.queue, number)
                self.not_before[number] = self.now + BACKOFF_SECONDS
        else:
            raise self.gave_up(batch, error, "fatal: no retry")


class JavaClient(IdempotentProducer):
    """A producer with the rules of Kafka's Java client: only the oldest unacknowledged batch is sent again."""

    def __init__(self, cluster: MemoryCluster, seed: int, total: int) -> None:
        super().__init__(cluster, seed, total)
        self.queue: deque[Batch] = deque()
        self.queued = 0
        self.unfinished: list[Batch] = []
        """Batches that were sent and are not acknowledged yet, in order."""
        self.in_flight: dict[int, int] = {}
        self.last_acknowledged = -1

    def send_ready(self) -> None:
        while self.queued < self.made:
            last = min(self.queued + self.chance.randrange(BATCH_MAX), self.made - 1)
            self.queue.append(Batch(self.queued, last))
            self.queued = last + 1
        while self.queue and self.in_flight.get(self.leader, 0) < IN_FLIGHT:
            batch = self.queue[0]
            if batch.is_sent and (batch is not self.unfinished[0] or batch.not_before > self.now):
                return
            self.queue.popleft()
            if not batch.is_sent:
                self.unfinished.append(batch)
            self.in_flight[self.leader] = self.in_flight.get(self.leader, 0) + 1
            self.transmit(batch)

    def completed(self, batch: Batch, error: int) -> None:
        self.in_flight[batch.broker] -= 1
        if error in WRITTEN:
            self.unfinished.remove(batch)
            self.last_acknowledged = max(self.last_acknowledged, batch.last)
            self.acknowledged.update(range(batch.first, batch.last + 1))
        elif error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch.first == self.last_acknowledged + 1:
                raise self.gave_up(batch, error, "epoch raised")
            self._retry(batch)
        elif error in RETRIED:
            self._retry(batch)
        else:
            raise self.gave_up(batch, error, "no retry")

    def _retry(self, batch: Batch) -> None:
        batch.not_before = self.now + BACKOFF_SECONDS
        sent = [*(other for other in self.queue if other.is_sent), batch]
        self.queue = deque([*sorted(sent), *(other for other in self.queue if not other.is_sent)])
