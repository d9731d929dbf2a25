"""The broker's copy of the cluster's metadata, as its coordination mode last updated it (R17).

Invariant: readers see one immutable snapshot. Each update replaces the whole snapshot and increases
`version` by one. The mode decides which updates are stale before they reach this module (R5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from minikafka.base.model import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    Broker,
    BrokerId,
    MetadataUpdate,
    Node,
    PartitionState,
)
from minikafka.base.ports import Clock
from minikafka.broker.capabilities import MetadataSource


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The metadata at one moment. A snapshot is immutable except for the cache `encoded`."""

    version: int = 0
    controller_id: BrokerId = -1
    brokers: Mapping[BrokerId, Broker] = field(default_factory=dict)
    suspects: frozenset[BrokerId] = frozenset()
    """Brokers that have probably died. Clients may still use those that are in `brokers`."""
    topics: Mapping[str, Mapping[int, PartitionState]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    """Topic id -> topic name."""
    encoded: dict[tuple[int, str, int, str], bytes] = field(default_factory=dict)
    """Cache: (version, topic, operations, listener) -> encoded topic of a Metadata response."""

    def nodes(self, listener: str) -> list[Node]:
        """Return the live brokers that have this listener, each with its address on the listener."""
        found = (broker.node(listener) for broker in self.brokers.values())
        return [node for node in found if node is not None]


class MetadataCache:
    """The current snapshot, and the tasks that wait until a snapshot satisfies a predicate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.source: MetadataSource | None = None
        """The mode's source of metadata, None if the mode passes on every change at once."""
        self._waiters: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._deletion_listeners: list[Callable[[Collection[str]], None]] = []
        self.snapshot = MetadataSnapshot()

    def on_topics_deleted(self, listener: Callable[[Collection[str]], None]) -> None:
        """Register a function that is called with the topics that an update has removed or shown as recreated."""
        self._deletion_listeners.append(listener)

    @property
    def version(self) -> int:
        """Number of snapshots so far."""
        return self.snapshot.version

    @property
    def controller_id(self) -> BrokerId:
        """Id of the controller in the last update; -1 before the first update."""
        return self.snapshot.controller_id

    @property
    def brokers(self) -> Mapping[BrokerId, Broker]:
        """The live brokers."""
        return self.snapshot.brokers

    @property
    def suspects(self) -> frozenset[BrokerId]:
        """The brokers that have probably died, registered or not."""
        return self.snapshot.suspects

    @property
    def topics(self) -> Mapping[str, Mapping[int, PartitionState]]:
        """Topic -> partition number -> state of the partition."""
        return self.snapshot.topics

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        """Topic -> 16-byte id; topics without an id are absent."""
        return self.snapshot.topic_ids

    def is_alive(self, broker_id: BrokerId) -> bool:
        """True if the broker is alive and not a suspect, according to the last update."""
        return broker_id in self.snapshot.brokers and broker_id not in self.snapshot.suspects

    def update(self, update: MetadataUpdate, *, is_whole: bool = False) -> None:
        """Replace the snapshot by a snapshot with the update's brokers and changed partitions.

        `is_whole`: the update names every existing partition, and all other partitions are removed. A
        partition with leader `LEADER_DURING_DELETE` is removed, so that clients stop using it (R64).
        """
        old = self.snapshot
        ids, names = old.topic_ids, old.topic_names
        given = dict(update.topic_ids)
        known = {} if is_whole else _without_recreated(old, given, update.partitions)
        topics = _merged(known, update.partitions)
        if topics.keys() != old.topics.keys() or any(ids.get(t) != given[t] for t in given):
            ids = {t: id_ for t, id_ in {**ids, **given}.items() if t in topics}
            names = {topic_id: topic for topic, topic_id in ids.items()}
        self.snapshot = MetadataSnapshot(
            version=old.version + 1,
            controller_id=update.controller_id,
            brokers={broker.id: broker for broker in update.live_brokers},
            suspects=frozenset(update.suspects),
            topics=topics,
            topic_ids=ids,
            topic_names=names,
        )
        if self.snapshot.brokers == old.brokers and ids is old.topic_ids:
            self.snapshot.encoded.update(_unchanged_encodings(old, topics))
        self._report_deletions(old)
        self._wake()

    def leave(self, broker_id: BrokerId) -> None:
        """Remove this broker, which is no longer registered, and its leaderships, until the next update.

        So clients ask the other brokers, which know the new leaders.
        """
        old = self.snapshot
        topics = {
            topic: {
                number: state._replace(leader=NO_LEADER) if state.leader == broker_id else state
                for number, state in partitions.items()
            }
            for topic, partitions in old.topics.items()
        }
        brokers = {id_: broker for id_, broker in old.brokers.items() if id_ != broker_id}
        self.snapshot = replace(
            old, version=old.version + 1, brokers=brokers, topics=topics, encoded={}
        )
        self._wake()

    def _report_deletions(self, old: MetadataSnapshot) -> None:
        new = self.snapshot
        if new.topic_ids is old.topic_ids and new.topics.keys() == old.topics.keys():
            return
        ids = new.topic_ids
        deleted = {
            topic
            for topic in old.topics
            if topic not in new.topics or ids.get(topic) != old.topic_ids.get(topic, ids.get(topic))
        }
        if deleted:
            for listener in self._deletion_listeners:
                listener(deleted)

    async def wait_until(
        self, predicate: Callable[[], bool], timeout_ms: float, topics: Collection[str] = ()
    ) -> bool:
        """Return True as soon as the predicate is true, False after the timeout.

        The predicate is evaluated now and after every update. `topics`: the topics whose change may make it true.
        """
        if predicate():
            return True
        if timeout_ms <= 0:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters[future] = predicate
        timer = self._clock.call_later(timeout_ms, lambda: _resolve(future, False))
        try:
            with self.source.followed(topics) if self.source and topics else nullcontext():
                return await future
        finally:
            timer.cancel()
            self._waiters.pop(future, None)

    def read_soon(self, topics: Collection[str]) -> None:
        """Ask the mode to read these topics again, because their known metadata has been wrong.

        No effect in a mode that passes every change on at once.
        """
        if self.source is not None:
            self.source.asked(topics, is_missing=False)

    def _wake(self) -> None:
        for future, predicate in list(self._waiters.items()):
            if predicate():
                _resolve(future, True)


def _resolve(future: asyncio.Future[bool], outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)


def _unchanged_encodings(
    old: MetadataSnapshot, topics: Mapping[str, Mapping[int, PartitionState]]
) -> Iterator[tuple[tuple[int, str, int, str], bytes]]:
    """Yield each entry (key, bytes) of the cache `old.encoded` that belongs to an unchanged topic."""
    for key, answer in old.encoded.items():
        if topics.get(key[1]) is old.topics.get(key[1]):
            yield key, answer


def _without_recreated(
    old: MetadataSnapshot, given: Mapping[str, bytes], changes: tuple[PartitionState, ...]
) -> Mapping[str, Mapping[int, PartitionState]]:
    """Return the topics of the old snapshot without the topics that were recreated.

    `given`: the topic ids in the update. `changes`: the partitions in the update. A topic was recreated if the
    update contains one of its partitions and an id that differs from the topic's id in the old snapshot.
    """
    ids = old.topic_ids
    others = {topic for topic, id_ in given.items() if ids.get(topic, id_) != id_}
    if not others:
        return old.topics
    remade = others.intersection(state.tp.topic for state in changes)
    return {topic: parts for topic, parts in old.topics.items() if topic not in remade}


def _merged(
    old: Mapping[str, Mapping[int, PartitionState]], changes: tuple[PartitionState, ...]
) -> dict[str, dict[int, PartitionState]]:
    """Return `old` with the changed partitions. Only the mappings of changed topics are copied."""
    if not changes:
        return old  # type: ignore[return-value]
    topics: dict[str, dict[int, PartitionState]] = dict(old)  # type: ignore[arg-type]
    copied: set[str] = set()
    for state in changes:
        topic, partition = state.tp
        if topic not in copied:
            copied.add(topic)
            topics[topic] = dict(topics.get(topic, {}))
        if state.leader == LEADER_DURING_DELETE:
            topics[topic].pop(partition, None)
        else:
            topics[topic][partition] = state
    for topic in copied:
        if not topics[topic]:
            del topics[topic]
    return topics
