"""Appends of the broker's own coordinators to partitions that this broker leads, acknowledged as with acks=all.

`InternalAppends` appends one batch; `CoordinatorAppends` gathers the appends of a coordinator into batches.
Invariant: a future succeeds only when the high watermark has passed the batch. Every future ends with the base
offset of the batch, with a KafkaError, or with its cancellation by the code that awaits it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from minikafka.base.coordinators import Append
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.broker.host import Alarm
from minikafka.deciders.decider import Outcome
from minikafka.kafka.records.batch import Record, build, marker_of
from minikafka.kafka.records.header import HEADER, TRANSACTIONAL
from minikafka.kafka.records.transactions import Marker, is_control
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import Purgatory
from minikafka.storage.replication.verification import NO_GUARD

logger = logging.getLogger(__name__)

_ALL: Final = -1
"""The `acks` value of an internal append: all in-sync replicas."""
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class PendingAppend(NamedTuple):
    """One appended batch that is acknowledged once the high watermark reaches the offset `required`."""

    required: int
    base_offset: int
    done: asyncio.Future[int]
    marker: Marker | None
    """The end of a transaction, if the batch is a marker."""


class InternalAppends:
    """The appends of the broker's own coordinators, to any partition that this broker leads.

    `lookup(tp)` returns a hosted partition, and None for any other partition. `error_for(tp)` returns the error
    code of a partition that is not hosted.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        clock: Clock,
        lookup: Callable[[TopicPartition], Partition | None],
        error_for: Callable[[TopicPartition], int],
    ) -> None:
        self._purgatory = purgatory
        self._clock = clock
        self._lookup = lookup
        self._error_for = error_for
        self._waiting: dict[Partition, PartitionAppends] = {}
        self.on_marker: list[Callable[[TopicPartition, Marker], None]] = []
        """Called for each marker of a transaction, once the marker is committed."""

    def append(
        self, tp: TopicPartition, batch: bytes, guard: int = NO_GUARD
    ) -> asyncio.Future[int]:
        """Append one batch of magic 2 as leader. Return a future of its base offset, done when the batch is committed.

        The batch is in the log when `append` returns, so batches are appended in the order of the calls. It can be
        called at any time, even while received requests are being handled. The future raises KafkaError with a produce
        error code, such as NOT_LEADER_OR_FOLLOWER (also when leadership ends before the batch is committed). It has
        no timeout: the batch may still be committed later, also after the future was cancelled. `guard`: see
        `Partition.verification_of`.

        The records are not checked, as those of clients are: the caller passes a batch that consumers can read, with
        keys for a compacted topic. The topic's own codec is not applied.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        partition = self._lookup(tp)
        if partition is None:
            done.set_exception(_error(self._error_for(tp), tp))
            return done
        copied = memoryview(bytearray(batch))  # the append writes offset and epoch into it
        required = self._purgatory.append(
            partition,
            copied,
            _ALL,
            self._clock.now(),
            self._clock.wall_ms(),
            internal=True,
            guard=guard,
        )
        if required < 0:
            done.set_exception(_error(-required, tp))
            return done
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = PartitionAppends(
                partition, self._forget, self._marker_committed
            )
        assert not waiting.pending or waiting.pending[-1].required < required
        marker = marker_of(memoryview(batch)) if is_control(HEADER.unpack_from(batch)) else None
        waiting.pending.append(PendingAppend(required, partition.appended_base, done, marker))
        partition.produce_waits(waiting)
        self._purgatory.finish_soon()
        return done

    def before_write(self, append: Callable[[], None]) -> None:
        """Call `append` once, just before logs are written: at the end of the current tick.

        A tick is the handling of the requests that were received from one connection. Outside of a tick, logs are
        written in the next turn of the event loop.
        """
        self._purgatory.before_write(append)

    def close(self) -> None:
        """Fail every append that is not committed, because the broker is stopping."""
        for waiting in tuple(self._waiting.values()):
            waiting.fail_waiting(waiting.partition, _NOT_LEADER)
            waiting.drain()

    def _marker_committed(self, tp: TopicPartition, marker: Marker) -> None:
        for callback in self.on_marker:
            callback(tp, marker)

    def _forget(self, waiting: PartitionAppends) -> None:
        if self._waiting.get(waiting.partition) is waiting:
            del self._waiting[waiting.partition]


class PartitionAppends:
    """One `ProduceWaiter` for all internal appends to one partition that wait for the high watermark.

    `on_empty(self)` is called when no append is waiting any longer, `on_marker(tp, marker)` when the marker of a
    transaction is committed.
    """

    __slots__ = ("on_empty", "on_marker", "partition", "pending")

    def __init__(
        self,
        partition: Partition,
        on_empty: Callable[[PartitionAppends], None],
        on_marker: Callable[[TopicPartition, Marker], None],
    ) -> None:
        self.partition = partition
        self.on_empty = on_empty
        self.on_marker = on_marker
        self.pending: deque[PendingAppend] = deque()

    def fail_waiting(self, partition: Partition, error: int) -> None:
        """Fail every append that is not committed; no effect if `partition` is not `self.partition`."""
        if partition is not self.partition:
            return
        self.drain()
        while self.pending:
            append = self.pending.popleft()
            if not append.done.done():  # done if the caller has cancelled it
                append.done.set_exception(_error(error, partition.tp))
        self.on_empty(self)

    def drain(self) -> None:
        """Acknowledge the appends that the high watermark has passed."""
        pending = self.pending
        high_watermark = self.partition.high_watermark
        while pending and pending[0].required <= high_watermark:
            append = pending.popleft()
            if not append.done.done():
                append.done.set_result(append.base_offset)
            if append.marker is not None:
                self.on_marker(self.partition.tp, append.marker)
        if not pending:
            self.on_empty(self)

    def waiting_for(self, partition: Partition) -> int:
        """Return the number of appends that are not committed."""
        return len(self.pending)


def _error(code: int, tp: TopicPartition) -> KafkaError:
    return KafkaError(ErrorCode(code), f"append to {tp}")


# ---- coordinators


class _Batch(NamedTuple):
    """A batch that is not committed yet.

    `tokens` are the ids of the appends in the batch. At `deadline` (monotonic ms) the appends time out.
    """

    tokens: Sequence[int]
    done: asyncio.Future[int]
    deadline: int


class CoordinatorAppends:
    """The appends of one coordinator to its topic. `report` gets the outcome of each one: its error code, 0 on success.

    Appends to a partition in one turn of the event loop become one batch. Records of a transaction are in batches of
    their own, which contain the producer's id and epoch. The records of a partition are appended in the order of `add`.
    Every append is reported exactly once: committed, failed, or timed out. If a batch of several appends is refused,
    each append is tried again in a batch of its own: otherwise one that is too large would make all of them fail.
    Batches are compressed with `codec`. The appends of a batch that is not committed after `timeout_ms` are reported as
    timed out, although the batch may be committed later.
    """

    def __init__(
        self,
        appends: InternalAppends,
        clock: Clock,
        topic: str,
        codec: int,
        timeout_ms: int,
        report: Callable[[Outcome], None],
    ) -> None:
        self._log = appends
        self._clock = clock
        self._topic = topic
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._report = report
        self._alarm = Alarm(clock, self._give_up)
        self._gathered: dict[int, list[Append]] = {}
        """Appends queued in this turn of the event loop, by partition."""
        self._batches: dict[int, _Batch] = {}
        """First token -> batch, for the batches that are not committed yet, in the order of their deadlines."""

    def add(self, append: Append) -> None:
        """Queue the append. The queued appends of a partition become one batch just before the logs are written."""
        if not self._gathered:
            self._log.before_write(self._append_gathered)
        queued = self._gathered.setdefault(append.partition, [])
        assert not queued or queued[-1].token < append.token, (
            "the order of the tokens is that of the log"
        )
        queued.append(append)

    def drop(self, partition: int) -> None:
        """Report NOT_LEADER_OR_FOLLOWER for queued appends to a partition that this broker no longer leads."""
        self._report_all(
            [append.token for append in self._gathered.pop(partition, ())], _NOT_LEADER
        )

    def _give_up(self, now: int) -> None:
        """Report REQUEST_TIMED_OUT for the appends whose deadline has passed."""
        late = [token for token, batch in self._batches.items() if batch.deadline <= now]
        for first in late:
            batch = self._batches.pop(first)
            batch.done.cancel()
            self._report_all(batch.tokens, _TIMED_OUT)
        # All batches have the same time, so the first one times out first.
        self._alarm.set(next((batch.deadline for batch in self._batches.values()), None))

    def _append_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for partition, appends in gathered.items():
            for _, run in groupby(appends, attrgetter("producer")):
                self._append_together(partition, list(run))

    def _append_together(self, partition: int, appends: Sequence[Append]) -> None:
        """Append the records of several appends, all of them in the same transaction or in none."""
        done = self._append(partition, appends)
        if len(appends) > 1 and done.done() and done.exception() is not None:
            for append in appends:
                self._wait([append], self._append(partition, [append]))
        else:
            self._wait(appends, done)

    def _append(self, partition: int, appends: Sequence[Append]) -> asyncio.Future[int]:
        wall_ms = self._clock.wall_ms()
        records = [
            Record(timestamp=wall_ms, key=key, value=value)
            for append in appends
            for key, value in append.records
        ]
        tp = TopicPartition(self._topic, partition)
        producer = appends[0].producer
        if producer is None:
            return self._log.append(tp, build(records, codec=self._codec))
        batch = build(
            records,
            codec=self._codec,
            attributes=TRANSACTIONAL,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
        return self._log.append(tp, batch, producer.guard)

    def _wait(self, appends: Sequence[Append], done: asyncio.Future[int]) -> None:
        tokens = [append.token for append in appends]
        deadline = self._clock.now() + self._timeout_ms
        self._batches[tokens[0]] = _Batch(tokens, done, deadline)
        done.add_done_callback(partial(self._appended, tokens[0]))
        self._alarm.set(deadline)

    def _appended(self, first: int, done: asyncio.Future[int]) -> None:
        batch = self._batches.pop(first, None)
        if batch is not None:  # None if the appends have timed out
            self._report_all(batch.tokens, _error_of(done))

    def _report_all(self, tokens: Sequence[int], error: int) -> None:
        for token in tokens:
            self._report(Outcome(token, error))


def _error_of(done: asyncio.Future[Any]) -> int:
    """Return the error code of a finished append, 0 on success."""
    error = done.exception()
    if error is None:
        return 0
    if isinstance(error, KafkaError):
        return int(error.code)
    logger.error("an append of a coordinator failed", exc_info=error)
    return int(ErrorCode.UNKNOWN_SERVER_ERROR)
