"""Events and effects of `machine.py`, as frozen values.

An event states a fact, most often what was just read from ZooKeeper. The machine compares it with its picture and
returns effects, in the order in which they must be carried out. After an effect that writes to ZooKeeper, accepted or
not, the runner reads the partition again and passes `PartitionRead`: the picture changes only with what ZooKeeper has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minikafka.base.model import BrokerId, Epoch, TopicPartition
from minikafka.leaders.model import PartitionView, Replicas, StateChange

# Events.


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
    """The registered brokers. Before this broker has registered, no replica counts as dead (note, row 2)."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """The first request of this broker's queue was read, together with its partition (C5 to C8)."""

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
    """The periodic check of the partitions that this broker leads, which `views` has, is due (C29).

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

# Effects on ZooKeeper. Each is one multi of the current session, at the versions in `view`.


@dataclass(frozen=True, slots=True)
class TryToLead:
    """Check the replica list, create `leader` with `epoch`, and create or replace `ISR` with `isr` and `epoch`."""

    tp: TopicPartition
    view: PartitionView
    epoch: Epoch
    isr: Replicas


@dataclass(frozen=True, slots=True)
class RaiseEpoch:
    """Replace `leader` and `ISR` with a higher epoch: this broker keeps leading, with other replicas or another ISR.

    The multi checks the replica list too: between two reads, this broker may have left it. It also enqueues `closes`:
    a replica of a cancelled reassignment is closed if and only if it has left the ISR.
    """

    tp: TopicPartition
    view: PartitionView
    epoch: Epoch
    isr: Replicas
    closes: tuple[tuple[BrokerId, StateChange], ...] = ()


@dataclass(frozen=True, slots=True)
class CompleteReassignment:
    """RAR ⊆ ISR: make RAR the assigned replicas, in one multi with the close requests (C31; note, row 10).

    The multi sets `leader` and `ISR` (ISR ∩ RAR) with `epoch`, sets `replicas` to RAR, deletes the reassignment at its
    version, and enqueues `closes`. If this broker is not in RAR, `GiveUpLeadership` follows.
    """

    tp: TopicPartition
    view: PartitionView
    epoch: Epoch
    closes: tuple[tuple[BrokerId, StateChange], ...]


@dataclass(frozen=True, slots=True)
class GiveUpLeadership:
    """Delete the node `leader` at its version, after this broker has stopped leading (C29, C31)."""

    tp: TopicPartition
    view: PartitionView


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Add a request to the queue of a broker; shrink a full queue first (C9 to C13)."""

    broker_id: BrokerId
    request: StateChange


@dataclass(frozen=True, slots=True)
class Consume:
    """Delete a handled entry of this broker's own queue. The effects before it have been carried out (note, row 6)."""

    entry: str


# Effects on this broker.


@dataclass(frozen=True, slots=True)
class WatchPartition:
    """Watch the node `leader`; `replicas` too while it does not exist (note, row 2). Then read the partition again."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class WatchReassignments:
    """Watch the children of `partitions_reassigned/T`: this broker leads a partition of the topic (C36)."""

    topic: str


@dataclass(frozen=True, slots=True)
class Unwatch:
    """Remove the watches of a partition that this broker no longer hosts."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class WaitToElect:
    """Wait, then read the partition and pass `ElectionWaitEnded`.

    Without `is_for_preferred`, the wait is `minikafka.leaders.election.wait.ms`. It is also returned instead of a write
    that was just refused at the same view, and for a view that is torn.
    """

    tp: TopicPartition
    is_for_preferred: bool = False
    """Leave the election to the preferred replica for `minikafka.leaders.preferred.wait.ms` (C2)."""


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Lead, closed to clients, in the epoch of the view; pass `CaughtUp` when the in-sync replicas have caught up."""

    tp: TopicPartition
    view: PartitionView
    is_new: bool
    """The partition has never had a leader: the replica may be created in any log directory."""
    is_renewal: bool = False
    """This broker leads already, open to clients: lead on in the new epoch, open, without `CaughtUp`."""


@dataclass(frozen=True, slots=True)
class Open:
    """Propose `in_sync` as the ISR if it is smaller, then begin to serve clients (C17, C18)."""

    tp: TopicPartition
    in_sync: Replicas = ()


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """Follow the leader in the view, in its epoch. The log is truncated by epochs (note, row 4)."""

    tp: TopicPartition
    view: PartitionView
    is_new: bool


@dataclass(frozen=True, slots=True)
class StopLeading:
    """End the role of leader or follower without a new role: serve nobody, fetch nothing, keep the files."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class CloseReplica:
    """Stop the fetcher, then read the partition once more, then delete the files (C15; note, row 8).

    The runner deletes nothing if there is no log or the log has another topic id than `topic_id`. It keeps the files
    if the topic has this id, the partition is not being deleted, and this broker is in AR ∪ RAR again or in the ISR.
    """

    tp: TopicPartition
    topic_id: bytes | None
    is_stray: bool = False
    """Nobody asked for the close, the replica is only in no list: move the files aside instead of deleting them."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Read all replica lists and pass `Scanned`, as at the start."""


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line to the ledger and the log: a step of a state change's life, or a refused move (C38)."""

    text: str
    tp: TopicPartition
    fields: Mapping[str, object]


Effect: TypeAlias = (
    TryToLead
    | RaiseEpoch
    | CompleteReassignment
    | GiveUpLeadership
    | Enqueue
    | Consume
    | WatchPartition
    | WatchReassignments
    | Unwatch
    | WaitToElect
    | BecomeLeader
    | Open
    | BecomeFollower
    | StopLeading
    | CloseReplica
    | Scan
    | Note
)
