"""The committed offsets of one group, and the records that change the offsets.

A commit is *pending* from `prepare` or `begin` until `complete` or `fail`. A producer's commit is pending until the
producer's transaction ends (`PendingCommits`). `fetch` returns only completed commits. Each commit has a *token*, a
number that increases in the order in which commits are appended to the log. Source: Kafka's `GroupMetadata`.

Invariants: of two completed commits of a partition, the commit with the higher token is kept, in whatever order they
complete. A removal also removes pending commits, because the tombstones follow the records of these commits in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.coordinators import KeyValue
from minikafka.base.model import TopicPartition
from minikafka.base.open_transactions import OpenTransactions
from minikafka.deciders.groups.memory import OFFSET_BYTES, TOPIC_BYTES, Held
from minikafka.deciders.groups.records import (
    NO_TIMESTAMP,
    OffsetAndMetadata,
    offset_commit_key,
    offset_commit_value,
)
from minikafka.deciders.groups.states import EMPTY, STABLE, GroupState

CONSUMER: Final = "consumer"
"""Protocol type of groups of consumers, whose members send subscriptions in Kafka's format."""
_FIXED: Final = Struct("<qiqq")
"""Offset, leader epoch, commit timestamp and expire timestamp of a stored offset. The metadata follows."""
_NEVER: Final = 1 << 63


class ExpiryRule(NamedTuple):
    """The rule that determines when the offsets of a group expire."""

    since: int | None = None
    """Start of `offsets.retention.minutes` (Unix ms); None if the time starts at the commit of each offset."""
    kept_topics: Collection[str] = ()
    """Topics to which a member subscribes. Their offsets do not expire."""


def expiry_rule(
    state: GroupState,
    protocol_type: str | None,
    state_timestamp: int,
    subscribed: Collection[str] | None,
) -> ExpiryRule | None:
    """Return the rule for expiring the offsets of a group in this state; None if no offset expires.

    `state_timestamp`: time (Unix ms) at which the group entered the state, NO_TIMESTAMP if unknown.
    `subscribed`: the topics to which the members subscribe, None if unknown.
    """
    if not protocol_type:
        return ExpiryRule()
    if state is EMPTY:
        return ExpiryRule(None if state_timestamp == NO_TIMESTAMP else state_timestamp)
    if protocol_type == CONSUMER and state is STABLE and subscribed is not None:
        return ExpiryRule(kept_topics=subscribed)
    return None


class GroupOffsets:
    """The committed offsets of one group. Each offset takes 130 to 180 bytes, plus its metadata."""

    __slots__ = (
        "_commits",
        "_expiring",
        "_group",
        "_oldest",
        "_pending",
        "_topics",
        "held",
        "is_transactional",
    )

    def __init__(self, group: str) -> None:
        self._group = group
        self.held = Held()
        """The memory of the committed offsets."""
        self.is_transactional = False
        """True if a producer has committed offsets of the group in a transaction."""
        self._topics: dict[str, dict[int, bytes]] = {}
        self._commits: dict[int, Mapping[TopicPartition, OffsetAndMetadata]] = {}
        """The offsets of each pending commit, by token."""
        self._pending: dict[TopicPartition, list[int]] = {}
        """The tokens of the pending commits of each partition, in ascending order."""
        self._oldest = _NEVER
        """Lower bound of the commit times of all offsets (Unix milliseconds)."""
        self._expiring = 0
        """Upper bound of the number of offsets with an expire timestamp. `expire` corrects the number."""

    # Reading.

    def fetch(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition, None without a committed offset."""
        packed = self._topics.get(tp.topic, {}).get(tp.partition)
        return None if packed is None else _unpack(packed)

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield the partitions that have a committed offset."""
        for topic, partitions in self._topics.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def pending(self) -> Iterator[TopicPartition]:
        """Yield the partitions with a commit in progress, for example in an open transaction."""
        yield from self._pending

    def is_pending(self, tp: TopicPartition) -> bool:
        """True if a commit of the partition is in progress, so that its offset is not stable (KIP-447)."""
        return tp in self._pending

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def is_unused(self) -> bool:
        """True if the group has no committed offset and no pending commit."""
        return not self._topics and not self._pending

    def growth(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> int:
        """Return the memory that these offsets need in addition to the offsets that they replace."""
        added = 0
        for tp, value in offsets.items():
            known = self._topics.get(tp.topic)
            packed = None if known is None else known.get(tp.partition)
            if packed is None:
                added += OFFSET_BYTES + len(value.metadata)
            else:
                added += len(value.metadata) - (len(packed) - _FIXED.size)
        new = {tp.topic for tp in offsets} - self._topics.keys()
        return added + sum(TOPIC_BYTES + len(topic) for topic in new)

    # Changes.

    def load(self, tp: TopicPartition, value: OffsetAndMetadata | None) -> None:
        """Apply a record of the log, which replaces the pending commits that precede it. None is a tombstone."""
        if value is None:
            self._discard(tp)
        else:
            self._pending.pop(tp, None)
            self._store(tp, value)

    def prepare(
        self, token: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[KeyValue]:
        """Begin a commit and return its records. Raises ValueError, without effect, if a string is too long."""
        records: list[KeyValue] = [
            (offset_commit_key(self._group, tp), offset_commit_value(value))
            for tp, value in offsets.items()
        ]
        self.begin(token, offsets)
        return records

    def begin(self, token: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Begin a commit whose records are in the log already, or follow at once."""
        assert token not in self._commits, "a commit begins twice"
        self._commits[token] = offsets
        for tp in offsets:
            tokens = self._pending.setdefault(tp, [])
            # `complete` drops the commits before the completed one, which must be the earlier ones in the log.
            assert not tokens or tokens[-1] < token, "commits begin in the order of the log"
            tokens.append(token)

    def complete(self, token: int) -> None:
        """Store the offsets of an appended commit, without offsets that were removed or replaced meanwhile."""
        for tp, value in self._commits.pop(token).items():
            tokens = self._pending.get(tp, [])
            if token in tokens:  # absent if the offset was removed or replaced by a later commit
                self._keep_pending(tp, tokens[tokens.index(token) + 1 :])
                self._store(tp, value)

    def fail(self, token: int) -> None:
        """Drop a commit whose append failed or has an unknown result."""
        for tp in self._commits.pop(token):
            tokens = self._pending.get(tp, [])
            if token in tokens:
                self._keep_pending(tp, [other for other in tokens if other != token])

    def remove(self, partitions: Iterable[TopicPartition]) -> list[KeyValue]:
        """Remove the offsets and pending commits of these partitions; return the tombstones."""
        return [
            (offset_commit_key(self._group, tp), None) for tp in partitions if self._discard(tp)
        ]

    def remove_topics(self, topics: Collection[str]) -> list[KeyValue]:
        """Remove the offsets and pending commits of deleted topics; return the tombstones."""
        return self.remove([tp for tp in self._used() if tp.topic in topics])

    def remove_all(self) -> list[KeyValue]:
        """Remove all offsets and pending commits; return the tombstones."""
        return self.remove(list(self._used()))

    def may_expire(self, wall_ms: int, retention_ms: int) -> bool:
        """True if an offset may have expired that was committed `retention_ms` ago or has an expire timestamp."""
        return bool(self._expiring) or self._oldest <= wall_ms - retention_ms

    def expire(self, rule: ExpiryRule, wall_ms: int, retention_ms: int) -> list[KeyValue]:
        """Remove the offsets that have expired and have no pending commit; return the tombstones."""
        newest = wall_ms - retention_ms
        """Offsets without an expire timestamp have expired if they were committed at this time or earlier."""
        if not self._expiring and (self._oldest if rule.since is None else rule.since) > newest:
            return []
        expired = []
        self._oldest, self._expiring = _NEVER, 0
        for topic, partitions in self._topics.items():
            for partition, packed in partitions.items():
                _, _, committed, expires = _FIXED.unpack_from(packed)
                self._oldest = min(self._oldest, committed)
                self._expiring += expires != NO_TIMESTAMP
                if expires == NO_TIMESTAMP:
                    is_over = (committed if rule.since is None else rule.since) <= newest
                else:
                    is_over = expires <= wall_ms
                if is_over and topic not in rule.kept_topics:
                    expired.append(TopicPartition(topic, partition))
        return self.remove([tp for tp in expired if tp not in self._pending])

    def _used(self) -> Iterator[TopicPartition]:
        """Yield the partitions that have a committed offset or a pending commit."""
        yield from {**dict.fromkeys(self.partitions()), **self._pending}

    def _store(self, tp: TopicPartition, value: OffsetAndMetadata) -> None:
        offset, leader_epoch, metadata, committed, expires = value
        packed = _FIXED.pack(offset, leader_epoch, committed, expires) + metadata.encode()
        known = self._topics.get(tp.topic)
        if known is None:
            known = self._topics[tp.topic] = {}
            self.held.add(TOPIC_BYTES + len(tp.topic))
        former = known.get(tp.partition)
        added = len(packed) - _FIXED.size
        self.held.add(OFFSET_BYTES + added if former is None else len(packed) - len(former))
        known[tp.partition] = packed
        self._oldest = min(self._oldest, committed)
        self._expiring += expires != NO_TIMESTAMP

    def _discard(self, tp: TopicPartition) -> bool:
        """Drop a partition's committed offset and pending commits; return False if the partition had none."""
        was_pending = self._pending.pop(tp, None) is not None
        partitions = self._topics.get(tp.topic)
        packed = None if partitions is None else partitions.pop(tp.partition, None)
        if packed is not None:
            self.held.add(_FIXED.size - len(packed) - OFFSET_BYTES)
            if not partitions:
                del self._topics[tp.topic]
                self.held.add(-TOPIC_BYTES - len(tp.topic))
        return packed is not None or was_pending

    def _keep_pending(self, tp: TopicPartition, tokens: list[int]) -> None:
        """Drop a partition's pending commits, except the commits with these tokens."""
        if tokens:
            self._pending[tp] = tokens
        else:
            del self._pending[tp]


class PendingCommits:
    """The pending commits of the open transactions in one partition of `__consumer_offsets`, by producer.

    A commit is known by the offsets of its group and the commit's token there.
    """

    def __init__(self) -> None:
        self._commits: OpenTransactions[tuple[GroupOffsets, int]] = OpenTransactions()

    def add(self, producer_id: int, offsets: GroupOffsets, token: int) -> None:
        """Add a pending commit to the producer's transaction."""
        offsets.is_transactional = True
        self._commits.add(producer_id, (offsets, token))

    def drop(self, producer_id: int, offsets: GroupOffsets, token: int) -> None:
        """Drop a pending commit whose records are not in the log. No effect if the transaction has ended."""
        if self._commits.remove(producer_id, (offsets, token)):
            offsets.fail(token)

    def end(self, producer_id: int, committed: bool) -> None:
        """Complete the pending commits of the producer's transaction, or drop them if it was aborted."""
        for offsets, token in self._commits.end(producer_id):
            if committed:
                offsets.complete(token)
            else:
                offsets.fail(token)


def _unpack(packed: bytes) -> OffsetAndMetadata:
    offset, leader_epoch, committed, expires = _FIXED.unpack_from(packed)
    metadata = packed[_FIXED.size :].decode()
    return OffsetAndMetadata(offset, leader_epoch, metadata, committed, expires)
