"""The assigned partitions of a consumer: positions, fetches in flight, and records not yet returned.

Invariant: the records of a partition are returned once each, in offset order, from the partition's position
on. A seek or a new assignment drops the records that were fetched before. At most one fetch per leader is in
flight. The next fetch is sent when the response is received, so that records arrive while the application
processes earlier records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.consumer import (
    BACKOFF_MS,
    PARTITION_BYTES,
    ConsumedRecord,
    consumed_batches,
    fetch_request,
)
from minikafka.client.groups.offsets import OffsetAndMetadata
from minikafka.client.metadata import Leader, Metadata, error_code
from minikafka.client.network import VERSIONS, Address, Network, decode
from minikafka.wire.versions import FETCH

logger = logging.getLogger(__name__)

BUFFERED_BYTES_MAX: Final = 2 * PARTITION_BYTES
"""A partition is not fetched while this many of its fetched bytes (two full responses) wait to be returned."""
UNKNOWN: Final = -1
"""Position of a partition whose offset was not looked up yet."""


class Place:
    """The progress of the consumer in one partition, and the records that it has fetched but not returned.

    `position`: offset of the next record to return. `fetch_offset`: offset of the next fetch. `epoch`: leader epoch
    of the batch before `position`, -1 if unknown. `former_epoch`: value of `epoch` before the last
    record was returned.
    """

    __slots__ = (
        "buffered_bytes",
        "epoch",
        "fetch_offset",
        "former_epoch",
        "is_paused",
        "position",
        "records",
        "retry_at",
    )

    def __init__(self) -> None:
        self.is_paused = False
        self.retry_at = 0
        self.move(UNKNOWN)

    def move(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Continue at this offset; drop the records that were fetched but not returned."""
        self.position = offset
        self.fetch_offset = offset
        self.epoch = self.former_epoch = epoch
        self.records: deque[tuple[ConsumedRecord | None, int, int]] = deque()
        self.buffered_bytes = 0

    def add(self, tp: TopicPartition, data: bytes | None) -> None:
        """Add the records of a response. Raises CorruptBatch."""
        for found, behind, epoch in consumed_batches(tp, data, self.fetch_offset):
            self.records += [(record, record.offset + 1, epoch) for record in found]
            # None marks the end of a batch, whose last offsets may have no record (control batches, compaction).
            self.records.append((None, behind, epoch))
            self.fetch_offset = behind
        self.buffered_bytes += len(data or b"")

    def pop(self) -> ConsumedRecord | None:
        """Return the next record, and advance the position past it; None if no fetched record is left."""
        while self.records:
            former = self.epoch
            record, self.position, self.epoch = self.records.popleft()
            if record is not None:
                self.former_epoch = former
                return record
        self.buffered_bytes = 0
        return None


class _Fetch(NamedTuple):
    """One Fetch request in flight; `offsets`: the fetch offset of each partition."""

    answer: asyncio.Future[bytes]
    offsets: dict[TopicPartition, int]


class Fetching:
    """The reader of the assigned partitions. It starts no background task; `receive` processes the responses."""

    def __init__(
        self,
        network: Network,
        metadata: Metadata,
        clock: Clock,
        max_wait_ms: int,
        request_timeout_ms: int,
        on_change: Callable[[], None],
    ) -> None:
        """Create a reader without partitions. The reader calls `on_change` when a response has arrived."""
        self._network = network
        self._metadata = metadata
        self._clock = clock
        self._max_wait_ms = max_wait_ms
        self._timeout_ms = max_wait_ms + request_timeout_ms
        self._on_change = on_change
        self.places: dict[TopicPartition, Place] = {}
        self.without_position: set[TopicPartition] = set()
        """The partitions whose position must be looked up before they are read."""
        self._turn: deque[TopicPartition] = deque()
        self._in_flight: dict[Address, _Fetch] = {}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; each partition is fetched as soon as its position is known."""
        for tp in partitions:
            self.places[tp] = Place()
            self.without_position.add(tp)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading partitions."""
        for tp in partitions:
            self.places.pop(tp, None)
        self.without_position.difference_update(partitions)

    def move(self, tp: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Set the position of a partition, if the partition is still assigned.

        `offset`: the new position; UNKNOWN means that the position must be looked up. `epoch`: leader epoch
        of the record before the offset.
        """
        place = self.places.get(tp)
        if place is not None:
            place.move(offset, epoch)
            if offset == UNKNOWN:
                self.without_position.add(tp)
            else:
                self.without_position.discard(tp)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the known positions, as offsets to commit."""
        return {
            tp: OffsetAndMetadata(place.position, leader_epoch=place.epoch)
            for tp, place in self.places.items()
            if place.position >= 0
        }

    def position_before(self, record: ConsumedRecord) -> OffsetAndMetadata:
        """Return the position before `record`, as an offset to commit.

        `record` must be the last record returned from its partition. The partition must still be assigned.
        """
        place = self.places[TopicPartition(record.topic, record.partition)]
        return OffsetAndMetadata(record.offset, leader_epoch=place.former_epoch)

    def has_records(self) -> bool:
        """True unless it is certain that `next_record` would return None."""
        return bool(self._turn)

    def next_record(self) -> ConsumedRecord | None:
        """Return the next fetched record of a partition that is not paused; None if there is no such record."""
        turn = self._turn
        while turn:
            place = self.places.get(turn[0])
            if place is not None and not place.is_paused and place.records:
                record = place.pop()
                if record is not None:
                    return record
            turn.popleft()
        return None

    def offer(self, tp: TopicPartition) -> None:
        """Let `next_record` return the fetched records of this partition, for example after a resume."""
        if tp in self.places and self.places[tp].records and tp not in self._turn:
            self._turn.append(tp)

    def close(self) -> None:
        """Cancel all fetches and drop all partitions."""
        for fetch in self._in_flight.values():
            fetch.answer.cancel()
        self._in_flight.clear()
        self.drop(list(self.places))

    def receive(self) -> list[TopicPartition]:
        """Store the records of the responses that have arrived.

        Return the partitions whose fetch offset is out of range. Raises KafkaError and CorruptBatch.
        """
        outside: list[TopicPartition] = []
        for address, fetch in list(self._in_flight.items()):
            if not fetch.answer.done():
                continue
            del self._in_flight[address]
            try:
                response = decode(FETCH, fetch.answer.result())
            except OSError as error:
                self._back_off(fetch.offsets, str(error))
                continue
            if response.error_code:
                self._refused(error_code(response.error_code), fetch.offsets)
                continue
            for topic in response.responses:
                for answer in topic.partitions:
                    tp = TopicPartition(topic.topic, answer.partition_index)
                    if not self._take(tp, answer, fetch.offsets.get(tp, UNKNOWN)):
                        outside.append(tp)
        return outside

    def _take(self, tp: TopicPartition, answer: Any, offset: int) -> bool:
        """Store the records of one partition in a response; return False if the fetch offset is out of range."""
        place = self.places.get(tp)
        if place is None or place.fetch_offset != offset:
            return True  # the partition was given up, or a seek changed its position
        code = error_code(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return False
        if code is not ErrorCode.NONE:
            self._refused(code, [tp])
            return True
        place.add(tp, answer.records)
        self.offer(tp)
        return True

    async def send(self) -> None:
        """For each leader without a fetch in flight, send a fetch for its partitions that need records."""
        now = self._clock.now()
        busy = {tp for fetch in self._in_flight.values() for tp in fetch.offsets}
        wanted: defaultdict[Address, dict[TopicPartition, tuple[int, int]]] = defaultdict(dict)
        for tp, place in list(self.places.items()):
            if self._needs_records(place, now) and tp not in busy:
                leader = await self._leader(tp)
                if leader is not None and leader.address not in self._in_flight:
                    wanted[leader.address][tp] = (leader.leader_epoch, place.fetch_offset)
        for address, partitions in wanted.items():
            await self._send_to(address, partitions)

    def _needs_records(self, place: Place, now: int) -> bool:
        return (
            place.position >= 0
            and not place.is_paused
            and place.buffered_bytes < BUFFERED_BYTES_MAX
            and place.retry_at <= now
        )

    async def _send_to(
        self, address: Address, partitions: dict[TopicPartition, tuple[int, int]]
    ) -> None:
        body = fetch_request(partitions, self._max_wait_ms, PARTITION_BYTES)
        try:
            connection = await self._network.connection(address, self._timeout_ms)
            answer = connection.request(FETCH, VERSIONS[FETCH], body, self._timeout_ms)
        except OSError as error:
            self._back_off(partitions, str(error))
            return
        self._in_flight[address] = _Fetch(
            answer, {tp: offset for tp, (_, offset) in partitions.items()}
        )
        answer.add_done_callback(lambda _: self._on_change())

    async def _leader(self, tp: TopicPartition) -> Leader | None:
        """Return the leader of a partition, or None if the leader is currently unknown."""
        try:
            return await self._metadata.leader(*tp)
        except OSError as error:
            self._back_off([tp], str(error))
        except KafkaError as error:
            self._refused(error.code, [tp])
        return None

    def _refused(self, code: ErrorCode, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again after the backoff. Raises KafkaError if `code` is not retriable."""
        if not code.retriable:
            raise AnsweredError(code, ", ".join(map(str, partitions)))
        self._back_off(partitions, code.name)

    def _back_off(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        logger.debug("fetching pauses: %s", reason)
        self._metadata.invalidate()
        until = self._clock.now() + BACKOFF_MS
        for tp in partitions:
            if tp in self.places:
                self.places[tp].retry_at = until
        self._clock.call_later(BACKOFF_MS, self._on_change)
