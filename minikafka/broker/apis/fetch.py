"""Fetch (key 1), versions 4 to 12, for consumers and for followers.

Behaviour: consumers read below the high watermark, or below the last stable offset with isolation
level read_committed, and wait for min_bytes until max_wait_ms; followers read up to the written log
end, in an incremental session (KIP-227) of version 12. Epoch fencing by KIP-320, divergence by
KIP-595. Version notes: 5 log start offset, 7 sessions (consumers always get session 0), 9 current
leader epoch, 11 rack id, 12 flexible and last fetched epoch. Deliberately ignored: rack id
(KIP-392).

Records beyond the first 64 KiB of a response are read when the client's socket takes them, in pieces of at most
256 KiB. All clients of a broker together have a budget of 64 MiB for such pieces: the more of it is used, the smaller
they get, down to 16 KiB. Until a client has received a response with more than 64 KiB of records, its further requests
are not read. If the records are deleted or truncated meanwhile, its connection is closed.

A fetch of more than 64 partitions is handled in steps, in turn with the cold requests of all connections, and the
next request of its connection when it is answered. So is the next request behind 16 fetches that wait for records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from minikafka.base.errors import ErrorCode, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Slice, Timer
from minikafka.broker.cold_turns import TURN_MS, ColdTurns
from minikafka.broker.replicas import ReplicaManager
from minikafka.broker.request_metrics import RequestMetrics
from minikafka.broker.services import ClientConnection
from minikafka.log.deferred import EAGER_BYTES, Deferred, defer
from minikafka.replication.partition import Partition
from minikafka.replication.purgatory import AnswerQueue, Slot
from minikafka.replication.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_EPOCH,
    SESSION_NOT_FOUND,
    Answer,
    Session,
    Topics,
)
from minikafka.wire.fetch import (
    FOLLOWER_VERSION,
    FetchPartition,
    FetchRequest,
    PartitionData,
    decode,
    encode_response,
)
from minikafka.wire.single_fetch import SingleRequest, encode_single_response, single_request

_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_NOTHING: Final[Sequence[Slice]] = ()
_DIVERGES: Final = -1
_RESPONSE_MAX: Final = 55 << 20
ROWS_MAX: Final = 64
"""Partitions of a fetch that is handled at once, and of all fetches of a connection in one tick."""
_Steps: TypeAlias = Generator[None, None, None]
_STEP_ROWS: Final = 32
"""Partitions that one step of a larger fetch looks at: about 0.1 ms."""
WAITING_MAX: Final = 16
"""Fetches of one connection that wait for records at which no further request is parsed."""


class FetchApi:
    """Fetch on one connection: any number of consumer fetches, or the session of one follower.

    `filled()` is called whenever a response may have made `is_full` true. `turns` are those of `large`.
    """

    __slots__ = (
        "answers",
        "client",
        "clock",
        "correlation",
        "filled",
        "is_queued",
        "large",
        "now",
        "positions",
        "replicas",
        "requests",
        "rows",
        "session",
        "slot",
        "turns",
        "unsent",
        "unsent_bytes",
        "used",
        "waiting",
    )

    def __init__(
        self,
        client: ClientConnection,
        replicas: ReplicaManager,
        answers: AnswerQueue,
        clock: Clock,
        requests: RequestMetrics,
        filled: Callable[[], None],
        turns: ColdTurns,
    ) -> None:
        self.turns = turns
        self.large: ConsumerFetch | None = None
        """The fetch that is handled in steps, until it is answered; no further request is parsed."""
        self.is_queued = False
        """True while `turns` will call `work`."""
        self.used = 0
        """The work for this connection, counted by `turns`."""
        self.rows = 0
        """Partitions of the fetches of this tick; the connection sets it to 0."""
        self.client = client
        self.replicas = replicas
        self.answers = answers
        self.clock = clock
        self.requests = requests
        self.filled = filled
        self.now = 0
        self.session: Session | None = None
        self.slot = Slot()
        """The place of the follower's response: a session has one fetch in flight."""
        self.correlation = 0
        self.positions: dict[Partition, tuple[int, int, int]] = {}
        """(next offset, its byte position, layout generation of the log) after the last read by a consumer."""
        self.waiting: dict[ConsumerFetch, None] = {}
        self.unsent: deque[tuple[Slot, int]] = deque()
        """Responses that may not be sent yet, with their bytes of records; the sum is `unsent_bytes`."""
        self.unsent_bytes = 0

    def on_request(
        self,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        _: int,
        body: int,
        end: int,
    ) -> bool:
        """Answer at the end of this tick, or when min_bytes are there, or after max_wait_ms.

        Return True if no further request may be parsed. Raises ProtocolViolation.
        """
        if self.session is not None and version == FOLLOWER_VERSION:
            single = single_request(buf, body, end)
            if single is not None and self._follower_again(self.session, single, correlation):
                return False
        request = decode(buf, view, body, end, version)
        if request.replica_id >= 0 and version == FOLLOWER_VERSION:
            self._follower(request, correlation)
        else:
            ConsumerFetch(self, request, correlation, version).begin()
        return self.rows > ROWS_MAX or self.is_full()

    def is_full(self) -> bool:
        """True while no further request is parsed: too much is unsent, a large fetch is there, or too many wait."""
        has_many = self.large is not None or len(self.waiting) >= WAITING_MAX
        return has_many or self.has_much_unsent()

    def has_much_unsent(self) -> bool:
        """True while responses with `EAGER_BYTES` of records or more are not sent."""
        while self.unsent and self.unsent[0][0].answer is None:
            _, size = self.unsent.popleft()
            self.unsent_bytes -= size
        return self.unsent_bytes >= EAGER_BYTES

    def proceed(self) -> None:
        """Ask for a turn for the large fetch if there is work to do for it."""
        if self.large is not None and self.large.has_work and not self.is_queued:
            self.is_queued = True
            self.turns.ask(self)

    def work(self) -> None:
        """Take steps of the large fetch until it is answered or waits, or other connections have their turn."""
        self.is_queued = False
        if self.large is not None:
            self.large.work(self.clock.now() + TURN_MS)

    def close(self) -> None:
        """Forget all fetches: the connection has ended."""
        self.unsent.clear()
        if self.large is not None:
            self.large.forget()
        if self.session is not None:
            self.replicas.fetch_sessions.close(self.session)
            self.session = None
        for fetch in tuple(self.waiting):
            fetch.forget()

    # ---- followers

    def _follower_again(self, session: Session, single: SingleRequest, correlation: int) -> bool:
        """Handle a request for one known partition of the session; return False if it is something else."""
        (
            _,
            replica_id,
            max_wait_ms,
            max_bytes,
            session_id,
            session_epoch,
            _,
            topic,
            _,
            number,
            leader_epoch,
            offset,
            last_epoch,
            start,
            partition_max_bytes,
            _,
        ) = single
        if replica_id < 0 or session_id != session.id or session_epoch != session.epoch:
            return False
        items = session.items.get(topic)
        item = items.get(number) if items is not None else None
        if item is None:
            return False
        if session.parked:
            session.answer_now([])
        self.correlation = correlation
        self.answers.entries.append(self.slot)
        item.max_bytes = partition_max_bytes
        now = self.now
        if max_bytes > _RESPONSE_MAX:
            max_bytes = _RESPONSE_MAX
        deadline = now + max_wait_ms
        session.fetch_one(item, leader_epoch, offset, last_epoch, start, max_bytes, deadline, now)
        return True

    def _follower(self, request: FetchRequest, correlation: int) -> None:
        self._await_response(correlation)
        error = self._open_or_continue(request)
        if error:
            self.respond(error, [])
            return
        assert self.session is not None
        self.session.fetch(
            request.topics,
            request.forgotten,
            min(request.max_bytes, _RESPONSE_MAX),
            self.now + request.max_wait_ms,
            self.now,
        )

    def _await_response(self, correlation: int) -> None:
        session = self.session
        if session is not None and session.parked:
            session.answer_now([])
        self.correlation = correlation
        self.answers.entries.append(self.slot)

    def _open_or_continue(self, request: FetchRequest) -> int:
        """Return 0 if `session` is the request's session, else the error code."""
        session = self.session
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self.replicas.fetch_sessions.close(session)
            session = self.session = self.replicas.fetch_sessions.open(request.replica_id, self)
            session.min_bytes = request.min_bytes
            return 0
        if session is None or request.session_id != session.id:
            return SESSION_NOT_FOUND
        if request.session_epoch != session.epoch:
            return INVALID_SESSION_EPOCH
        return 0

    def respond(self, error: int, topics: Topics) -> None:
        """Answer the follower's fetch with an error code, or with these partitions."""
        self.requests.follower_fetches.value += 1
        session_id = self.session.id if self.session is not None and not error else 0
        response = encode_response(self.correlation, FOLLOWER_VERSION, error, session_id, topics)
        self.answers.answer(self.slot, response)

    def respond_one(self, session_id: int, topic: bytes, answer: Answer) -> None:
        """Answer the follower's fetch with one partition."""
        response = encode_single_response(self.correlation, session_id, topic, answer)
        if response is None:
            self.respond(0, [(topic, [answer])])
        else:
            self.requests.follower_fetches.value += 1
            self.answers.answer(self.slot, response)

    def release_parked(self) -> None:
        """Answer a parked follower fetch with no records, so that it does not hold back the requests behind it."""
        if self.session is not None and self.session.parked:
            self.session.answer_now([])


class ConsumerFetch:
    """One fetch of a consumer until it is answered: a Waiter of every partition that it reads.

    `has_work`: True for a large fetch that is not evaluated, or only in part, after the last change.
    """

    __slots__ = (
        "api",
        "arrived",
        "correlation",
        "done",
        "has_work",
        "is_large",
        "is_overdue",
        "request",
        "slot",
        "steps",
        "timer",
        "version",
    )

    def __init__(
        self, api: FetchApi, request: FetchRequest, correlation: int, version: int
    ) -> None:
        self.api = api
        self.arrived = api.now
        self.request = request
        self.correlation = correlation
        self.version = version
        self.slot = api.answers.reserve()
        self.timer: Timer | None = None
        self.steps: _Steps | None = None
        """The rest of the evaluation that is in progress."""
        self.done = self.has_work = self.is_overdue = False
        rows = sum([len(rows) for _, rows in request.topics])
        self.is_large = rows > ROWS_MAX
        api.rows += rows

    def begin(self) -> None:
        """Answer, or wait for the partitions and the timer."""
        if self.request.session_epoch > 0:
            self._answer(encode_response(self.correlation, self.version, SESSION_NOT_FOUND, 0, ()))
            return
        if self.is_large:
            self.api.large = self
        self.attempt()

    def _wait(self) -> None:
        self.api.waiting[self] = None
        if len(self.api.waiting) >= WAITING_MAX:
            self.api.filled()
        for partition in self._partitions():
            partition.waiting[self] = None
        wait_ms = self.arrived + self.request.max_wait_ms - self.api.clock.now()
        self.timer = self.api.clock.call_later(max(wait_ms, 1), self._expired)
        self.has_work = self.is_large  # records may have come between the steps

    def _partitions(self) -> list[Partition]:
        find = self.api.replicas.find
        found = [find(topic, number) for topic, rows in self.request.topics for number, *_ in rows]
        return [partition for partition in found if partition is not None]

    def attempt(self) -> None:
        """Answer if a partition has an error, or if min_bytes are below the high watermarks.

        A large fetch is evaluated in a later turn.
        """
        if self.done:
            return
        if self.is_large:
            self.has_work = True
            self.api.proceed()
        else:
            deque(self._evaluate(), maxlen=0)

    def work(self, until: int) -> None:
        """Take steps of the evaluation until `until`, or to its end."""
        if self.steps is None:
            self.has_work = False
            self.steps = self._evaluate()
        for _ in self.steps:
            if self.api.clock.now() >= until:
                self.has_work = True
                return
        self.steps = None

    def _expired(self) -> None:
        if not self.done:
            self.is_overdue = True
            self.attempt()
            self.api.replicas.purgatory.finish_tick(self.api.clock.now())

    def _evaluate(self) -> _Steps:
        """Answer, or wait until the next attempt. Yields after every `_STEP_ROWS` partitions."""
        request = self.request
        may_wait = request.max_wait_ms > 0 and request.min_bytes > 0 and not self.is_overdue
        if may_wait and not (yield from self._has_enough()):
            if self not in self.api.waiting:
                self._wait()
            return
        yield from self._read_and_answer()

    def _has_enough(self) -> Generator[None, None, bool]:
        available, wanted = 0, self.request.min_bytes
        for topic, rows in self.request.topics:
            for at, row in enumerate(rows, 1):
                if not at % _STEP_ROWS:
                    yield
                number, _, offset, _, _, max_bytes = row
                partition = self.api.replicas.find(topic, number)
                if partition is None or self._refusal(partition, row):
                    return True
                if offset < partition.high_watermark:
                    try:
                        end, end_position = partition.read_limit(self.request.read_committed)
                        start = self._position(partition, offset)
                    except StorageFailed:  # the read fails with the same error and answers it
                        return True
                    if offset < end:
                        available += min(end_position - start, max_bytes)
                    if available >= wanted:
                        return True
        return available >= wanted

    def _refusal(self, partition: Partition, row: FetchPartition) -> int:
        """Return the error code of one row, _DIVERGES if its log diverges, 0 if it may be read."""
        _, leader_epoch, offset, last_epoch, _, _ = row
        error = partition.check_leader_epoch(leader_epoch)
        if error:
            return error
        log = partition.log
        if offset > log.log_end_offset or offset < log.log_start_offset:
            return _OUT_OF_RANGE
        if last_epoch >= 0 and partition.diverging(last_epoch, offset) is not None:
            return _DIVERGES
        return 0

    def _position(self, partition: Partition, offset: int) -> int:
        known = self.api.positions.get(partition)
        if known is not None:
            next_offset, next_position, generation = known
            if next_offset == offset and generation == partition.log.layout_generation:
                return next_position
        return partition.log.locate(offset)

    def _read_and_answer(self) -> _Steps:
        api = self.api
        left = limit = min(max(self.request.max_bytes, 1), _RESPONSE_MAX)
        is_late = api.unsent and api.has_much_unsent()
        deferred_from = limit if is_late else limit - EAGER_BYTES + api.unsent_bytes
        topics: list[tuple[bytes, list[PartitionData]]] = []
        for topic, rows in self.request.topics:
            data = []
            for at, row in enumerate(rows, 1):
                if not at % _STEP_ROWS:
                    yield
                part = self._read(topic, row, left, deferred_from)
                left -= part.size
                data.append(part)
            topics.append((topic, data))
        if left < limit:
            api.unsent.append((self.slot, limit - left))
            api.unsent_bytes += limit - left
            if api.unsent_bytes >= EAGER_BYTES:
                api.filled()
        self._answer(encode_response(self.correlation, self.version, 0, 0, topics))

    def _read(
        self, topic: bytes, row: FetchPartition, left: int, deferred_from: int
    ) -> PartitionData:
        """Return one partition with at most `left` bytes of records, which are deferred if that is `deferred_from`
        or less.
        """
        number, _, offset, last_epoch, _, max_bytes = row
        partition = self.api.replicas.find(topic, number)
        if partition is None:
            return self._refused(topic, number, self.api.replicas.error_for_wire(topic, number))
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
        aborted = () if self.request.read_committed else None
        if offset >= (stable if self.request.read_committed else hw) or left <= 0:
            return PartitionData(number, 0, hw, stable, start, _NOTHING, 0, None, aborted)
        try:
            _, end = partition.read_limit(self.request.read_committed)
            position, wanted = self._position(partition, offset), min(left, max_bytes)
            data: bytes | Deferred
            if end - position > EAGER_BYTES or left <= deferred_from:
                data, next_offset, next_position = defer(
                    partition.log, position, end, wanted, left <= deferred_from
                )
                if type(data) is Deferred:
                    data.failed = partial(self.api.replicas.purgatory.read_failed, partition)
            else:
                data, next_offset, next_position = partition.log.read(position, end, wanted)
        except StorageFailed as failure:
            self.api.replicas.purgatory.storage_failed(partition, failure)
            return PartitionData(number, _STORAGE_ERROR, -1, -1, -1, _NOTHING, 0)
        traffic.bytes_out += len(data)
        generation = partition.log.layout_generation
        self.api.positions[partition] = (next_offset, next_position, generation)
        return PartitionData(number, 0, hw, stable, start, (data,), len(data), None, aborted)

    def _refused(self, topic: bytes, number: int, error: int) -> PartitionData:
        tp = TopicPartition(topic.decode("utf-8", "replace"), number)
        self.api.replicas.refusals.note("Fetch", tp, error)
        return PartitionData(number, error, -1, -1, -1, _NOTHING, 0)

    def _answer(self, slices: list[Any]) -> None:
        self.slot.answer = slices
        self.api.requests.consumer_fetches.record(self.api.clock.now() - self.arrived)
        self.forget()
        self.api.replicas.purgatory.ready[self.api.answers] = None

    def forget(self) -> None:
        """Stop waiting for the partitions and the timer."""
        self.done = True
        if self.api.large is self:
            self.api.large = None
        if self.timer is not None:
            self.timer.cancel()
        if self.api.waiting.pop(self, False) is None:
            for partition in self._partitions():
                partition.waiting.pop(self, None)
