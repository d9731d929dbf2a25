"""Transactional producers and a read_committed consumer over plain connections.

They work with any Kafka broker that serves FindCoordinator v1, InitProducerId v1, AddPartitionsToTxn v2, EndTxn v2,
Produce v7 and Fetch v11. A producer sends what Java's producer sends: AddPartitionsToTxn for all partitions, one
Produce request per leader, EndTxn. If the last transaction has not ended yet, it repeats AddPartitionsToTxn after
`RETRY_SECONDS`, as Java's producer and librdkafka do.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, cast

from benchmarks import kafka
from benchmarks.closed_loop import LoadError
from benchmarks.kafka import CLIENT_ID, LENGTH, Leader, Session
from benchmarks.load_end_to_end import records_of
from minikafka.base.errors import ErrorCode
from minikafka.kafka.records import batch
from minikafka.kafka.records.codecs import crc32c
from minikafka.kafka.records.header import (
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    OVERHEAD,
    TRANSACTIONAL,
)
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
)

Address = tuple[str, int]

RETRY_SECONDS: Final = 0.02
START_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 30.0
TRANSACTION_MS: Final = 60_000
ONE_PARTITION: Final = Struct(">ihqqq")
"""The row of a partition in a Produce response: number, error code, base offset, append time, log start offset."""
UINT32: Final = Struct(">I")
SEQUENCE_AT: Final = 53
ADDED_TO_TXN: Final = 2
ENDED_TXN: Final = 2
MISSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors after which a coordinator is asked again."""


class Connection(asyncio.Protocol):
    """A connection whose responses come in the order of the requests."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """Connect to a broker."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, *address)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            (size,) = LENGTH.unpack_from(buffer)
            if len(buffer) < 4 + size:
                return
            frame = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            self._waiting.popleft().set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        while self._waiting:
            self._waiting.popleft().set_exception(LoadError(f"the connection was lost: {error}"))

    def send(self, request: bytes | bytearray) -> asyncio.Future[bytes]:
        """Send an encoded request; return the future of its response, without the length field."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting.append(answer)
        self._transport.write(bytes(request))
        return answer

    def close(self) -> None:
        self._transport.close()


class Batches:
    """A Produce request with one batch per partition, whose sequence numbers are replaced before each send."""

    def __init__(
        self, topic: str, partitions: Sequence[int], data: bytes, name: str | None
    ) -> None:
        rows = [{"index": partition, "records": data} for partition in partitions]
        body = codec.request(
            PRODUCE,
            7,
            transactional_id=name,
            acks=-1,
            timeout_ms=kafka.PRODUCE_TIMEOUT_MS,
            topic_data=[{"name": topic, "partition_data": rows}],
        )
        self._request = bytearray(codec.encode_request(PRODUCE, 7, 1, CLIENT_ID, body))
        self._size = len(data)
        self._starts = []
        start = 0
        for _ in partitions:
            start = self._request.index(data, start)
            self._starts.append(start)
            start += len(data)
        self._rows_at = 4 + 4 + 2 + len(topic.encode()) + 4

    def numbered(self, sequence: int) -> bytes:
        """Return the request with this sequence number in every batch."""
        request = self._request
        for start in self._starts:
            LENGTH.pack_into(request, start + SEQUENCE_AT, sequence)
            with memoryview(request) as view:
                checksum = crc32c(view[start + CRC_START : start + self._size])
            UINT32.pack_into(request, start + CRC_AT, checksum)
        return bytes(request)

    def stamp(self, value: bytes) -> None:
        """Write `value` at the end of every batch, which is the end of the value of its last record."""
        for start in self._starts:
            end = start + self._size - 1  # a record ends with its number of headers
            self._request[end - len(value) : end] = value

    def check(self, answer: bytes) -> None:
        """Raise LoadError if a batch was refused."""
        for number in range(len(self._starts)):
            row = ONE_PARTITION.unpack_from(answer, self._rows_at + number * ONE_PARTITION.size)
            if row[1]:
                raise LoadError(f"a batch was refused: {ErrorCode(row[1]).name}")


class Producer:
    """A producer of one topic. `name`: its transactional id, None for an idempotent producer without transactions."""

    def __init__(self, name: str | None, topic: str, leaders: Sequence[Leader]) -> None:
        self._name = name
        self._topic = topic
        self._leaders = leaders
        self._sequence = 0
        self._parts: list[tuple[Connection, Batches]] = []
        self._coordinator: Connection | None = None
        self._add = self._end = b""
        self.retries = 0
        """Number of AddPartitionsToTxn requests that came before the last transaction had ended."""

    async def start(self, broker: Address, size: int) -> None:
        """Get a producer id, connect to all leaders, and prepare requests with a value of `size` bytes per batch."""
        loop = asyncio.get_running_loop()
        address, identity = await loop.run_in_executor(None, self._identify, broker)
        if self._name is not None:
            self._coordinator = await Connection.open(address)
            self._prepare(*identity)
        producer_id, epoch = identity
        data = batch.build(
            [batch.Record(0, int(time.time() * 1_000), None, bytes(size), ())],
            attributes=0 if self._name is None else TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        for address in sorted({leader[1:] for leader in self._leaders}):
            mine = [leader.partition for leader in self._leaders if leader[1:] == address]
            batches = Batches(self._topic, mine, data, self._name)
            self._parts.append((await Connection.open(address), batches))

    def _identify(self, broker: Address) -> tuple[Address, tuple[int, int]]:
        """Return the address of the coordinator, and the producer's id and epoch."""
        deadline = time.monotonic() + START_SECONDS
        error = 0
        while time.monotonic() < deadline:
            address = broker
            if self._name is not None:
                with Session(*broker) as session:
                    found = session.ask(FIND_COORDINATOR, 1, key=self._name, key_type=1)
                address, error = (found.host, found.port), found.error_code
            if not error:
                with Session(*address) as session:
                    given = session.ask(
                        INIT_PRODUCER_ID,
                        1,
                        transactional_id=self._name,
                        transaction_timeout_ms=TRANSACTION_MS,
                    )
                if not given.error_code:
                    return address, (given.producer_id, given.producer_epoch)
                error = given.error_code
            if error not in MISSING:
                break
            time.sleep(RETRY_SECONDS)
        raise LoadError(f"no producer id for {self._name}: {ErrorCode(error).name}")

    def _prepare(self, producer_id: int, epoch: int) -> None:
        fields = {
            "transactional_id": self._name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        partitions = [leader.partition for leader in self._leaders]
        adding = {**fields, "topics": [{"name": self._topic, "partitions": partitions}]}
        body = codec.request(
            ADD_PARTITIONS_TO_TXN,
            ADDED_TO_TXN,
            **{f"v3_and_below_{name}": value for name, value in adding.items()},
        )
        self._add = codec.encode_request(ADD_PARTITIONS_TO_TXN, ADDED_TO_TXN, 1, CLIENT_ID, body)
        body = codec.request(END_TXN, ENDED_TXN, **fields, committed=True)
        self._end = codec.encode_request(END_TXN, ENDED_TXN, 1, CLIENT_ID, body)

    async def begin(self) -> None:
        """Add all partitions to a new transaction. Raises LoadError."""
        assert self._coordinator is not None
        while True:
            answer = await self._coordinator.send(self._add)
            codes = _added(answer)
            if codes == {0}:
                return
            if codes != {int(ErrorCode.CONCURRENT_TRANSACTIONS)}:
                raise LoadError(f"partitions were not added: {codes}")
            self.retries += 1
            await asyncio.sleep(RETRY_SECONDS)

    def produce(self) -> list[asyncio.Future[bytes]]:
        """Send one batch to every partition; return the futures of the responses."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        return [connection.send(batches.numbered(sequence)) for connection, batches in self._parts]

    def check(self, answers: Sequence[bytes]) -> None:
        """Raise LoadError if one of the responses to a `produce` has an error."""
        for (_, batches), answer in zip(self._parts, answers, strict=True):
            batches.check(answer)

    async def end(self) -> None:
        """Commit the transaction. Raises LoadError."""
        assert self._coordinator is not None
        answer = await self._coordinator.send(self._end)
        code = int.from_bytes(answer[8:10], signed=True)
        if code:
            raise LoadError(f"the transaction was not committed: {ErrorCode(code).name}")

    async def transact(self, stamp: bytes = b"") -> None:
        """Commit one transaction with one batch per partition. `stamp`: the end of every record's value."""
        await self.begin()
        for _, batches in self._parts:
            batches.stamp(stamp)
        self.check([await answer for answer in self.produce()])
        await self.end()

    def close(self) -> None:
        """Close all connections."""
        for connection in (self._coordinator, *(connection for connection, _ in self._parts)):
            if connection is not None:
                connection.close()


def _added(answer: bytes) -> set[int]:
    """Return the error codes in a response to AddPartitionsToTxn v2 for partitions of one topic."""
    (name,) = Struct(">h").unpack_from(answer, 12)
    at = 14 + name
    (count,) = LENGTH.unpack_from(answer, at)
    rows = range(at + 4, at + 4 + 6 * count, 6)
    return {int.from_bytes(answer[row + 4 : row + 6], signed=True) for row in rows}


class Transactions:
    """The commits of some producers: the rate, and the sorted durations in milliseconds."""

    def __init__(self, durations: Sequence[float], seconds: float, retries: int) -> None:
        self.durations_ms = sorted(duration * 1_000 for duration in durations)
        self.rate = len(durations) / seconds
        self.retries = retries

    def percentile_ms(self, share: float) -> float:
        """Return the duration at a percentile. `share`: the percentile as a fraction, such as 0.99."""
        index = min(int(share * len(self.durations_ms)), len(self.durations_ms) - 1)
        return self.durations_ms[index]


async def commits(producers: Sequence[Producer], seconds: float) -> Transactions:
    """Let every producer commit one transaction after the other for `seconds`."""
    durations: list[float] = []
    began = time.perf_counter()
    end = began + seconds

    async def run(producer: Producer) -> None:
        while (before := time.perf_counter()) < end:
            await producer.transact()
            durations.append(time.perf_counter() - before)

    retries = sum(producer.retries for producer in producers)
    async with asyncio.timeout(seconds + ANSWER_SECONDS):
        await asyncio.gather(*map(run, producers))
    retried = sum(producer.retries for producer in producers) - retries
    return Transactions(durations, time.perf_counter() - began, retried)


async def stream(producer: Producer, count: int, per_transaction: int, in_flight: int) -> float:
    """Send `count` batches to each partition, in transactions of `per_transaction`, 0 for none; return batches/s."""
    began = time.perf_counter()
    waiting: deque[list[asyncio.Future[bytes]]] = deque()

    async def finish(most: int) -> None:
        while len(waiting) > most:
            producer.check([await answer for answer in waiting.popleft()])

    async with asyncio.timeout(ANSWER_SECONDS + 60):
        for number in range(count):
            if per_transaction and number % per_transaction == 0:
                if number:
                    await finish(0)
                    await producer.end()
                await producer.begin()
            await finish(in_flight - 1)
            waiting.append(producer.produce())
        await finish(0)
        if per_transaction:
            await producer.end()
    return count / (time.perf_counter() - began)


class Consumer:
    """A read_committed consumer of one partition, with one Fetch request that always waits at the end."""

    def __init__(self, topic: str, leader: Leader) -> None:
        self._topic = topic
        self._leader = leader
        self._offset = 0
        self._connection: Connection

    async def start(self) -> None:
        """Connect to the leader."""
        self._connection = await Connection.open(self._leader[1:])

    async def read(self) -> list[bytes]:
        """Return the values of the next committed records, which may be none. Raises LoadError."""
        answer = await self._connection.send(self._request())
        data = records_of(answer, self._topic)
        at = 0
        while at + HEADER_BYTES <= len(data):
            header = HEADER.unpack_from(data, at)
            if at + OVERHEAD + header[BATCH_LENGTH] > len(data):
                break
            self._offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            at += OVERHEAD + header[BATCH_LENGTH]
        return [record.value or b"" for record in batch.records(data[:at])]

    def _request(self) -> bytes:
        row: dict[str, Any] = {
            "partition": self._leader.partition,
            "fetch_offset": self._offset,
            "partition_max_bytes": 1 << 20,
        }
        body = codec.request(
            FETCH,
            11,
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": self._topic, "partitions": [row]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        return codec.encode_request(FETCH, 11, 1, CLIENT_ID, body)

    def close(self) -> None:
        self._connection.close()


async def visible(
    producers: Sequence[Producer], consumer: Consumer, rate: int, seconds: float
) -> list[float]:
    """Commit `rate` transactions per second; return the sorted milliseconds from the begin of each to the consumer.

    The producers take turns, and none begins a transaction before its last one has ended.
    """
    period, count = 1 / rate, int(rate * seconds)
    arrived: list[float] = []
    began = time.perf_counter()

    async def write(first: int) -> None:
        for number in range(first, count, len(producers)):
            due = began + number * period
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            await producers[first].transact(Struct(">d").pack(time.perf_counter()))

    async def read() -> None:
        while len(arrived) < count:
            values = await consumer.read()
            now = time.perf_counter()
            arrived.extend((now - Struct(">d").unpack(value[-8:])[0]) * 1_000 for value in values)

    async with asyncio.timeout(seconds + ANSWER_SECONDS):
        await asyncio.gather(read(), *map(write, range(len(producers))))
    return sorted(arrived[len(producers) :])
