"""Appends of the broker's own coordinators to partitions that this broker leads, acknowledged as with acks=all.

Invariant: a future succeeds only when the high watermark has passed the batch. Every future ends with the base
offset of the batch, with a KafkaError, or with its cancellation by the code that awaits it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.record.batch import marker_of
from minikafka.record.header import HEADER
from minikafka.record.transactions import Marker, is_control
from minikafka.replication.partition import Partition
from minikafka.replication.purgatory import Purgatory
from minikafka.replication.verification import NO_GUARD

_ALL: Final = -1
"""The `acks` value of an internal append: all in-sync replicas."""
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
        """Append a batch now. Return a future that gets the batch's base offset when the batch is committed.

        `guard`: see `Partition.verification_of`.
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
        marker = marker_of(memoryview(batch)) if is_control(HEADER.unpack_from(batch)) else None
        waiting.pending.append(PendingAppend(required, partition.appended_base, done, marker))
        partition.produce_waits(waiting)
        self._purgatory.finish_soon()
        return done

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
