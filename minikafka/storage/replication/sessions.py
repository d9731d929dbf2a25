"""Incremental fetch sessions of followers, held by the leader (KIP-227, R50).

A session remembers the partitions that a follower fetches, so that a request lists only the partitions that
changed. The session keeps a list of the partitions with records to send ("dirty"). Therefore the cost of a fetch
grows with the number of active partitions, not with the number of all partitions: 3 µs instead of about 250 µs with
1,000 partitions.

Invariant: a `SessionPartition` is in `dirty` at most once. A partition that is not dirty has nothing to send,
except perhaps a newer high watermark, which is sent at the latest when the follower's wait ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from minikafka.base.errors import ErrorCode, ProtocolViolation, StorageFailed
from minikafka.base.fetch_rows import PARTITION, PartitionData, RequestRow
from minikafka.base.model import BrokerId
from minikafka.base.ports import Slice
from minikafka.storage.log.deferred import EAGER_BYTES, Deferred, read_or_defer
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.progress import FollowerProgress
from minikafka.storage.replication.purgatory import Purgatory

_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_CORRUPT: Final = int(ErrorCode.CORRUPT_MESSAGE)
_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
SUPERSEDED: Final = -2
"""The epoch of a session that takes no further fetch; no request has it."""
SESSION_NOT_FOUND: Final = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
INVALID_SESSION_EPOCH: Final = int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 0x7FFFFFFF
_SCAN_MS: Final = 500
"""Interval at which the leader sends a follower the high watermarks of partitions that have no records to send."""

PARTITIONS_MAX: Final = 10_000
"""Maximum number of partitions in the session of one follower: about 3 MB."""
ANSWER_ROWS_MAX: Final = 1_000
"""Maximum number of partitions in one response. Further partitions are in the next response."""
STEP_ROWS: Final = 64
"""Number of partitions of a request that one step processes, in about 0.3 ms."""

_new_row: Final = tuple.__new__
"""Makes a PartitionData of all its fields, which saves 0.2 of 8.2 µs per fetch against calling the class."""

Topics: TypeAlias = list[tuple[bytes, list[PartitionData]]]


class Responder(Protocol):
    """Sends the responses to one follower's fetches."""

    def respond(self, error: int, topics: Topics) -> None:
        """Send a response with the error code and the partitions in `topics`."""


NOTHING: Final[Sequence[Slice]] = ()


class SessionPartition:
    """One partition in the fetch session of one follower."""

    __slots__ = (
        "dirty",
        "diverging",
        "error",
        "is_changed",
        "max_bytes",
        "number",
        "partition",
        "progress",
        "sent_high_watermark",
        "session",
        "topic",
    )

    def __init__(self, session: FollowerSession, topic: bytes, number: int) -> None:
        self.session = session
        self.topic = topic
        self.number = number
        self.partition: Partition | None = None
        self.progress: FollowerProgress | None = None
        self.error = 0
        self.diverging: tuple[int, int] | None = None
        self.max_bytes = 0
        self.dirty = False
        self.is_changed = False
        """True if the next response must contain the partition's offsets, even without records."""
        self.sent_high_watermark = -1

    def mark_changed(self) -> None:
        self.is_changed = True
        self.mark_dirty()

    def mark_dirty(self) -> None:
        """Add the partition to the session's `dirty`, the partitions to send.

        If the follower had every record of the partition until now, also set `last_caught_up` to the time of
        the session's last fetch. A fetch request sets `last_caught_up` only for the partitions that it lists,
        and an idle partition is not listed.
        """
        if not self.dirty:
            self.dirty = True
            session = self.session
            progress = self.progress
            if (
                progress is not None
                and progress.offset == progress.caught_up_to >= 0
                and session.seen > progress.last_caught_up
            ):
                progress.last_caught_up = session.seen
            session.dirty.append(self)
            if session.parked:
                session.purgatory.sessions[session] = None

    def last_fetch(self) -> int:
        """Return the time (monotonic ms) of the session's last fetch."""
        return self.session.seen

    def unbind(self) -> None:
        self.partition = self.progress = None

    def supersede(self) -> None:
        """Unbind this partition, and let the session end with its next fetch: another one of the follower has it.

        That may be an old fetch of a connection that the follower has given up. It would never fetch again, and a
        session lists a partition only if it changes.
        """
        self.unbind()
        self.session.epoch = SUPERSEDED


class FollowerSession:
    """The partitions that one follower fetches over one connection.

    `epoch` is the session epoch that the next request must have. `lookup(topic, partition)` finds hosted
    partitions, `responder` sends the responses, `expand(partition, progress)` proposes the follower
    for the ISR. A parked fetch is answered at `deadline` (ms) at the latest. `held`: partitions that wait,
    because throttled replicas exceed their rate.
    """

    __slots__ = (
        "broker_id",
        "deadline",
        "dirty",
        "epoch",
        "expand",
        "held",
        "id",
        "items",
        "lookup",
        "max_bytes",
        "min_bytes",
        "parked",
        "purgatory",
        "responder",
        "scanned",
        "seen",
        "size",
    )

    def __init__(
        self,
        session_id: int,
        broker_id: BrokerId,
        purgatory: Purgatory,
        lookup: Callable[[bytes, int], Partition | None],
        responder: Responder,
        expand: Callable[[Partition, FollowerProgress], None],
    ) -> None:
        self.id = session_id
        self.broker_id = broker_id
        self.epoch = 0
        self.purgatory = purgatory
        self.lookup = lookup
        self.responder = responder
        self.expand = expand
        self.items: dict[bytes, dict[int, SessionPartition]] = {}
        self.dirty: list[SessionPartition] = []
        self.held: dict[SessionPartition, None] = {}
        self.parked = False
        self.deadline = 0
        self.scanned = 0
        self.seen = 0
        self.size = 0
        self.max_bytes = 0
        self.min_bytes = 1

    def fetch(
        self,
        topics: Iterable[tuple[bytes, Iterable[RequestRow]]],
        forgotten: Iterable[tuple[bytes, Iterable[int]]],
        max_bytes: int,
        deadline: int,
        now: int,
    ) -> Generator[None, None, None]:
        """Park one fetch request. Its fetch offset for a partition acknowledges all records below this offset.

        This is a generator that pauses after every `STEP_ROWS` partitions. After the last step the fetch is parked.
        It is answered at the end of an event-loop tick when there is something to send, else at the deadline.
        Raises ProtocolViolation if the session would have more than `PARTITIONS_MAX` partitions.
        """
        yield from self._forget(forgotten)
        self._begin(max_bytes, deadline, now)
        # Parked only after the last step: a tick between two steps would answer a part of the request.
        self.parked = False
        at = 0
        for topic, rows in topics:
            known = self.items.get(topic)
            if known is None:
                known = self.items[topic] = {}
            for row in rows:
                number = row[PARTITION]
                item = known.get(number)
                if item is None:
                    item = known[number] = self._new_item(topic, number)
                self._fetched(item, row, now)
                at += 1
                if not at % STEP_ROWS:
                    yield
        self.parked = True
        if self.dirty:
            self.purgatory.sessions[self] = None

    def _new_item(self, topic: bytes, number: int) -> SessionPartition:
        self.size += 1
        if self.size > PARTITIONS_MAX:
            raise ProtocolViolation(
                f"a follower's fetch session must have at most {PARTITIONS_MAX} partitions"
            )
        return SessionPartition(self, topic, number)

    def fetch_one(
        self, item: SessionPartition, row: RequestRow, max_bytes: int, deadline: int, now: int
    ) -> None:
        """Do the work of `fetch` for a request that lists only `item`, a partition that is already in the session.

        This method saves 0.8 of 8.8 µs per fetch.
        """
        self._begin(max_bytes, deadline, now)
        self._fetched(item, row, now)
        if self.dirty:
            self.purgatory.sessions[self] = None

    def _begin(self, max_bytes: int, deadline: int, now: int) -> None:
        self.epoch = 1 if self.epoch >= _EPOCH_MAX else self.epoch + 1
        # With a limit of 1 byte, the first batch is sent, however large it is (KIP-74).
        self.max_bytes = max_bytes if max_bytes > 0 else 1
        self.deadline = deadline
        self.seen = now
        self.parked = True

    def _fetched(self, item: SessionPartition, row: RequestRow, now: int) -> None:
        """Process one partition of a fetch: the follower has the records from offset `start` up to `offset`.

        If the fetch of the partition is refused, set `item.error` or `item.diverging`. The code for a follower in the
        ISR is inlined, which saves 0.07 of 4.9 µs per fetch.
        """
        _, leader_epoch, offset, last_epoch, start, item.max_bytes = row
        if item.progress is None:
            self._bind(item)
        partition, progress = item.partition, item.progress
        if (
            partition is None
            or progress is None
            or partition.leader_epoch != leader_epoch
            or not partition.is_open
            or partition.offline
            or offset < partition.log.log_start_offset
        ):
            if self._is_refused(item, leader_epoch, offset):
                return
            assert partition is not None
            assert progress is not None
        item.error = 0
        item.sent_high_watermark = -1  # send it again: the follower may have missed it
        log = partition.log
        item.diverging = None
        # Before the offset counts as an acknowledgement: a diverging log has other records below it (R40).
        if last_epoch != log.epochs.latest or offset > log.log_end_offset:
            self._compare(item, partition, last_epoch, offset)
            if item.diverging is not None or item.error:
                item.mark_dirty()
                return
        try:
            moved = partition.record_follower_fetch(progress, offset, now)
            if log.gaps.lost_from is not None and log.is_missing(offset):
                # A follower that copied the records after the gap would have the same gap and no error.
                item.error = _CORRUPT
                item.mark_dirty()
        except StorageFailed as failure:
            self._disk_failed(item, partition, failure)
            item.mark_dirty()
            return
        if moved:
            self.purgatory.high_watermark_moved(partition)
        if start != progress.log_start_offset:
            progress.log_start_offset = start
            # A DeleteRecords request may wait for it.
            self.purgatory.waiting.update(partition.waiting)
        if self.broker_id not in partition.isr_state.isr:
            self._maybe_expand(partition, progress)
        if offset < log.written_log_end_offset or item.is_changed:
            item.mark_dirty()

    def _compare(
        self, item: SessionPartition, partition: Partition, last_epoch: int, offset: int
    ) -> None:
        """Set `item.diverging` or `item.error` if the follower's log does not agree with the leader's log."""
        item.diverging = partition.diverging(last_epoch, offset)
        if item.diverging is None and offset > partition.log.log_end_offset:
            # The follower's log is empty and begins beyond the leader's end: its offset acknowledges no records.
            item.error = _OUT_OF_RANGE

    def _maybe_expand(self, partition: Partition, progress: FollowerProgress) -> None:
        if partition.may_expand_isr(progress):
            self.expand(partition, progress)

    def _bind(self, item: SessionPartition) -> None:
        item.sent_high_watermark = -1
        partition = self.lookup(item.topic, item.number)
        progress = partition.followers.get(self.broker_id) if partition is not None else None
        if progress is not None:
            if progress.item is not None:
                progress.item.supersede()
            progress.item = item
        item.partition, item.progress = partition, progress

    def _is_refused(self, item: SessionPartition, leader_epoch: int, offset: int) -> bool:
        """Refuse a fetch, and return True, unless the leader is opening, and serves its followers."""
        partition = item.partition
        error = self._refusal(partition, leader_epoch, offset)
        if error or partition is None or item.progress is None:
            item.error = error or _NOT_LEADER
            item.mark_dirty()
            return True
        # The wait of an opening leader for its followers is a `Waiter` of the partition.
        self.purgatory.waiting.update(partition.waiting)
        return False

    def _refusal(self, partition: Partition | None, leader_epoch: int, offset: int) -> int:
        if partition is None:
            return _UNKNOWN
        error = partition.check_follower(leader_epoch)
        if error:
            return error
        return _OUT_OF_RANGE if offset < partition.log.log_start_offset else 0

    def _forget(
        self, forgotten: Iterable[tuple[bytes, Iterable[int]]]
    ) -> Generator[None, None, None]:
        """Drop the partitions that the follower no longer fetches."""
        at = 0
        for topic, numbers in forgotten:
            items = self.items.get(topic, {})
            for number in numbers:
                item = items.pop(number, None)
                if item is not None:
                    self._release(item)
                at += 1
                if not at % STEP_ROWS:
                    yield
        if at:
            self.dirty = [item for item in self.dirty if item.dirty]

    def _release(self, item: SessionPartition) -> None:
        self.size -= 1
        self.held.pop(item, None)
        # The progress may already belong to the item of a newer session of this follower.
        if item.progress is not None and item.progress.item is item:
            item.progress.item = None
        item.dirty = False

    def close(self) -> None:
        """Release the partitions, because the connection has ended.

        References between objects are cleared, so that memory is freed without the garbage collector.
        """
        self.parked = False
        for items in self.items.values():
            for item in items.values():
                if item.progress is not None and item.progress.item is item:
                    item.progress.item = None
        self.items.clear()
        self.dirty.clear()
        self.held.clear()

    def serve(self, now: int) -> None:
        """Answer the parked fetch with the changed partitions. If there is nothing to send, the fetch stays parked."""
        if not self.parked or (self.min_bytes > 1 and self._waits_for_more(now)):
            return
        if len(self.dirty) == 1 and now < self.scanned + _SCAN_MS:
            item = self.dirty.pop()
            item.dirty = False
            answer = self._answer(item, self.max_bytes)
            if answer is not None:
                self.parked = False
                self.responder.respond(0, [(item.topic, [answer])])
            return
        topics: dict[bytes, list[PartitionData]] = {}
        left, rows = self.max_bytes, ANSWER_ROWS_MAX
        rest: list[SessionPartition] = []
        for item in self.dirty:
            if left <= 0 or not rows:
                rest.append(item)
                continue
            item.dirty = False
            answer = self._answer(item, left)
            if answer is not None:
                left -= answer.size
                rows -= 1
                topics.setdefault(item.topic, []).append(answer)
        self.dirty = rest
        if now >= self.scanned + _SCAN_MS:
            self._add_high_watermarks(topics, now)
        if topics:
            self.answer_now(list(topics.items()))

    def _waits_for_more(self, now: int) -> bool:
        """Return True while fewer than `min_bytes` bytes can be sent; the next event-loop tick checks again."""
        if now >= self.deadline:
            return False
        available = 0
        for item in self.dirty:
            partition, progress = item.partition, item.progress
            if item.error or item.diverging is not None or partition is None or progress is None:
                return False
            if item.is_changed:
                return False
            available += partition.log.written_position - progress.current_position()
        if available >= self.min_bytes:
            return False
        self.purgatory.sessions[self] = None
        return True

    def answer_now(self, topics: Topics) -> None:
        """Answer the parked fetch with these topics; an empty list makes a response without partitions."""
        self.parked = False
        self.responder.respond(0, topics)

    def expire(self, now: int) -> None:
        """Answer a parked (waiting) fetch whose deadline has passed.

        If no records can be sent, the response contains only the high watermarks that have moved. Also try again
        to send the partitions that the throttle holds back. Call this every `throttle.RETRY_MS`.
        """
        if self.held:
            held, self.held = self.held, {}
            for item in held:
                item.mark_dirty()
        if self.parked and now >= self.deadline and self.dirty:
            self.serve(now)
        if self.parked and now >= self.deadline:
            topics: dict[bytes, list[PartitionData]] = {}
            self._add_high_watermarks(topics, now)
            self.answer_now(list(topics.items()))

    def _answer(self, item: SessionPartition, left: int) -> PartitionData | None:
        if item.error or item.diverging is not None:
            return self._refused(item)
        partition, progress = item.partition, item.progress
        if partition is None or progress is None or progress.position < 0:
            return None
        log = partition.log
        limit = item.max_bytes
        if left < limit:  # saves 0.05 of 8.2 µs per fetch against calling `min`
            limit = left
        throttle = partition.leader_throttle
        if throttle is not None and self.broker_id not in partition.isr_state.isr:
            room = throttle.room()
            if room < 0:
                self.held[item] = None
                return None
            limit = max(
                min(limit, room), 1
            )  # at least 1, with which the first batch is sent (KIP-74)
        try:
            position = progress.position
            if progress.generation != log.layout_generation:
                position = progress.current_position()
            end = log.written_position
            data: bytes | Deferred
            # Reading few records here saves 0.28 of 6.7 µs per batch with two followers.
            if end - position <= EAGER_BYTES and self.max_bytes - left <= EAGER_BYTES:
                data, progress.next_offset, progress.next_position = log.read(position, end, limit)
            else:
                data, progress.next_offset, progress.next_position = self._read_or_defer(
                    partition, position, limit, left
                )
        except StorageFailed as failure:
            self._disk_failed(item, partition, failure)
            return self._refused(item)
        if not data and not item.is_changed:
            return None
        item.is_changed = False
        if throttle is not None:
            throttle.record(len(data))
        log.traffic.replication_bytes_out += len(data)
        high_watermark = item.sent_high_watermark = partition.high_watermark
        return _new_row(
            PartitionData,
            (
                item.number,
                0,
                high_watermark,
                partition.last_stable_offset,
                log.log_start_offset,
                (data,) if data else NOTHING,
                len(data),
                None,
                None,
                -1,
            ),
        )

    def _read_or_defer(
        self, partition: Partition, position: int, limit: int, left: int
    ) -> tuple[Deferred | bytes, int, int]:
        log = partition.log
        is_late = self.max_bytes - left > EAGER_BYTES
        failed = partial(self.purgatory.read_failed, partition)
        return read_or_defer(log, position, log.written_position, limit, is_late, failed)

    def _disk_failed(
        self, item: SessionPartition, partition: Partition, failure: StorageFailed
    ) -> None:
        self.purgatory.storage_failed(partition, failure)
        item.error = _STORAGE_ERROR

    def _refused(self, item: SessionPartition) -> PartitionData:
        start = item.partition.log.log_start_offset if item.partition is not None else -1
        return PartitionData(item.number, item.error, -1, -1, start, NOTHING, 0, item.diverging)

    def _add_high_watermarks(self, topics: dict[bytes, list[PartitionData]], now: int) -> None:
        """Add to the response, `topics`, the partitions whose high watermark has moved since it was last sent (R33).

        Also propose the follower for ISRs that it could not join at its last fetch, because another ISR change was
        pending or its broker was not known to be alive. Without this call, the follower of an idle partition might
        never be proposed again, because fetch requests do not list idle partitions.
        """
        self.scanned = now
        for topic, items in self.items.items():
            answered = {number for number, *_ in topics.get(topic, ())}
            for item in items.values():
                partition, progress = item.partition, item.progress
                if (
                    partition is None
                    or progress is None
                    or item.error
                    or item.diverging is not None
                ):
                    continue
                if self.broker_id not in partition.isr_state.isr:
                    self._maybe_expand(partition, progress)
                if (
                    not item.dirty
                    and item.sent_high_watermark != partition.high_watermark
                    and item.number not in answered
                ):
                    high_watermark = item.sent_high_watermark = partition.high_watermark
                    stable, start = partition.last_stable_offset, partition.log.log_start_offset
                    topics.setdefault(topic, []).append(
                        PartitionData(item.number, 0, high_watermark, stable, start, NOTHING, 0)
                    )
