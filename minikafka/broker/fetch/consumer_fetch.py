"""The fetches of consumers, from arrival to response, with or without a fetch session (KIP-227, KIP-392).

A response holds at least one batch of any size, if a batch can be read. Further batches must fit into the limits
of their partition and of the response. A fetch is answered when `min_bytes` can be read, when there is an error
or another reason to answer at once, or when the maximum wait of the fetch has passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from functools import partial
from typing import Final, TypeAlias

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.fetch_rows import (
    FETCH_OFFSET,
    PARTITION,
    AbortedTransactions,
    PartitionData,
    RequestRow,
)
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Slice, Timer
from minikafka.broker.fetch.consumer_fetches import WAITING_MAX, ConsumerFetches, FetchMeter
from minikafka.broker.fetch.rights import DENIED
from minikafka.broker.turns import take_steps
from minikafka.kafka.wire.current_leaders import CurrentLeaders
from minikafka.kafka.wire.fetch import (
    LEADERS_SINCE,
    TOPIC_IDS_SINCE,
    FetchRequest,
    encode_response,
    encode_response_in_steps,
)
from minikafka.storage.log.deferred import EAGER_BYTES, Deferred, read_or_defer
from minikafka.storage.replication.consumer_sessions import ConsumerSession
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.replica_selector import LEADER, preferred_read_replica
from minikafka.storage.replication.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_EPOCH,
    SESSION_NOT_FOUND,
)

_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_MOVED: Final = (_NOT_LEADER, int(ErrorCode.FENCED_LEADER_EPOCH))
"""The error codes with which a response names the current leader."""
_OTHER_TOPICS: Final = int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
_NO_ZSTD: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NOTHING: Final[Sequence[Slice]] = ()
_DIVERGES: Final = -1
_STORAGE_ERROR_SINCE: Final = 6
_ZSTD_SINCE: Final = 10
_RACKS_SINCE: Final = 11
"""The three constants are the first Fetch versions with KAFKA_STORAGE_ERROR, zstd and reads from followers."""

ROWS_MAX: Final = 64
"""Maximum number of partitions handled in one tick, by one fetch or by all fetches of a connection."""
_STEP_ROWS: Final = 32
"""Number of partitions that one step of a larger fetch evaluates, in about 0.1 ms."""
WAIT_ROWS_MAX: Final = 4_096
"""A fetch of more partitions without a session is answered at once, because a waiting fetch keeps all its partitions
in memory."""
_Steps: TypeAlias = Generator[None, None, None]
_Named: TypeAlias = tuple[bytes, RequestRow]
"""A topic as the request names it, and one partition of it as decoded from the request (a "row")."""
_Read: TypeAlias = tuple[bytes, RequestRow, PartitionData]


class ConsumerFetch:
    """One fetch of a consumer, from its arrival until it is answered.

    A fetch without a session waits as a `Waiter` of its partitions. A fetch of a session waits as the
    `SessionFetch` of the session.
    """

    __slots__ = (
        "arrived",
        "awaited",
        "correlation",
        "done",
        "fetches",
        "find",
        "has_work",
        "ids",
        "is_large",
        "is_leader_only",
        "is_overdue",
        "is_updated",
        "leaders",
        "max_bytes",
        "min_bytes",
        "rack",
        "request",
        "rights",
        "rows",
        "session",
        "slot",
        "steps",
        "timer",
        "version",
    )

    def __init__(
        self,
        fetches: ConsumerFetches,
        request: FetchRequest,
        correlation: int,
        version: int,
        now: int,
    ) -> None:
        self.fetches = fetches
        self.arrived = now
        self.request = request
        self.correlation = correlation
        self.version = version
        limit = self.max_bytes = min(max(request.max_bytes, 1), fetches.max_bytes)
        self.min_bytes = min(limit, request.min_bytes)
        self.is_leader_only = version < _RACKS_SINCE or request.replica_id >= 0
        self.rack = ""
        if request.rack and fetches.is_selecting and not self.is_leader_only:
            self.rack = request.rack.decode("utf-8", "replace")
        self.ids = fetches.ids if version >= TOPIC_IDS_SINCE else None
        """None if the request names topics instead of topic ids."""
        self.find = fetches.replicas.find if self.ids is None else self.ids.find
        """(topic as the request names it, partition number) -> the partition if it is hosted, else None."""
        self.leaders: CurrentLeaders | None = None
        self.rights = fetches.rights_of(request.replica_id)
        self.rows: list[_Named] = []
        """The partitions to read. In a session, these are the partitions that may have changed."""
        self.session: ConsumerSession | None = None
        self.awaited: dict[Partition, None] = {}
        """The partitions for which the fetch waits; empty if it has a session."""
        self.slot = fetches.answers.reserve()
        self.timer: Timer | None = None
        self.steps: _Steps | None = None
        """The remaining steps of the evaluation; None while no evaluation is in progress."""
        self.done = self.has_work = self.is_large = self.is_overdue = self.is_updated = False

    def begin(self) -> None:
        """Begin the fetch.

        The fetch is answered now, waits for records, or is evaluated in later turns of the event loop.
        """
        if self.request.session_id:
            error = self._find_session()
            if error:
                self._refuse(error)
                return
        elif self.request.session_epoch > 0:
            self._refuse(SESSION_NOT_FOUND)
            return
        if self.session is None and not self._take_rows():
            return
        self.attempt()
        self.fetches.rows += len(self.rows)

    def _take_rows(self) -> bool:
        """Set `rows` to the partitions of the request. Called only for a fetch without a session.

        If the request has no partitions, answer and return False.
        """
        self.rows = [(topic, row) for topic, rows in self.request.topics for row in rows]
        if not self.rows:
            self._refuse(0)
        return bool(self.rows)

    def _wait(self) -> None:
        fetches = self.fetches
        fetches.waiting[self] = None
        if len(fetches.waiting) >= WAITING_MAX:
            fetches.filled()
        if self.session is None:
            for partition in self.awaited:
                partition.waiting[self] = None
        else:
            self.session.waiting = self
        wait_ms = self.arrived + self.request.max_wait_ms - fetches.clock.now()
        self.timer = fetches.clock.call_later(max(wait_ms, 1), self.stop_waiting)
        self.has_work = self.is_large  # records may have arrived between the steps of a large fetch

    # ---- the session

    def _find_session(self) -> int:
        """Set `session` to the session that the request continues, or close the session that the request ends.

        Return the error code for the client, 0 on success.
        """
        request = self.request
        cache = self.fetches.replicas.fetch_sessions.consumers
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            cache.remove(request.session_id)
            return 0
        session = cache.get(request.session_id)
        if session is None:
            return SESSION_NOT_FOUND
        if request.session_epoch != session.epoch:
            return INVALID_SESSION_EPOCH
        if session.has_topic_ids != (self.ids is not None):
            return _OTHER_TOPICS
        session.begin_fetch()
        self.session = session
        cache.touch(session, self.arrived)
        return 0

    def _update(self, session: ConsumerSession) -> _Steps:
        """Apply the request's changes to the session.

        Close the session if it has no partitions left or if the session cache has no room.
        """
        self.is_updated = True
        if self.fetches.reads is not None and session.basis != self.fetches.reads.basis:
            session.basis = self.fetches.reads.basis
            yield from session.mark_all_dirty()
        yield from session.update(self.request.topics, self.request.forgotten)
        cache = self.fetches.replicas.fetch_sessions.consumers
        if session.items and cache.has_room():
            return
        cache.remove(session.id)
        self.session = None
        if session.items:
            self._refuse(SESSION_NOT_FOUND)
        else:
            self._take_rows()

    def _take_dirty(self, session: ConsumerSession) -> _Steps:
        """Set `rows` to the dirty partitions of the session, whose replicas may have something new to send."""
        find, ids = self.find, self.ids
        rows: list[_Named] = []
        for at, item in enumerate(tuple(session.dirty), 1):
            if not at % _STEP_ROWS:
                yield
            if ids is not None and item.name is None:
                item.name = ids.name(item.topic)
            session.watch(item, find)
            rows.append((item.topic, item.row))
        self.rows = rows

    def supersede(self) -> None:
        """Answer with INVALID_SESSION_EPOCH, because a later fetch has continued the session."""
        if self.session is not None:
            self._refuse(INVALID_SESSION_EPOCH, self.session.id)

    def _has_changed(
        self, session: ConsumerSession, topic: bytes, row: RequestRow, part: PartitionData
    ) -> bool:
        """Record the result of a read in the session. Return True if the response must include the partition."""
        item = session.items.get((topic, row[PARTITION]))
        if item is None:
            return False
        session.read(item, self._read_to_the_end(topic, row, part), has_records=part.size > 0)
        return item.must_respond(part)

    def _read_to_the_end(
        self, topic: bytes, row: RequestRow, part: PartitionData
    ) -> Partition | None:
        """Return the partition if the consumer has every record that it may read, else None.

        `row`: the consumer's request for the partition, with the fetch offset. `part`: the result of the read.
        Also return None if `part` holds records, an error, a divergence or a redirection to another replica.
        """
        if part.error or part.size or part.diverging is not None or part.preferred != LEADER:
            return None
        partition = self.find(topic, row[PARTITION])
        if partition is None or row[FETCH_OFFSET] < self._end(partition):
            return None
        return partition

    def _new_session(self, found: list[_Read]) -> Generator[None, None, int]:
        """Create a session with these partitions; return its id, or 0 if the session cache is full."""
        cache = self.fetches.replicas.fetch_sessions.consumers
        has_ids = self.ids is not None
        session = cache.create(len(found), self.fetches.clock.now(), has_topic_ids=has_ids)
        if session is None:
            return 0
        if self.fetches.reads is not None:
            session.basis = self.fetches.reads.basis
        for at, (topic, row, part) in enumerate(found, 1):
            if not at % _STEP_ROWS:
                yield
            item = session.add(topic, row)
            item.must_respond(part)
            if self.ids is not None:
                item.name = self.ids.name(topic)
        for at, (topic, row, part) in enumerate(found, 1):
            if not at % _STEP_ROWS:
                yield
            session.read(
                session.items[topic, row[PARTITION]],
                self._read_to_the_end(topic, row, part),
                has_records=part.size > 0,
            )
        return session.id

    # ---- waiting

    def wake(self) -> None:
        """Schedule a call of `attempt` for the end of the current tick, when the logs have been written."""
        self.fetches.replicas.purgatory.waiting[self] = None

    def attempt(self) -> None:
        """Answer the fetch if a partition has an error or at least `min_bytes` can be read; otherwise wait.

        A large fetch is evaluated in later turns of the event loop.
        """
        if self.done:
            return
        fetches = self.fetches
        rows = len(self.rows) if self.session is None else self._session_rows(self.session)
        if self.steps is not None or (rows > ROWS_MAX and fetches.large in (None, self)):
            fetches.large = self
            self.is_large = self.has_work = True
            fetches.filled()
            fetches.proceed()
        else:
            deque(self._evaluate(), maxlen=0)

    def _session_rows(self, session: ConsumerSession) -> int:
        """Return the number of partitions to evaluate in a fetch of a session.

        These are the partitions in the request, and the session's partitions that may have changed.
        """
        rows = len(session.dirty)
        if not self.is_updated:
            rows += sum(len(rows) for _, rows in self.request.topics)
            rows += sum(1 + len(numbers) for _, numbers in self.request.forgotten)
        return rows

    def work(self, until: int) -> None:
        """Start or continue the evaluation of the fetch, until its end or until the time `until` (monotonic ms)."""
        if self.steps is None:
            self.has_work = False
            self.steps = self._evaluate()
        try:
            take_steps(self.steps, self.fetches.clock, until)
            self.has_work = True
        except StopIteration:
            self.steps = None

    def stop_waiting(self) -> None:
        """Answer the fetch with the records that can be read now, even if they are less than `min_bytes`."""
        if not self.done:
            self.is_overdue = True
            self.attempt()
            self.fetches.replicas.purgatory.finish_soon()

    def _evaluate(self) -> _Steps:
        """Answer the fetch, or wait until the next attempt. Yields after every `_STEP_ROWS` partitions."""
        if self.rights is not None:
            self.rights.renew()
        if self.session is not None and not self.is_updated:
            yield from self._update(self.session)
        if self.session is not None:
            yield from self._take_dirty(self.session)
        if self.done:
            return
        if self._may_wait() and not (yield from self._has_enough()):
            if self not in self.fetches.waiting and not self.done:
                self._wait()
            return
        yield from self._read_and_answer()

    def _may_wait(self) -> bool:
        is_small = self.session is not None or len(self.rows) <= WAIT_ROWS_MAX
        is_asked = self.request.max_wait_ms > 0 and self.min_bytes > 0
        return is_asked and is_small and not self.is_overdue

    def _has_enough(self) -> Generator[None, None, bool]:
        available, wanted = 0, self.min_bytes
        for at, (topic, row) in enumerate(self.rows, 1):
            if not at % _STEP_ROWS:
                yield
            number, _, offset, _, _, max_bytes = row
            if self.rights is not None and self.rights.deny(self._name(topic, number)):
                return True
            partition = self.find(topic, number)
            if partition is None or self._refusal(partition, row):
                return True
            if self.session is None:
                self.awaited[partition] = None
            if self.rack and self._preferred(partition, offset) != LEADER:
                return True
            if offset < partition.high_watermark:
                try:
                    end, end_position = partition.read_limit(self.request.read_committed)
                    start = self.fetches.position(partition, offset)
                except StorageFailed:  # answer now: `_read` reports the same error
                    return True
                if offset < end:
                    available += min(end_position - start, max_bytes)
                if available >= wanted:
                    return True
        return available >= wanted

    def _refusal(self, partition: Partition, row: RequestRow) -> int:
        """Return the error code for a partition, `_DIVERGES` if the logs diverge, 0 if reading is allowed."""
        _, leader_epoch, offset, last_epoch, _, _ = row
        if self.is_leader_only:
            error = partition.check_leader_epoch(leader_epoch)
        else:
            error = partition.check_reader(leader_epoch)
        if error:
            return error
        log = partition.log
        if offset > log.log_end_offset or offset < log.log_start_offset:
            return _OUT_OF_RANGE
        if self.version < _ZSTD_SINCE and log.config.compression_type == "zstd":
            return _NO_ZSTD
        if last_epoch >= 0 and partition.diverging(last_epoch, offset) is not None:
            return _DIVERGES
        return 0

    def _preferred(self, partition: Partition, offset: int) -> BrokerId:
        """Return the follower from which the consumer should read, or LEADER if there is none."""
        fetches = self.fetches
        now = fetches.clock.now()
        return preferred_read_replica(partition, offset, self.rack, fetches.rack_of, now)

    def _end(self, partition: Partition) -> int:
        """Return the end of the readable offsets: the last stable offset or the high watermark."""
        if self.request.read_committed:
            return partition.last_stable_offset
        return partition.high_watermark

    # ---- reading

    def _read_and_answer(self) -> _Steps:
        fetches = self.fetches
        if fetches.meter is not None and not self._limit_bytes(fetches.meter):
            return
        left = limit = self.max_bytes
        is_late = fetches.unsent and fetches.has_much_unsent()
        deferred_from = limit if is_late else limit - EAGER_BYTES + fetches.unsent_bytes
        found: list[_Read] = []
        topics: dict[bytes, list[PartitionData]] = {}
        for at, (topic, row) in enumerate(self.rows, 1):
            if not at % _STEP_ROWS:
                yield
                if self.done:  # a later fetch of the session has superseded this one
                    return
            part = self._read(topic, row, left, deferred_from)
            left -= part.size
            if self.session is None or self._has_changed(self.session, topic, row, part):
                found.append((topic, row, part))
                topics.setdefault(topic, []).append(part)
        if left < limit:
            fetches.unsent.append((self.slot, limit - left))
            fetches.unsent_bytes += limit - left
            if fetches.unsent_bytes >= EAGER_BYTES:
                fetches.filled()
        session_id = 0
        if self.session is not None:
            session_id = self.session.id
        elif self.request.session_epoch == INITIAL_EPOCH:
            session_id = yield from self._new_session(found)
        answer = yield from encode_response_in_steps(
            self.correlation, self.version, 0, session_id, list(topics.items()), self.leaders
        )
        if not self.done:
            self._send(answer)

    def _limit_bytes(self, meter: FetchMeter) -> bool:
        """Limit the records to what the quota of the client allows. If it allows none now, answer and return False."""
        most = meter.fetch_bytes_max()
        if most == 0:
            self._refuse(0, 0 if self.session is None else self.session.id)
            return False
        if most is not None:
            self.max_bytes = min(self.max_bytes, most)
        return True

    def _read(self, topic: bytes, row: RequestRow, left: int, deferred_from: int) -> PartitionData:
        """Return the response data of one partition, with at most `left` bytes of records.

        The first batch of a response may be larger. Deferred records are read from the file only when they are sent.
        Records are deferred if they take more than `EAGER_BYTES`, or if `left` is at most `deferred_from`.
        """
        number, _, offset, last_epoch, _, _ = row
        if self.rights is not None and self.rights.deny(self._name(topic, number)):
            return self._refused(topic, number, DENIED)
        partition = self.find(topic, number)
        if partition is None:
            error = self._error(topic, number)
            return self._refused(topic, number, error)
        traffic = partition.log.traffic
        traffic.fetch_requests += 1
        error = self._refusal(partition, row)
        if error and error != _DIVERGES:
            traffic.failed_fetch_requests += 1
            return self._refused(topic, number, error)
        start = partition.log.log_start_offset
        if error:
            return PartitionData(
                number, 0, -1, -1, start, _NOTHING, 0, partition.diverging(last_epoch, offset)
            )
        hw, stable = partition.high_watermark, partition.last_stable_offset
        aborted: AbortedTransactions | None = () if self.request.read_committed else None
        if self.rack and (preferred := self._preferred(partition, offset)) != LEADER:
            return PartitionData(
                number, 0, hw, stable, start, _NOTHING, 0, None, aborted, preferred
            )
        if offset >= (stable if self.request.read_committed else hw) or left <= 0:
            return PartitionData(number, 0, hw, stable, start, _NOTHING, 0, None, aborted)
        try:
            data, end = self._records(partition, row, left, deferred_from)
        except StorageFailed as failure:
            self.fetches.replicas.purgatory.storage_failed(partition, failure)
            return self._refused(topic, number, _STORAGE_ERROR)
        traffic.bytes_out += len(data)
        slices = (data,) if data else _NOTHING
        if self.request.read_committed and data:
            aborted = partition.log.aborted_transactions(offset, end)
        return PartitionData(number, 0, hw, stable, start, slices, len(data), None, aborted)

    def _error(self, topic: bytes, number: int) -> int:
        """Return the error code for a partition that `find` does not return."""
        if self.ids is None:
            return self.fetches.replicas.error_for_wire(topic, number)
        return self.ids.error(self._name(topic, number), number)

    def _name(self, topic: bytes, number: int) -> bytes | None:
        """Return the name of a topic in the request, None if the request has an unknown id."""
        if self.ids is None:
            return topic
        item = None if self.session is None else self.session.items.get((topic, number))
        return self.ids.name(topic) if item is None or item.name is None else item.name

    def _records(
        self, partition: Partition, row: RequestRow, left: int, deferred_from: int
    ) -> tuple[bytes | Deferred, int]:
        """Return records, beginning at the fetch offset of `row`, and the offset after them. Raises StorageFailed.

        If the first batch exceeds the size limits and the response already has records, return b"". If the response
        has no records yet, return this batch whole.
        """
        fetches = self.fetches
        _, _, offset, _, _, max_bytes = row
        _, end = partition.read_limit(self.request.read_committed)
        position, wanted = fetches.position(partition, offset), min(left, max_bytes)
        data, next_offset, next_position = read_or_defer(
            partition.log,
            position,
            end,
            wanted,
            left <= deferred_from,
            partial(fetches.replicas.purgatory.read_failed, partition),
        )
        if len(data) > wanted and left < self.max_bytes:
            return b"", offset  # only the first batch of a response may exceed the limits
        generation = partition.log.layout_generation
        fetches.positions[partition] = (next_offset, next_position, generation)
        return data, next_offset

    def _refused(self, topic: bytes, number: int, error: int) -> PartitionData:
        name = self._name(topic, number)
        if name is not None:
            tp = TopicPartition(name.decode("utf-8", "replace"), number)
            refusals = self.fetches.replicas.refusals
            refusals.note("Fetch", tp, error)
            if self.version >= LEADERS_SINCE and error in _MOVED:
                self.leaders = self.leaders or CurrentLeaders()
                self.leaders.add(topic, number, *refusals.leader(tp, self.fetches.client.listener))
        if error == _STORAGE_ERROR and self.version < _STORAGE_ERROR_SINCE:
            error = _NOT_LEADER
        return PartitionData(number, error, -1, -1, -1, _NOTHING, 0)

    # ---- the response

    def _refuse(self, error: int, session_id: int = 0) -> None:
        """Answer the fetch with this error code and without partitions."""
        self._send(encode_response(self.correlation, self.version, error, session_id, ()))

    def _send(self, answer: Sequence[Slice]) -> None:
        fetches = self.fetches
        if fetches.meter is not None:
            fetches.meter.fetch_answered(answer, self.version)
        self.slot.answer = answer
        fetches.requests.consumer_fetches.record(fetches.clock.now() - self.arrived)
        self.forget()
        fetches.replicas.purgatory.ready[fetches.answers] = None

    def forget(self) -> None:
        """End the fetch: remove it from everything that it waits for, and cancel its timer."""
        self.done = True
        if self.fetches.large is self:
            self.fetches.large = None
        if self.timer is not None:
            self.timer.cancel()
        if self.fetches.waiting.pop(self, False) is None:
            if self.session is None:
                for partition in self.awaited:
                    partition.waiting.pop(self, None)
            elif self.session.waiting is self:
                self.session.waiting = None
