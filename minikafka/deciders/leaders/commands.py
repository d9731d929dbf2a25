"""The commands of the machine: what its host is to do, as frozen values.

The host carries them out in the order of the list. After a command that writes to ZooKeeper, accepted or not, it reads
the partition again and passes `PartitionRead`: the context changes only with what ZooKeeper has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minikafka.base.model import BrokerId, Epoch, TopicPartition
from minikafka.deciders.leaders.model import PartitionView, Replicas, StateChange

# Commands that write to ZooKeeper. Each is one multi of the current session, at the versions in `view`.


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
    """RAR ⊆ ISR: make RAR the assigned replicas, in one multi with the close requests (C31).

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
    """Delete a handled entry of this broker's own queue.

    It is the last command of a request: a crash before it repeats the request.
    """

    entry: str


# Commands to this broker.


@dataclass(frozen=True, slots=True)
class WatchPartition:
    """Watch the node `leader`; `replicas` too while it does not exist. Then read the partition again."""

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
    """Follow the leader in the view, in its epoch. The follower truncates its log by epochs."""

    tp: TopicPartition
    view: PartitionView
    is_new: bool


@dataclass(frozen=True, slots=True)
class EndRole:
    """End the role of leader or follower without a new role: serve nobody, fetch nothing, keep the files."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class CloseReplica:
    """Stop the fetcher, then read the partition once more, then delete the files (C15).

    The host deletes nothing if there is no log or the log has another topic id than `topic_id`. It keeps the files
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
    """Write a line to the ledger: a step of a request's life, a move of a replica, or why nothing is done (C38)."""

    text: str
    """The sentence for people."""
    tp: TopicPartition
    fields: Mapping[str, object]


PartitionWrite: TypeAlias = TryToLead | RaiseEpoch | CompleteReassignment | GiveUpLeadership
"""The commands that write the nodes of a partition."""

Command: TypeAlias = (
    PartitionWrite
    | Enqueue
    | Consume
    | WatchPartition
    | WatchReassignments
    | Unwatch
    | WaitToElect
    | BecomeLeader
    | Open
    | BecomeFollower
    | EndRole
    | CloseReplica
    | Scan
    | Note
)
