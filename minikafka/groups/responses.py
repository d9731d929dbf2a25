"""Responses of the group coordinator, without their encoding. `error` is a code of Kafka, 0 for none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from minikafka.groups.requests import NO_GENERATION, NO_LEADER_EPOCH, NO_MEMBER_ID


class JoinedMember(NamedTuple):
    """A member as the leader's JoinGroup response lists it; `metadata` belongs to the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(NamedTuple):
    """JoinGroup. `members` is empty except for the leader.

    `skip_assignment`: the leader must not assign, since the group is stable (KIP-814).
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
    """Outcome for one member of a LeaveGroup request."""

    member_id: str
    instance_id: str | None
    error: int


class LeaveResponse(NamedTuple):
    """LeaveGroup. Versions before 3 have one error: `error` unless it is 0, else that of the only member."""

    error: int
    members: Sequence[LeftMember] = ()


PartitionErrors: TypeAlias = Sequence[tuple[str, Sequence[tuple[int, int]]]]
"""(partition, error) by topic."""


class CommitResponse(NamedTuple):
    """OffsetCommit: topics and partitions in the order of the request."""

    topics: PartitionErrors


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; offset -1 if there is none."""

    partition: int
    offset: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: int = 0


class FetchedGroup(NamedTuple):
    """The committed offsets of one group."""

    group_id: str
    error: int
    topics: Sequence[tuple[str, Sequence[FetchedOffset]]] = ()


class FetchOffsetsResponse(NamedTuple):
    """OffsetFetch. Versions before 8 carry only the first group. Version 1 has no field for the group's
    error, so each requested partition carries that error.
    """

    groups: Sequence[FetchedGroup]


class DeleteOffsetsResponse(NamedTuple):
    """OffsetDelete. `topics` is empty if `error`, which concerns the whole group, is not 0."""

    error: int
    topics: PartitionErrors = ()


class DescribedMember(NamedTuple):
    """A member of a described group; metadata and assignment are empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A described group. `state` is Kafka's name: Dead for an unknown group, "" if there is an error."""

    group_id: str
    error: int
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


class DescribeResponse(NamedTuple):
    """DescribeGroups, in the order of the request."""

    groups: Sequence[DescribedGroup]


class ListedGroup(NamedTuple):
    """A listed group."""

    group_id: str
    protocol_type: str
    state: str


class ListResponse(NamedTuple):
    """ListGroups: the groups of the partitions that this broker leads."""

    error: int
    groups: Sequence[ListedGroup] = ()


class DeleteGroupsResponse(NamedTuple):
    """DeleteGroups: (group id, error), each group once."""

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
