"""What went: the results of compaction, retention and expiry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from minikafka.base.model import TopicPartition


class Removed(NamedTuple):
    """Records and bytes that were removed from a log. Retention counts offsets as records."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicRemoval:
    """What was removed from the replicas of a topic.

    `partitions`: from the log of each partition's leader. `replicas`: from each log, by (partition, broker id).
    """

    topic: str
    partitions: Mapping[int, Removed]
    replicas: Mapping[tuple[int, int], Removed]

    @property
    def records(self) -> int:
        """Records that were removed from the logs of the leaders."""
        return sum(one.records for one in self.partitions.values())

    @property
    def bytes(self) -> int:
        """Bytes that were removed from the logs of the leaders."""
        return sum(one.bytes for one in self.partitions.values())


@dataclass(frozen=True, slots=True)
class GroupExpiry:
    """The committed offsets of a group that have expired, by partition."""

    group: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ClockAdvance:
    """What became due when the clock was advanced, and is done.

    `advanced_ms`: by how much the brokers' clocks are ahead of the machine's in all. `retained`: what retention has
    removed from the replica that lost most, by partition. `compacted`: the same of compaction. `offsets`: the
    partitions whose committed offsets have expired, by group. `producers`: producer ids that leaders and followers have
    forgotten, counted for each replica.
    """

    advanced_ms: int
    retained: Mapping[TopicPartition, Removed]
    compacted: Mapping[TopicPartition, Removed]
    offsets: Mapping[str, tuple[TopicPartition, ...]]
    transactional_ids: tuple[str, ...]
    tokens: tuple[str, ...]
    producers: int
