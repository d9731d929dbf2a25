"""Reads the offset ranges of a task in blocks, and follows leader changes.

Each leader is asked for all its ranges in one Fetch request, so many small ranges take few requests. Invariants:
the blocks are in the order of the ranges, so that a task that runs again has its rows in the same order. No batch is
in two blocks, and every block contains at least one complete batch. Each leader has at most one request outstanding.
Blocks of later ranges are held: beyond `fetch_bytes` of them, only the first unfinished range is requested. All
requests and held blocks together have at most `RESPONSES` times `fetch_bytes`, however many leaders there are.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.base.known_cluster import Address
from minikafka.base.model import TopicPartition
from minikafka.spark.records.batches import extent
from minikafka.spark.source.ranges import OffsetRange, report_loss
from minikafka.spark.wire import protocol
from minikafka.spark.wire.connection import BlockingConnection
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, Unreachable, raise_if_final
from minikafka.spark.wire.protocol import FetchEntry, FetchResponse

logger = logging.getLogger(__name__)

_WAIT_MS: Final = 500
"""Maximum time for which a broker may delay the response to a Fetch if there are no records."""
_LEAST_BYTES: Final = 16 << 10
"""Minimum number of bytes to request from a partition."""
_FIRST_BYTES: Final = 128 << 10
"""Maximum number of bytes of the first request for a range, so that `limit` and the like get their rows early."""
RESPONSES: Final = 4
"""Maximum number of full responses that are requested or held at the same time."""


class Block(NamedTuple):
    """The part of a Fetch response that belongs to one range."""

    wanted: OffsetRange
    start: int
    """The first offset of the range that is in the log. The records may also contain deleted records below it."""
    response: FetchResponse


class _State(Enum):
    READY = auto()
    STUCK = auto()
    """The leader is not known, does not answer, refuses, or has no records yet."""
    LOST = auto()
    """The offset is not in the log."""


@dataclass(eq=False)
class _Progress:
    """The progress of the reader in one range."""

    wanted: OffsetRange
    offset: int
    """The next offset to fetch."""
    start: int
    state: _State = _State.READY
    limit: int = 0
    """Maximum number of bytes in the last request."""
    least_bytes: int = 0
    """Minimum number of bytes to ask for in the next request."""
    bytes_per_offset: float = 0.0
    """Average number of bytes for an offset in the last response; 0 before the first response."""
    batch_bytes: int = 0
    """Size of the first batch of the last response. If the range ends within a batch, the whole batch is needed."""
    held: list[Block] = field(default_factory=list)
    """The blocks that are not yielded yet."""

    @property
    def tp(self) -> TopicPartition:
        return self.wanted.tp

    @property
    def is_done(self) -> bool:
        return self.offset >= self.wanted.end

    def estimate(self, share: int) -> int:
        """Return the number of bytes that the rest of the range may have; at first, at most `share`."""
        if not self.bytes_per_offset:
            return max(min(share, _FIRST_BYTES), self.least_bytes)
        left = int((self.wanted.end - self.offset) * self.bytes_per_offset)
        return max(left + max(left // 4, self.batch_bytes), self.least_bytes)


class RangesReader:
    """Fetches offset ranges from the leaders of their partitions.

    `deadline` limits the time without a new batch.
    """

    def __init__(
        self,
        leaders: LeaderConnections,
        ranges: Iterable[OffsetRange],
        deadline: Deadline,
        *,
        fetch_bytes: int,
        fail_on_data_loss: bool,
    ) -> None:
        self._leaders = leaders
        least = min(_LEAST_BYTES, fetch_bytes)
        self._open = [
            _Progress(one, one.start, one.start, least_bytes=least) for one in ranges if one.size
        ]
        self._undelivered = deque(self._open)
        """The ranges of which not all blocks are yielded, in order."""
        self._held_bytes = 0
        self._deadline = deadline
        self._fetch_bytes = fetch_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._asked: dict[Address, tuple[BlockingConnection, dict[TopicPartition, _Progress]]] = {}
        """The outstanding request of each leader, in the order of the requests."""
        self._has_old_leaders = True
        """True until the leaders are looked up. Former tasks may have left them in `leaders`."""

    def blocks(self) -> Iterator[Block]:
        """Yield blocks of complete batches. The first and last of a range may have records outside the range.

        Raises `Unreachable`, `DataLost`, `KafkaError`, `CorruptBatch`, `ProtocolViolation`.
        """
        if not self._leaders.know(one.tp for one in self._open):
            self._look_up_leaders(self._open)
        while self._open:
            self._ask_leaders()
            if not self._asked:
                self._repair()
                continue
            self._receive()
            self._open = [one for one in self._open if not one.is_done]
            self._ask_leaders()  # the next responses arrive while the caller decodes this one
            for block in self._in_order():
                yield block
                self._deadline.restart()  # the time in which the caller decodes does not count
        yield from self._in_order()

    def _in_order(self) -> Iterator[Block]:
        """Yield the held blocks up to the first range that is not finished."""
        while self._undelivered:
            first = self._undelivered[0]
            held, first.held = first.held, []
            self._held_bytes -= sum(len(block.response.records) for block in held)
            yield from held
            if not first.is_done:
                return
            self._undelivered.popleft()

    def _ask_leaders(self) -> None:
        """Send a Fetch to each leader of a ready range that has no request outstanding, as long as there is room.

        The first unfinished range is always requested, because only its blocks make room.
        """
        by_leader: dict[Address, dict[TopicPartition, _Progress]] = {}
        first = {one.tp: one for one in reversed(self._open)}
        for one in self._open if self._held_bytes < self._fetch_bytes else self._open[:1]:
            if one.state is not _State.READY or first[one.tp] is not one:
                continue
            address = self._leaders.address(one.tp)
            if address is None:
                one.state = _State.STUCK
            elif address not in self._asked:
                by_leader.setdefault(address, {})[one.tp] = one
        for address, ready in by_leader.items():
            if self._has_room() or self._open[0].tp in ready:
                self._ask(address, ready)

    def _has_room(self) -> bool:
        """True if one more full response may be requested."""
        requested = sum(one.limit for _, asked in self._asked.values() for one in asked.values())
        return requested + self._held_bytes <= (RESPONSES - 1) * self._fetch_bytes

    def _ask(self, address: Address, ready: dict[TopicPartition, _Progress]) -> None:
        entries = self._entries(ready)
        asked = {tp: ready[tp] for tp in entries}
        most = max(self._fetch_bytes, next(iter(asked.values())).limit)
        body = protocol.fetch_request(
            entries, self._leaders.isolation, max_bytes=most, max_wait_ms=_WAIT_MS
        )
        try:
            connection = self._leaders.connection(address)
            connection.send(protocol.FETCH, body)
        except OSError as error:
            self._lose(address, asked.values(), error)
        else:
            self._asked[address] = (connection, asked)

    def _entries(self, ready: dict[TopicPartition, _Progress]) -> dict[TopicPartition, FetchEntry]:
        """Return the partitions to request from a leader: as many as may fit into one response."""
        share = self._fetch_bytes // len(ready)
        left = self._fetch_bytes
        entries = {}
        for tp, one in ready.items():
            one.limit = min(one.estimate(share), max(self._fetch_bytes, one.least_bytes))
            entries[tp] = FetchEntry(self._leaders.leader_epoch(tp), one.offset, one.limit)
            left -= one.limit
            if left <= 0:
                break
        return entries

    def _receive(self) -> None:
        """Hold the blocks of the response to the oldest outstanding request."""
        address = next(iter(self._asked))
        connection, asked = self._asked.pop(address)
        try:
            answers = protocol.parse_fetch(connection.receive(), asked)
        except OSError as error:
            self._lose(address, asked.values(), error)
            return
        short = []
        has_blocks = False
        for tp, one in asked.items():
            answer = answers[tp]
            if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                one.state = _State.LOST
            elif answer.error:
                raise_if_final(answer.error, str(tp), protocol.FETCH, tp.topic)
                logger.info("The leader of %s refused: %s", tp, ErrorCode(answer.error).name)
                one.state = _State.STUCK
            elif self._advance(one, answer.records):
                one.held.append(Block(one.wanted, one.start, answer))
                self._held_bytes += len(answer.records)
                has_blocks = True
            else:
                short.append(one)
        if not has_blocks:
            self._wait_for_whole_batches(short, answers)

    def _advance(self, one: _Progress, records: memoryview) -> bool:
        """Move past the complete batches of a response. Return False if no batch is complete."""
        reach = extent(records)
        if reach.next_offset < 0:
            one.least_bytes = max(2 * one.least_bytes, reach.needed_bytes)
            one.least_bytes = min(one.least_bytes, max(self._fetch_bytes, reach.needed_bytes))
            return False
        if reach.next_offset <= one.offset:
            raise ProtocolViolation(
                f"{one.tp}: requested offset {one.offset}, received only older batches"
            )
        one.bytes_per_offset = reach.whole_bytes / (reach.next_offset - reach.first_offset)
        one.batch_bytes = reach.needed_bytes
        one.offset = reach.next_offset
        self._deadline.restart()
        return True

    def _wait_for_whole_batches(
        self, short: Sequence[_Progress], answers: dict[TopicPartition, FetchResponse]
    ) -> None:
        """Handle a response without a complete batch. A truncated batch is requested again with its size.

        A new leader returns no batch until it knows the high watermark. Its ranges wait.
        """
        for one in short:
            if extent(answers[one.tp].records).needed_bytes <= one.limit:
                one.state = _State.STUCK

    def _lose(self, address: Address, asked: Iterable[_Progress], error: OSError) -> None:
        logger.info("Lost broker %s:%d: %s", *address, error)
        self._leaders.drop(address)
        for one in asked:
            one.state = _State.STUCK

    def _repair(self) -> None:
        """Handle lost offsets, and look up the leaders of the ranges that are stuck. No request is outstanding."""
        for one in self._open:
            if one.state is _State.LOST:
                one.state = _State.READY if self._skip_lost_offsets(one) else _State.STUCK
        stuck = [one for one in self._open if one.state is _State.STUCK]
        if stuck and self._has_old_leaders:
            self._leaders.forget()
            self._look_up_leaders(self._open)
        elif stuck:
            self._wait(stuck)
        for one in stuck:
            one.state = _State.READY
        self._open = [one for one in self._open if not one.is_done]

    def _wait(self, stuck: Sequence[_Progress]) -> None:
        """Wait briefly, then look up the leaders. At the deadline, records that are not in the log yet are lost."""
        try:
            self._leaders.wait_and_refresh([one.tp for one in stuck], self._deadline)
        except Unreachable:
            lost = [one for one in stuck if self._skip_lost_offsets(one, may_grow=False)]
            if not lost:
                raise
            self._deadline.restart()

    def _look_up_leaders(self, ranges: Iterable[_Progress]) -> None:
        self._has_old_leaders = False
        self._leaders.try_to_refresh([one.tp for one in ranges])

    def _skip_lost_offsets(self, one: _Progress, *, may_grow: bool = True) -> bool:
        """Skip an offset below the log's start (records were deleted) or beyond the log's end (lost).

        Return False if the offset is not lost. `may_grow`: an offset at the log's end is not lost.
        """
        earliest, latest = (
            self._leaders.list_offsets({one.tp: which}, self._deadline)[one.tp].offset
            for which in (protocol.EARLIEST, protocol.LATEST)
        )
        if earliest <= one.offset < latest or (may_grow and one.offset == latest):
            return False
        text = f"offset {one.offset} of {one.tp} is no longer in the log, which holds {earliest} to {latest}"
        report_loss(text, fail=self._fail_on_data_loss)
        one.offset = min(earliest, one.wanted.end) if one.offset < earliest else one.wanted.end
        one.start = one.offset
        return True
