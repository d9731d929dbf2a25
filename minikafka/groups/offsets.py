"""The committed offsets of one group, and the records that change them.

A commit is *pending* from `prepare`, which returns its records, until `complete` or `fail`; only a completed commit is
returned by `fetch`. Tokens rise in the order in which the records are appended. Invariants: of two
completed commits of a partition, the offset of the commit with the higher token stays, whichever completes
first; a removal also removes the pending commits, because the tombstones come after the records of these
commits in the log. Source: Kafka's `GroupMetadata`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.groups.commands import KeyValue
from minikafka.groups.records import (
    NO_TIMESTAMP,
    OffsetAndMetadata,
    offset_commit_key,
    offset_commit_value,
)
from minikafka.groups.states import EMPTY, STABLE, GroupState

CONSUMER: Final = "consumer"
"""Protocol type of the groups whose members send subscriptions that Kafka can read."""
_FIXED: Final = Struct("<qiqq")
"""Offset, leader epoch, commit and expire timestamp of a stored offset; the rest of its bytes is the metadata."""
_NEVER: Final = 1 << 63


class ExpiryRule(NamedTuple):
    """When the offsets of a group expire."""

    since: int | None = None
    """Start of `offsets.retention.minutes` (Unix ms); None if it starts for each offset with its commit."""
    kept_topics: Collection[str] = ()
    """Topics whose offsets do not expire, because a member subscribes to them."""


def expiry_rule(
    state: GroupState,
    protocol_type: str | None,
    state_timestamp: int,
    subscribed: Collection[str] | None,
) -> ExpiryRule | None:
    """Return when the offsets of a group in this state expire; None: they do not.

    `state_timestamp`: time (Unix ms) at which the group entered the state, NO_TIMESTAMP if unknown.
    `subscribed`: the topics of all members, None if a subscription could not be read.
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

    __slots__ = ("_commits", "_expiring", "_group", "_oldest", "_pending", "_topics")

    def __init__(self, group: str) -> None:
        self._group = group
        self._topics: dict[str, dict[int, bytes]] = {}
        self._commits: dict[int, Mapping[TopicPartition, OffsetAndMetadata]] = {}
        """Token -> the offsets of a pending commit."""
        self._pending: dict[TopicPartition, list[int]] = {}
        """Tokens of the pending commits of a partition, rising."""
        self._oldest = _NEVER
        """No offset was committed before this time (Unix milliseconds)."""
        self._expiring = 0
        """Upper bound of the number of offsets with an expire timestamp; `expire` counts them again."""

    # Reading.

    def fetch(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition, None if there is none."""
        packed = self._topics.get(tp.topic, {}).get(tp.partition)
        return None if packed is None else _unpack(packed)

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield the partitions that have a committed offset."""
        for topic, partitions in self._topics.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def is_pending(self, tp: TopicPartition) -> bool:
        """True if a commit of the partition is in progress: its offset is not stable (KIP-447)."""
        return tp in self._pending

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def is_unused(self) -> bool:
        """True if there is neither a committed offset nor a pending commit."""
        return not self._topics and not self._pending

    # Changes.

    def load(self, tp: TopicPartition, value: OffsetAndMetadata | None) -> None:
        """Apply a record of the log; None is a tombstone."""
        if value is None:
            self._discard(tp)
        else:
            self._store(tp, value)

    def prepare(
        self, token: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[KeyValue]:
        """Begin a commit and return its records. Raises ValueError, and begins nothing, if a string is too long."""
        records: list[KeyValue] = [
            (offset_commit_key(self._group, tp), offset_commit_value(value))
            for tp, value in offsets.items()
        ]
        self._commits[token] = offsets
        for tp in offsets:
            self._pending.setdefault(tp, []).append(token)
        return records

    def complete(self, token: int) -> None:
        """Store the offsets of a commit whose append succeeded, except those removed or replaced since."""
        for tp, value in self._commits.pop(token).items():
            tokens = self._pending.get(tp, [])
            if token in tokens:  # else removed, or replaced by a later commit, since `prepare`
                self._keep_pending(tp, tokens[tokens.index(token) + 1 :])
                self._store(tp, value)

    def fail(self, token: int) -> None:
        """Drop a commit: its records were not appended, or nobody knows whether they were."""
        for tp in self._commits.pop(token):
            tokens = self._pending.get(tp, [])
            if token in tokens:
                self._keep_pending(tp, [other for other in tokens if other != token])

    def remove(self, partitions: Iterable[TopicPartition]) -> list[KeyValue]:
        """Remove the offsets of partitions, pending commits too; return the tombstones."""
        return [
            (offset_commit_key(self._group, tp), None) for tp in partitions if self._discard(tp)
        ]

    def remove_topics(self, topics: Collection[str]) -> list[KeyValue]:
        """Remove the offsets of deleted topics, pending commits too; return the tombstones."""
        return self.remove([tp for tp in self._used() if tp.topic in topics])

    def remove_all(self) -> list[KeyValue]:
        """Remove all offsets, pending commits too; return the tombstones."""
        return self.remove(list(self._used()))

    def expire(self, rule: ExpiryRule, wall_ms: int, retention_ms: int) -> list[KeyValue]:
        """Remove the offsets that have expired and have no pending commit; return the tombstones."""
        newest = wall_ms - retention_ms
        """An offset without an expire timestamp has expired if it was committed at this time or before."""
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
        self._topics.setdefault(tp.topic, {})[tp.partition] = packed
        self._oldest = min(self._oldest, committed)
        self._expiring += expires != NO_TIMESTAMP

    def _discard(self, tp: TopicPartition) -> bool:
        """Drop the offset of a partition and its pending commits; return True if there were any."""
        was_pending = self._pending.pop(tp, None) is not None
        partitions = self._topics.get(tp.topic)
        found = partitions is not None and partitions.pop(tp.partition, None) is not None
        if found and not partitions:
            del self._topics[tp.topic]
        return found or was_pending

    def _keep_pending(self, tp: TopicPartition, tokens: list[int]) -> None:
        """Leave only these pending commits of a partition."""
        if tokens:
            self._pending[tp] = tokens
        else:
            del self._pending[tp]


def _unpack(packed: bytes) -> OffsetAndMetadata:
    offset, leader_epoch, committed, expires = _FIXED.unpack_from(packed)
    metadata = packed[_FIXED.size :].decode()
    return OffsetAndMetadata(offset, leader_epoch, metadata, committed, expires)
