"""The leader's side of markers: it appends them to partitions, and answers when they are committed.

Invariant: a marker gets the error 0 only if the high watermark has passed it. While a marker is in the log but not
committed, the same marker of the same coordinator is not appended again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.broker.turns.rotation import Pauses
from minikafka.record.batch import build_marker
from minikafka.replication.partition import Partition
from minikafka.rpc.fields import Body
from minikafka.rpc.transactions import Errors, MarkerRow, decode_markers, encode_errors

CALL_WAIT_MS: Final = 2_000
"""Time after which the call of a coordinator is answered with REQUEST_TIMED_OUT for markers that are not committed.
The coordinator then asks again. The answers for other partitions need not wait longer."""
AT_ONCE: Final = 64
"""Number of markers that are appended at once, in about 2 ms. Then other requests are served."""
ANY_EPOCH: Final = -1
"""The leader epoch in a request that names none."""
_NONE: Final = 0
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


class Replicas(Protocol):
    """The methods of the replica manager that append markers."""

    def append(self, tp: TopicPartition, batch: bytes) -> asyncio.Future[int]:
        """Append a batch as leader; the future is done when the batch is committed or the append has failed."""

    def partition(self, tp: TopicPartition) -> Partition | None:
        """Return this broker's replica of a partition, None if the broker does not host the partition."""


class _Marker(NamedTuple):
    """A marker in one partition."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


class MarkerAppends:
    """The markers that this broker appends as leader, for its own coordinator and for other brokers'."""

    def __init__(self, replicas: Replicas, clock: Clock, pauses: Pauses) -> None:
        self._replicas = replicas
        self._clock = clock
        self._pauses = pauses
        self._pending: dict[_Marker, asyncio.Future[int]] = {}
        """The markers in the log that are not committed yet."""

    def append(self, row: MarkerRow, written: Callable[[TopicPartition, int], None]) -> None:
        """Append a marker to each of at most `AT_ONCE` partitions. Call `written(tp, error)` once for each, later."""
        for tp, leader_epoch in row.partitions:
            done = self._append(_Marker(tp, *row[:4]), leader_epoch)
            done.add_done_callback(partial(_report, tp, written))

    async def serve(self, body: Body) -> Body:
        """Answer the call `write_markers` of another broker's coordinator. Raises KafkaError."""
        return encode_errors(await self.write(decode_markers(body), CALL_WAIT_MS))

    async def write(self, rows: Sequence[MarkerRow], wait_ms: int) -> Errors:
        """Append markers to partitions. Return the errors when all are committed, at the latest after `wait_ms`."""
        placed = ((number, *one) for number, row in enumerate(rows) for one in row.partitions)
        appends: list[list[asyncio.Future[int]]] = [[] for _ in rows]
        async for number, tp, epoch in self._pauses.each(placed, AT_ONCE):
            appends[number].append(self._append(_Marker(tp, *rows[number][:4]), epoch))
        waiting = {done for row in appends for done in row if not done.done()}
        if waiting:
            await asyncio.wait(waiting, timeout=wait_ms / 1_000)
        return [[_error_of(done) for done in row] for row in appends]

    def _append(self, marker: _Marker, leader_epoch: int) -> asyncio.Future[int]:
        partition = self._replicas.partition(marker.tp)
        if partition is None:
            return _failed(_UNKNOWN)
        if leader_epoch not in (ANY_EPOCH, partition.leader_epoch):
            return _failed(_NOT_LEADER)
        pending = self._pending.get(marker)
        if pending is None:
            pending = self._pending[marker] = self._replicas.append(marker.tp, self._batch(marker))
            pending.add_done_callback(partial(self._forget, marker))
        return pending

    def _batch(self, marker: _Marker) -> bytes:
        return build_marker(
            marker.producer_id,
            marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._clock.wall_ms(),
        )

    def _forget(self, marker: _Marker, done: asyncio.Future[int]) -> None:
        _error_of(
            done
        )  # nobody may wait any longer, and asyncio reports exceptions that nobody has read
        if self._pending.get(marker) is done:
            del self._pending[marker]


def _failed(error: int) -> asyncio.Future[int]:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    done.set_exception(KafkaError(ErrorCode(error), "append of a marker"))
    return done


def _report(
    tp: TopicPartition, written: Callable[[TopicPartition, int], None], done: asyncio.Future[int]
) -> None:
    written(tp, _error_of(done))


def _error_of(done: asyncio.Future[int]) -> int:
    """Return the error code of an append, REQUEST_TIMED_OUT if it is not committed yet."""
    if not done.done():
        return _TIMED_OUT
    if done.cancelled():
        return _NOT_LEADER
    failure = done.exception()
    if failure is None:
        return _NONE
    if isinstance(failure, KafkaError):
        return int(failure.code)
    raise failure
