"""The consumer fetches of one connection: waiting fetches, the large fetch, and unsent responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from minikafka.base.errors import ProtocolViolation
from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock
from minikafka.broker.fetch.topic_ids import TopicIds
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.requests.request_metrics import RequestMetrics
from minikafka.broker.requests.services import ClientConnection
from minikafka.broker.turns.scheduler import Scheduler
from minikafka.log.deferred import EAGER_BYTES
from minikafka.replication.partition import Partition
from minikafka.replication.purgatory import AnswerQueue, Slot

WAITING_MAX: Final = 16
"""While this many fetches of one connection wait for records, no further request is parsed."""
POSITIONS_MIN: Final = 16
"""Positions of partitions that are no longer hosted are dropped only at this number of positions or above."""


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
    """A fetch that waits for records."""

    def stop_waiting(self) -> None:
        """Answer the fetch with the records that can be read now."""

    def forget(self) -> None:
        """Stop waiting, because the connection has ended."""


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
        "ids",
        "is_queued",
        "is_selecting",
        "large",
        "max_bytes",
        "positions",
        "positions_max",
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
    ) -> None:
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
