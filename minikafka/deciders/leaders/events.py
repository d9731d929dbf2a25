"""The events of the machine: what its broker reads and is asked for, as frozen values.

An event states a fact, most often what was just read from ZooKeeper. The machine compares it with its context, so that
an event may be lost or repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.deciders.leaders.model import PartitionView, Replicas, StateChange


@dataclass(frozen=True, slots=True)
class Scanned:
    """The replica lists and reassignments were read at the start, or for a rescan (C1).

    `views` has every partition that has this broker in AR ∪ RAR, and every partition in `on_disk`, whose logs this
    broker has (an unreadable or missing partition has a view without topic id and replicas).
    """

    views: Mapping[TopicPartition, PartitionView]
    on_disk: Mapping[TopicPartition, bytes | None]
    """Topic id of each replica on this broker's disks; None for a log without an id."""
    live: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The nodes of a partition were read: a watch fired, a write has ended, or a wait is over (C4)."""

    tp: TopicPartition
    view: PartitionView
    live: frozenset[BrokerId]
    """The registered brokers. Before this broker has registered, no replica counts as dead."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request of this broker's queue was read, together with its partition (C5 to C8)."""

    entry: str
    """Name of the queue's node, which `Consume` deletes."""
    request: StateChange
    view: PartitionView
    live: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class Registered:
    """This broker is registered under `ids`, so that it can tell which other brokers are dead."""


@dataclass(frozen=True, slots=True)
class ElectionWaitEnded:
    """The wait of `WaitToElect` is over; the partition was read again."""

    tp: TopicPartition
    view: PartitionView
    live: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Every live in-sync replica has reached the log end of the election, or the wait is over (C17)."""

    tp: TopicPartition
    in_sync: Replicas
    """The in-sync replicas that have reached it, the leader included."""


@dataclass(frozen=True, slots=True)
class IsrConflict:
    """The node ISR has another version than this leader knows: an ISR write was refused, or a read has shown it."""

    tp: TopicPartition
    view: PartitionView
    live: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class BalanceDue:
    """The periodic check of the partitions that this broker leads is due; `views` has their nodes (C29).

    Start requests of a reassignment are repeated, and leaderships return to preferred replicas.
    """

    views: Mapping[TopicPartition, PartitionView]
    live: frozenset[BrokerId]
    may_move: bool = True
    """False: the leaderships stay (auto.leader.rebalance.enable)."""


@dataclass(frozen=True, slots=True)
class ReplicasOffline:
    """The log directory of these replicas has failed: until its restart, this broker leads none of them."""

    tps: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """The session's lease is over: another broker may lead by now (C35). Everything is started again later."""


Event: TypeAlias = (
    Scanned
    | PartitionRead
    | RequestReceived
    | Registered
    | ElectionWaitEnded
    | CaughtUp
    | IsrConflict
    | BalanceDue
    | ReplicasOffline
    | LeaseEnded
)
