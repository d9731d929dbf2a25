"""The topics of a cluster whose ZooKeeper lost its data, as the log directories of all brokers show them.

This module does no I/O. Invariant: no acknowledged record is lost. The ISR of a partition has only the replicas with
the longest log, by the leader epoch of the last record and then by the end offset. Every committed record is in this
log: each leader was elected from an ISR, whose members have all committed records, and a replica whose last record is
of a later epoch has the log of that epoch's leader. Retention is off until a user sets it, because a topic's own
settings are not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from minikafka.base.model import BrokerId, Epoch, TopicPartition
from minikafka.tools.cluster.directory import ClusterError

EPOCH_STEP: Final = 1_000
"""Added to the highest epoch that was found: an epoch in which nothing was written is in no file."""
PRODUCER_ID_STEP: Final = 1_000_000
"""Added to the highest producer id that was found: an id that has written nothing is in no file."""
PRODUCER_ID_BLOCK: Final = 1_000
KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


class FoundReplica(NamedTuple):
    """One replica in a log directory.

    `last_epoch`: leader epoch of its last record, -1 without records. `epoch`: the highest epoch in its files.
    `is_compacted`: True if the cleaner has compacted it.
    """

    broker: BrokerId
    tp: TopicPartition
    topic_id: bytes | None
    last_epoch: Epoch
    end_offset: int
    epoch: Epoch
    is_compacted: bool = False


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """A partition to write to ZooKeeper: it has no leader, and `epoch` is higher than all its earlier leader epochs.

    `is_lost`: True if no log of it was read: the partition is created empty.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    epoch: Epoch
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class RecoveredTopic:
    """A topic to write to ZooKeeper. `topic_id`: 16 bytes."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, RecoveredPartition]
    settings: Mapping[str, str]


def recovered_topics(
    replicas: Iterable[FoundReplica],
    brokers: Collection[BrokerId],
    settings: Mapping[str, Mapping[str, str]],
    new_id: bytes,
    *,
    is_complete: bool,
) -> list[RecoveredTopic]:
    """Return the topics of these replicas, by name.

    `brokers`: the brokers whose log directories were read. `settings`: the settings of the internal topics, by
    name. `new_id`: a topic without an id gets an id that is derived from `new_id` and its name. `is_complete`: False if
    the replicas of a broker are lost, because its log directories were not read.
    Raises ClusterError if the replicas contradict each other.
    """
    by_topic: dict[str, list[FoundReplica]] = defaultdict(list)
    for replica in replicas:
        by_topic[replica.tp.topic].append(replica)
    found = []
    for name, of_topic in sorted(by_topic.items()):
        topic_id = _topic_id(name, of_topic) or _derived(new_id, name)
        partitions = _partitions(name, of_topic, sorted(brokers), is_complete=is_complete)
        compacted = {"cleanup.policy": "compact"} if any(r.is_compacted for r in of_topic) else {}
        own = settings.get(name, {**KEEP_ALL, **compacted})
        found.append(RecoveredTopic(name, topic_id, partitions, own))
    return found


def next_producer_ids(highest: int) -> tuple[int, int]:
    """Return the last block of producer ids that counts as given out: it contains or follows every used id.

    `highest`: the highest producer id in any log, -1 if there is none.
    """
    first = (highest + PRODUCER_ID_STEP) // PRODUCER_ID_BLOCK * PRODUCER_ID_BLOCK
    return first, first + PRODUCER_ID_BLOCK - 1


def _topic_id(name: str, replicas: Sequence[FoundReplica]) -> bytes | None:
    """Return the id of a topic, None if no replica has one. Raises ClusterError if replicas have different ids."""
    owners: dict[bytes, set[str]] = defaultdict(set)
    for replica in replicas:
        if replica.topic_id is not None:
            owners[replica.topic_id].add(f"{replica.tp} of broker {replica.broker}")
    if len(owners) > 1:
        sides = " and ".join(", ".join(sorted(names)) for names in owners.values())
        raise ClusterError(
            f"topic {name} was deleted and created again: {sides} are replicas of different topics; "
            "move the directories of the deleted one out of the log directories"
        )
    return next(iter(owners), None)


def _derived(new_id: bytes, name: str) -> bytes:
    """Return a different 16-byte id for each name."""
    digits = int.from_bytes(new_id) ^ int.from_bytes(name.encode()[-8:])
    return digits.to_bytes(16)


def _partitions(
    name: str, replicas: Sequence[FoundReplica], brokers: Sequence[BrokerId], *, is_complete: bool
) -> dict[int, RecoveredPartition]:
    """Return the partitions from 0 to the highest one that was found. Raises ClusterError if one is missing."""
    by_number: dict[int, list[FoundReplica]] = defaultdict(list)
    for replica in replicas:
        by_number[replica.tp.partition].append(replica)
    count = max(by_number) + 1
    missing = sorted(set(range(count)) - by_number.keys())
    if missing and is_complete:
        shown = ", ".join(f"{name}-{number}" for number in missing)
        raise ClusterError(
            f"no broker has {shown}, although {name}-{count - 1} exists: restore the log directory that had them, or "
            "leave out the broker that has lost it (--without ID), and these partitions are created empty; if the "
            "topic was being deleted, move its directories out of the log directories"
        )
    size = max(map(len, by_number.values()))
    return {
        number: _partition(number, by_number[number])
        if number in by_number
        else _empty(number, brokers, size)
        for number in range(count)
    }


def _partition(number: int, replicas: Sequence[FoundReplica]) -> RecoveredPartition:
    longest = max((one.last_epoch, one.end_offset) for one in replicas)
    isr = {one.broker for one in replicas if (one.last_epoch, one.end_offset) == longest}
    order = _rotated(sorted(one.broker for one in replicas), number)
    epoch = max(one.epoch for one in replicas) + EPOCH_STEP
    return RecoveredPartition(order, tuple(id_ for id_ in order if id_ in isr), epoch)


def _empty(number: int, brokers: Sequence[BrokerId], size: int) -> RecoveredPartition:
    order = _rotated(brokers, number)[:size]
    return RecoveredPartition(order, order, EPOCH_STEP, is_lost=True)


def _rotated(brokers: Sequence[BrokerId], number: int) -> tuple[BrokerId, ...]:
    """Return the brokers in an order that spreads the preferred leaders of a topic's partitions."""
    start = number % len(brokers)
    return (*brokers[start:], *brokers[:start])
