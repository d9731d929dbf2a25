"""The consumer fetches of one connection: waiting fetches, the large fetch, topic ids, and unsent responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol, TypeAlias

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock, Slice
from minikafka.broker.clients.access import Access
from minikafka.broker.fetch.rights import FOLLOW, READ_TOPIC, FetchRights
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.reports.request_metrics import RequestMetrics
from minikafka.broker.services import ClientConnection
from minikafka.broker.turns import Scheduler, take_steps
from minikafka.storage.log.deferred import EAGER_BYTES
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import AnswerQueue, Slot

WAITING_MAX: Final = 16
"""While this many fetches of one connection wait for records, no further request is parsed."""
LARGE_BYTES: Final = 8 << 10
"""A consumer's request of at least this many bytes (about 250 partitions) is decoded in steps."""
FOLLOWER_LARGE_BYTES: Final = 16 << 10
"""A follower's request of at least this many bytes (about 550 partitions) is handled in steps."""
POSITIONS_MIN: Final = 16
"""Positions of partitions that are no longer hosted are dropped only at this number of positions or above."""
_UNKNOWN_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
_OTHER_ID: Final = int(ErrorCode.INCONSISTENT_TOPIC_ID)


class Large(Protocol):
    """A large fetch in one of its two phases: decoding of the request in steps, then evaluation in steps."""

    @property
    def has_work(self) -> bool:
        """True while the fetch has steps to take; False while the fetch waits for records."""

    def work(self, until: int) -> None:
        """Take steps of the current phase until the phase ends, or until the time `until` (monotonic ms)."""

    def forget(self) -> None:
        """Drop the fetch, because the connection has ended."""


class WaitingFetch(Protocol):
    """A fetch that may wait for records."""

    def begin(self) -> None:
        """Answer the fetch, or wait for records."""

    def stop_waiting(self) -> None:
        """Answer the fetch with the records that can be read now."""

    def forget(self) -> None:
        """Stop waiting, because the connection has ended."""


class FetchMeter(Protocol):
    """Counts responses to consumers, while the broker has quotas (`broker/network/metering.py`)."""

    def fetch_bytes_max(self) -> int | None:
        """Return how many bytes of records a response may have now: 0 while the client must wait, None: any number."""

    def fetch_answered(self, answer: Sequence[Slice], version: int) -> None:
        """Count a response, and put the time that the consumer must wait into it."""


class ConsumerFetches:
    """The fetches of the consumer at the other end of one connection.

    `filled()` is called whenever `is_full` may have become True. A large fetch is handled in steps, in callbacks
    that `turns` schedules.
    """

    __slots__ = (
        "answers",
        "client",
        "clock",
        "filled",
        "followers",
        "ids",
        "is_queued",
        "is_selecting",
        "large",
        "max_bytes",
        "meter",
        "positions",
        "positions_max",
        "reads",
        "refused",
        "replicas",
        "requests",
        "rows",
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
        turns: Scheduler,
        refused: Callable[[ProtocolViolation], None],
        access: Access,
    ) -> None:
        self.reads = access.verdicts(client, READ_TOPIC)
        """The topics that the client may read; None without an authorizer."""
        self.followers = access.verdicts(client, FOLLOW)
        """Whether the client may fetch as a follower, under the name `CLUSTER_RESOURCE`; None without an authorizer."""
        self.turns = turns
        self.refused = refused
        """Function that closes the connection, called with the reason."""
        self.large: Large | None = None
        """The fetch that is handled in steps, or None. While it is not answered, no further request is parsed."""
        self.is_queued = False
        """True while `turns` will call `work`."""
        self.used = 0
        """Cost so far of the large fetches of this connection (see `Job.used`)."""
        self.rows = 0
        """Number of partitions in the fetches of this tick. The connection sets it to 0 when a tick begins."""
        self.max_bytes = replicas.config.fetch_max_bytes
        self.meter: FetchMeter | None = None
        """Counts the responses; None while the broker has no quotas."""
        self.ids = TopicIds(replicas)
        self.is_selecting = replicas.config.replica_selector_class is not None
        """True if consumers are sent to followers in their rack."""
        self.client = client
        self.replicas = replicas
        self.answers = answers
        self.clock = clock
        self.requests = requests
        self.filled = filled
        self.positions: dict[Partition, tuple[int, int, int]] = {}
        """For each partition, after its last read: (next offset, byte position of that offset, layout generation
        of the log)."""
        self.positions_max = POSITIONS_MIN
        """When there are this many positions, positions of partitions that are no longer hosted are dropped."""
        self.waiting: dict[WaitingFetch, None] = {}
        self.unsent: deque[tuple[Slot, int]] = deque()
        """(slot, bytes of records) for each response that was unsent at the last check.

        `unsent_bytes` is the sum of the bytes.
        """
        self.unsent_bytes = 0

    def rights_of(self, replica_id: int) -> FetchRights | None:
        """Return the rights of a fetch with this replica id, which a consumer's has not; None without an authorizer."""
        if self.reads is None or self.followers is None:
            return None
        return FetchRights(self.reads, self.followers, is_of_follower=replica_id >= 0)

    def is_full(self) -> bool:
        """True while this connection must not parse further requests.

        Reasons: a large fetch is in progress, too many fetches wait, or too many bytes of records are unsent.
        """
        has_many = self.large is not None or len(self.waiting) >= WAITING_MAX
        return has_many or self.has_much_unsent()

    def has_much_unsent(self) -> bool:
        """True while the unsent responses hold at least `EAGER_BYTES` of records."""
        while self.unsent and self.unsent[0][0].answer is None:
            _, size = self.unsent.popleft()
            self.unsent_bytes -= size
        return self.unsent_bytes >= EAGER_BYTES

    def give_up(self, reason: str) -> None:
        """Close the connection."""
        self.close()
        self.refused(ProtocolViolation(reason))

    def proceed(self) -> None:
        """Let `turns` call `work` soon, if a large fetch is in progress and does not wait for records."""
        if self.large is not None and self.large.has_work and not self.is_queued:
            self.is_queued = True
            self.turns.requests.ask(self)

    def work(self, until: int) -> None:
        """Take steps of the large fetch until the time `until`, or until it is answered or waits for records."""
        self.is_queued = False
        if self.large is not None:
            self.large.work(until)
        if self.large is None or not self.large.has_work:
            self.turns.large.end(self)
        self.proceed()

    def begin_large(self, large: Large) -> None:
        """Queue a large request. The large requests of all connections begin one by one, in later event loop turns."""
        self.large = large
        self.is_queued = True
        self.filled()
        self.turns.large.ask(self)

    def stop_waiting(self) -> None:
        """Answer the fetches that wait for records, so that the connection's next response need not wait."""
        for fetch in tuple(self.waiting):
            fetch.stop_waiting()

    def close(self) -> None:
        """Drop all fetches, because the connection has ended."""
        self.turns.large.end(self)
        self.unsent.clear()
        if self.large is not None:
            self.large.forget()
        for fetch in tuple(self.waiting):
            fetch.forget()

    def position(self, partition: Partition, offset: int) -> int:
        """Return the byte position of an offset in the partition's log. Raises StorageFailed."""
        known = self.positions.get(partition)
        if known is not None:
            next_offset, next_position, generation = known
            if next_offset == offset and generation == partition.log.layout_generation:
                return next_position
        log = partition.log
        position = log.locate(offset)
        if offset < log.written_log_end_offset:  # batches that are not written yet have no position
            if len(self.positions) >= self.positions_max:
                self._drop_positions()
            self.positions[partition] = (offset, position, log.layout_generation)
        return position

    def _drop_positions(self) -> None:
        """Remove partitions that this broker no longer hosts from `positions`, because an entry keeps a log in memory.

        Then set `positions_max` to twice the number of remaining entries, but at least `POSITIONS_MIN`. The method
        is called only when `positions` has `positions_max` entries, so its average cost per new entry is constant.
        """
        find = self.replicas.find
        self.positions = {
            partition: position
            for partition, position in self.positions.items()
            if find(partition.topic, partition.tp.partition) is partition
        }
        self.positions_max = max(POSITIONS_MIN, 2 * len(self.positions))

    def rack_of(self, broker_id: BrokerId) -> str | None:
        """Return the broker's rack, or None if the broker is not live, is a suspect or lacks this client's listener."""
        metadata = self.replicas.metadata
        if not metadata.is_alive(broker_id):
            return None
        broker = metadata.brokers[broker_id]
        return None if broker.endpoint(self.client.listener) is None else broker.rack


class TopicIds:
    """Finds topics and partitions by topic id, for the fetches of one connection (KIP-516, from version 13).

    A request, a session and a response use the id wherever an earlier version uses the name. A replica has a name,
    and its log has the id of the topic for which it was created. A topic that was deleted and created again has another
    id, so no consumer reads the records of the new topic at an offset of the old one.
    """

    __slots__ = ("_find_by_id", "_replicas")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._find_by_id = replicas.hosted.find_by_id

    def name(self, topic_id: bytes) -> bytes | None:
        """Return the name of the topic that has this id according to the metadata, None if there is none."""
        name = self._replicas.metadata.snapshot.topic_names.get(topic_id)
        return None if name is None else name.encode()

    def find(self, topic_id: bytes, number: int) -> Partition | None:
        """Return the partition if it is hosted and its log has this topic id, or none yet; else None."""
        partition = self._find_by_id(topic_id, number)
        return partition if partition is not None else self._find_without_id(topic_id, number)

    def _find_without_id(self, topic_id: bytes, number: int) -> Partition | None:
        name = self.name(topic_id)
        partition = None if name is None else self._replicas.find(name, number)
        return None if partition is None or partition.log.topic_id is not None else partition

    def error(self, name: bytes | None, number: int) -> int:
        """Return the error code for a partition that `find` does not return. `name`: of the topic, None if unknown."""
        if name is None:
            return _UNKNOWN_ID
        is_hosted = self._replicas.find(name, number) is not None
        return _OTHER_ID if is_hosted else self._replicas.error_for_wire(name, number)


Steps: TypeAlias = Generator[None, None, WaitingFetch | None]
"""A generator that decodes a Fetch request. It returns a consumer's fetch; it handles a follower's fetch itself and
returns None."""


class LargeRequest:
    """A large Fetch request that is being decoded in steps.

    Until the last step, `ConsumerFetches.large` is this object. A follower's request is also handled in these steps.
    """

    __slots__ = ("_close", "_fetches", "_steps")

    has_work = True

    def __init__(
        self,
        fetches: ConsumerFetches,
        steps: Steps,
        close: Callable[[ProtocolViolation], None],
    ) -> None:
        self._fetches = fetches
        self._steps = steps
        self._close = close

    def work(self, until: int) -> None:
        """Continue to decode the request, until the end or until the time `until` (monotonic ms).

        When a consumer's request has been decoded, begin the fetch. If the request is malformed, close the
        connection.
        """
        try:
            take_steps(self._steps, self._fetches.clock, until)
        except StopIteration as done:
            self._fetches.large = None
            if done.value is not None:
                done.value.begin()
        except ProtocolViolation as violation:
            self._fetches.large = None
            self._close(violation)

    def forget(self) -> None:
        """Drop the request, because the connection has ended."""
        self._fetches.large = None
