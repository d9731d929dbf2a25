"""The phases of a rebalance (prepare, join, sync), and its interruption by errors and timeouts.

Source: Kafka's `GroupCoordinator`. `joining.py` and `membership.py` decide when a rebalance begins; this module
runs the rebalance. Invariant: every waiting caller gets an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from minikafka.base.coordinators import Caller
from minikafka.base.errors import ErrorCode
from minikafka.groups.messages import commands
from minikafka.groups.messages.append_errors import assignment_error
from minikafka.groups.messages.records import group_metadata_key, group_metadata_value
from minikafka.groups.messages.requests import NO_MEMBER_ID, SyncRequest
from minikafka.groups.messages.responses import JoinResponse, SyncResponse
from minikafka.groups.outbox import Outbox
from minikafka.groups.settings import GroupSettings
from minikafka.groups.state.group import Group, GroupTimer
from minikafka.groups.state.member import Member
from minikafka.groups.state.states import COMPLETING, EMPTY, PREPARING, STABLE
from minikafka.groups.state.timers import Timers

_PAUSE_MIN_MS: Final = 100
"""Minimum time between two attempts to complete a rebalance in which no member has joined."""


class Rebalances:
    """The rebalances of all groups of a coordinator."""

    def __init__(
        self,
        settings: GroupSettings,
        outbox: Outbox,
        timers: Timers,
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._wall_ms = wall_ms

    # ---- sessions and answers

    def restart_session(self, member: Member, now: int) -> None:
        """Restart the member's session: it will expire one session timeout after `now`."""
        self._timers.start(member, now + member.session_timeout_ms)

    def answer_join(self, group: Group, member: Member, response: JoinResponse) -> None:
        """Answer the member's waiting JoinGroup, if any."""
        caller = member.join_caller
        if caller is not None:
            group.set_join_caller(member, None)
            self._outbox.answer(caller, response)

    def answer_sync(self, member: Member, response: SyncResponse) -> bool:
        """Answer the member's waiting SyncGroup; return False if no SyncGroup waits."""
        caller = member.sync_caller
        if caller is None:
            return False
        member.sync_caller = None
        self._outbox.answer(caller, response)
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
        self._outbox.note(
            commands.MEMBER_REMOVED,
            group,
            member=member.member_id,
            instance=member.instance_id,
            client=member.client_id,
            host=member.client_host,
            trigger=cause,
            reason=reason,
        )

    # ---- prepare

    def remove_and_rebalance(
        self, group: Group, member: Member, cause: str, now: int, reason: str | None = None
    ) -> None:
        """Remove a member, and rebalance the remaining members."""
        self.remove(group, member, cause, reason)
        if group.state is PREPARING:
            self.try_complete_join(group, now)
        else:
            self.rebalance(group, cause, now, member, reason)

    def rebalance(
        self,
        group: Group,
        cause: str,
        now: int,
        member: Member | None = None,
        reason: str | None = None,
        changed: Sequence[str] | None = None,
    ) -> None:
        """Begin a rebalance: all members must join again. Do nothing if the group is in PreparingRebalance."""
        before = group.state
        if before is PREPARING:
            return
        if before is COMPLETING:
            self._fail_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self.end_sync(group)
        timeout = group.rebalance_timeout_ms()
        group.move(PREPARING, self._wall_ms())
        group.phases.preparing_at = now
        self._outbox.note(
            commands.PREPARING,
            group,
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
        if before is EMPTY:
            self._delay_first(group, timeout, now)
        else:
            self._start_join_timer(group, now + timeout)
            self.try_complete_join(group, now)

    def _delay_first(self, group: Group, timeout: int, now: int) -> None:
        """Begin to wait for more members of a previously empty group (`group.initial.rebalance.delay.ms`)."""
        delay = self._settings.group_initial_rebalance_delay_ms
        group.initial_delay_ms = delay
        group.initial_remaining_ms = max(timeout - delay, 0)
        group.new_member_added = False
        if delay:
            self._start_join_timer(group, now + delay)
        else:
            self._complete_join(group, now)

    def _start_join_timer(self, group: Group, at: int) -> None:
        if group.join_timer is None:
            group.join_timer = GroupTimer(group, self._join_timer_due)
        self._timers.start(group.join_timer, at)

    def _join_timer_due(self, group: Group, now: int) -> None:
        """Extend the initial delay if a member joined during it, else stop waiting for missing members."""
        remaining = group.initial_remaining_ms
        if remaining and group.new_member_added:
            group.new_member_added = False
            delay = min(self._settings.group_initial_rebalance_delay_ms, remaining)
            group.initial_remaining_ms = max(remaining - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay
            self._start_join_timer(group, now + delay)
        else:
            self._complete_join(group, now)

    # ---- join

    def try_complete_join(self, group: Group, now: int) -> None:
        """Begin the next generation if all members have joined and the initial delay is over."""
        if group.initial_remaining_ms is None and group.has_all_joined():
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: int) -> None:
        """Begin the next generation with all static members and the dynamic members that have joined.

        Remove the dynamic members that have not joined. If members remain but none has joined, wait again.
        """
        group.initial_remaining_ms = None
        for member in list(group.members.values()):
            if member.join_caller is None and not member.is_static:
                self.remove(group, member, commands.NOT_REJOINED)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has joined: wait until their sessions expire.
            pause = max(group.rebalance_timeout_ms(), _PAUSE_MIN_MS)
            self._start_join_timer(group, now + pause)
            return
        if group.join_timer is not None:
            self._timers.cancel(group.join_timer)
        group.begin_generation(self._wall_ms())
        if group.members:
            self._answer_joined(group, now)
        else:
            self._write_empty(group, now)

    def _answer_joined(self, group: Group, now: int) -> None:
        phases = group.phases
        phases.joined_at = now
        self._outbox.note(
            commands.COMPLETING,
            group,
            members=len(group.members),
            leader=group.leader,
            leader_instance=group.instance_of(group.leader),
            protocol_type=group.protocol_type,
            protocol=group.protocol_name,
            joining_ms=now - phases.preparing_at,
            last=phases.last_joined,
            last_instance=group.instance_of(phases.last_joined),
        )
        for member in group.members.values():
            self.answer_join(group, member, self.current(group, member))
            member.is_new = False
            self.restart_session(member, now)
            group.unsynced.add(member.member_id)
        if group.sync_timer is None:
            group.sync_timer = GroupTimer(group, self._sync_timer_due)
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

    def _write_empty(self, group: Group, now: int) -> None:
        self._outbox.note(commands.EMPTY, group, joining_ms=now - group.phases.preparing_at)
        self.write(group, {}, partial(self._empty_written, group))

    def _empty_written(self, group: Group, error: int, now: int) -> None:
        """Write a line to the ledger if the record of the empty generation could not be written.

        Without this record, the next coordinator loads the former generation, whose members then expire.
        """
        if error:
            self._note_failure(group, "empty group", error)

    # ---- sync

    def sync(
        self, group: Group, member: Member, request: SyncRequest, caller: Caller, now: int
    ) -> None:
        """Process a valid SyncGroup in CompletingRebalance."""
        self.answer_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_caller = caller
        self.synced(group, member)
        if group.leader == member.member_id and not group.is_writing:
            group.phases.synced_at = now
            given = dict(request.assignments)
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            group.is_writing = True
            done = partial(self._assignment_written, group, group.generation, assignments)
            self.write(group, assignments, done, now)

    def synced(self, group: Group, member: Member) -> None:
        """Remember that the member has sent its SyncGroup. Stop the timer if all members have done so."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced and group.sync_timer is not None:
            self._timers.cancel(group.sync_timer)

    def end_sync(self, group: Group) -> None:
        """Stop waiting for SyncGroup requests."""
        group.unsynced.clear()
        if group.sync_timer is not None:
            self._timers.cancel(group.sync_timer)

    def write(
        self,
        group: Group,
        assignments: dict[str, bytes],
        done: Callable[[int, int], None],
        now: int = 0,
    ) -> None:
        """Append a record of the group with these assignments. `done(error, now)` is called with the result."""
        try:
            key = group_metadata_key(group.group_id)
            value = group_metadata_value(group.value(assignments))
        except ValueError:  # a name is too long for a record
            done(ErrorCode.UNKNOWN_SERVER_ERROR, now)
            return
        self._outbox.append(group.partition, [(key, value)], done)

    def _assignment_written(
        self, group: Group, generation: int, assignments: dict[str, bytes], error: int, now: int
    ) -> None:
        if error:
            self._note_failure(group, "assignment", error)
        if group.state is not COMPLETING or group.generation != generation:
            return
        group.is_writing = False
        if error:
            self._fail_assignment(group, assignment_error(error), now)
            self.rebalance(group, commands.WRITE_FAILED, now, group.members.get(group.leader or ""))
            return
        for member in group.members.values():
            group.assign(member, assignments[member.member_id])
            response = SyncResponse(
                ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment
            )
            if self.answer_sync(member, response):
                self.restart_session(member, now)
        group.move(STABLE, self._wall_ms())
        phases = group.phases
        self._outbox.note(
            commands.STABLE,
            group,
            members=len(group.members),
            leader=group.leader,
            leader_instance=group.instance_of(group.leader),
            assigning_ms=phases.synced_at - phases.joined_at,
            writing_ms=now - phases.synced_at,
            rebalance_ms=now - phases.preparing_at,
        )

    def _fail_assignment(self, group: Group, error: int, now: int) -> None:
        """Clear all assignments. Answer the members that wait for an assignment with the error."""
        for member in group.members.values():
            group.assign(member, b"")
            if self.answer_sync(member, SyncResponse(error)):
                self.restart_session(member, now)

    def _sync_timer_due(self, group: Group, now: int) -> None:
        """Remove the members that have not sent SyncGroup in time, and rebalance the remaining members."""
        late = [group.members[member_id] for member_id in group.unsynced]
        late.sort(key=lambda member: member.member_id)
        for member in late:
            self.remove(group, member, commands.NOT_SYNCED)
        self.rebalance(group, commands.NOT_SYNCED, now, late[0])

    def _note_failure(self, group: Group, what: str, error: int) -> None:
        self._outbox.note(commands.APPEND_FAILED, group, what=what, error=error)
