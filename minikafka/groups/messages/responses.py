"""Responses of the group coordinator, without their encoding. `error`: Kafka's error code, 0 for no error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from minikafka.groups.messages.requests import NO_GENERATION, NO_LEADER_EPOCH, NO_MEMBER_ID


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


class DescribeResponse(NamedTuple):
    """A DescribeGroups response. The groups are in the order of the request."""

    groups: Sequence[DescribedGroup]


class ListedGroup(NamedTuple):
    """A group in a ListGroups response."""

    group_id: str
    protocol_type: str
    state: str


class ListResponse(NamedTuple):
    """A ListGroups response, with the groups of which this broker is the coordinator."""

    error: int
    groups: Sequence[ListedGroup] = ()


class DeleteGroupsResponse(NamedTuple):
    """A DeleteGroups response: one (group id, error) pair per group."""

    groups: Sequence[tuple[str, int]]


Response: TypeAlias = (
    JoinResponse
    | SyncResponse
    | HeartbeatResponse
    | LeaveResponse
    | CommitResponse
    | FetchOffsetsResponse
    | DeleteOffsetsResponse
    | DescribeResponse
    | ListResponse
    | DeleteGroupsResponse
)
