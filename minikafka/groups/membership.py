"""SyncGroup, Heartbeat and LeaveGroup, the timers of members, and loading and unloading of groups.

Source: Kafka's `GroupCoordinator`.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.coordinators import Caller
from minikafka.base.errors import ErrorCode
from minikafka.groups.messages import commands
from minikafka.groups.messages.requests import (
    HeartbeatRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from minikafka.groups.messages.responses import (
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    LeftMember,
    SyncResponse,
)
from minikafka.groups.outbox import Outbox
from minikafka.groups.rebalance import Rebalances
from minikafka.groups.settings import GroupSettings
from minikafka.groups.state.group import Group
from minikafka.groups.state.member import Member, PendingMember
from minikafka.groups.state.states import COMPLETING, DEAD, PREPARING, GroupState
from minikafka.groups.state.timers import Timers

_NO_ERROR: Final = HeartbeatResponse(ErrorCode.NONE)
_REBALANCING: Final = HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS)


class Membership:
    """The processing of members' requests, for groups that exist."""

    def __init__(
        self, settings: GroupSettings, outbox: Outbox, timers: Timers, rebalances: Rebalances
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._rebalances = rebalances

    # ---- requests

    def sync(self, group: Group, request: SyncRequest, caller: Caller, now: int) -> None:
        """Process a SyncGroup."""
        error = self._sync_error(group, request)
        if error:
            self._outbox.answer(caller, SyncResponse(error))
            return
        member = group.members[request.member_id]
        if group.state is COMPLETING:
            self._rebalances.sync(group, member, request, caller, now)
            return
        self._rebalances.synced(group, member)
        response = SyncResponse(
            ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment
        )
        self._outbox.answer(caller, response)
        self._rebalances.restart_session(member, now)

    @staticmethod
    def _sync_error(group: Group, request: SyncRequest) -> int:
        error = group.check_member(request.member_id, request.instance_id)
        if error:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE

    def heartbeat(self, group: Group, request: HeartbeatRequest, now: int) -> HeartbeatResponse:
        """Process a Heartbeat; return the response."""
        error = group.check_member(request.member_id, request.instance_id)
        if error:
            return HeartbeatResponse(error)
        if request.generation != group.generation:
            return HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION)
        self._rebalances.restart_session(group.members[request.member_id], now)
        return _REBALANCING if group.state is PREPARING else _NO_ERROR

    def leave(self, group: Group, request: LeaveRequest, caller: Caller, now: int) -> None:
        """Process a LeaveGroup of one or more members."""
        left = [
            LeftMember(
                leaving.member_id, leaving.instance_id, self._leave_error(group, leaving, now)
            )
            for leaving in request.members
        ]
        self._outbox.answer(caller, LeaveResponse(ErrorCode.NONE, left))

    def _leave_error(self, group: Group, leaving: LeavingMember, now: int) -> int:
        """Remove a leaving member and return NONE, or return the error if the ids identify no member."""
        member_id = leaving.member_id
        pending = group.pending.get(member_id)
        if pending is not None:
            self.remove_pending(group, pending, now)
            return ErrorCode.NONE
        if not member_id and leaving.instance_id is not None:
            member_id = group.static_ids.get(leaving.instance_id, "")
        error = group.check_member(member_id, leaving.instance_id)
        if not error:
            member = group.members[member_id]
            self._rebalances.remove_and_rebalance(group, member, commands.LEFT, now, leaving.reason)
        return error

    # ---- timers

    def member_due(self, group: Group, member: Member, now: int) -> None:
        """Remove a member whose timer is due, unless its session cannot expire now (`needs_heartbeat`)."""
        if group.members.get(member.member_id) is member and member.needs_heartbeat():
            self._rebalances.remove_and_rebalance(group, member, commands.SESSION_EXPIRED, now)

    def remove_pending(self, group: Group, pending: PendingMember, now: int) -> None:
        """Remove a pending member that left or did not join in time. A rebalance no longer waits for it."""
        if group.pending.get(pending.member_id) is pending:
            group.remove_pending(pending.member_id)
            self._timers.cancel(pending)
            pending.forget_names()
            if group.state is PREPARING:
                self._rebalances.try_complete_join(group, now)

    # ---- arrival and departure

    def arrive(self, group: Group, now: int) -> None:
        """Start the sessions of a loaded group's members. Rebalance the group if it exceeds `group.max.size`."""
        if group.members:
            self._outbox.note(
                commands.LOADED,
                group,
                partition=group.partition,
                state=group.state.value,
                members=len(group.members),
                offsets=len(group.offsets),
            )
        for member in group.members.values():
            self._rebalances.restart_session(member, now)
        if len(group.members) > self._settings.group_max_size:
            self._rebalances.rebalance(group, commands.OVER_CAPACITY, now)

    def depart(self, group: Group, wall_ms: int) -> GroupState:
        """Set a group to Dead, stop its timers, and answer waiting members with NOT_COORDINATOR.

        Return the former state of the group.
        """
        before = group.state
        group.move(DEAD, wall_ms)
        for member in group.members.values():
            self._rebalances.answer_join(
                group, member, JoinResponse(ErrorCode.NOT_COORDINATOR, member.member_id)
            )
            self._rebalances.answer_sync(member, SyncResponse(ErrorCode.NOT_COORDINATOR))
            self._timers.cancel(member)
        for pending in group.pending.values():
            self._timers.cancel(pending)
            pending.forget_names()
        group.held.release()
        group.offsets.held.release()
        for timer in (group.join_timer, group.sync_timer):
            if timer is not None:
                self._timers.cancel(timer)
        return before
