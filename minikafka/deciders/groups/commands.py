"""What the group coordinator asks its host for, and the responses in its answers.

An error in a response is Kafka's code, 0 for success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.base.coordinators import Append, LoadPartition, TransactionalProducer
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Answer
from minikafka.deciders.groups.events import NO_GENERATION, NO_LEADER_EPOCH, NO_MEMBER_ID


class VerifyTransaction(NamedTuple):
    """A question: does the producer's transaction contain this partition of `__consumer_offsets`?

    The value of its outcome is a pair: the error code, 0 if it does; and the guard of the verification, NO_GUARD if the
    transaction is open in the partition's log, so that nobody had to be asked.
    """

    partition: int
    transactional_id: str
    producer: TransactionalProducer
    token: int


class Note(NamedTuple):
    """Write a fact about a group to the ledger.

    `kind`: one of the constants below. The text under each constant lists the `fields` of this kind.
    """

    kind: str
    group_id: str
    generation: int
    fields: Mapping[str, Any]


Command: TypeAlias = Answer | Append | LoadPartition | VerifyTransaction | Note

# ---- kinds of notes

MEMBER_ADDED: Final = "member added"
"""A member was added: `member`, `instance` (or None), `client`, `host`, `reason` (of the client, or None)."""
MEMBER_REMOVED: Final = "member removed"
"""A member was removed: `member`, `instance`, `client`, `host`, `trigger` (see below), `reason` (or None)."""
MEMBER_REPLACED: Final = "member replaced"
"""A static member returned: `member` (the new id), `replaced` (its former id), `instance`, `client`, `host`."""
PREPARING: Final = "rebalance started"
"""A rebalance has started: `trigger` (see below), `member` (that caused the rebalance, or ""), `instance` (of
this member, or None), `reason` (of the client, or None), `from` (state), `members` (number), `partition` (of
`__consumer_offsets`), `timeout_ms` (after which members that have not joined are removed), `changed`
(descriptions of the member's changes; only for METADATA_CHANGED)."""
COMPLETING: Final = "members joined"
"""A new generation has begun: `members` (number), `leader`, `leader_instance` (or None), `protocol_type`,
`protocol`, `joining_ms` (since the rebalance started), `last` (the member that joined last, or ""),
`last_instance`."""
STABLE: Final = "assignment written"
"""The assignment is written: `members` (number), `leader`, `leader_instance`, `assigning_ms` (from the JoinGroup
responses to the leader's SyncGroup), `writing_ms` (from the SyncGroup to the end of the write), `rebalance_ms`
(since the rebalance started)."""
EMPTY: Final = "group empty"
"""A generation without members has begun: `joining_ms` (since the rebalance started)."""
DEAD: Final = "group removed"
"""The group was removed. `trigger`: DELETED (by a request) or EXPIRED (neither members nor offsets were left)."""
APPEND_FAILED: Final = "append failed"
"""A write of the group failed: `what` (assignment, return of a static member, empty group, offsets,
tombstones), `error` (Kafka's code)."""
COMMIT_REFUSED: Final = "commit refused"
"""An OffsetCommit was answered with an error: `member`, `instance`, `of_generation` (in the request), `error`
(Kafka's code), `count` (number of such errors for this member in the generation; recorded at 1, 2, 4, 8, …)."""
LOADED: Final = "group loaded"
"""This broker became the coordinator of a group with members: `partition`, `state`, `members` and `offsets`
(their numbers)."""
UNLOADED: Final = "group unloaded"
"""This broker is no longer the coordinator of a group with members: `members` (number)."""
DELETED: Final = "deleted"
EXPIRED: Final = "expired"

JOINED: Final = "member joined"
REJOINED: Final = "leader rejoined"
METADATA_CHANGED: Final = "member changed its metadata"
STATIC_RETURNED: Final = "static member returned"
LEFT: Final = "member left"
SESSION_EXPIRED: Final = "session expired"
NOT_REJOINED: Final = "did not rejoin in time"
NOT_SYNCED: Final = "did not sync in time"
WRITE_FAILED: Final = "assignment could not be written"
OVER_CAPACITY: Final = "more members than group.max.size"
OVERFLOWED: Final = "refused because of group.max.size"
"""The constants from JOINED to OVERFLOWED are the triggers of rebalances and of removals of members."""

# ---- responses


class JoinedMember(NamedTuple):
    """A member in the leader's JoinGroup response. `metadata`: the metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(NamedTuple):
    """A JoinGroup response. `members` is empty for members that are not the leader.

    `skip_assignment`: the leader must not send an assignment, because the group is stable (KIP-814).
    """

    error: int
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None  # versions before 7 send "" for None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncResponse(NamedTuple):
    """The fields of a SyncGroup response."""

    error: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatResponse(NamedTuple):
    """The fields of a Heartbeat response."""

    error: int


class LeftMember(NamedTuple):
    """The result for one member of a LeaveGroup request."""

    member_id: str
    instance_id: str | None
    error: int


class LeaveResponse(NamedTuple):
    """A LeaveGroup response.

    Versions before 3 have room for only one error: `error`, or the first member's error if `error` is 0.
    """

    error: int
    members: Sequence[LeftMember] = ()


PartitionErrors: TypeAlias = Sequence[tuple[str, Sequence[tuple[int, int]]]]
"""Per topic: the name, and a (partition, error) pair for each partition."""


class CommitResponse(NamedTuple):
    """An OffsetCommit response. Topics and partitions are in the order of the request."""

    topics: PartitionErrors


class FetchedOffset(NamedTuple):
    """The committed offset of one partition. `offset` is -1 without a committed offset."""

    partition: int
    offset: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: int = 0


class FetchedGroup(NamedTuple):
    """The committed offsets of one group in an OffsetFetch response."""

    group_id: str
    error: int
    topics: Sequence[tuple[str, Sequence[FetchedOffset]]] = ()


class FetchOffsetsResponse(NamedTuple):
    """An OffsetFetch response. Versions before 8 contain only the first group.

    Version 1 has no field for the group's error, so the error is repeated in each requested partition.
    """

    groups: Sequence[FetchedGroup]


class DeleteOffsetsResponse(NamedTuple):
    """An OffsetDelete response. `error` is the error of the whole group. If it is not 0, `topics` is empty."""

    error: int
    topics: PartitionErrors = ()


class DescribedMember(NamedTuple):
    """A member in a DescribeGroups response. Metadata and assignment are empty if the group is not Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group in a DescribeGroups response. `state` is "Dead" for an unknown group, "" for an error."""

    group_id: str
    error: int
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


class DescribeGroupsResponse(NamedTuple):
    """A DescribeGroups response. The groups are in the order of the request."""

    groups: Sequence[DescribedGroup]


class ListedGroup(NamedTuple):
    """A group in a ListGroups response."""

    group_id: str
    protocol_type: str
    state: str


class ListGroupsResponse(NamedTuple):
    """A ListGroups response, with the groups of which this broker is the coordinator."""

    error: int
    groups: Sequence[ListedGroup] = ()


class DeleteGroupsResponse(NamedTuple):
    """A DeleteGroups response: one (group id, error) pair per group."""

    groups: Sequence[tuple[str, int]]


class ExpireGroupResponse(NamedTuple):
    """The committed offsets that have expired, by partition."""

    error: int
    offsets: Mapping[TopicPartition, int]


Response: TypeAlias = (
    JoinResponse
    | SyncResponse
    | HeartbeatResponse
    | LeaveResponse
    | CommitResponse
    | FetchOffsetsResponse
    | DeleteOffsetsResponse
    | DescribeGroupsResponse
    | ListGroupsResponse
    | DeleteGroupsResponse
    | ExpireGroupResponse
)
