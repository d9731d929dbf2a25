"""JoinGroup of new members, of pending members, of existing members, and of static members that return.

Source: Kafka's `GroupCoordinator`, KIP-394 (required member id), KIP-345 (static members), KIP-814 (skipped
assignment).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from minikafka.base.coordinators import Caller
from minikafka.base.errors import ErrorCode
from minikafka.groups.messages import commands
from minikafka.groups.messages.append_errors import assignment_error
from minikafka.groups.messages.requests import NO_MEMBER_ID, JoinRequest
from minikafka.groups.messages.responses import JoinResponse
from minikafka.groups.metadata_changes import metadata_changes
from minikafka.groups.outbox import Outbox
from minikafka.groups.rebalance import Rebalances
from minikafka.groups.settings import GroupSettings
from minikafka.groups.state.group import Group
from minikafka.groups.state.member import Member, PendingMember, Protocols, as_protocols
from minikafka.groups.state.offsets import CONSUMER
from minikafka.groups.state.states import EMPTY, PREPARING, STABLE
from minikafka.groups.state.timers import Timers

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""Maximum wait of a new member's JoinGroup. Such a member sends no heartbeats, as it has no member id yet."""


PENDING_MAX: Final = 10_000
"""Maximum number of pending members of all groups (about 15 MB).

Only the last `PENDING_MAX` clients that received a member id can join with this id. An older pending member is
removed, as after its session timeout, and its client must request a new id."""


class _Join(NamedTuple):
    """One JoinGroup in progress. The response is sent to `caller`."""

    group: Group
    request: JoinRequest
    protocols: Protocols
    caller: Caller
    now: int


class _Return(NamedTuple):
    """A static member that joins again. The fields from `generation` on hold the values from before the JoinGroup."""

    join: _Join
    member: Member
    generation: int
    leader: str | None
    member_id: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int

    def is_waiting(self) -> bool:
        """True if the static member's JoinGroup must still be answered, and no rebalance will answer it.

        False also if the JoinGroup was already answered because the member left or returned again.
        """
        group = self.join.group
        return (
            group.state is STABLE
            and group.generation == self.generation
            and self.member.join_caller == self.join.caller
        )


def _return_of(join: _Join, member: Member) -> _Return:
    return _Return(
        join,
        member,
        join.group.generation,
        join.group.leader,
        member.member_id,
        member.protocols,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
    )


class Joining:
    """The processing of JoinGroup requests. `new_id` returns the random part of a member id.

    `forget(pending, now)` removes a pending member. It has no effect if the member is no longer pending.
    """

    def __init__(
        self,
        settings: GroupSettings,
        outbox: Outbox,
        timers: Timers,
        rebalances: Rebalances,
        new_id: Callable[[], str],
        forget: Callable[[PendingMember, int], None],
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._rebalances = rebalances
        self._new_id = new_id
        self._forget = forget
        self._recent: deque[PendingMember] = deque()
        """The last `PENDING_MAX` clients that received a member id, oldest first. Most of them have joined."""

    def join(self, group: Group, request: JoinRequest, caller: Caller, now: int) -> None:
        """Process a JoinGroup. The caller has checked the session timeout."""
        join = _Join(group, request, as_protocols(request.protocols), caller, now)
        member_id = request.member_id
        if not self._has_room(group, member_id):
            self._refuse_overflow(group, member_id, caller)
        elif not group.supports(request.protocol_type, join.protocols):
            self._refuse(caller, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id == NO_MEMBER_ID:
            self._join_new(join)
        elif member_id in group.pending and request.instance_id is None:
            self._end_pending(group, member_id)
            self._add(join, member_id)
        else:
            self._join_known(join)
        if group.state is PREPARING:
            self._rebalances.try_complete_join(group, now)

    def _refuse(self, caller: Caller, error: int, member_id: str) -> None:
        self._outbox.answer(caller, JoinResponse(error, member_id))

    # ---- the limit on the size of a group

    def _has_room(self, group: Group, member_id: str) -> bool:
        """True if the group has room for this member (`group.max.size`).

        A current member always has room, except while the group prepares a rebalance. During that time, only the
        members that have joined again are counted. If the limit was lowered, the last members to join have no room.
        """
        size = self._settings.group_max_size
        member = group.members.get(member_id)
        if group.state is EMPTY:
            return True
        if group.state is PREPARING:
            has_joined = member is not None and member.join_caller is not None
            return has_joined or group.joining < size
        return member is not None or len(group.members) < size

    def _refuse_overflow(self, group: Group, member_id: str, caller: Caller) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalances.remove(group, member, commands.OVERFLOWED)
        self._end_pending(group, member_id)
        self._refuse(caller, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)

    # ---- new members

    def _join_new(self, join: _Join) -> None:
        group, request = join.group, join.request
        instance = request.instance_id
        member_id = f"{request.client_id if instance is None else instance}-{self._new_id()}"
        if instance is not None and instance in group.static_ids:
            self._return_static(join, group.members[group.static_ids[instance]], member_id)
        elif instance is None and request.requires_member_id:
            self._give_id(join, member_id)
        else:
            self._add(join, member_id)

    def _give_id(self, join: _Join, member_id: str) -> None:
        """Answer a JoinGroup request with the error MEMBER_ID_REQUIRED and this new member id.

        The client must send JoinGroup again with the member id (KIP-394).
        """
        pending = PendingMember(join.group.group_id, member_id)
        join.group.add_pending(pending)
        self._timers.start(pending, join.now + join.request.session_timeout_ms)
        self._recent.append(pending)
        if len(self._recent) > PENDING_MAX:
            self._forget(self._recent.popleft(), join.now)
        self._refuse(join.caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _end_pending(self, group: Group, member_id: str) -> None:
        pending = group.remove_pending(member_id)
        if pending is not None:
            self._timers.cancel(pending)
            pending.forget_names()

    def _add(self, join: _Join, member_id: str) -> None:
        """Add a member and begin a rebalance."""
        group, request, protocols, caller, now = join
        member = Member(
            group.group_id,
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            protocols,
        )
        member.is_new = True
        member.join_caller = caller
        if group.state is PREPARING and group.generation == 0:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.phases.last_joined = member_id
        self._timers.start(member, now + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._outbox.note(
            commands.MEMBER_ADDED,
            group,
            member=member_id,
            instance=member.instance_id,
            client=member.client_id,
            host=member.client_host,
            reason=request.reason,
        )
        self._rebalances.rebalance(group, commands.JOINED, now, member, request.reason)

    # ---- known members

    def _join_known(self, join: _Join) -> None:
        group, request, protocols, caller, now = join
        error = group.check_member(request.member_id, request.instance_id)
        if error:
            self._refuse(caller, error, request.member_id)
            return
        member = group.members[request.member_id]
        changed: list[str] | None = None
        if group.state is PREPARING:
            cause = commands.JOINED
        elif member.protocols != protocols:
            cause = commands.METADATA_CHANGED
            changed = metadata_changes(member.protocols, protocols, group.protocol_type == CONSUMER)
        elif group.state is STABLE and group.leader == member.member_id:
            cause = commands.REJOINED
        else:  # probably the response to the member's last JoinGroup was lost
            self._outbox.answer(caller, self._rebalances.current(group, member))
            return
        self._wait(join, member)
        self._rebalances.rebalance(group, cause, now, member, request.reason, changed)

    def _wait(self, join: _Join, member: Member) -> None:
        """Set the member's protocols and timeouts from the request, and store the caller, who is answered later."""
        group, request = join.group, join.request
        repeat = JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self._rebalances.answer_join(group, member, repeat)
        group.update(
            member, join.protocols, request.session_timeout_ms, request.rebalance_timeout_ms
        )
        group.set_join_caller(member, join.caller)
        group.phases.last_joined = member.member_id

    # ---- static members that return

    def _return_static(self, join: _Join, member: Member, member_id: str) -> None:
        """Give a returning static member a new member id. Fence a client that still uses the old id."""
        group, request, now = join.group, join.request, join.now
        returned = _return_of(join, member)
        self._rebalances.dismiss(group, member, ErrorCode.FENCED_INSTANCE_ID, member.member_id)
        group.replace_static(member, member_id)
        self._wait(join, member)
        self._rebalances.restart_session(member, now)
        self._outbox.note(
            commands.MEMBER_REPLACED,
            group,
            member=member_id,
            replaced=returned.member_id,
            instance=member.instance_id,
            client=request.client_id,
            host=request.client_host,
        )
        if group.state is STABLE and group.choose_protocol() == group.protocol_name:
            done = partial(self._return_written, returned)
            self._rebalances.write(group, group.assignments(), done, now)
        else:
            # In CompletingRebalance, the leader may know only the old id and would assign no partitions to the new id.
            self._rebalances.rebalance(group, commands.STATIC_RETURNED, now, member, request.reason)

    def _return_written(self, returned: _Return, error: int, now: int) -> None:
        """Answer a static member that returned to a stable group, after the write of its new member id.

        If the write failed, restore the member's former id.
        """
        group, member = returned.join.group, returned.member
        if error:
            self._note_failure(group, error)
        if not returned.is_waiting():
            return
        if error:
            self._take_back(returned)
        self._rebalances.answer_join(group, member, self._return_response(returned, error))
        self._rebalances.restart_session(member, now)

    def _return_response(self, returned: _Return, error: int) -> JoinResponse:
        group, member = returned.join.group, returned.member
        if not error and returned.join.request.can_skip_assignment:
            is_leader = group.leader == member.member_id
            return self._rebalances.current(group, member, skip_assignment=is_leader)
        return JoinResponse(
            assignment_error(error) if error else ErrorCode.NONE,
            NO_MEMBER_ID if error else member.member_id,
            returned.generation,
            group.protocol_type,
            group.protocol_name,
            # The leader's id before the return: a client before JoinGroup version 9 that found its own id here would
            # send an assignment.
            returned.leader or "",
        )

    def _take_back(self, returned: _Return) -> None:
        """Restore a static member's former id, protocols and timeouts, and write the group.

        The append of the new id was reported as failed, but its record may still be committed. This method
        therefore appends a later record with the former id.
        """
        group, member = returned.join.group, returned.member
        group.update(
            member, returned.protocols, returned.session_timeout_ms, returned.rebalance_timeout_ms
        )
        group.replace_static(member, returned.member_id)
        self._rebalances.write(group, group.assignments(), partial(self._taken_back, group))

    def _taken_back(self, group: Group, error: int, now: int) -> None:
        if error:
            self._note_failure(group, error)

    def _note_failure(self, group: Group, error: int) -> None:
        what = "return of a static member"
        self._outbox.note(commands.APPEND_FAILED, group, what=what, error=error)
