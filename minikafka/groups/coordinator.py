"""The group coordinator of one broker: the groups of the partitions of `__consumer_offsets` that it leads.

A method is called for each event and returns the commands to carry out, in order. `now` is monotonic
milliseconds. Invariants: every caller is answered exactly once; an answered commit is returned by the next fetch; a
member gets the bytes that its generation's leader sent for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from minikafka.groups.commands import Caller, Command
from minikafka.groups.requests import (
    CommitRequest,
    DeleteGroupsRequest,
    DeleteOffsetsRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListRequest,
    SyncRequest,
)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of the coordinator, with Kafka's names and defaults."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 0x7FFFFFFF
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000


def partition_of(group_id: str, count: int) -> int:
    """Return the partition of `__consumer_offsets` that holds the group: the hash of Java's String, modulo `count`."""
    raise NotImplementedError


class GroupCoordinator:
    """The coordinator. `partition_count` is that of `__consumer_offsets`; the runner sets it before the first load.

    `new_id` returns the random part of a member id, a UUID in text form. `wall_ms` returns Unix milliseconds, which
    go into records and decide when offsets expire.
    """

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        wall_ms: Callable[[], int],
        partition_count: int = 50,
    ) -> None:
        self.settings = settings
        self.partition_count = partition_count

    # ---- requests

    def join(self, request: JoinRequest, caller: Caller, now: int) -> list[Command]:
        """JoinGroup: answered when all members have joined, or at once with an error."""
        raise NotImplementedError

    def sync(self, request: SyncRequest, caller: Caller, now: int) -> list[Command]:
        """SyncGroup: answered when the leader's assignment is written."""
        raise NotImplementedError

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: int) -> list[Command]:
        """Heartbeat: answered at once."""
        raise NotImplementedError

    def leave(self, request: LeaveRequest, caller: Caller, now: int) -> list[Command]:
        """LeaveGroup: answered at once."""
        raise NotImplementedError

    def commit(self, request: CommitRequest, caller: Caller, now: int) -> list[Command]:
        """OffsetCommit: answered when the offsets are written."""
        raise NotImplementedError

    def fetch_offsets(self, request: FetchOffsetsRequest, caller: Caller) -> list[Command]:
        """OffsetFetch: answered at once."""
        raise NotImplementedError

    def delete_offsets(
        self, request: DeleteOffsetsRequest, caller: Caller, now: int
    ) -> list[Command]:
        """OffsetDelete: answered when the tombstones are written."""
        raise NotImplementedError

    def describe(self, request: DescribeRequest, caller: Caller) -> list[Command]:
        """DescribeGroups: answered at once."""
        raise NotImplementedError

    def list_groups(self, request: ListRequest, caller: Caller) -> list[Command]:
        """ListGroups: answered at once."""
        raise NotImplementedError

    def delete_groups(
        self, request: DeleteGroupsRequest, caller: Caller, now: int
    ) -> list[Command]:
        """DeleteGroups: answered when the tombstones are written."""
        raise NotImplementedError

    # ---- other events

    def appended(self, token: int, error: int, now: int) -> list[Command]:
        """The batch of an `Append` is committed (error 0), or the append failed with this code of a produce."""
        raise NotImplementedError

    def delete_topics(self, topics: Collection[str]) -> list[Command]:
        """Topics were deleted: remove their offsets from all groups."""
        raise NotImplementedError

    # ---- time

    def next_deadline(self) -> int | None:
        """Return the time (monotonic ms) at which to call handle_timer(); None if nothing waits.

        It may fall after every call of a method: ask again after each.
        """
        raise NotImplementedError

    def handle_timer(self, now: int) -> list[Command]:
        """Process all timers that are due: sessions, rebalances, and the removal of expired offsets."""
        raise NotImplementedError

    # ---- partitions

    def begin_load(self, partition: int, epoch: int) -> bool:
        """This broker leads the partition in this epoch. Return True if the runner must load it.

        False if it is loaded already, under an earlier epoch of the same leader. A load in progress starts again.
        """
        raise NotImplementedError

    def load(
        self, partition: int, epoch: int, records: Iterable[tuple[bytes | None, bytes | None]]
    ) -> None:
        """Process the next records of the partition, (key, value), in the order of the log.

        Without effect if no load of this epoch is in progress.
        """
        raise NotImplementedError

    def loaded(self, partition: int, epoch: int, now: int) -> list[Command]:
        """All records were loaded: serve the groups. The sessions of their members start now.

        Without effect if no load of this epoch is in progress.
        """
        raise NotImplementedError

    def unload(self, partition: int) -> list[Command]:
        """This broker no longer leads the partition: drop its groups; waiting callers get NOT_COORDINATOR."""
        raise NotImplementedError
