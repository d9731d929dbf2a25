"""Reads one range of one partition, block by block, following the partition's leader.

Invariants: every block holds at least one whole batch; blocks follow each other in offset order
without repeating a batch; at most two responses are in memory, the current one and the next one.
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
"""Maximum time for which a broker may hold a Fetch without records."""


class RangeReader:
    """Fetches a range from its leader. `deadline` limits the time without a new batch.

    `start`: the first offset of the range that is in the log. The batch that holds this offset may also
    hold deleted records below it.
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
        """Yield responses with records, each from a batch boundary; the first and last may exceed
        the range.

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
        """Return the response to the outstanding or a new request; None if the leader cannot be reached."""
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
        """Send a Fetch for the next offset; False if there is no leader."""
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
        """Move past the batches of this response, and request the next batches while these are decoded.

        False if the response has no whole batch.
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
        """Send the next Fetch early; a failure is handled when the response is needed."""
        try:
            self._ask()
        except OSError as error:
            logger.info("Lost the leader of %s: %s", self._tp, error)
            self._forget_leader()

    def _wait_for_a_whole_batch(self, needed_bytes: int) -> None:
        """Handle a response without a whole batch: raise the fetch size, or wait and retry.

        A new leader may not yet know its high watermark, and returns nothing until it does.
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
        """Handle an offset below the log's start (deleted) or beyond its end (the leader lost records)."""
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
