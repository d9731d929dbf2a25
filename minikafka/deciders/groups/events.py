"""What comes into the group coordinator: requests of clients, without their encoding, and what happens on the broker.

The broker's APIs create the requests from decoded requests of every version. If a version does not have a field, the
field has its default value, or the value that the comment beside the field gives. Times are milliseconds. The events
of every coordinator (`base/coordinators.py`, `deciders/decider.py`) are among the events.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.coordinators import TopicEvent, TransactionalProducer
from minikafka.deciders.decider import Caller, ClockAdvanced, Outcome, TimerDue

NO_MEMBER_ID: Final = ""
"""Member id in the requests of a client without a member id (Kafka's UNKNOWN_MEMBER_ID)."""
NO_GENERATION: Final = -1
"""Generation in the requests of a client that is not a member."""
NO_LEADER_EPOCH: Final = -1
NO_COMMIT_TIME: Final = -1


class JoinRequest(NamedTuple):
    """A JoinGroup request. `protocols`: (name, metadata) pairs in the order of preference.

    The coordinator answers when the next generation begins, or earlier with an error or if no rebalance is needed.
    """

    group_id: str
    member_id: str
    instance_id: str | None  # None before version 5
    client_id: str
    client_host: str  # as Kafka prints an address: "/127.0.0.1"
    session_timeout_ms: int
    rebalance_timeout_ms: int  # in version 0, equal to the session timeout
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    caller: Caller
    reason: str | None = None  # since version 8 (KIP-800)
    requires_member_id: bool = False  # since version 4, a new dynamic member joins twice (KIP-394)
    can_skip_assignment: bool = False  # since version 9 (KIP-814)


class SyncRequest(NamedTuple):
    """A SyncGroup request. `assignments`: (member id, assignment) pairs, only in the leader's request.

    The coordinator answers after the leader's assignment is written, or immediately with an error.
    """

    group_id: str
    generation: int
    member_id: str
    caller: Caller
    instance_id: str | None = None
    protocol_type: str | None = None  # since version 5 (KIP-559)
    protocol_name: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()


class HeartbeatRequest(NamedTuple):
    """A Heartbeat request. The coordinator answers immediately."""

    group_id: str
    generation: int
    member_id: str
    caller: Caller
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member in a LeaveGroup request. An administrator's request names a static member only by instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None  # since version 5 (KIP-800)


class LeaveRequest(NamedTuple):
    """A LeaveGroup request. It has one member in versions before 3. The coordinator answers immediately."""

    group_id: str
    members: Sequence[LeavingMember]
    caller: Caller


class OffsetToCommit(NamedTuple):
    """The offset of one partition in an OffsetCommit. `metadata` is "" if the client sent null."""

    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH  # since version 6
    metadata: str = ""
    commit_timestamp: int = NO_COMMIT_TIME  # only version 1


class CommitRequest(NamedTuple):
    """An OffsetCommit or TxnOffsetCommit. A client that is not a member has generation -1 and an empty member id.

    `topics` contains only existing topics and partitions; the API itself answers the other partitions.
    `retention_time_ms`: time from the commit to the expiry of the offsets (versions 2 to 4), -1 if the client
    did not send a time. `producer`: commit the offsets in the transaction of this producer (TxnOffsetCommit), which has
    the transactional id. The coordinator answers after the offsets are written, or immediately with an error.
    """

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    topics: Sequence[tuple[str, Sequence[OffsetToCommit]]]
    caller: Caller
    retention_time_ms: int = -1
    producer: TransactionalProducer | None = None
    transactional_id: str = ""


Partitions: TypeAlias = Sequence[tuple[str, Sequence[int]]]
"""Partition numbers by topic."""


class FetchOffsetsRequest(NamedTuple):
    """An OffsetFetch request. It has one group in versions before 8.

    `groups`: (group id, partitions) pairs; None requests all partitions of the group. `require_stable`: answer
    UNSTABLE_OFFSET_COMMIT for partitions with a commit in progress (version 7, KIP-447). The coordinator answers
    immediately, or after an append that shows that no other broker has become the coordinator.
    """

    groups: Sequence[tuple[str, Partitions | None]]
    caller: Caller
    require_stable: bool = False


class DeleteOffsetsRequest(NamedTuple):
    """An OffsetDelete request. The coordinator answers after the tombstones are written."""

    group_id: str
    partitions: Partitions
    caller: Caller


class DescribeGroupsRequest(NamedTuple):
    """A DescribeGroups request. The coordinator answers immediately."""

    group_ids: Sequence[str]
    caller: Caller


class ListGroupsRequest(NamedTuple):
    """A ListGroups request. `states`: case-insensitive names; empty selects all states (version 4, KIP-518).

    The coordinator answers immediately.
    """

    caller: Caller
    states: Sequence[str] = ()


class DeleteGroupsRequest(NamedTuple):
    """A DeleteGroups request. The coordinator answers after the tombstones are written."""

    group_ids: Sequence[str]
    caller: Caller


class ExpireGroupRequest(NamedTuple):
    """A user's request to let all offsets of a group without members expire now.

    The coordinator answers after the tombstones are written.
    """

    group_id: str
    caller: Caller


class TopicsDeleted(NamedTuple):
    """Topics were deleted: no group keeps an offset of them."""

    topics: Collection[str]


MemberRequest: TypeAlias = JoinRequest | SyncRequest | HeartbeatRequest | LeaveRequest
OffsetsRequest: TypeAlias = CommitRequest | FetchOffsetsRequest | DeleteOffsetsRequest
GroupsRequest: TypeAlias = (
    DescribeGroupsRequest | ListGroupsRequest | DeleteGroupsRequest | ExpireGroupRequest
)
Event: TypeAlias = (
    MemberRequest
    | OffsetsRequest
    | GroupsRequest
    | TopicsDeleted
    | TopicEvent
    | Outcome
    | TimerDue
    | ClockAdvanced
)
