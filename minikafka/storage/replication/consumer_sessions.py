"""Incremental fetch sessions of consumers, in a cache with Kafka's rules of eviction (KIP-227, R50).

A session remembers the partitions that a consumer fetches, so that requests and responses name only
the partitions that changed. The cost of a fetch grows with the number of active partitions, because a
partition that has not changed since the last response is not read. A partition that may have changed is dirty.

`ConsumerSession.dirty` contains the dirty partitions of a session. `Partition.readers` contains the session
partitions that become dirty when the replica's high watermark, log start offset, role or leader epoch changes.
Invariant: in an open session, each partition that is not dirty is in `Partition.readers`. While a fetch of the
session waits, the dirty partitions are in `Partition.readers` too, so that these changes wake the fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final, Protocol

from minikafka.base.fetch_rows import PARTITION, PartitionData, RequestRow
from minikafka.storage.replication.partition import Partition

EVICTION_MS: Final = 120_000
"""Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS: an unused session may be evicted after this time."""
_EPOCH_MAX: Final = 0x7FFFFFFF
FIRST_EPOCH: Final = 1
PARTITIONS_MAX: Final = 100_000
"""Maximum number of partitions in the sessions of all consumers: about 50 MB."""
STEP_ROWS: Final = 32
"""Number of partitions that one step processes, in about 0.1 ms."""


class SessionFetch(Protocol):
    """A fetch request that waits for records, in the session of a consumer."""

    def wake(self) -> None:
        """Try to answer the fetch at the end of this event-loop tick."""

    def stop_waiting(self) -> None:
        """Answer the fetch with the records that can be read now."""

    def supersede(self) -> None:
        """Answer the fetch with INVALID_FETCH_SESSION_EPOCH, because the session has begun another fetch."""


class CachedPartition:
    """One partition in a session.

    `topic`: the topic as requests name it. `name`: in a session with topic ids, the name of the topic. It is kept when
    the topic is deleted, so that a new topic with this name gets INCONSISTENT_TOPIC_ID. `row`: the partition's fields
    in the latest request that named the partition. `high_watermark` and `log_start_offset`: the values in the
    partition's latest response. `partition`: the replica whose `readers` contain this object, or None.
    """

    __slots__ = (
        "high_watermark",
        "log_start_offset",
        "name",
        "partition",
        "row",
        "session",
        "topic",
    )

    def __init__(self, session: ConsumerSession, topic: bytes, row: RequestRow) -> None:
        self.session = session
        self.topic = topic
        self.name: bytes | None = None
        self.row = row
        self.partition: Partition | None = None
        self.high_watermark = self.log_start_offset = -1

    def mark_dirty(self) -> None:
        """Add the partition to the session's `dirty`, and wake the session's waiting fetch, if any."""
        self.partition = None
        session = self.session
        session.dirty[self] = None
        if session.waiting is not None:
            session.waiting.wake()

    def subscribe(self, partition: Partition | None) -> None:
        """Store `partition`. Unless it is None, also add this `CachedPartition` to `partition.readers`."""
        self.partition = partition
        if partition is not None:
            partition.readers[self] = None

    def unsubscribe(self) -> None:
        """Remove this object from the readers of its partition."""
        if self.partition is not None:
            self.partition.readers.pop(self, None)
            self.partition = None

    def must_respond(self, response: PartitionData) -> bool:
        """True if the response must contain the partition, because something has changed since the last response.

        Also store the high watermark and log start offset of this response, for the next call.
        """
        _, error, high_watermark, _, start, _, size, diverging, _, preferred = response
        is_changed = (
            bool(error or size)
            or high_watermark != self.high_watermark
            or start != self.log_start_offset
            or diverging is not None
            or preferred >= 0
        )
        self.high_watermark = -1 if error else high_watermark
        self.log_start_offset = start
        return is_changed


class ConsumerSession:
    """One fetch session of a consumer. `epoch`: the session epoch that the next request must have.

    `dirty`: the partitions that must be read, in order of waiting, longest first. `waiting`: the fetch in progress.
    `has_topic_ids`: the requests name topic ids instead of topic names. `basis`: what the rights of the consumer
    depended on at its last fetch; None without an authorizer. Times are monotonic ms.
    """

    __slots__ = (
        "basis",
        "created",
        "dirty",
        "epoch",
        "has_topic_ids",
        "id",
        "is_open",
        "items",
        "used",
        "waiting",
    )

    def __init__(self, session_id: int, now: int, *, has_topic_ids: bool = False) -> None:
        self.id = session_id
        self.has_topic_ids = has_topic_ids
        self.epoch = FIRST_EPOCH
        self.items: dict[tuple[bytes, int], CachedPartition] = {}
        self.dirty: dict[CachedPartition, None] = {}
        self.waiting: SessionFetch | None = None
        self.created = self.used = now
        self.is_open = True
        self.basis: object = None

    def begin_fetch(self) -> None:
        """Raise the session epoch for the next fetch. A fetch that still waits is answered with an error."""
        if self.waiting is not None:
            self.waiting.supersede()
        self.epoch = 1 if self.epoch >= _EPOCH_MAX else self.epoch + 1

    def update(
        self,
        topics: Iterable[tuple[bytes, Iterable[RequestRow]]],
        forgotten: Iterable[tuple[bytes, Iterable[int]]],
    ) -> Generator[None, None, None]:
        """Add or change the partitions in `topics`, remove the partitions in `forgotten`.

        This generator pauses after every `STEP_ROWS` partitions.
        """
        changed = 0
        for topic, rows in topics:
            for row in rows:
                self.add(topic, row)
                changed += 1
                if not changed % STEP_ROWS:
                    yield
        for topic, numbers in forgotten:
            for number in numbers:
                self._forget(topic, number)
                changed += 1
                if not changed % STEP_ROWS:
                    yield

    def mark_all_dirty(self) -> Generator[None, None, None]:
        """Mark all partitions dirty, because the rights of the consumer may have changed. Pauses as `update` does."""
        for number, item in enumerate(tuple(self.items.values()), 1):
            item.unsubscribe()
            self.dirty.setdefault(item)
            if not number % STEP_ROWS:
                yield

    def _forget(self, topic: bytes, number: int) -> None:
        item = self.items.pop((topic, number), None)
        if item is not None:
            item.unsubscribe()
            self.dirty.pop(item, None)

    def add(self, topic: bytes, row: RequestRow) -> CachedPartition:
        """Add or change a partition; mark the partition dirty, so that it will be read, and return it."""
        item = self.items.get((topic, row[PARTITION]))
        if item is None:
            item = self.items[topic, row[PARTITION]] = CachedPartition(self, topic, row)
        else:
            item.row = row
            item.unsubscribe()
        self.dirty.setdefault(item)
        return item

    def watch(self, item: CachedPartition, find: Callable[[bytes, int], Partition | None]) -> None:
        """Subscribe a partition in `dirty` to changes of its replica. Call this before a fetch reads the partition.

        `find(topic, partition)` returns the replica.
        """
        if item.partition is None and self.is_open and item in self.dirty:
            item.subscribe(find(item.topic, item.row[PARTITION]))

    def read(
        self, item: CachedPartition, partition: Partition | None, *, has_records: bool
    ) -> None:
        """Record that a fetch has read `item`, a partition in `dirty` (the partitions that may have changed).

        `partition`: the replica if the consumer now has every record that it can read, else None. With a replica,
        `item` is removed from `dirty`. With None, `item` stays in `dirty`, and if the response contains records of
        `item` (`has_records`), `item` moves to the end of `dirty`. The next fetch then reads other partitions first.
        """
        if partition is not None and self.is_open:
            self.dirty.pop(item, None)
            if item.partition is not partition:
                item.unsubscribe()
                item.subscribe(partition)
        elif has_records and item in self.dirty:
            del self.dirty[item]
            self.dirty[item] = None

    def close(self) -> None:
        """Close the session, and remove its partitions from the readers of their replicas.

        A fetch that waits is answered, because no change of a partition would wake it any more.
        """
        self.is_open = (
            False  # first, because the last read of the waiting fetch must not subscribe again
        )
        for item in self.items.values():
            item.unsubscribe()
        if self.waiting is not None:
            self.waiting.stop_waiting()


class FetchSessionCache:
    """The sessions of all consumers.

    Consumers and followers together have at most `slots` sessions. Sessions of followers are never evicted. All
    consumers' sessions together have at most `PARTITIONS_MAX` partitions, not counting a session that is being
    created or updated.

    `random_id()` returns a positive int32. The ids are random, so that after a restart of this broker no
    consumer with an old id continues the session of another consumer.
    """

    def __init__(self, slots: int, random_id: Callable[[], int]) -> None:
        self._slots = slots
        self._random_id = random_id
        self._sessions: dict[int, ConsumerSession] = {}
        """Sessions by id, the least recently used session first."""
        self._followers = 0
        self.evictions = 0

    def __len__(self) -> int:
        """Return the number of sessions, including the sessions of followers."""
        return len(self._sessions) + self._followers

    def partition_count(self) -> int:
        """Return the number of partitions in the sessions of consumers."""
        return sum(len(session.items) for session in self._sessions.values())

    def get(self, session_id: int) -> ConsumerSession | None:
        """Return the session with this id, None if there is none."""
        return self._sessions.get(session_id)

    def touch(self, session: ConsumerSession, now: int) -> None:
        """Record that the session was used at `now` (monotonic ms)."""
        session.used = now
        self._sessions[session.id] = self._sessions.pop(session.id)

    def remove(self, session_id: int) -> None:
        """Close a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def create(self, size: int, now: int, *, has_topic_ids: bool = False) -> ConsumerSession | None:
        """Return an empty session for `size` partitions, None if there is no space and no session can be evicted."""
        while len(self) >= self._slots or not self.has_room(size):
            if size > PARTITIONS_MAX or not self._evict_for(size, now):
                return None
        session = ConsumerSession(self._new_id(), now, has_topic_ids=has_topic_ids)
        self._sessions[session.id] = session
        return session

    def has_room(self, size: int = 0) -> bool:
        """True if `size` more partitions do not exceed `PARTITIONS_MAX`."""
        return self.partition_count() + size <= PARTITIONS_MAX

    def add_follower(self, now: int) -> None:
        """Reserve a slot for the session of a follower; evict the session of a consumer if all slots are in use."""
        if len(self) >= self._slots:
            self._evict_for(_EPOCH_MAX, now, is_follower=True)
        self._followers += 1

    def remove_follower(self) -> None:
        """Release the slot of a follower's session."""
        self._followers -= 1

    def _new_id(self) -> int:
        while (session_id := self._random_id()) in self._sessions:
            pass
        return session_id

    def _evict_for(self, size: int, now: int, *, is_follower: bool = False) -> bool:
        """Evict a session, for a new session of `size` partitions; return False if no session may be evicted.

        The least recently used session is evicted if it was unused for more than EVICTION_MS. Otherwise a
        follower's new session evicts the smallest session. A consumer's new session evicts the smallest of the
        sessions whose last use is more than EVICTION_MS after their creation, but only if this session is smaller
        than the new session.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.used <= EVICTION_MS:
            settled = [
                session
                for session in self._sessions.values()
                if is_follower or session.used - session.created > EVICTION_MS
            ]
            oldest = min(settled, key=lambda one: (len(one.items), one.id), default=None)
            if oldest is None or size <= len(oldest.items):
                return False
        self.remove(oldest.id)
        self.evictions += 1
        return True
