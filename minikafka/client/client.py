"""The client of a cluster: topics, produce, fetch and offsets, with retries and across leader changes.

Invariant: one client's records for one partition are appended in the order of the `produce` calls. With
acks=all (-1) each record is appended exactly once while the client lives, because batches carry a
producer id and a sequence number. Retriable errors are retried until the delivery timeout; then the last
error is raised as `KafkaError`. The error is NETWORK_EXCEPTION if no broker answered.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from minikafka.base.arguments import several
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng, Transport
from minikafka.client import consumer
from minikafka.client.administration.acl_admin import AclAdmin
from minikafka.client.administration.admin import API_TIMEOUT_MS, Admin, NewTopic
from minikafka.client.administration.group_admin import GroupAdmin
from minikafka.client.administration.inspection import Inspection
from minikafka.client.administration.quota_admin import QuotaRequests
from minikafka.client.administration.results import Outcome
from minikafka.client.administration.scram_admin import ScramAdmin
from minikafka.client.administration.transaction_admin import TransactionAdmin
from minikafka.client.log_offsets import READ_COMMITTED, READ_UNCOMMITTED, LogOffsets
from minikafka.client.login import Connector
from minikafka.client.metadata import ClusterInfo, Metadata, TopicInfo, error_code
from minikafka.client.network import VERSIONS, Network, parse_bootstrap, request
from minikafka.client.partitioner import partition_for_key
from minikafka.client.request_bodies import offsets_request, produce_request, refused_batch
from minikafka.client.retries import GRACE_MS, Retries
from minikafka.client.waits import Waits
from minikafka.kafka.records.batch import UNDATED, Record, build
from minikafka.kafka.wire import versions
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.transport import SocketTransport

BATCH_BYTES: Final = 512 * 1024
"""Approximate maximum size of one batch; half of `message.max.bytes`."""
RECORD_OVERHEAD_BYTES: Final = 32
KEYLESS_BYTES: Final = 16 * 1024
"""Records without key go to one partition until this many bytes were sent there, then to the next partition, as in
Kafka's producer (KIP-794).
"""
_SEQUENCE_MODULUS: Final = 2**31

T = TypeVar("T")
Start: TypeAlias = Literal["earliest", "latest"] | int
"""A position: the first record, the end, or a number (an offset for `consume`, Unix ms for `list_offsets`)."""


class Produced(NamedTuple):
    """The partition and offset of an appended record; `offset` is -1 with acks=0."""

    partition: int
    offset: int


class NotProduced(KafkaError):
    """Some records of one `produce` call were not acknowledged.

    `index`: index of a failed record among the records of the call; earlier records of its partition
    succeeded. `stored`: number of records of the call that were acknowledged.
    """

    def __init__(self, cause: KafkaError, index: int, stored: int) -> None:
        super().__init__(cause.code, cause.detail)
        self._reason = cause.reason
        self.index = index
        self.stored = stored

    @property
    def reason(self) -> str:
        return self._reason


class Fetched(NamedTuple):
    """The records of one fetch. `next_offset`: the next fetch offset, after all fetched batches."""

    records: list[Record]
    next_offset: int
    high_watermark: int
    log_start_offset: int


class FetchedBatches(NamedTuple):
    """The batches of one fetch as bytes; the last one may be incomplete."""

    batches: bytes
    high_watermark: int
    log_start_offset: int


class _Producer(NamedTuple):
    id: int
    epoch: int


_NO_PRODUCER: Final = _Producer(-1, -1)


class Client:
    """A client of one cluster: `async with Client("host:port") as client`. It starts no tasks."""

    def __init__(
        self,
        bootstrap: str,
        *,
        transport: Transport | None = None,
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        client_id: str = "minikafka",
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        api_timeout_ms: int = API_TIMEOUT_MS,
        read_committed: bool = False,
    ) -> None:
        """Timeouts have the meaning and defaults of Kafka's `request.timeout.ms`, `delivery.timeout.ms`
        and `default.api.timeout.ms`. `transport`, `clock` and `rng` default to the real ones of this machine.
        `connector`: how to connect to brokers that demand TLS or a login, in the place of `transport`.
        `read_committed`: neither return records of open and aborted transactions, nor count them in latest offsets.
        """
        connector = connector or Connector(transport or SocketTransport())
        self._clock = clock or SystemClock()
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._network = Network(connector, self._clock, client_id)
        # Fetches have their own connections: a fetch that waits for records delays later requests on its connection.
        self._fetch_network = Network(connector, self._clock, client_id)
        self._metadata = Metadata(self._network, parse_bootstrap(bootstrap), request_timeout_ms)
        self._retries = Retries(self._clock, self._metadata, delivery_timeout_ms)
        self.admin = Admin(
            self._network, self._metadata, self._clock, request_timeout_ms, api_timeout_ms
        )
        api_retries = Retries(self._clock, self._metadata, api_timeout_ms)
        self.groups = GroupAdmin(self._network, self._metadata, api_retries, request_timeout_ms)
        self.transactions = TransactionAdmin(
            self._network, self._metadata, api_retries, request_timeout_ms
        )
        self.acls = AclAdmin(self._network, self._metadata, api_retries, request_timeout_ms)
        self.users = ScramAdmin(self._network, self._metadata, api_retries, request_timeout_ms)
        self.inspection = Inspection(self._network)
        self.quotas = QuotaRequests(self._network, self._metadata, api_retries, request_timeout_ms)
        self.log_offsets = LogOffsets(
            self._network, self._metadata, api_retries, request_timeout_ms, self._isolation_level
        )
        self._order: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sequences: defaultdict[tuple[int, TopicPartition], int] = defaultdict(int)
        self._producer = _NO_PRODUCER
        self._producer_lock = asyncio.Lock()
        self._rotation = int.from_bytes((rng or SystemRng()).bytes(4))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls in progress fail."""
        self._network.close()
        self._fetch_network.close()

    @property
    def waits(self) -> Waits:
        """The waits of the calls in progress."""
        return self._metadata.waits

    # Topics

    async def create_topics(self, *topics: NewTopic) -> None:
        """Create topics and wait for their leaders. Raises the KafkaError of the first topic that failed."""
        _raise_first(await self.admin.create_topics(topics))

    async def delete_topics(self, *names: str) -> None:
        """Mark topics for deletion. Raises the KafkaError of the first topic that failed."""
        _raise_first(await self.admin.delete_topics(names))

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        _, topics = await self._retries(lambda: self._metadata.describe(None))
        return sorted(info.name for info, _ in topics)

    async def describe_topics(self, *names: str) -> list[TopicInfo]:
        """Return these topics, from the metadata of one broker. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
        _, topics = await self._retries(lambda: self._metadata.describe(several(str, names)))
        for info, error in topics:
            if error is not ErrorCode.NONE:
                raise AnsweredError(error, info.name)
        return [info for info, _ in topics]

    async def describe_cluster(self) -> ClusterInfo:
        """Return the brokers and the controller, from the metadata of one broker."""
        cluster, _ = await self._retries(lambda: self._metadata.describe(()))
        return cluster

    # Produce

    async def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int | Sequence[int | None] | None = None,
        acks: Literal[-1, 0, 1] = -1,
        codec: int = 0,
    ) -> list[Produced]:
        """Append records; return the partition and offset of each, in the order given.

        `partition`: one number for all records, or one number per record. None sends a record to the
        partition of its key. Records without key are sent to one partition until it has received
        KEYLESS_BYTES, then to the next partition; each call begins with a new partition. `codec`: 0 none,
        1 gzip, 2 snappy, 3 lz4, 4 zstd. A record without a timestamp gets the current time; every other
        timestamp is sent unchanged, also -1. A batch larger than `max.message.bytes` is split into halves.
        Raises NotProduced, which contains the number of acknowledged records.
        """
        if isinstance(records, Record):
            records = [records]
        chosen = await self._choose_partitions(topic, records, partition)
        wall_ms = self._clock.wall_ms()
        by_partition: defaultdict[int, list[Record]] = defaultdict(list)
        for number, record in zip(chosen, records, strict=True):
            dated = record._replace(timestamp=wall_ms) if record.timestamp == UNDATED else record
            by_partition[number].append(dated)
        appended: dict[int, list[int]] = {number: [] for number in by_partition}
        outcomes = await asyncio.gather(
            *(
                self._produce_in_order(
                    TopicPartition(topic, number), group, acks, codec, appended[number]
                )
                for number, group in by_partition.items()
            ),
            return_exceptions=True,
        )
        for number, outcome in zip(by_partition, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                places = [index for index, other in enumerate(chosen) if other == number]
                stored = sum(map(len, appended.values()))
                raise NotProduced(outcome, places[len(appended[number])], stored) from outcome
            if isinstance(outcome, BaseException):
                raise outcome
        offsets = {number: iter(found) for number, found in appended.items()}
        return [Produced(number, next(offsets[number])) for number in chosen]

    async def _choose_partitions(
        self,
        topic: str,
        records: Sequence[Record],
        partition: int | Sequence[int | None] | None,
    ) -> list[int]:
        info = await self._retries(
            lambda: self._metadata.topic(topic, create=True), f"the metadata of topic {topic}"
        )
        if isinstance(partition, int):
            return [partition] * len(records)
        wanted = [None] * len(records) if partition is None else partition
        keyless = self._keyless_partitions(info)
        count = len(info.partitions)
        chosen = []
        for number, record in zip(wanted, records, strict=True):
            if number is not None:
                chosen.append(number)
            elif record.key is not None:
                chosen.append(partition_for_key(record.key, count))
            else:
                chosen.append(keyless(record))
        return chosen

    def _keyless_partitions(self, info: TopicInfo) -> Callable[[Record], int]:
        """Return a function that chooses the partition of the next record without key."""
        led = [number for number, p in sorted(info.partitions.items()) if p.leader >= 0]
        numbers = led or sorted(info.partitions)
        room = 0

        def choose(record: Record) -> int:
            nonlocal room
            if room <= 0:
                self._rotation += 1
                room = KEYLESS_BYTES
            room -= _size(record)
            return numbers[self._rotation % len(numbers)]

        return choose

    async def _produce_in_order(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        acks: int,
        codec: int,
        offsets: list[int],
    ) -> None:
        """Append records to one partition; add each offset to `offsets` as soon as it is known."""
        async with self._order[tp]:
            left = _chunks(records)[::-1]
            while left:
                chunk = left.pop()
                try:
                    base = await self._produce_batch(tp, chunk, acks, codec)
                except KafkaError as error:
                    if error.code is not ErrorCode.MESSAGE_TOO_LARGE or len(chunk) == 1:
                        raise
                    middle = len(chunk) // 2
                    left += [chunk[middle:], chunk[:middle]]
                    continue
                offsets += [base + i if base >= 0 else -1 for i in range(len(chunk))]

    async def _produce_batch(
        self, tp: TopicPartition, records: Sequence[Record], acks: int, codec: int
    ) -> int:
        """Append one batch, with the same sequence number on every retry; return its base offset."""
        producer = await self._producer_identity() if acks == -1 else _NO_PRODUCER
        sequence = self._sequences[producer.id, tp] if acks == -1 else -1
        batch = build(
            records,
            codec=codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
        )
        body = produce_request(tp, batch, acks, self._request_timeout_ms)
        try:
            base = await self._retries(
                lambda: self._send_batch(tp, body, acks), f"the leader of {tp}", tp
            )
        except BaseException:
            # The batch may or may not be in the log, so later batches need a new producer id.
            if producer is self._producer:
                self._producer = _NO_PRODUCER
            raise
        if acks == -1:
            self._sequences[producer.id, tp] = (sequence + len(records)) % _SEQUENCE_MODULUS
        return base

    async def _send_batch(self, tp: TopicPartition, body: Any, acks: int) -> int:
        leader = await self._metadata.leader(*tp)
        if acks == 0:
            connection = await self._network.connection(leader.address, self._request_timeout_ms)
            connection.send_unanswered(versions.PRODUCE, VERSIONS[versions.PRODUCE], body)
            return -1
        timeout_ms = self._request_timeout_ms + GRACE_MS
        response = await self._network.call(leader.address, versions.PRODUCE, timeout_ms, body)
        answer = response.responses[0].partition_responses[0]
        _raise_for(answer.error_code, refused_batch(tp, answer))
        return int(answer.base_offset)

    async def _producer_identity(self) -> _Producer:
        async with self._producer_lock:
            if self._producer is _NO_PRODUCER:
                self._producer = await self._retries(self._new_producer, "a producer id")
            return self._producer

    async def _new_producer(self) -> _Producer:
        body = request(
            versions.INIT_PRODUCER_ID,
            transactional_id=None,
            transaction_timeout_ms=self._request_timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        address = await self._metadata.any_address()
        api = versions.INIT_PRODUCER_ID
        response = await self._network.call(address, api, self._request_timeout_ms, body)
        _raise_for(response.error_code, "producer id")
        return _Producer(int(response.producer_id), response.producer_epoch)

    # Read

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 1024 * 1024,
    ) -> Fetched:
        """Return records from `offset` on; no records if none is available within `max_wait_ms`.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) for an offset outside the log.
        """
        answer = await self._fetch(TopicPartition(topic, partition), offset, max_wait_ms, max_bytes)
        aborted = consumer.aborted_in(answer)
        found = consumer.records_from(answer.records, offset, aborted)
        return Fetched(*found, answer.high_watermark, answer.log_start_offset)

    async def fetch_batches(self, topic: str, partition: int, offset: int) -> FetchedBatches:
        """Return the batches from `offset` on as they are in the log, control batches too; b"" at the end.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) for an offset outside the log.
        """
        answer = await self._fetch(
            TopicPartition(topic, partition), offset, 0, consumer.FETCH_BYTES
        )
        return FetchedBatches(answer.records or b"", answer.high_watermark, answer.log_start_offset)

    async def _fetch(
        self, tp: TopicPartition, offset: int, max_wait_ms: int, max_bytes: int
    ) -> Any:
        async def attempt() -> Any:
            leader = await self._metadata.leader(*tp)
            wanted = {tp: (leader.leader_epoch, offset)}
            level = self._isolation_level
            body = consumer.fetch_request(wanted, max_wait_ms, max_bytes, level)
            timeout_ms = max_wait_ms + self._request_timeout_ms
            api = versions.FETCH
            response = await self._fetch_network.call(leader.address, api, timeout_ms, body)
            _raise_for(response.error_code, str(tp))
            answer = response.responses[0].partitions[0]
            _raise_for(answer.error_code, f"{tp} at offset {offset}")
            return answer

        return await self._retries(attempt, f"the leader of {tp}", tp)

    def consume(
        self,
        topic: str,
        *,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, int] = "earliest",
        until_end: bool | Mapping[int, int] = False,
        max_wait_ms: int = 500,
        on_end: Callable[[int, int], None] | None = None,
        on_held: Callable[[TopicPartition, int], None] | None = None,
    ) -> AsyncGenerator[consumer.ConsumedRecord, None]:
        """Yield the records of a topic, in order within each partition, across leader changes.

        `start`: earliest, latest, one offset for all partitions, or an offset by partition. `until_end`:
        stop at the current end of each partition, or before the given offset of each partition; if false,
        wait for new records forever. `on_end(partition, offset)` is called when a partition has no further
        record. With `read_committed`, `on_held(partition, offset)` is called when an open transaction has held back
        a partition for three seconds. Raises KafkaError for errors that are not retriable, for example
        OFFSET_OUT_OF_RANGE.
        """
        reader = self.partition_reader(
            max_wait_ms,
            on_end=on_end and (lambda tp, at: on_end(tp.partition, at)),
            on_held=on_held,
        )
        return self._consume(reader, topic, partitions, start, until_end)

    def partition_reader(
        self,
        max_wait_ms: int = 500,
        *,
        reset: int | None = None,
        on_end: Callable[[TopicPartition, int], None] | None = None,
        on_held: Callable[[TopicPartition, int], None] | None = None,
        isolation_level: int | None = None,
    ) -> consumer.Consumer:
        """Return a reader of partitions of any topics; `reset` is described at the reader.

        `isolation_level`: None for the one of this client.
        """
        return consumer.Consumer(
            self._fetch_network,
            self._metadata,
            self.log_offsets,
            self._clock,
            max_wait_ms=max_wait_ms,
            timeout_ms=max_wait_ms + self._request_timeout_ms,
            reset=reset,
            on_end=on_end,
            on_held=on_held,
            isolation_level=self._isolation_level if isolation_level is None else isolation_level,
        )

    async def _consume(
        self,
        reader: consumer.Consumer,
        topic: str,
        partitions: Sequence[int] | None,
        start: Start | Mapping[int, int],
        until_end: bool | Mapping[int, int],
    ) -> AsyncGenerator[consumer.ConsumedRecord, None]:
        if isinstance(start, Mapping):
            positions = dict(start)
        elif isinstance(start, int):
            chosen = [] if partitions is None else several(int, partitions)
            numbers = chosen or await self._partition_numbers(topic)
            positions = dict.fromkeys(numbers, start)
        else:
            positions = await self.list_offsets(topic, start, partitions)
        ends = until_end or None
        if ends is True:
            ends = await self.list_offsets(topic, "latest", list(positions))
        records = reader.read(_of_topic(topic, positions), ends and _of_topic(topic, ends))
        async for record in records:
            yield record

    async def list_offsets(
        self, topic: str, at: Start, partitions: Sequence[int] | None = None
    ) -> dict[int, int]:
        """Return by partition the earliest or latest offset, or the offset of the first record at or after a time.

        A time is in Unix ms; the offset is -1 if every record is older. The latest offset is the high watermark,
        or with `read_committed` the last stable offset.
        """
        timestamp = {"earliest": -2, "latest": -1}[at] if isinstance(at, str) else at
        chosen = [] if partitions is None else several(int, partitions)
        numbers = chosen or await self._partition_numbers(topic)
        outcomes = await asyncio.gather(
            *(self._list_offset(TopicPartition(topic, n), timestamp) for n in numbers),
            return_exceptions=True,
        )
        offsets = {}
        for number, outcome in zip(numbers, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            offsets[number] = outcome
        return offsets

    async def _list_offset(self, tp: TopicPartition, timestamp: int) -> int:
        async def attempt() -> int:
            leader = await self._metadata.leader(*tp)
            response = await self._network.call(
                leader.address,
                versions.LIST_OFFSETS,
                self._request_timeout_ms,
                offsets_request(tp, leader, timestamp, self._isolation_level),
            )
            answer = response.topics[0].partitions[0]
            _raise_for(answer.error_code, str(tp))
            return int(answer.offset)

        return await self._retries(attempt, f"the leader of {tp}", tp)

    async def _partition_numbers(self, topic: str) -> list[int]:
        about = f"the metadata of topic {topic}"
        return sorted((await self._retries(lambda: self._metadata.topic(topic), about)).partitions)


def _of_topic(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): offset for number, offset in offsets.items()}


def _chunks(records: Sequence[Record]) -> list[list[Record]]:
    """Split records, in order, into lists of about BATCH_BYTES each."""
    chunks: list[list[Record]] = []
    room = 0
    for record in records:
        size = _size(record)
        if size > room:
            chunks.append([])
            room = BATCH_BYTES
        chunks[-1].append(record)
        room -= size
    return chunks


def _size(record: Record) -> int:
    """Return the approximate size of a record in a batch, in bytes."""
    return len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES


def _raise_first(outcomes: Mapping[str, Outcome]) -> None:
    for name, outcome in outcomes.items():
        if not outcome.ok:
            if not outcome.message:
                raise AnsweredError(outcome.code, name)
            raise KafkaError(outcome.code, f"{name}: {outcome.message}")


def _raise_for(code: int, detail: str) -> None:
    if code:
        raise AnsweredError(error_code(code), detail)
