"""The group coordinator of one broker, for the partitions of `__consumer_offsets` that the broker leads.

Invariants: every caller is answered exactly once. A commit that was answered with success is returned by the next
fetch. A member receives exactly the assignment that the leader of its generation has sent. The generation of a group
never decreases while the group exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.base.coordinators import (
    LeadershipBegun,
    LeadershipEnded,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TopicEvent,
    TransactionEnded,
)
from minikafka.base.errors import ErrorCode
from minikafka.deciders.decider import ClockAdvanced, Outcome, Procedures, TimerDue
from minikafka.deciders.groups import commands
from minikafka.deciders.groups.commands import (
    Command,
    DescribedGroup,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from minikafka.deciders.groups.commits import Commits
from minikafka.deciders.groups.context import Context, GroupSettings, LoadingGroups
from minikafka.deciders.groups.events import (
    CommitRequest,
    DeleteGroupsRequest,
    DeleteOffsetsRequest,
    DescribeGroupsRequest,
    Event,
    ExpireGroupRequest,
    FetchOffsetsRequest,
    GroupsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListGroupsRequest,
    SyncRequest,
    TopicsDeleted,
)
from minikafka.deciders.groups.group import Group, JoinTimer, Member, PendingMember, SyncTimer
from minikafka.deciders.groups.members import Members
from minikafka.deciders.groups.rebalance import Rebalances
from minikafka.deciders.groups.report import report
from minikafka.deciders.groups.states import DEAD
from minikafka.deciders.groups.timers import HeapTimer


class GroupCoordinator:
    """The group coordinator of one broker. The arguments are those of `Context`."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        wall_ms: Callable[[], int],
        partition_count: int = 50,
    ) -> None:
        self.context = Context(settings, new_id, wall_ms, partition_count)
        """What the coordinator knows. Other modules only read it."""
        self._procedures = Procedures()
        self._rebalances = Rebalances(self.context, self._procedures)
        self._members = Members(self.context, self._procedures, self._rebalances)
        self._commits = Commits(self.context, self._procedures, self._rebalances)

    def handle(self, event: Event, now: int) -> list[Command]:
        """Process an event, and return the commands for the host."""
        self.context.now = now
        match event:  # the frequent events first
            case CommitRequest(producer=None):
                self._procedures.start(self._commits.commit(event))
            case CommitRequest():
                self._procedures.start(self._commits.commit_in_transaction(event))
            case Outcome():
                self._procedures.resume(event)
            case HeartbeatRequest():
                self._members.heartbeat(event)
            case FetchOffsetsRequest():
                self._procedures.start(self._commits.fetch(event))
            case JoinRequest():
                self._members.join(event)
            case SyncRequest():
                self._rebalances.sync(event)
            case LeaveRequest():
                self._members.leave(event)
            case TimerDue():
                self._handle_timers()
            case TopicsDeleted():
                self._commits.topics_deleted(event)
            case (
                DeleteOffsetsRequest()
                | DeleteGroupsRequest()
                | DescribeGroupsRequest()
                | ExpireGroupRequest()
                | ListGroupsRequest()
                | ClockAdvanced()
            ):
                self._handle_administration(event)
            case _:
                self._handle_topic(event)
        return self._procedures.take()

    # ---- administration

    def _handle_administration(
        self, request: GroupsRequest | DeleteOffsetsRequest | ClockAdvanced
    ) -> None:
        match request:
            case DescribeGroupsRequest():
                groups = [self._describe(group_id) for group_id in request.group_ids]
                self._procedures.answer(request.caller, DescribeGroupsResponse(groups))
            case ListGroupsRequest():
                self._procedures.answer(request.caller, self._list(request))
            case DeleteGroupsRequest():
                self._procedures.start(self._commits.delete_groups(request))
            case DeleteOffsetsRequest():
                self._procedures.start(self._commits.delete(request))
            case ExpireGroupRequest():
                self._procedures.start(self._commits.expire_group(request))
            case ClockAdvanced():
                self._commits.sweep_all()

    def _describe(self, group_id: str) -> DescribedGroup:
        group = self.context.groups.get(group_id)
        if group is not None:
            return group.describe()
        error = self.context.refusal(group_id, needs_name=False)
        return DescribedGroup(group_id, error, "" if error else DEAD.value)

    def _list(self, request: ListGroupsRequest) -> ListGroupsResponse:
        states = {state.lower() for state in request.states}
        groups = [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
            for group in self.context.groups.values()
            if not states or group.state.value.lower() in states
        ]
        is_loading = bool(self.context.loading)
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
        return ListGroupsResponse(error, groups)

    def explain(self, group_id: str, now: int) -> dict[str, Any]:
        """Return this broker's data about a group as JSON-able values.

        `error`: the error code that a client's request about the group would get: 0, NOT_COORDINATOR, or
        COORDINATOR_LOAD_IN_PROGRESS. `group`: the report of the group, None if this broker has no such group.
        """
        context = self.context
        group = context.groups.get(group_id)
        return {
            "partition": context.partition_of(group_id),
            "error": int(context.refusal(group_id, needs_name=False)) if group is None else 0,
            "group": None if group is None else report(group, now),
        }

    # ---- time

    def next_deadline(self) -> int | None:
        """Return the time (monotonic ms) at which the coordinator needs a `TimerDue`; None if no timer is running."""
        time, sweep = self.context.timers.next_time(), self._commits.next_sweep
        if sweep is None or time is None:
            return sweep if time is None else time
        return min(time, sweep)

    def _handle_timers(self) -> None:
        """Process all timers that are due: sessions, rebalances, and the removal of expired offsets."""
        now = self.context.now
        while (timer := self.context.timers.pop_due(now)) is not None:
            self._handle_timer(timer)
        if self._commits.next_sweep is not None and self._commits.next_sweep <= now:
            self._commits.sweep()

    def _handle_timer(self, timer: HeapTimer) -> None:
        match timer:
            case Member():
                self._members.session_expired(timer)
            case PendingMember():
                self._members.forget(timer)
            case JoinTimer():
                self._rebalances.join_timer_due(timer.group)
            case SyncTimer():
                self._rebalances.sync_timer_due(timer.group)
            case _:
                raise AssertionError(timer)

    # ---- partitions of `__consumer_offsets`

    def _handle_topic(self, event: TopicEvent) -> None:
        match event:
            case LeadershipBegun():
                self._begin_load(event)
            case RecordsRead(partition, epoch, records):
                load = self.context.loading.get(partition)
                if load is not None and load.epoch == epoch:  # else a load of an earlier epoch
                    load.add(records)
            case LoadFinished():
                self._finish_load(event)
            case TransactionEnded(partition, producer_id, committed):
                load = self.context.loading.get(partition)
                served = self.context.served.get(partition)
                transactions = served if load is None else load.transactions
                if transactions is not None:
                    transactions.end(producer_id, committed)
            case LeadershipEnded(partition):
                self._unload(partition)

    def _begin_load(self, event: LeadershipBegun) -> None:
        """Ask for the records of a partition, unless it is served since an earlier epoch.

        A load in progress is dropped and starts again.
        """
        partition, epoch = event
        if partition not in self.context.served:
            new_token = self._procedures.new_token
            self.context.loading[partition] = LoadingGroups(partition, epoch, new_token)
            self._procedures.emit(LoadPartition(partition, epoch))

    def _finish_load(self, event: LoadFinished) -> None:
        """Serve the groups of a partition. The sessions of their members start now."""
        context, partition = self.context, event.partition
        load = context.loading.get(partition)
        if load is None or load.epoch != event.epoch:
            return  # the load was dropped
        assert partition not in context.served, "a partition is loaded twice"
        del context.loading[partition]
        context.partition_count = event.partition_count
        context.served[partition] = load.transactions
        for group in load.groups():
            context.add(group)
            self._arrive(group)
        self._commits.schedule_sweep()

    def _arrive(self, group: Group) -> None:
        """Start the sessions of a loaded group's members. Rebalance the group if it exceeds `group.max.size`."""
        if group.members:
            self._procedures.emit(
                group.note(
                    commands.LOADED,
                    partition=group.partition,
                    state=group.state.value,
                    members=len(group.members),
                    offsets=len(group.offsets),
                )
            )
        for member in group.members.values():
            self._rebalances.restart_session(member)
        if len(group.members) > self.context.settings.group_max_size:
            self._rebalances.rebalance(group, commands.OVER_CAPACITY)

    def _unload(self, partition: int) -> None:
        """Drop the groups of a partition that this broker no longer leads. Callers get NOT_COORDINATOR.

        Commits that are being written get the result of their append.
        """
        context = self.context
        context.loading.pop(partition, None)
        context.served.pop(partition, None)
        moved = [group for group in context.groups.values() if group.partition == partition]
        for group in moved:
            self._rebalances.end(group)
            if group.members:
                self._procedures.emit(group.note(commands.UNLOADED, members=len(group.members)))
