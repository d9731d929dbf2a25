"""Reading partitions of any topics, with at most one fetch in flight per leader.

Invariant: the records of a partition are returned in offset order, without duplicates and without gaps
after the start position, also across leader changes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.errors import CorruptBatch, ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.log_offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogOffsets,
)
from minikafka.client.metadata import Leader, Metadata, error_code
from minikafka.client.network import VERSIONS, Address, Network, decode, request
from minikafka.client.retries import RETRY_BACKOFF_MS
from minikafka.client.waits import PendingCall
from minikafka.kafka.records.batch import Record, records
from minikafka.kafka.records.header import (
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
from minikafka.kafka.records.transactions import Aborted, AbortedBatches
from minikafka.kafka.wire.versions import FETCH

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 8 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
HELD_MS: Final = 3_000
"""Report an open transaction after it has held back a reader of committed records for this time."""
UNKNOWN: Final = (EARLIEST, LATEST)
"""Positions that the leader must look up."""


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
    offsets: dict[TopicPartition, int]


class Consumer:
    """A reader of partitions. It has no background task: it fetches only while `read` is iterated."""

    def __init__(
        self,
        network: Network,
        metadata: Metadata,
        log_offsets: LogOffsets,
        clock: Clock,
        *,
        max_wait_ms: int,
        timeout_ms: int,
        reset: int | None = None,
        on_end: Callable[[TopicPartition, int], None] | None = None,
        isolation_level: int = READ_UNCOMMITTED,
        on_held: Callable[[TopicPartition, int], None] | None = None,
    ) -> None:
        """`on_end(partition, offset)`: called when a partition has no further record.

        `on_held(partition, offset)`: called once for each last stable offset at which a reader of committed records
        has waited for `HELD_MS`, although the log has later records.
        `reset`: EARLIEST or LATEST, where to continue in a partition whose position is outside of the log.
        None: raise OFFSET_OUT_OF_RANGE.
        """
        self._network = network
        self._metadata = metadata
        self._log_offsets = log_offsets
        self._clock = clock
        self._max_wait_ms = max_wait_ms
        self._timeout_ms = timeout_ms
        self._reset = reset
        self._on_end = on_end
        self._isolation_level = isolation_level
        self._on_held = on_held
        self._held: dict[TopicPartition, tuple[int, float]] = {}
        """By partition that is held back: the last stable offset, and when it was noticed; inf after the report."""
        self._reported: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}
        """By partition: the offset after the last returned record, or EARLIEST or LATEST until that is looked up."""
        self._ends: Mapping[TopicPartition, int] | None = None
        self._in_flight: dict[Address, _Fetch] = {}
        self._waits: dict[TopicPartition, PendingCall] = {}
        """By partition: the wait for its leader, from the first fetch or failure until a fetch succeeds."""

    async def read(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None,
    ) -> AsyncGenerator[ConsumedRecord, None]:
        """Yield the records from `positions` on, and stop before the offsets `ends` if given. Raises KafkaError.

        A position may be EARLIEST or LATEST.
        """
        self.positions = dict(positions)
        self._ends = ends
        for tp in self.positions.keys() - self._unfinished():
            self._report_end(tp, self.positions[tp])
        try:
            while self._unfinished():
                await self._send_fetches()
                if not self._in_flight:
                    await self._pause("no leader is available")
                    continue
                waiting = [fetch.answer for fetch in self._in_flight.values()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for fetch in self._pop_answered():
                    for tp, partition in await self._fetched_partitions(fetch):
                        self._end_wait(tp)
                        for record in self._new_records(tp, partition, fetch.offsets):
                            yield record
                        self._report_end(tp, self._readable_end(partition))
                        self._report_held(tp, partition)
        finally:
            for fetch in self._in_flight.values():
                fetch.answer.cancel()
            self._in_flight.clear()
            for tp in list(self._waits):
                self._end_wait(tp)

    def _begin_wait(self, tp: TopicPartition) -> None:
        if tp not in self._waits:
            # A leader without new records answers after `max_wait_ms`: until then, nobody waits for the leader.
            since = self._clock.now() + self._max_wait_ms
            self._waits[tp] = self._metadata.waits.begin(f"the leader of {tp}", since, tp)

    def _end_wait(self, tp: TopicPartition) -> None:
        wait = self._waits.pop(tp, None)
        if wait is not None:
            self._metadata.waits.end(wait)

    def _unfinished(self) -> list[TopicPartition]:
        if self._ends is None:
            return list(self.positions)
        ends = self._ends
        return [tp for tp, at in self.positions.items() if at < ends[tp]]

    async def _look_up_positions(self) -> None:
        """Replace EARLIEST and LATEST by offsets, except in partitions that have no leader now."""
        unknown = {tp: at for tp, at in self.positions.items() if at in UNKNOWN}
        if unknown:
            offsets, errors = await self._log_offsets.look_up_once(unknown)
            self.positions |= offsets
            for error in errors.values():
                if not error.code.retriable:
                    raise error

    async def _send_fetches(self) -> None:
        """For each leader without a fetch in flight, send a fetch for the partitions of this leader."""
        in_flight = {tp for fetch in self._in_flight.values() for tp in fetch.offsets}
        by_leader: defaultdict[Address, dict[TopicPartition, tuple[int, int]]] = defaultdict(dict)
        for tp in self._unfinished():
            self._begin_wait(tp)
        await self._look_up_positions()
        for tp in self._unfinished():
            position = self.positions[tp]
            leader = None if tp in in_flight or position in UNKNOWN else await self._leader(tp)
            if leader is not None and leader.address not in self._in_flight:
                by_leader[leader.address][tp] = (leader.leader_epoch, position)
        for address, wanted in by_leader.items():
            level = self._isolation_level
            body = fetch_request(wanted, self._max_wait_ms, PARTITION_BYTES, level)
            try:
                connection = await self._network.connection(address, self._timeout_ms)
                answer = connection.request(FETCH, VERSIONS[FETCH], body, self._timeout_ms)
            except OSError:
                self._metadata.invalidate()
                continue
            offsets = {tp: offset for tp, (_, offset) in wanted.items()}
            self._in_flight[address] = _Fetch(answer, offsets)

    async def _leader(self, tp: TopicPartition) -> Leader | None:
        """Return the leader of a partition, or None if the leader is currently unknown."""
        try:
            return await self._metadata.leader(*tp)
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

    async def _fetched_partitions(self, fetch: _Fetch) -> list[tuple[TopicPartition, Any]]:
        """Return the partitions in a response that have no error; [] if the whole fetch failed."""
        try:
            response = decode(FETCH, fetch.answer.result())
        except OSError as error:
            await self._pause(str(error))
            return []
        if response.error_code:
            topics = ", ".join(sorted({tp.topic for tp in fetch.offsets}))
            await self._handle_error(error_code(response.error_code), topics)
            return []
        answered = [
            (TopicPartition(topic.topic, p.partition_index), p)
            for topic in response.responses
            for p in topic.partitions
        ]
        for tp, p in answered:
            code = error_code(p.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._reset is not None:
                self.positions[tp] = self._reset
            elif p.error_code:
                await self._handle_error(code, str(tp))
        return [(tp, p) for tp, p in answered if not p.error_code and tp in fetch.offsets]

    def _new_records(
        self, tp: TopicPartition, partition: Any, offsets: Mapping[TopicPartition, int]
    ) -> Iterator[ConsumedRecord]:
        """Yield the new records of a fetched partition, and advance the partition's position."""
        end = self._ends[tp] if self._ends is not None else None
        aborted = aborted_in(partition)
        for found, behind in consumed_batches(tp, partition.records, offsets[tp], end, aborted):
            for record in found:
                self.positions[tp] = record.offset + 1
                yield record
            self.positions[tp] = behind

    def _readable_end(self, partition: Any) -> int:
        """Return the offset at which the reading of a fetched partition ends."""
        if self._isolation_level == READ_COMMITTED:
            return int(partition.last_stable_offset)
        return int(partition.high_watermark)

    def _report_end(self, tp: TopicPartition, end: int) -> None:
        """Call `on_end` if the partition was read up to `end`, but only once for each value of `end`."""
        if self._ends is not None:
            end = self._ends[tp]
        if self._on_end and self.positions[tp] >= end and self._reported.get(tp) != end:
            self._reported[tp] = end
            self._on_end(tp, end)

    def _report_held(self, tp: TopicPartition, partition: Any) -> None:
        """Call `on_held` if an open transaction has held back the partition for `HELD_MS`."""
        stable = self._readable_end(partition)
        if self._on_held is None or not self.positions[tp] >= stable < partition.high_watermark:
            self._held.pop(tp, None)
            return
        offset, since = self._held.get(tp, (-1, 0.0))
        if offset != stable:
            self._held[tp] = (stable, self._clock.now())
        elif self._clock.now() - since >= HELD_MS:
            self._held[tp] = (stable, math.inf)
            self._on_held(tp, stable)

    async def _handle_error(self, code: ErrorCode, detail: str) -> None:
        if not code.retriable:
            raise AnsweredError(code, detail)
        await self._pause(f"{detail}: {code.name}")

    async def _pause(self, reason: str) -> None:
        """After a transient failure, mark the metadata as stale and wait for the backoff."""
        logger.debug("reading pauses: %s", reason)
        self._metadata.invalidate()
        await self._clock.sleep(RETRY_BACKOFF_MS)


def fetch_request(
    partitions: Mapping[TopicPartition, tuple[int, int]],
    max_wait_ms: int,
    partition_bytes: int,
    isolation_level: int = READ_UNCOMMITTED,
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
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max(FETCH_BYTES, partition_bytes),
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": some} for topic, some in topics.items()],
    )


def aborted_in(partition: Any) -> AbortedBatches:
    """Return the aborted batches of a fetched partition; none if uncommitted records are read."""
    listed = partition.aborted_transactions or ()
    return AbortedBatches(Aborted(int(one.producer_id), one.first_offset) for one in listed)


def consumed_batches(
    tp: TopicPartition,
    data: bytes | None,
    start: int,
    end: int | None = None,
    aborted: AbortedBatches | None = None,
) -> Iterator[tuple[list[ConsumedRecord], int]]:
    """Yield (records, offset after the batch) for each whole batch of a response.

    Only records from `start` on and before `end` are included, without the `aborted` ones; the list may be empty.
    Raises CorruptBatch.
    """
    position = start
    for header, batch in whole_batches(data or b""):
        is_hidden = aborted is not None and aborted.is_aborted(header)
        has_append_time = bool(header[ATTRIBUTES] & LOG_APPEND_TIME)
        found = [
            ConsumedRecord(tp.topic, tp.partition, *record, has_append_time)
            for record in (() if is_hidden else records(batch))
            if start <= record.offset and (end is None or record.offset < end)
        ]
        position = max(position, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1)
        yield found, position


def records_from(
    data: bytes | None, offset: int, aborted: AbortedBatches | None = None
) -> tuple[list[Record], int]:
    """Decode the whole batches of a response; return the records at or above `offset`, and the next fetch offset.

    The `aborted` batches have no records. Raises CorruptBatch.
    """
    next_offset = offset
    found: list[Record] = []
    for header, batch in whole_batches(data or b""):
        next_offset = max(next_offset, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1)
        if aborted is None or not aborted.is_aborted(header):
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
