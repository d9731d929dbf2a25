"""Reads one offset range of a partition in blocks (Fetch responses), and follows leader changes.

Invariants: every block contains at least one complete batch. Blocks are in offset order, and no batch is in
two blocks. At most two responses are in memory: the current response and the next response.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.spark.records.batches import extent
from minikafka.spark.source.loss import report_loss
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.wire import protocol
from minikafka.spark.wire.connection import Connection
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import Address, Leaders, raise_if_final

logger = logging.getLogger(__name__)

_WAIT_MS: Final = 500
"""Maximum time for which a broker may delay the response to a Fetch if there are no records."""


class RangeReader:
    """Fetches an offset range from the partition's leader. `deadline` limits the time without a new batch.

    `start`: the first offset of the range that is in the log. The batch with this offset may also contain
    deleted records at lower offsets.
    """

    def __init__(
        self,
        leaders: Leaders,
        wanted: OffsetRange,
        deadline: Deadline,
        *,
        fetch_bytes: int,
        fail_on_data_loss: bool,
    ) -> None:
        self._leaders = leaders
        self._tp: TopicPartition = wanted.tp
        self._offset = self.start = wanted.start
        self._end = wanted.end
        self._deadline = deadline
        self._fetch_bytes = fetch_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._asked: tuple[Address, Connection] | None = None
        """The broker with an outstanding request."""

    def blocks(self) -> Iterator[protocol.FetchResponse]:
        """Yield Fetch responses with complete batches. The first and last may have records outside the range.

        Raises `Unreachable`, `DataLost`, `KafkaError`, `CorruptBatch`, `ProtocolViolation`.
        """
        self._leaders.try_to_refresh([self._tp])
        while self._offset < self._end:
            answer = self._next_answer()
            if answer is None:
                self._leaders.wait_and_refresh([self._tp], self._deadline)
            elif answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._skip_lost_offsets()
            elif answer.error:
                self._give_up_leader(answer.error)
            elif self._advance(answer.records):
                yield answer

    def _next_answer(self) -> protocol.FetchResponse | None:
        """Return the response to the outstanding Fetch. If no Fetch is outstanding, send a Fetch first.

        Return None if the leader cannot be reached.
        """
        try:
            if self._asked is None and not self._ask():
                return None
            assert self._asked is not None
            (_, connection), self._asked = self._asked, None
            return protocol.parse_fetch(connection.receive())
        except OSError as error:
            logger.info("Lost the leader of %s: %s", self._tp, error)
            self._forget_leader()
            return None

    def _ask(self) -> bool:
        """Send a Fetch for the next offset and return True. Return False if no live leader is known."""
        address = self._leaders.address(self._tp)
        if address is None:
            return False
        connection = self._leaders.connection(address)
        self._asked = (address, connection)
        body = protocol.fetch_request(
            self._tp,
            self._leaders.leader_epoch(self._tp),
            self._offset,
            self._leaders.isolation,
            max_bytes=self._fetch_bytes,
            max_wait_ms=_WAIT_MS,
        )
        connection.send(protocol.FETCH, body)
        return True

    def _advance(self, records: memoryview) -> bool:
        """Move past the complete batches of a response. Return False if no batch is complete.

        The next batches are requested here, so that they arrive while the caller decodes these batches.
        """
        reach = extent(records)
        if reach.next_offset < 0:
            self._wait_for_a_whole_batch(reach.needed_bytes)
            return False
        if reach.next_offset <= self._offset:
            raise ProtocolViolation(
                f"{self._tp}: requested offset {self._offset}, received only older batches"
            )
        self._offset = reach.next_offset
        self._deadline.restart()
        if self._offset < self._end:
            self._ask_ahead()
        return True

    def _ask_ahead(self) -> None:
        """Send the next Fetch before its response is needed. If sending fails, `_next_answer` sends the Fetch again."""
        try:
            self._ask()
        except OSError as error:
            logger.info("Lost the leader of %s: %s", self._tp, error)
            self._forget_leader()

    def _wait_for_a_whole_batch(self, needed_bytes: int) -> None:
        """Handle a response without a complete batch: increase the fetch size, or wait and retry.

        A new leader returns no batch until it knows the high watermark.
        """
        if needed_bytes > self._fetch_bytes:
            self._fetch_bytes = needed_bytes
        else:
            self._leaders.wait_and_refresh([self._tp], self._deadline)

    def _give_up_leader(self, code: int) -> None:
        raise_if_final(code, str(self._tp))
        logger.info("The leader of %s refused the Fetch: %s", self._tp, ErrorCode(code).name)
        self._leaders.wait_and_refresh([self._tp], self._deadline)

    def _forget_leader(self) -> None:
        self._asked = None
        if address := self._leaders.address(self._tp):
            self._leaders.drop(address)

    def _skip_lost_offsets(self) -> None:
        """Handle an offset below the log's start (records were deleted) or beyond the log's end (lost)."""
        ends = {
            which: self._leaders.list_offsets({self._tp: which}, self._deadline)[self._tp].offset
            for which in (protocol.EARLIEST, protocol.LATEST)
        }
        earliest, latest = ends[protocol.EARLIEST], ends[protocol.LATEST]
        if earliest <= self._offset <= latest:
            self._leaders.wait_and_refresh([self._tp], self._deadline)
            return
        text = f"offset {self._offset} of {self._tp} is no longer in the log, which holds {earliest} to {latest}"
        report_loss(text, fail=self._fail_on_data_loss)
        self._offset = min(earliest, self._end) if self._offset < earliest else self._end
        self.start = self._offset
