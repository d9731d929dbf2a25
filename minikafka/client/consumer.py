"""Reading a topic, with at most one fetch in flight per leader, and positions that only increase.

Invariant: the records of a partition are returned in offset order, without duplicates and without gaps
after the start position, also across leader changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.errors import CorruptBatch, ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.metadata import Leader, Metadata, error_code
from minikafka.client.network import VERSIONS, Address, Network, decode, request
from minikafka.client.waits import Wait
from minikafka.record.batch import Record, records
from minikafka.record.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    OVERHEAD,
    Header,
)
from minikafka.wire.versions import FETCH

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 8 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
BACKOFF_MS: Final = 100


class ConsumedRecord(NamedTuple):
    """A record with its topic, partition and offset.

    `has_append_time`: True if the broker set the timestamp (Kafka's LogAppendTime), not the producer.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    has_append_time: bool = False


class _Fetch(NamedTuple):
    """One Fetch request in flight; `offsets`: the fetch offset of each partition."""

    answer: asyncio.Future[bytes]
    offsets: dict[int, int]


class Consumer:
    """A reader of partitions of one topic. It has no background task: it fetches only while `read` is iterated."""

    def __init__(
        self,
        network: Network,
        metadata: Metadata,
        clock: Clock,
        topic: str,
        *,
        max_wait_ms: int,
        timeout_ms: int,
        on_end: Callable[[int, int], None] | None = None,
    ) -> None:
        """`on_end(partition, offset)`: called when a partition has no further record."""
        self._network = network
        self._metadata = metadata
        self._clock = clock
        self._topic = topic
        self._max_wait_ms = max_wait_ms
        self._timeout_ms = timeout_ms
        self._on_end = on_end
        self._reported: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._ends: Mapping[int, int] | None = None
        self._in_flight: dict[Address, _Fetch] = {}
        self._waits: dict[int, Wait] = {}
        """By partition: the wait for its leader, from the first fetch or failure until a fetch succeeds."""

    async def read(
        self, positions: Mapping[int, int], ends: Mapping[int, int] | None
    ) -> AsyncGenerator[ConsumedRecord, None]:
        """Yield the records from `positions` on, and stop before the offsets `ends` if given. Raises KafkaError."""
        self._positions = dict(positions)
        self._ends = ends
        for number in self._positions.keys() - self._unfinished():
            self._report_end(number, self._positions[number])
        try:
            while self._unfinished():
                await self._send_fetches()
                if not self._in_flight:
                    await self._pause("no leader is available")
                    continue
                waiting = [fetch.answer for fetch in self._in_flight.values()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for fetch in self._pop_answered():
                    for partition in await self._fetched_partitions(fetch):
                        self._end_wait(partition.partition_index)
                        for record in self._new_records(partition, fetch.offsets):
                            yield record
                        self._report_end(partition.partition_index, partition.high_watermark)
        finally:
            for fetch in self._in_flight.values():
                fetch.answer.cancel()
            self._in_flight.clear()
            for number in list(self._waits):
                self._end_wait(number)

    def _begin_wait(self, number: int) -> None:
        if number not in self._waits:
            tp = TopicPartition(self._topic, number)
            waits = self._metadata.waits
            self._waits[number] = waits.begin(f"the leader of {tp}", self._clock.now(), tp)

    def _end_wait(self, number: int) -> None:
        wait = self._waits.pop(number, None)
        if wait is not None:
            self._metadata.waits.end(wait)

    def _unfinished(self) -> list[int]:
        if self._ends is None:
            return list(self._positions)
        ends = self._ends
        return [number for number, at in self._positions.items() if at < ends[number]]

    async def _send_fetches(self) -> None:
        """For each leader without a fetch in flight, send a fetch for the partitions of this leader."""
        in_flight = {number for fetch in self._in_flight.values() for number in fetch.offsets}
        by_leader: defaultdict[Address, dict[int, tuple[int, int]]] = defaultdict(dict)
        for number in self._unfinished():
            self._begin_wait(number)
            leader = None if number in in_flight else await self._leader(number)
            if leader is not None and leader.address not in self._in_flight:
                by_leader[leader.address][number] = (leader.leader_epoch, self._positions[number])
        for address, partitions in by_leader.items():
            wanted = {TopicPartition(self._topic, n): place for n, place in partitions.items()}
            body = fetch_request(wanted, self._max_wait_ms, PARTITION_BYTES)
            try:
                connection = await self._network.connection(address, self._timeout_ms)
                answer = connection.request(FETCH, VERSIONS[FETCH], body, self._timeout_ms)
            except OSError:
                self._metadata.invalidate()
                continue
            offsets = {number: offset for number, (_, offset) in partitions.items()}
            self._in_flight[address] = _Fetch(answer, offsets)

    async def _leader(self, number: int) -> Leader | None:
        """Return the leader of a partition, or None if the leader is currently unknown."""
        try:
            return await self._metadata.leader(self._topic, number)
        except OSError:
            self._metadata.invalidate()
            return None
        except KafkaError as error:
            if not error.code.retriable:
                raise
            self._metadata.invalidate()
            return None

    def _pop_answered(self) -> list[_Fetch]:
        done = [address for address, fetch in self._in_flight.items() if fetch.answer.done()]
        return [self._in_flight.pop(address) for address in done]

    async def _fetched_partitions(self, fetch: _Fetch) -> list[Any]:
        """Return the partitions in a response that have no error; [] if the whole fetch failed."""
        try:
            response = decode(FETCH, fetch.answer.result())
        except OSError as error:
            await self._pause(str(error))
            return []
        if response.error_code:
            await self._handle_error(error_code(response.error_code), self._topic)
            return []
        partitions = [p for topic in response.responses for p in topic.partitions]
        for p in partitions:
            if p.error_code:
                await self._handle_error(
                    error_code(p.error_code), f"{self._topic}-{p.partition_index}"
                )
        return [p for p in partitions if not p.error_code and p.partition_index in fetch.offsets]

    def _new_records(self, partition: Any, offsets: Mapping[int, int]) -> Iterator[ConsumedRecord]:
        """Yield the new records of a fetched partition, then advance the partition's position."""
        number = partition.partition_index
        end = self._ends[number] if self._ends is not None else None
        tp = TopicPartition(self._topic, number)
        position = offsets[number]
        for found, behind in consumed_batches(tp, partition.records, position, end):
            yield from found
            position = behind
        self._positions[number] = position

    def _report_end(self, number: int, end: int) -> None:
        """Call `on_end` if the partition was read up to `end`, but only once for each value of `end`."""
        if self._ends is not None:
            end = self._ends[number]
        if self._on_end and self._positions[number] >= end and self._reported.get(number) != end:
            self._reported[number] = end
            self._on_end(number, end)

    async def _handle_error(self, code: ErrorCode, detail: str) -> None:
        if not code.retriable:
            raise AnsweredError(code, detail)
        await self._pause(f"{detail}: {code.name}")

    async def _pause(self, reason: str) -> None:
        """After a transient failure, mark the metadata as stale and wait for the backoff."""
        logger.debug("reading %s pauses: %s", self._topic, reason)
        self._metadata.invalidate()
        await self._clock.sleep(BACKOFF_MS)


def fetch_request(
    partitions: Mapping[TopicPartition, tuple[int, int]], max_wait_ms: int, partition_bytes: int
) -> Any:
    """Return a consumer's Fetch request without a fetch session.

    `partitions`: (leader epoch, fetch offset) by partition.
    """
    topics: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
    for tp, (leader_epoch, offset) in partitions.items():
        topics[tp.topic].append(
            {
                "partition": tp.partition,
                "current_leader_epoch": leader_epoch,
                "fetch_offset": offset,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": partition_bytes,
            }
        )
    return request(
        FETCH,
        replica_id=-1,
        max_wait=max_wait_ms,
        min_bytes=1,
        max_bytes=max(FETCH_BYTES, partition_bytes),
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": some} for topic, some in topics.items()],
    )


def consumed_batches(
    tp: TopicPartition, data: bytes | None, start: int, end: int | None = None
) -> Iterator[tuple[list[ConsumedRecord], int]]:
    """Yield (records, offset after the batch) for each whole batch of a response.

    Only records from `start` on and before `end` are included; the list may be empty. Raises CorruptBatch.
    """
    position = start
    for header, batch in whole_batches(data or b""):
        has_append_time = bool(header[ATTRIBUTES] & LOG_APPEND_TIME)
        found = [
            ConsumedRecord(tp.topic, tp.partition, *record, has_append_time)
            for record in records(batch)
            if start <= record.offset and (end is None or record.offset < end)
        ]
        position = max(position, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1)
        yield found, position


def records_from(data: bytes | None, offset: int) -> tuple[list[Record], int]:
    """Decode the whole batches of a response; return the records at or above `offset`, and the next fetch offset.

    Raises CorruptBatch.
    """
    next_offset = offset
    found: list[Record] = []
    for header, batch in whole_batches(data or b""):
        next_offset = max(next_offset, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1)
        found += (record for record in records(batch) if record.offset >= offset)
    return found, next_offset


def whole_batches(data: bytes) -> Iterator[tuple[Header, memoryview]]:
    """Yield the header and the bytes of each batch of a response; an incomplete last batch is left out.

    Raises CorruptBatch.
    """
    view = memoryview(data)
    at = 0
    while len(data) - at >= HEADER_BYTES:
        header = HEADER.unpack_from(data, at)
        stop = at + OVERHEAD + header[BATCH_LENGTH]
        if stop - at < HEADER_BYTES:
            raise CorruptBatch(f"no record batch of version 2 at byte {at}")
        if stop > len(data):
            return
        yield header, view[at:stop]
        at = stop
