"""What ZooKeeper holds about one partition in the leader-coordinated mode, and the requests between brokers.

    topics/T/P/replicas               AR: the assigned replicas in order, the first is preferred
    topics/T/P/leader                 ephemeral: `id;epoch`
    topics/T/P/ISR                    `ids;epoch`: the in-sync replicas, and the epoch of the last leader
    partitions_reassigned/T/P         RAR: the replicas of a reassignment; empty: the partition is to be deleted
    state/ID/q-N                      one state-change request to the broker ID

CUR, the replicas that are catching up, is AR minus ISR and is never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from minikafka.base.model import BrokerId, Epoch, TopicPartition

Replicas: TypeAlias = tuple[BrokerId, ...]
FROM_ADMINISTRATOR: Final = -1
"""Epoch, and sender, of a request that an administrator's side enqueues without a leader."""


@dataclass(frozen=True, slots=True)
class LeaderNode:
    """The node `leader`. `is_ours`: the session of this broker owns the node."""

    broker_id: BrokerId
    epoch: Epoch
    version: int
    is_ours: bool


@dataclass(frozen=True, slots=True)
class IsrNode:
    """The node `ISR`, which exists from the first election on and is never empty."""

    ids: Replicas
    epoch: Epoch
    version: int


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The node of a partition under `partitions_reassigned`. No replicas: the partition is to be deleted."""

    replicas: Replicas
    version: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """All nodes of one partition, read together. None: the node does not exist."""

    topic_id: bytes | None
    """16-byte id in the node `topics/T`; None if the topic does not exist."""
    replicas: Replicas | None
    """AR. None for a partition that is being created: its start requests come before its replica list."""
    replicas_version: int
    leader: LeaderNode | None
    isr: IsrNode | None
    reassignment: Reassignment | None
    is_readable: bool = True
    """False: a node has a content that nobody can parse. Nothing is decided or deleted because of such a view."""
    has_readable_roles: bool = True
    """False: not only the reassignment is unreadable. Otherwise elections go on without it."""
    unclean_election: bool = False
    """The topic's setting unclean.leader.election.enable."""

    @property
    def epoch(self) -> Epoch:
        """The latest epoch of the partition, -1 before its first leader."""
        return -1 if self.isr is None else self.isr.epoch

    @property
    def hosts(self) -> frozenset[BrokerId]:
        """AR ∪ RAR: the brokers that host a replica."""
        target = () if self.reassignment is None else self.reassignment.replicas
        return frozenset((*(self.replicas or ()), *target))

    @property
    def is_torn(self) -> bool:
        """True if leader and ISR have different epochs: one of them is about to be read again, or is forged."""
        return self.leader is not None and self.leader.epoch != self.epoch

    @property
    def is_being_deleted(self) -> bool:
        """True if the partition's reassignment has no replicas."""
        return self.reassignment is not None and not self.reassignment.replicas


class Operation(StrEnum):
    """The operations of a state-change request."""

    START = "start-replica"
    CLOSE = "close-replica"
    RESCAN = "rescan"
    """Stands for start requests that a full queue dropped: the broker repeats the scan of its start."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One state-change request to a broker. A rescan names no partition (topic "", partition -1)."""

    operation: Operation
    tp: TopicPartition
    topic_id: bytes | None
    epoch: Epoch
    """Epoch of the partition at its leader, or `FROM_ADMINISTRATOR`."""
    sender: BrokerId
    """The leader that sent the request, or `FROM_ADMINISTRATOR`."""
