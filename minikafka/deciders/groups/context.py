"""What the group coordinator knows: its settings, the groups that it serves, and the partitions that it loads.

Invariants: a partition is served or loading, never both. Every group in `groups` is of a served partition, and its
memory is counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from minikafka.base.coordinators import NO_TRANSACTION, LoadedRecord, partition_of
from minikafka.base.errors import ErrorCode
from minikafka.deciders.groups.events import JoinRequest
from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.memory import MemoryBudget, bytes_of, group_bytes
from minikafka.deciders.groups.offsets import GroupOffsets, PendingCommits
from minikafka.deciders.groups.records import (
    NO_TIMESTAMP,
    GroupKey,
    GroupMetadataValue,
    OffsetKey,
    read_group,
    read_key,
    read_offset,
)
from minikafka.deciders.groups.states import GroupState
from minikafka.deciders.groups.timers import Timers

logger = logging.getLogger(__name__)


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


class LoadingGroups:
    """The groups of one partition, while this broker reads the partition's records in the order of the log.

    `epoch`: the partition's leader epoch in which this broker reads the records. `new_token` returns the token of a
    commit; each token is greater than the earlier tokens.
    """

    def __init__(self, partition: int, epoch: int, new_token: Callable[[], int]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.transactions = PendingCommits()
        self._new_token = new_token
        self._values: dict[str, bytes] = {}
        """The value of each group's last record. It is decoded after all records have been read."""
        self._offsets: dict[str, GroupOffsets] = {}

    def add(self, records: Iterable[LoadedRecord]) -> None:
        """Process the next records. Skip unreadable records with a warning."""
        for key, value, producer_id in records:
            try:
                if producer_id == NO_TRANSACTION:
                    self._add(key, value)
                else:
                    self._add_pending(key, value, producer_id)
            except ValueError as error:
                logger.warning(
                    "skipping a record of __consumer_offsets-%d: %s", self.partition, error
                )

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            raise ValueError("it has no key")
        named = read_key(key)
        if isinstance(named, OffsetKey):
            self._offsets_of(named).load(named.tp, None if value is None else read_offset(value))
        elif not isinstance(named, GroupKey):
            raise ValueError(f"version {named.version} of its key is unknown")
        elif value is None:
            self._values.pop(named.group, None)
        else:
            self._values[named.group] = value

    def _add_pending(self, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Process a record of a transaction, whose offset is committed when the transaction is committed."""
        named = None if key is None else read_key(key)
        if value is None or not isinstance(named, OffsetKey):
            raise ValueError("a transaction can only commit an offset")
        token, offsets = self._new_token(), self._offsets_of(named)
        offsets.begin(token, {named.tp: read_offset(value)})
        self.transactions.add(producer_id, offsets, token)

    def _offsets_of(self, named: OffsetKey) -> GroupOffsets:
        offsets = self._offsets.get(named.group)
        if offsets is None:
            offsets = self._offsets[named.group] = GroupOffsets(named.group)
        return offsets

    def groups(self) -> Iterator[Group]:
        """Yield the groups that exist after the last record of the log."""
        for group_id, data in self._values.items():
            offsets = self._offsets.pop(group_id, None) or GroupOffsets(group_id)
            group = Group(group_id, self.partition, offsets, NO_TIMESTAMP)
            value = self._read(group_id, data)
            if value is not None:
                group.restore(value)
            yield group
        for group_id, offsets in self._offsets.items():
            if not offsets.is_unused():
                yield Group(group_id, self.partition, offsets, NO_TIMESTAMP)

    def _read(self, group_id: str, data: bytes) -> GroupMetadataValue | None:
        try:
            return read_group(data)
        except ValueError as error:
            text = "the members of group %s are lost, because their record cannot be read: %s"
            logger.warning(text, group_id, error)
            return None


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
        self.loading: dict[int, LoadingGroups] = {}
        """The partitions that this broker leads, and whose records it is reading."""
        self.memory = MemoryBudget(
            "minikafka.groups.memory.max.bytes", settings.groups_memory_max_bytes
        )
        """The memory of the groups and their members."""
        self.offsets_memory = MemoryBudget(
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
