"""The phases of a rebalance: prepare, join, sync (SyncGroup), and how errors, timeouts and moves end them.

Source: Kafka's `GroupCoordinator`. `members.py` decides when a rebalance begins; this module runs it. Invariant: every
waiting caller gets an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from minikafka.base.coordinators import ASSIGNMENT_ERRORS, Append
from minikafka.base.errors import ErrorCode
from minikafka.deciders.decider import Procedure, Procedures
from minikafka.deciders.groups import commands
from minikafka.deciders.groups.commands import JoinResponse, SyncResponse
from minikafka.deciders.groups.context import Context
from minikafka.deciders.groups.events import NO_MEMBER_ID, SyncRequest
from minikafka.deciders.groups.group import Group, JoinTimer, Member, SyncTimer
from minikafka.deciders.groups.records import group_metadata_key, group_metadata_value
from minikafka.deciders.groups.states import COMPLETING, DEAD, EMPTY, PREPARING, STABLE

_PAUSE_MIN_MS: Final = 100
"""Minimum time between two attempts to complete a rebalance in which no member has joined."""


class Rebalances:
    """The rebalances of all groups of a coordinator."""

    def __init__(self, context: Context, procedures: Procedures) -> None:
        self._context = context
        self._procedures = procedures
        self._timers = context.timers

    # ---- sessions and answers

    def restart_session(self, member: Member) -> None:
        """Restart the member's session: it will expire one session timeout from now."""
        self._timers.start(member, self._context.now + member.session_timeout_ms)

    def answer_join(self, group: Group, member: Member, response: JoinResponse) -> None:
        """Answer the member's waiting JoinGroup, if any."""
        caller = member.join_caller
        if caller is not None:
            group.set_join_caller(member, None)
            self._procedures.answer(caller, response)

    def answer_sync(self, member: Member, response: SyncResponse) -> bool:
        """Answer the member's waiting SyncGroup; return False if no SyncGroup waits."""
        caller = member.sync_caller
        if caller is None:
            return False
        member.sync_caller = None
        self._procedures.answer(caller, response)
        return True

    def dismiss(self, group: Group, member: Member, error: int, member_id: str) -> None:
        """Answer the member's waiting requests with an error. `member_id`: the id in the JoinGroup response."""
        self.answer_join(group, member, JoinResponse(error, member_id))
        self.answer_sync(member, SyncResponse(error))

    def remove(self, group: Group, member: Member, cause: str, reason: str | None = None) -> None:
        """Remove a member without a rebalance. Its waiting requests fail with UNKNOWN_MEMBER_ID."""
        self.dismiss(group, member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)
        self._timers.cancel(member)
        group.remove(member)
        self._procedures.emit(
            group.note(
                commands.MEMBER_REMOVED,
                member=member.member_id,
                instance=member.instance_id,
                client=member.client_id,
                host=member.client_host,
                trigger=cause,
                reason=reason,
            )
        )

    # ---- prepare

    def remove_and_rebalance(
        self, group: Group, member: Member, cause: str, reason: str | None = None
    ) -> None:
        """Remove a member, and rebalance the remaining members."""
        self.remove(group, member, cause, reason)
        if group.state is PREPARING:
            self.try_complete_join(group)
        else:
            self.rebalance(group, cause, member, reason)

    def rebalance(
        self,
        group: Group,
        cause: str,
        member: Member | None = None,
        reason: str | None = None,
        changed: Sequence[str] | None = None,
    ) -> None:
        """Begin a rebalance: all members must join again. Do nothing if the group is in PreparingRebalance."""
        before = group.state
        if before is PREPARING:
            return
        if before is COMPLETING:
            self._fail_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._end_sync(group)
        timeout = group.rebalance_timeout_ms()
        group.move(PREPARING, self._context.wall_ms())
        group.phases.preparing_at = self._context.now
        self._procedures.emit(
            group.note(
                commands.PREPARING,
                trigger=cause,
                member="" if member is None else member.member_id,
                instance=None if member is None else member.instance_id,
                reason=reason,
                **{"from": before.value},
                members=len(group.members),
                partition=group.partition,
                timeout_ms=timeout,
                **({} if changed is None else {"changed": changed}),
            )
        )
        if before is EMPTY:
            self._delay_first(group, timeout)
        else:
            self._start_join_timer(group, timeout)
            self.try_complete_join(group)

    def _delay_first(self, group: Group, timeout: int) -> None:
        """Begin to wait for more members of a previously empty group (`group.initial.rebalance.delay.ms`)."""
        assert group.members, "an empty group begins a rebalance when a member joins"
        delay = self._context.settings.group_initial_rebalance_delay_ms
        group.initial_delay_ms = delay
        group.initial_remaining_ms = max(timeout - delay, 0)
        group.new_member_added = False
        if delay:
            self._start_join_timer(group, delay)
        else:
            self._complete_join(group)

    def _start_join_timer(self, group: Group, delay: int) -> None:
        if group.join_timer is None:
            group.join_timer = JoinTimer(group)
        self._timers.start(group.join_timer, self._context.now + delay)

    def join_timer_due(self, group: Group) -> None:
        """Extend the initial delay if a member joined during it, else stop waiting for missing members."""
        assert group.state is PREPARING, (group.group_id, group.state)
        remaining = group.initial_remaining_ms
        if remaining and group.new_member_added:
            group.new_member_added = False
            delay = min(self._context.settings.group_initial_rebalance_delay_ms, remaining)
            group.initial_remaining_ms = max(remaining - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay
            self._start_join_timer(group, delay)
        else:
            self._complete_join(group)

    # ---- join

    def try_complete_join(self, group: Group) -> None:
        """Begin the next generation if all members have joined and the initial delay is over."""
        if group.initial_remaining_ms is None and group.has_all_joined():
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Begin the next generation with all static members and the dynamic members that have joined.

        Remove the dynamic members that have not joined. If members remain but none has joined, wait again.
        """
        group.initial_remaining_ms = None
        for member in list(group.members.values()):
            if member.join_caller is None and not member.is_static:
                self.remove(group, member, commands.NOT_REJOINED)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has joined: wait until their sessions expire.
            assert all(member.is_static for member in group.members.values()), group.group_id
            self._start_join_timer(group, max(group.rebalance_timeout_ms(), _PAUSE_MIN_MS))
            return
        if group.join_timer is not None:
            self._timers.cancel(group.join_timer)
        group.begin_generation(self._context.wall_ms())
        if group.members:
            self._answer_joined(group)
        else:
            self._procedures.start(self._write_empty(group))

    def _answer_joined(self, group: Group) -> None:
        now, phases = self._context.now, group.phases
        phases.joined_at = now
        self._procedures.emit(
            group.note(
                commands.COMPLETING,
                members=len(group.members),
                leader=group.leader,
                leader_instance=group.instance_of(group.leader),
                protocol_type=group.protocol_type,
                protocol=group.protocol_name,
                joining_ms=now - phases.preparing_at,
                last=phases.last_joined,
                last_instance=group.instance_of(phases.last_joined),
            )
        )
        for member in group.members.values():
            self.answer_join(group, member, self.current(group, member))
            member.is_new = False
            self.restart_session(member)
            group.unsynced.add(member.member_id)
        if group.sync_timer is None:
            group.sync_timer = SyncTimer(group)
        self._timers.start(group.sync_timer, now + group.rebalance_timeout_ms())

    def current(self, group: Group, member: Member, skip_assignment: bool = False) -> JoinResponse:
        """Return the member's JoinGroup response for the current generation."""
        is_leader = group.leader == member.member_id
        return JoinResponse(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader or "",
            skip_assignment,
            group.joined_members() if is_leader else (),
        )

    def _write_empty(self, group: Group) -> Procedure[None]:
        """Write the generation without members.

        If that fails, the next coordinator loads the former generation, whose members then expire.
        """
        joining_ms = self._context.now - group.phases.preparing_at
        self._procedures.emit(group.note(commands.EMPTY, joining_ms=joining_ms))
        error = yield from self.write(group, {})
        if error:
            self.note_failure(group, "empty group", error)

    # ---- sync

    def sync(self, request: SyncRequest) -> None:
        """Process a SyncGroup."""
        group, caller = self._context.named(request.group_id), request.caller
        if group is None:
            refusal = self._context.refusal(request.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
            if refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The former coordinator's rebalance is lost, so the member must join again. Old clients do not expect
                # COORDINATOR_LOAD_IN_PROGRESS here.
                refusal = ErrorCode.REBALANCE_IN_PROGRESS
            self._procedures.answer(caller, SyncResponse(refusal))
            return
        error = _sync_error(group, request)
        if error:
            self._procedures.answer(caller, SyncResponse(error))
            return
        member = group.members[request.member_id]
        if group.state is COMPLETING:
            self._wait_for_assignment(group, member, request)
            return
        self._synced(group, member)
        self._procedures.answer(caller, _assignment_of(group, member))
        self.restart_session(member)

    def _wait_for_assignment(self, group: Group, member: Member, request: SyncRequest) -> None:
        """Hold a SyncGroup until the assignment is written. The leader's request has the assignment."""
        self.answer_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_caller = request.caller
        self._synced(group, member)
        if group.leader == member.member_id and not group.is_writing:
            group.phases.synced_at = self._context.now
            given = dict(request.assignments)
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            self._procedures.start(self._assign(group, assignments))

    def _synced(self, group: Group, member: Member) -> None:
        """Remember that the member has sent its SyncGroup. Stop the timer if all members have done so."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced and group.sync_timer is not None:
            self._timers.cancel(group.sync_timer)

    def _end_sync(self, group: Group) -> None:
        """Stop waiting for SyncGroup requests."""
        group.unsynced.clear()
        if group.sync_timer is not None:
            self._timers.cancel(group.sync_timer)

    def _assign(self, group: Group, assignments: Mapping[str, bytes]) -> Procedure[None]:
        """Write the leader's assignment, then give it to the members."""
        generation = group.generation
        group.is_writing = True
        error = yield from self.write(group, assignments)
        assert group.generation >= generation, "a generation fell while it was written"
        if error:
            self.note_failure(group, "assignment", error)
        if group.state is not COMPLETING or group.generation != generation:
            return  # a rebalance or a move has answered the members meanwhile
        group.is_writing = False
        if error:
            self._fail_assignment(group, ASSIGNMENT_ERRORS.get(error, error))
            self.rebalance(group, commands.WRITE_FAILED, group.members.get(group.leader or ""))
            return
        for member in group.members.values():
            group.assign(member, assignments[member.member_id])
            if self.answer_sync(member, _assignment_of(group, member)):
                self.restart_session(member)
        group.move(STABLE, self._context.wall_ms())
        self._note_stable(group)

    def _note_stable(self, group: Group) -> None:
        now, phases = self._context.now, group.phases
        self._procedures.emit(
            group.note(
                commands.STABLE,
                members=len(group.members),
                leader=group.leader,
                leader_instance=group.instance_of(group.leader),
                assigning_ms=phases.synced_at - phases.joined_at,
                writing_ms=now - phases.synced_at,
                rebalance_ms=now - phases.preparing_at,
            )
        )

    def _fail_assignment(self, group: Group, error: int) -> None:
        """Clear all assignments. Answer the members that wait for an assignment with the error."""
        for member in group.members.values():
            group.assign(member, b"")
            if self.answer_sync(member, SyncResponse(error)):
                self.restart_session(member)

    def sync_timer_due(self, group: Group) -> None:
        """Remove the members that have not sent SyncGroup in time, and rebalance the remaining members."""
        late = [group.members[member_id] for member_id in group.unsynced]
        assert late, f"group {group.group_id} waits for no SyncGroup"
        late.sort(key=lambda member: member.member_id)
        for member in late:
            self.remove(group, member, commands.NOT_SYNCED)
        self.rebalance(group, commands.NOT_SYNCED, late[0])

    # ---- records

    def write(self, group: Group, assignments: Mapping[str, bytes]) -> Procedure[int]:
        """Append a record of the group with these assignments; return the error, 0 if it is committed."""
        try:
            key = group_metadata_key(group.group_id)
            value = group_metadata_value(group.value(assignments))
        except ValueError:  # a name is too long for a record
            return ErrorCode.UNKNOWN_SERVER_ERROR
        error: int = yield Append(group.partition, [(key, value)], self._procedures.new_token())
        return error

    def note_failure(self, group: Group, what: str, error: int) -> None:
        """Write a failed append to the ledger."""
        self._procedures.emit(group.note(commands.APPEND_FAILED, what=what, error=error))

    # ---- the end of a group

    def remove_group(self, group: Group, cause: str) -> None:
        """Remove a group that was deleted, or that has neither members nor offsets."""
        self.end(group)
        self._procedures.emit(group.note(commands.DEAD, trigger=cause))

    def drop_unused(self, group: Group) -> None:
        """Remove a group that never had a member and has no offsets."""
        if group.generation == 0 and group.is_removable():
            self.end(group)

    def end(self, group: Group) -> None:
        """Set a group to Dead, stop its timers, and answer waiting members with NOT_COORDINATOR."""
        del self._context.groups[group.group_id]
        group.move(DEAD, self._context.wall_ms())
        for member in group.members.values():
            self.dismiss(group, member, ErrorCode.NOT_COORDINATOR, member.member_id)
            self._timers.cancel(member)
        for pending in group.pending.values():
            self._timers.cancel(pending)
            pending.forget_names()
        group.held.release()
        group.offsets.held.release()
        for timer in (group.join_timer, group.sync_timer):
            if timer is not None:
                self._timers.cancel(timer)


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


def _assignment_of(group: Group, member: Member) -> SyncResponse:
    return SyncResponse(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
