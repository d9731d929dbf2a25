"""The states of partitions and replicas under Kafka's names, and the table of their legal moves."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PartitionStatus(Enum):
    """The four states of a partition (F1)."""

    __hash__ = object.__hash__  # members are singletons, and Enum's own hash is slow

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(Enum):
    """The seven states of a replica (G1)."""

    __hash__ = object.__hash__

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


_EXISTING_PARTITION: Final = frozenset(
    {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
)
_STOPPABLE_REPLICA: Final = frozenset(
    {
        ReplicaStatus.NEW,
        ReplicaStatus.ONLINE,
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_INELIGIBLE,
    }
)

LEGAL_FROM: Final[Mapping[Enum, frozenset[Enum]]] = {
    # Partitions (F11).
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: _EXISTING_PARTITION,
    PartitionStatus.OFFLINE: _EXISTING_PARTITION,
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
    # Replicas (G12).
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: _STOPPABLE_REPLICA,
    ReplicaStatus.OFFLINE: _STOPPABLE_REPLICA,
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset(
        {ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}
    ),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}
"""State -> states from which a partition, or a replica, may enter it."""
