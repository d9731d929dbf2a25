"""What the group coordinator knows: its settings, the groups that it serves, and the partitions that it loads.

Invariants: a partition is served or loading, never both. Every group in `groups` is of a served partition, and its
memory is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode
from minikafka.groups.events import JoinRequest
from minikafka.groups.group import Group
from minikafka.groups.loading import LoadingPartition
from minikafka.groups.memory import Memory, bytes_of, group_bytes
from minikafka.groups.offsets import GroupOffsets, PendingCommits
from minikafka.groups.states import GroupState
from minikafka.groups.timers import Timers


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of the group coordinator, with Kafka's names; the last two are minikafka's."""

    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    groups_memory_max_bytes: int
    offsets_memory_max_bytes: int


class Context:
    """What the coordinator knows.

    `partition_count`: the number of partitions of `__consumer_offsets`. `new_id` returns the random part of a member
    id, a UUID in text form. `wall_ms` returns Unix milliseconds, for the timestamps in records and the expiry of
    offsets.
    """

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        wall_ms: Callable[[], int],
        partition_count: int,
    ) -> None:
        self.settings = settings
        self.new_id = new_id
        self.wall_ms = wall_ms
        self.partition_count = partition_count
        self.now = 0
        """The time of the current event (monotonic ms)."""
        self.timers = Timers()
        self.groups: dict[str, Group] = {}
        """The groups of the served partitions, by group id."""
        self.served: dict[int, PendingCommits] = {}
        """The partitions that this broker serves, with the transactions that are open in each of them."""
        self.loading: dict[int, LoadingPartition] = {}
        """The partitions that this broker leads, and whose records it is reading."""
        self.memory = Memory("minikafka.groups.memory.max.bytes", settings.groups_memory_max_bytes)
        """The memory of the groups and their members."""
        self.offsets_memory = Memory(
            "minikafka.offsets.memory.max.bytes", settings.offsets_memory_max_bytes
        )
        """The memory of the committed offsets."""

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that stores a group."""
        return partition_of(group_id, self.partition_count)

    def state_counts(self) -> Counter[GroupState]:
        """Return the number of groups in each state."""
        return Counter(group.state for group in self.groups.values())

    # ---- which groups are served

    def named(self, group_id: str) -> Group | None:
        """Return the group of a request that must name one; None if there is none, or the id is empty."""
        return self.groups.get(group_id) if group_id else None

    def refusal(self, group_id: str, needs_name: bool = True) -> ErrorCode:
        """Return the error for a request about a group that `groups` does not contain.

        Return NONE if this broker is the group's coordinator: then the group does not exist. `needs_name`: return
        INVALID_GROUP_ID for an empty group id.
        """
        if needs_name and not group_id:
            return ErrorCode.INVALID_GROUP_ID
        partition = self.partition_of(group_id)
        if partition in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self.served else ErrorCode.NOT_COORDINATOR

    # ---- groups and their memory

    def create(self, group_id: str) -> Group:
        """Create an empty group. The caller has checked that it is served, and that there is memory."""
        group = Group(group_id, self.partition_of(group_id), GroupOffsets(group_id), self.wall_ms())
        self.add(group)
        return group

    def add(self, group: Group) -> None:
        """Add a group of a served partition, and count its memory."""
        assert group.partition in self.served, "a group of a partition that is not served"
        self.groups[group.group_id] = group
        group.held.share(self.memory)
        group.offsets.held.share(self.offsets_memory)

    def has_memory_for_group(self, group_id: str) -> bool:
        """True if there is memory for a new group without members and offsets."""
        return self.memory.fits(group_bytes(group_id), self.now)

    def has_memory_for_member(self, group: Group | None, request: JoinRequest) -> bool:
        """True if there is memory for the member that joins, and for its group if it is new.

        A member that joins again needs only the memory by which it grows.
        """
        added = bytes_of(request)
        if group is None:
            return self.memory.fits(added + group_bytes(request.group_id), self.now)
        known = group.static_ids.get(request.instance_id or "", request.member_id)
        member = group.members.get(known)
        return self.memory.fits(added - (0 if member is None else member.bytes), self.now)
