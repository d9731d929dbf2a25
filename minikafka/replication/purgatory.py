"""Requests that wait for an offset or a deadline, and the end of a tick that releases them.

Delayed produce is the connection's own FIFO of answers: answers leave in the
order of the requests, so an answer that is ready behind one that is not simply waits its turn. Delayed
fetch: followers park in their session, consumers stand in `Partition.fetch_waiting`.

Invariant: a connection is in `Partition.produce_waiting` of every partition that any of its answers waits
for, not only of the first one's, until the high watermark has passed all of them or they failed: else a
partition that changes hands could not fail them, and they would count as committed by another's records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.ports import Buffer, Clock
from minikafka.replication.partition import FetchWaiter, Partition, ProduceWaiter

logger = logging.getLogger(__name__)

_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
ALREADY: Final = -1
"""Required offset of an answer that only waits for the write (acks=1)."""

Pack = Callable[[int, int, int, int], bytes]
"""(correlation, error, base offset, log start offset) -> a whole produce answer."""


class Slot:
    """A place in a connection's FIFO whose answer comes later; empty slots hold back all behind them."""

    __slots__ = ("answer",)

    def __init__(self, answer: Sequence[Buffer] | None = None) -> None:
        self.answer = answer


class PendingPartition:
    """One partition of a produce request to several: its part of the answer and what it waits for."""

    __slots__ = ("append_time", "base_offset", "error", "number", "partition", "required")

    def __init__(
        self,
        number: int,
        error: int,
        base_offset: int,
        append_time: int,
        partition: Partition | None,
        required: int,
    ) -> None:
        self.number = number
        self.error = error
        self.base_offset = base_offset
        self.append_time = append_time
        self.partition = partition
        self.required = required

    def waits(self) -> bool:
        """Whether the high watermark has not come far enough."""
        return self.partition is not None and self.required > self.partition.high_watermark

    def fail(self, error: int) -> None:
        """Settle it with an error."""
        self.error, self.base_offset, self.append_time, self.partition = error, -1, -1, None


class MultiProduce:
    """A produce request to several partitions; `encode(parts)` makes the answer when none waits."""

    __slots__ = ("encode", "parts")

    def __init__(
        self, parts: list[PendingPartition], encode: Callable[[list[PendingPartition]], bytes]
    ) -> None:
        self.parts = parts
        self.encode = encode


class AnswerQueue:
    """The answers a connection owes, oldest first.

    An entry is (partition, required offset, deadline ms, correlation, base offset, pack) for a produce to
    one partition, (None, Slot), or (None, MultiProduce, deadline).
    """

    __slots__ = ("entries", "purgatory", "send")

    def __init__(self, purgatory: Purgatory, send: Callable[[Sequence[Buffer]], None]) -> None:
        self.purgatory = purgatory
        self.send = send
        self.entries: deque[tuple[Any, ...]] = deque()

    def reserve(self) -> Slot:
        """A place for an answer that comes later."""
        slot = Slot()
        self.entries.append((None, slot))
        return slot

    def settle(self, slot: Slot, answer: Sequence[Buffer]) -> None:
        """The answer of a reserved place: sent at once if nothing else is owed. What it tells of is written."""
        entries = self.entries
        if len(entries) == 1 and entries[0][1] is slot:
            entries.clear()
            self.send(answer)
        else:
            slot.answer = answer
            self.purgatory.ready[self] = None

    def wait_many(self, multi: MultiProduce, deadline: int) -> None:
        """Wait until every partition of the request is settled."""
        self.entries.append((None, multi, deadline))
        for part in multi.parts:
            if part.partition is not None:
                part.partition.produce_waits(self)

    def close(self) -> None:
        """The connection is gone: nothing is owed any more."""
        for entry in self.entries:
            if entry[0] is not None:
                entry[0].produce_waiting.pop(self, None)
            elif type(entry[1]) is MultiProduce:
                for part in entry[1].parts:
                    if part.partition is not None:
                        part.partition.produce_waiting.pop(self, None)
        self.entries.clear()

    def drain(self) -> None:
        """Send every answer that is ready at the head, as one write. Only after the tick's logs are written."""
        entries = self.entries
        out: list[Buffer] = []
        small = True
        while entries:
            entry = entries[0]
            partition = entry[0]
            if partition is not None:
                if entry[1] > partition.high_watermark:
                    break
                out.append(entry[5](entry[3], 0, entry[4], partition.log.log_start_offset))
            else:
                answer = self._settled(entry[1])
                if answer is None:
                    break
                small = small and type(entry[1]) is MultiProduce
                out.extend(answer)
            entries.popleft()
        if out:
            self.send((b"".join(out),) if small and len(out) > 1 else out)

    def _settled(self, waiting: Slot | MultiProduce) -> Sequence[Buffer] | None:
        if type(waiting) is Slot:
            answer, waiting.answer = waiting.answer, None
            return answer
        assert isinstance(waiting, MultiProduce)
        if any(part.waits() for part in waiting.parts):
            return None
        return (waiting.encode(waiting.parts),)

    def fail_waiting(self, partition: Partition, error: int) -> None:
        """Settle every produce that waits on the partition; the answers leave at the end of the tick."""
        self.entries = deque([self._failed(entry, partition, error) for entry in self.entries])
        self.purgatory.ready[self] = None

    def _failed(self, entry: tuple[Any, ...], partition: Partition, error: int) -> tuple[Any, ...]:
        if entry[0] is partition:
            _, required, _, correlation, base, pack = entry
            start = partition.log.log_start_offset
            settled = _is_settled(required, partition, error)
            done = (
                pack(correlation, 0, base, start) if settled else pack(correlation, error, -1, -1)
            )
            return (None, Slot((done,)))
        if entry[0] is None and type(entry[1]) is MultiProduce:
            for part in entry[1].parts:
                if part.partition is partition and not _is_settled(part.required, partition, error):
                    part.fail(error)
        return entry

    def waiting_for(self, partition: Partition) -> int:
        """Produces that wait for the partition's high watermark (B3)."""
        high_watermark = partition.high_watermark
        waiting = 0
        for entry in self.entries:
            if entry[0] is partition:
                waiting += entry[1] > high_watermark
            elif entry[0] is None and type(entry[1]) is MultiProduce:
                waiting += any(
                    part.partition is partition and part.waits() for part in entry[1].parts
                )
        return waiting

    def expire(self, now: int) -> None:
        """Answer heads whose time is over with REQUEST_TIMED_OUT, although they were appended (R47)."""
        entries = self.entries
        while entries:
            entry = entries[0]
            if entry[0] is not None and entry[2] <= now and entry[1] > entry[0].high_watermark:
                entries[0] = (None, Slot((entry[5](entry[3], _TIMED_OUT, -1, -1),)))
            elif entry[0] is None and type(entry[1]) is MultiProduce and entry[2] <= now:
                for part in entry[1].parts:
                    if part.waits():
                        part.fail(_TIMED_OUT)
            else:
                return
            self.drain()


def _is_settled(required: int, partition: Partition, error: int) -> bool:
    """Whether an answer stays a success: committed already, or acks=1 and the disk is not what failed."""
    if required == ALREADY:
        return error != _STORAGE_ERROR
    return required <= partition.high_watermark


class ParkedSession(Protocol):
    """A follower's fetch session with something to send."""

    def serve(self, now: int) -> None:
        """Answer the parked fetch, if one is parked."""


class Purgatory:
    """What the current tick has to finish: logs to write, followers to serve, answers to release.

    `on_storage_failed(partition, error)` takes the directory offline.
    """

    __slots__ = (
        "_clock",
        "_is_finish_due",
        "dirty",
        "fetches",
        "on_storage_failed",
        "ready",
        "sessions",
    )

    def __init__(
        self, on_storage_failed: Callable[[Partition, StorageFailed], None], clock: Clock
    ) -> None:
        self._clock = clock
        self._is_finish_due = False
        self.dirty: list[Partition] = []
        self.ready: dict[ProduceWaiter, None] = {}
        self.fetches: dict[FetchWaiter, None] = {}
        self.sessions: dict[ParkedSession, None] = {}
        self.on_storage_failed = on_storage_failed

    def append(
        self,
        partition: Partition,
        buf: bytearray,
        view: memoryview,
        start: int,
        end: int,
        acks: int,
        now: int,
        wall_ms: int,
    ) -> int:
        """Append one batch as leader; it is written at the end of the tick.

        Return what `Partition.append_as_leader` returns; a disk failure is -KAFKA_STORAGE_ERROR.
        """
        if not partition.log.pending:
            self.dirty.append(partition)
        try:
            return partition.append_as_leader(buf, view, start, end, acks, now, wall_ms)
        except StorageFailed as failure:
            self.storage_failed(partition, failure)
            return -_STORAGE_ERROR

    def high_watermark_moved(self, partition: Partition) -> None:
        """Release, at the end of the tick, whoever waits on this partition."""
        waiting = partition.produce_waiting
        if waiting:
            high_watermark = partition.high_watermark
            for waiter, end in tuple(waiting.items()):
                self.ready[waiter] = None
                if end <= high_watermark:
                    del waiting[waiter]
        if partition.fetch_waiting:
            self.fetches.update(partition.fetch_waiting)

    def finish_soon(self) -> None:
        """Finish a tick in the next turn of the event loop, for work that may or may not be inside of a tick."""
        if not self._is_finish_due:
            self._is_finish_due = True
            self._clock.call_later(0, self._finish_due)

    def _finish_due(self) -> None:
        self._is_finish_due = False
        self.finish_tick(self._clock.now())

    def finish_tick(self, now: int) -> None:
        """Write the logs, then serve followers and consumers, then send every answer that is ready."""
        if self.dirty:
            self._write(now)
        if self.sessions:
            sessions, self.sessions = self.sessions, {}
            for session in sessions:
                session.serve(now)
        if self.fetches:
            fetches, self.fetches = self.fetches, {}
            for fetch in fetches:
                fetch.attempt()
        if self.ready:
            ready, self.ready = self.ready, {}
            for queue in ready:
                queue.drain()

    def _write(self, now: int) -> None:
        dirty, self.dirty = self.dirty, []
        for partition in dirty:
            try:
                partition.log.flush()
            except StorageFailed as failure:
                self.storage_failed(partition, failure)
                continue
            if partition.written(now):
                self.high_watermark_moved(partition)
            for progress in partition.followers.values():
                if progress.item is not None:
                    progress.item.mark_dirty()

    def storage_failed(self, partition: Partition, failure: StorageFailed) -> None:
        """Nothing that waits on the partition is acknowledged; its directory goes offline (S37)."""
        logger.error("partition %s: %s", partition.tp, failure)
        self.on_storage_failed(partition, failure)
        for queue in tuple(self.ready):
            queue.fail_waiting(partition, _STORAGE_ERROR)
        partition.fail_produces(_STORAGE_ERROR)
