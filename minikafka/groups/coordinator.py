"""The group coordinator of one broker, for the partitions of `__consumer_offsets` that the broker leads.

`GroupCoordinator` is a `Core` (`base/coordinators.py`), which `broker/coordinators/host.py` runs. Invariants: every
caller is answered exactly once. A commit that was answered with success is returned by the next fetch. A member
receives exactly the assignment that the leader of its generation has sent. The generation of a group never decreases
while the group exists. `now` is monotonic milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from minikafka.base.coordinators import Answer, Caller, LoadedRecord, partition_of
from minikafka.base.errors import ErrorCode
from minikafka.groups.commits import Commits
from minikafka.groups.joining import Joining
from minikafka.groups.membership import Membership
from minikafka.groups.messages import commands
from minikafka.groups.messages.append_errors import fetch_error
from minikafka.groups.messages.commands import Command
from minikafka.groups.messages.records import confirmation_record
from minikafka.groups.messages.requests import (
    CommitRequest,
    DeleteGroupsRequest,
    DeleteOffsetsRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListRequest,
    Partitions,
    SyncRequest,
)
from minikafka.groups.messages.responses import (
    DeleteOffsetsResponse,
    DescribedGroup,
    DescribeResponse,
    FetchedGroup,
    FetchOffsetsResponse,
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    LeftMember,
    ListedGroup,
    ListResponse,
    SyncResponse,
)
from minikafka.groups.outbox import Outbox
from minikafka.groups.rebalance import Rebalances
from minikafka.groups.settings import GroupSettings
from minikafka.groups.state.group import Group, GroupTimer
from minikafka.groups.state.member import Member, PendingMember
from minikafka.groups.state.memory import Memory, bytes_of, group_bytes
from minikafka.groups.state.offsets import GroupOffsets
from minikafka.groups.state.partitions import Load
from minikafka.groups.state.report import report
from minikafka.groups.state.states import DEAD, EMPTY, GroupState
from minikafka.groups.state.timers import Timer, Timers
from minikafka.groups.state.transactions import PendingCommits


class GroupCoordinator:
    """The group coordinator of one broker.

    `partition_count`: the number of partitions of `__consumer_offsets`. `new_id` returns the random part
    of a member id, a UUID in text form. `wall_ms` returns Unix milliseconds, for the timestamps in records and the
    expiry of offsets.
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
        self.groups: dict[str, Group] = {}
        """The groups of the loaded partitions, by group id. Other modules must not change them."""
        self.memory = Memory("minikafka.groups.memory.max.bytes", settings.groups_memory_max_bytes)
        """The memory of the groups and their members."""
        self.offsets_memory = Memory(
            "minikafka.offsets.memory.max.bytes", settings.offsets_memory_max_bytes
        )
        """The memory of the committed offsets."""
        self._wall_ms = wall_ms
        self._outbox = Outbox()
        self._timers = Timers()
        rebalances = Rebalances(settings, self._outbox, self._timers, wall_ms)
        self._members = Membership(settings, self._outbox, self._timers, rebalances)
        self._joining = Joining(
            settings, self._outbox, self._timers, rebalances, new_id, self._forget_pending
        )
        self._commits = Commits(
            settings, self._outbox, rebalances, wall_ms, self._remove_group, self.offsets_memory
        )
        self._owned: dict[int, PendingCommits] = {}
        """The loaded partitions, with the transactions that are open in each of them."""
        self._loads: dict[int, Load] = {}
        self._sweep_at: int | None = None

    def state_counts(self) -> Counter[GroupState]:
        """Return the number of groups in each state."""
        return Counter(group.state for group in self.groups.values())

    def explain(self, group_id: str, now: int) -> dict[str, Any]:
        """Return this broker's data about a group as JSON-able values.

        `error`: the error code that a client's request about the group would get: 0, NOT_COORDINATOR, or
        COORDINATOR_LOAD_IN_PROGRESS. `group`: the report of the group, None if this broker has no such group.
        """
        group = self.groups.get(group_id)
        return {
            "partition": partition_of(group_id, self.partition_count),
            "error": int(self._refusal(group_id, needs_name=False)) if group is None else 0,
            "group": None if group is None else report(group, now),
        }

    # ---- which groups are served

    def refusal(self, group_id: str) -> ErrorCode:
        """Return the error with which any TxnOffsetCommit of a group is refused now, NONE if this broker serves it."""
        if group_id and group_id in self.groups:
            return ErrorCode.NONE
        return self._refusal(group_id)

    def _refusal(self, group_id: str, needs_name: bool = True) -> ErrorCode:
        """Return the error for a request about a group that `groups` does not contain.

        Return NONE if this broker is the group's coordinator: then the group does not exist. `needs_name`: return
        INVALID_GROUP_ID for an empty group id.
        """
        if needs_name and not group_id:
            return ErrorCode.INVALID_GROUP_ID
        partition = partition_of(group_id, self.partition_count)
        if partition in self._loads:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self._owned else ErrorCode.NOT_COORDINATOR

    def _create(self, group_id: str) -> Group:
        group = self.groups[group_id] = Group(
            group_id,
            partition_of(group_id, self.partition_count),
            GroupOffsets(group_id),
            self._wall_ms(),
        )
        self._count_memory(group)
        return group

    def _count_memory(self, group: Group) -> None:
        group.held.share(self.memory)
        group.offsets.held.share(self.offsets_memory)

    def _has_memory(self, group: Group | None, request: JoinRequest, now: int) -> bool:
        """True if there is memory for the member that joins, and for its group if it is new.

        A member that joins again needs only the memory by which it grows.
        """
        added = bytes_of(request)
        if group is None:
            return self.memory.fits(added + group_bytes(request.group_id), now)
        known = group.static_ids.get(request.instance_id or "", request.member_id)
        member = group.members.get(known)
        return self.memory.fits(added - (0 if member is None else member.bytes), now)

    def _remove_group(self, group: Group, cause: str) -> None:
        del self.groups[group.group_id]
        self._members.depart(group, self._wall_ms())
        self._outbox.note(commands.DEAD, group, trigger=cause)

    # ---- requests of members

    def join(self, request: JoinRequest, caller: Caller, now: int) -> list[Command]:
        """Process a JoinGroup.

        The coordinator answers when the next generation begins, or earlier with an error or if no rebalance is needed.
        """
        group = self.groups.get(request.group_id) if request.group_id else None
        error = ErrorCode.NONE if group is not None else self._refusal(request.group_id)
        settings = self.settings
        shortest, longest = (
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
        )
        if not error and not shortest <= request.session_timeout_ms <= longest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if not error and group is None and request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if not error and not self._has_memory(group, request, now):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error:
            return [Answer(caller, JoinResponse(error, request.member_id))]
        self._joining.join(group or self._create(request.group_id), request, caller, now)
        return self._outbox.take()

    def sync(self, request: SyncRequest, caller: Caller, now: int) -> list[Command]:
        """Process a SyncGroup.

        The coordinator answers after the leader's assignment is written, or immediately with an error.
        """
        group = self.groups.get(request.group_id) if request.group_id else None
        if group is None:
            error = self._refusal(request.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The former coordinator's rebalance is lost, so the member must join again. Old clients do not expect
                # COORDINATOR_LOAD_IN_PROGRESS here.
                error = ErrorCode.REBALANCE_IN_PROGRESS
            return [Answer(caller, SyncResponse(error))]
        self._members.sync(group, request, caller, now)
        return self._outbox.take()

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: int) -> list[Command]:
        """Process a Heartbeat. The coordinator answers immediately."""
        group = self.groups.get(request.group_id) if request.group_id else None
        if group is not None:
            return [Answer(caller, self._members.heartbeat(group, request, now))]
        error = self._refusal(request.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.NONE  # loading the group restarts the member's session
        return [Answer(caller, HeartbeatResponse(error))]

    def leave(self, request: LeaveRequest, caller: Caller, now: int) -> list[Command]:
        """Process a LeaveGroup. The coordinator answers immediately."""
        group = self.groups.get(request.group_id) if request.group_id else None
        if group is None:
            error = self._refusal(request.group_id)
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            left = [LeftMember(m.member_id, m.instance_id, unknown) for m in request.members]
            return [Answer(caller, LeaveResponse(error, () if error else left))]
        self._members.leave(group, request, caller, now)
        return self._outbox.take()

    # ---- offsets

    def commit(self, request: CommitRequest, caller: Caller, now: int) -> list[Command]:
        """Process an OffsetCommit or a TxnOffsetCommit.

        The coordinator answers after the offsets are written, or immediately with an error.
        """
        in_transaction = request.producer is not None
        group = self.groups.get(request.group_id)
        if group is None or (in_transaction and not request.group_id):
            error = self._refusal(request.group_id, needs_name=in_transaction)
            if not error and request.generation >= 0 and not in_transaction:
                error = ErrorCode.ILLEGAL_GENERATION
            if not error and not self.memory.fits(group_bytes(request.group_id), now):
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if error:
                self._commits.refuse(request, caller, error)
                return self._outbox.take()
            group = self._create(request.group_id)
        transactions = self._owned[group.partition]
        self._commits.commit(group, transactions, request, caller, now)
        self._drop_unused(group)
        return self._outbox.take()

    def fetch_offsets(self, request: FetchOffsetsRequest, caller: Caller) -> list[Command]:
        """Process an OffsetFetch. The coordinator answers immediately, or after the confirmation.

        A consumer that reads and writes in transactions would write records twice after an old answer. If it waits for
        stable offsets, a coordinator that was replaced and does not know it must not answer. So the answer follows an
        append, which only the current leader of the partition can commit.
        """
        errors: dict[int, int] = {}
        unconfirmed = self._unconfirmed(request)

        def confirmed(partition: int, error: int, now: int) -> None:
            errors[partition] = error
            if len(errors) == len(unconfirmed):
                self._outbox.answer(caller, self._fetched(request, errors))

        for partition, group_id in unconfirmed.items():
            done = partial(confirmed, partition)
            self._outbox.append(partition, [confirmation_record(group_id)], done)
        if not unconfirmed:
            return [Answer(caller, self._fetched(request, errors))]
        return self._outbox.take()

    def _unconfirmed(self, request: FetchOffsetsRequest) -> dict[int, str]:
        """Return the partitions that need a confirmation, each with the id of a group in it."""
        groups = (self.groups.get(group_id) for group_id, _ in request.groups)
        return {
            group.partition: group.group_id
            for group in groups
            if request.require_stable and group is not None and group.offsets.is_transactional
        }

    def _fetched(
        self, request: FetchOffsetsRequest, errors: Mapping[int, int]
    ) -> FetchOffsetsResponse:
        """Return the response to an OffsetFetch. `errors`: the results of the confirmations, by partition."""
        groups = []
        for group_id, partitions in request.groups:
            error = errors.get(partition_of(group_id, self.partition_count), 0)
            if error:
                groups.append(FetchedGroup(group_id, fetch_error(error)))
            else:
                groups.append(self._fetch(group_id, partitions, request.require_stable))
        return FetchOffsetsResponse(groups)

    def _fetch(
        self, group_id: str, partitions: Partitions | None, require_stable: bool
    ) -> FetchedGroup:
        group = self.groups.get(group_id)
        if group is None:
            error = self._refusal(group_id, needs_name=False)
            if error:
                return FetchedGroup(group_id, error)
        return self._commits.fetch(group_id, group, partitions, require_stable)

    def delete_offsets(self, request: DeleteOffsetsRequest, caller: Caller) -> list[Command]:
        """Process an OffsetDelete. The coordinator answers after the tombstones are written."""
        group = self.groups.get(request.group_id) if request.group_id else None
        if group is None:
            error = self._refusal(request.group_id) or ErrorCode.GROUP_ID_NOT_FOUND
            return [Answer(caller, DeleteOffsetsResponse(error))]
        self._commits.delete(group, request, caller)
        return self._outbox.take()

    def delete_topics(self, topics: Collection[str]) -> list[Command]:
        """Remove the offsets of deleted topics from all groups."""
        self._commits.delete_topics(list(self.groups.values()), topics)
        return self._outbox.take()

    # ---- description, listing and deletion of groups

    def describe(self, request: DescribeRequest, caller: Caller) -> list[Command]:
        """Process a DescribeGroups. The coordinator answers immediately."""
        groups = [self._describe(group_id) for group_id in request.group_ids]
        return [Answer(caller, DescribeResponse(groups))]

    def _describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is not None:
            return group.describe()
        error = self._refusal(group_id, needs_name=False)
        return DescribedGroup(group_id, error, "" if error else DEAD.value)

    def list_groups(self, request: ListRequest, caller: Caller) -> list[Command]:
        """Process a ListGroups. The coordinator answers immediately."""
        states = {state.lower() for state in request.states}
        groups = [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
            for group in self.groups.values()
            if not states or group.state.value.lower() in states
        ]
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loads else ErrorCode.NONE
        return [Answer(caller, ListResponse(error, groups))]

    def delete_groups(self, request: DeleteGroupsRequest, caller: Caller) -> list[Command]:
        """Process a DeleteGroups. The coordinator answers after the tombstones are written."""
        errors = {group_id: self._deletion_error(group_id) for group_id in request.group_ids}
        removable = [self.groups[group_id] for group_id, error in errors.items() if not error]
        self._commits.delete_groups(removable, errors, caller)
        return self._outbox.take()

    def _deletion_error(self, group_id: str) -> int:
        group = self.groups.get(group_id)
        if group is None:
            refusal = self._refusal(group_id, needs_name=False)
            return refusal or ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is EMPTY else ErrorCode.NON_EMPTY_GROUP

    # ---- appends and time

    def appended(self, token: int, error: int, now: int) -> list[Command]:
        """Process the result of the `Append` with this token. `error`: 0 if the batch is committed."""
        self._outbox.appended(token, error, now)
        return self._outbox.take()

    def next_deadline(self) -> int | None:
        """Return the time (monotonic ms) at which to call `handle_timer`; None if no timer is running.

        Every call of another method may change this time, so the host must call this method again afterwards.
        """
        time = self._timers.next_time()
        if self._sweep_at is None or time is None:
            return self._sweep_at if time is None else time
        return min(time, self._sweep_at)

    def handle_timer(self, now: int) -> list[Command]:
        """Process all timers that are due: sessions, rebalances, and the removal of expired offsets."""
        while (timer := self._timers.pop_due(now)) is not None:
            self._timer_due(timer, now)
        if self._sweep_at is not None and self._sweep_at <= now:
            self._sweep(now)
        return self._outbox.take()

    def _timer_due(self, timer: Timer, now: int) -> None:
        if isinstance(timer, GroupTimer):
            timer.due(timer.group, now)
            return
        assert isinstance(timer, Member | PendingMember)
        group = self.groups.get(timer.group_id)
        if group is None:
            return
        if isinstance(timer, Member):
            self._members.member_due(group, timer, now)
        else:
            self._forget_pending(timer, now)

    def _forget_pending(self, pending: PendingMember, now: int) -> None:
        """Remove a pending member. Also remove its group if the group never had a member.

        Without this, clients that never join could create thousands of groups without members.
        """
        group = self.groups.get(pending.group_id)
        if group is None:
            return
        self._members.remove_pending(group, pending, now)
        self._drop_unused(group)

    def _drop_unused(self, group: Group) -> None:
        """Remove a group that never had a member and has no offsets."""
        if group.generation == 0 and group.is_removable():
            del self.groups[group.group_id]
            self._members.depart(group, self._wall_ms())

    def _sweep(self, now: int) -> None:
        """Remove the expired offsets of some groups. The next call continues with the next groups."""
        if not self._commits.is_sweeping():
            self._commits.begin_sweep(self.groups.values())
        self._commits.sweep()
        pause = self.settings.offsets_retention_check_interval_ms
        self._sweep_at = now if self._commits.is_sweeping() else now + pause

    # ---- partitions

    def begin_load(self, partition: int, epoch: int) -> bool:
        """Begin to load a partition that this broker leads. `epoch`: the leader epoch.

        Return True if the host must read the partition. Return False if the partition is already loaded,
        because this broker led it in an earlier epoch. A load in progress is dropped and starts again.
        """
        if partition in self._owned:
            return False
        self._loads[partition] = Load(partition, epoch, self._outbox.new_token)
        return True

    def load(self, partition: int, epoch: int, records: Iterable[LoadedRecord]) -> None:
        """Process the next records of a partition, in the order of the log.

        The call has no effect if no load of this epoch is in progress.
        """
        load = self._loads.get(partition)
        if load is not None and load.epoch == epoch:
            load.add(records)

    def loaded(self, partition: int, epoch: int, now: int) -> list[Command]:
        """Start to serve the groups of a partition: all records are loaded. The members' sessions start now.

        The call has no effect if no load of this epoch is in progress.
        """
        load = self._loads.get(partition)
        if load is None or load.epoch != epoch:
            return []
        del self._loads[partition]
        self._owned[partition] = load.transactions
        for group in load.groups():
            self.groups[group.group_id] = group
            self._count_memory(group)
            self._members.arrive(group, now)
        if self._sweep_at is None:
            self._sweep_at = now + self.settings.offsets_retention_check_interval_ms
        return self._outbox.take()

    def transaction_ended(self, partition: int, producer_id: int, committed: bool) -> list[Command]:
        """Store the offsets that the producer committed in its transaction, or drop them if it was aborted."""
        load = self._loads.get(partition)
        transactions = self._owned.get(partition) if load is None else load.transactions
        if transactions is not None:
            transactions.end(producer_id, committed)
        return self._outbox.take()

    def unload(self, partition: int) -> list[Command]:
        """Drop the groups of a partition that this broker no longer leads. Callers get NOT_COORDINATOR."""
        self._loads.pop(partition, None)
        self._owned.pop(partition, None)
        moved = [group for group in self.groups.values() if group.partition == partition]
        for group in moved:
            del self.groups[group.group_id]
            self._members.depart(group, self._wall_ms())
            if group.members:
                self._outbox.note(commands.UNLOADED, group, members=len(group.members))
        return self._outbox.take()
