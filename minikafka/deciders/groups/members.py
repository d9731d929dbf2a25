"""The members of groups: JoinGroup, Heartbeat, LeaveGroup, and the end of sessions.

Source: Kafka's `GroupCoordinator`, KIP-394 (required member id), KIP-345 (static members), KIP-814 (skipped
assignment).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from minikafka.base.coordinators import ASSIGNMENT_ERRORS
from minikafka.base.errors import ErrorCode
from minikafka.deciders.decider import Caller, Procedure, Procedures
from minikafka.deciders.groups import commands
from minikafka.deciders.groups.commands import (
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    LeftMember,
)
from minikafka.deciders.groups.context import Context
from minikafka.deciders.groups.events import (
    NO_MEMBER_ID,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
)
from minikafka.deciders.groups.group import Group, Member, PendingMember, Protocols, as_protocols
from minikafka.deciders.groups.offsets import CONSUMER
from minikafka.deciders.groups.rebalance import Rebalances
from minikafka.deciders.groups.records import subscribed_topics
from minikafka.deciders.groups.states import EMPTY, PREPARING, STABLE

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""Maximum wait of a new member's JoinGroup. Such a member sends no heartbeats, as it has no member id yet."""


PENDING_MAX: Final = 10_000
"""Maximum number of pending members of all groups (about 15 MB).

Only the last `PENDING_MAX` clients that received a member id can join with this id. An older pending member is
removed, as after its session timeout, and its client must request a new id."""

_NO_ERROR: Final = HeartbeatResponse(ErrorCode.NONE)
_REBALANCING: Final = HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS)


class _Join(NamedTuple):
    """One JoinGroup in progress."""

    group: Group
    request: JoinRequest
    protocols: Protocols


class _Former(NamedTuple):
    """The values of a static member before it joined again."""

    member_id: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int


class Members:
    """The processing of members' requests, except SyncGroup."""

    def __init__(self, context: Context, procedures: Procedures, rebalances: Rebalances) -> None:
        self._context = context
        self._procedures = procedures
        self._rebalances = rebalances
        self._timers = context.timers
        self._recent: deque[PendingMember] = deque()
        """The last `PENDING_MAX` clients that received a member id, oldest first. Most of them have joined."""

    # ---- JoinGroup

    def join(self, request: JoinRequest) -> None:
        """Process a JoinGroup."""
        group = self._context.named(request.group_id)
        error = self._join_error(group, request)
        if error:
            self._refuse(request.caller, error, request.member_id)
            return
        group = group or self._context.create(request.group_id)
        self._join(_Join(group, request, as_protocols(request.protocols)))
        if group.state is PREPARING:
            self._rebalances.try_complete_join(group)

    def _join_error(self, group: Group | None, request: JoinRequest) -> int:
        """Return the error with which to refuse a JoinGroup before its group is looked at."""
        context, settings = self._context, self._context.settings
        error = ErrorCode.NONE if group is not None else context.refusal(request.group_id)
        if error:
            return error
        shortest = settings.group_min_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group is None and request.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not context.has_memory_for_member(group, request):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _join(self, join: _Join) -> None:
        group, request, protocols = join
        member_id, caller = request.member_id, request.caller
        if not self._has_room(group, member_id):
            self._refuse_overflow(group, member_id, caller)
        elif not group.supports(request.protocol_type, protocols):
            self._refuse(caller, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id == NO_MEMBER_ID:
            self._join_new(join)
        elif member_id in group.pending and request.instance_id is None:
            self._end_pending(group, member_id)
            self._add(join, member_id)
        else:
            self._join_known(join)

    def _refuse(self, caller: Caller, error: int, member_id: str) -> None:
        self._procedures.answer(caller, JoinResponse(error, member_id))

    # ---- the limit on the size of a group

    def _has_room(self, group: Group, member_id: str) -> bool:
        """True if the group has room for this member (`group.max.size`).

        A current member always has room, except while the group prepares a rebalance. During that time, only the
        members that have joined again are counted. If the limit was lowered, the last members to join have no room.
        """
        size = self._context.settings.group_max_size
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
        group, request, _ = join
        instance = request.instance_id
        name = request.client_id if instance is None else instance
        member_id = f"{name}-{self._context.new_id()}"
        if instance is not None and instance in group.static_ids:
            member = group.members[group.static_ids[instance]]
            self._procedures.start(self._return_static(join, member, member_id))
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
        self._timers.start(pending, self._context.now + join.request.session_timeout_ms)
        self._recent.append(pending)
        if len(self._recent) > PENDING_MAX:
            self.forget(self._recent.popleft())
        self._refuse(join.request.caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, join: _Join, member_id: str) -> None:
        """Add a member and begin a rebalance."""
        group, request, protocols = join
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
        member.join_caller = request.caller
        if group.state is PREPARING and group.generation == 0:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.phases.last_joined = member_id
        self._timers.start(member, self._context.now + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._procedures.emit(
            group.note(
                commands.MEMBER_ADDED,
                member=member_id,
                instance=member.instance_id,
                client=member.client_id,
                host=member.client_host,
                reason=request.reason,
            )
        )
        self._rebalances.rebalance(group, commands.JOINED, member, request.reason)

    # ---- known members

    def _join_known(self, join: _Join) -> None:
        group, request, protocols = join
        error = group.check_member(request.member_id, request.instance_id)
        if error:
            self._refuse(request.caller, error, request.member_id)
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
            current = self._rebalances.current(group, member)
            self._procedures.answer(request.caller, current)
            return
        self._wait(join, member)
        self._rebalances.rebalance(group, cause, member, request.reason, changed)

    def _wait(self, join: _Join, member: Member) -> None:
        """Set the member's protocols and timeouts from the request, and store the caller, who is answered later."""
        group, request, protocols = join
        repeat = JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self._rebalances.answer_join(group, member, repeat)
        group.update(member, protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
        group.set_join_caller(member, request.caller)
        group.phases.last_joined = member.member_id

    # ---- static members that return

    def _return_static(self, join: _Join, member: Member, member_id: str) -> Procedure[None]:
        """Give a returning static member a new member id. Fence a client that still uses the old id.

        The member of a stable group keeps its assignment: it is answered when the record with its new id is written.
        """
        group, request, _ = join
        generation, leader = group.generation, group.leader
        former = _Former(
            member.member_id,
            member.protocols,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
        )
        self._rebalances.dismiss(group, member, ErrorCode.FENCED_INSTANCE_ID, member.member_id)
        group.replace_static(member, member_id)
        self._wait(join, member)
        self._rebalances.restart_session(member)
        self._note_return(join, member, former)
        if group.state is not STABLE or group.choose_protocol() != group.protocol_name:
            # In CompletingRebalance, the leader may know only the old id and would assign no partitions to the new id.
            self._rebalances.rebalance(group, commands.STATIC_RETURNED, member, request.reason)
            return
        error = yield from self._rebalances.write(group, group.assignments())
        assert group.generation >= generation, "a generation fell while it was written"
        if error:
            self._note_failed_return(group, error)
        if (
            group.state is not STABLE
            or group.generation != generation
            or member.join_caller != request.caller
        ):
            return  # answered by a rebalance, or because the member left or returned again
        if error:
            self._restore(group, member, former)
        response = self._return_response(join, member, leader, error)
        self._rebalances.answer_join(group, member, response)
        self._rebalances.restart_session(member)

    def _note_return(self, join: _Join, member: Member, former: _Former) -> None:
        self._procedures.emit(
            join.group.note(
                commands.MEMBER_REPLACED,
                member=member.member_id,
                replaced=former.member_id,
                instance=member.instance_id,
                client=join.request.client_id,
                host=join.request.client_host,
            )
        )

    def _return_response(
        self, join: _Join, member: Member, leader: str | None, error: int
    ) -> JoinResponse:
        """Return the response to a static member of a stable group. `leader`: the leader's id before the return."""
        group = join.group
        if not error and join.request.can_skip_assignment:
            is_leader = group.leader == member.member_id
            return self._rebalances.current(group, member, skip_assignment=is_leader)
        return JoinResponse(
            ASSIGNMENT_ERRORS.get(error, error),
            NO_MEMBER_ID if error else member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            # A client before JoinGroup version 9 that found its own id here would send an assignment.
            leader or "",
        )

    def _restore(self, group: Group, member: Member, former: _Former) -> None:
        """Restore a static member's former id, protocols and timeouts, and write the group.

        The append of the new id was reported as failed, but its record may still be committed. A later record with the
        former id must follow it.
        """
        group.update(
            member, former.protocols, former.session_timeout_ms, former.rebalance_timeout_ms
        )
        group.replace_static(member, former.member_id)
        self._procedures.start(self._write_restored(group))

    def _write_restored(self, group: Group) -> Procedure[None]:
        error = yield from self._rebalances.write(group, group.assignments())
        if error:
            self._note_failed_return(group, error)

    def _note_failed_return(self, group: Group, error: int) -> None:
        self._rebalances.note_failure(group, "return of a static member", error)

    # ---- Heartbeat

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Process a Heartbeat."""
        self._procedures.answer(request.caller, self._beat(request))

    def _beat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self._context.named(request.group_id)
        if group is None:
            error = self._context.refusal(request.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
            # Loading the group restarts the member's session.
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(ErrorCode.NONE if is_loading else error)
        wrong = group.check_member(request.member_id, request.instance_id)
        if wrong:
            return HeartbeatResponse(wrong)
        if request.generation != group.generation:
            return HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION)
        self._rebalances.restart_session(group.members[request.member_id])
        return _REBALANCING if group.state is PREPARING else _NO_ERROR

    # ---- LeaveGroup

    def leave(self, request: LeaveRequest) -> None:
        """Process a LeaveGroup of one or more members."""
        group = self._context.named(request.group_id)
        error = ErrorCode.NONE if group is not None else self._context.refusal(request.group_id)
        left = [
            LeftMember(leaving.member_id, leaving.instance_id, self._left(group, leaving))
            for leaving in (() if error else request.members)
        ]
        self._procedures.answer(request.caller, LeaveResponse(error, left))

    def _left(self, group: Group | None, leaving: LeavingMember) -> int:
        """Remove a leaving member and return NONE, or return the error if the ids identify no member."""
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = leaving.member_id
        pending = group.pending.get(member_id)
        if pending is not None:
            self._remove_pending(group, pending)
            return ErrorCode.NONE
        if not member_id and leaving.instance_id is not None:
            member_id = group.static_ids.get(leaving.instance_id, "")
        error = group.check_member(member_id, leaving.instance_id)
        if not error:
            member = group.members[member_id]
            self._rebalances.remove_and_rebalance(group, member, commands.LEFT, leaving.reason)
        return error

    # ---- the ends of sessions

    def session_expired(self, member: Member) -> None:
        """Remove a member whose timer is due, unless its session cannot expire now (`needs_heartbeat`)."""
        group = self._context.groups.get(member.group_id)
        if group is None or group.members.get(member.member_id) is not member:
            return
        if member.needs_heartbeat():
            self._rebalances.remove_and_rebalance(group, member, commands.SESSION_EXPIRED)

    def forget(self, pending: PendingMember) -> None:
        """Remove a pending member that did not join in time. No effect if it is no longer pending.

        Also remove its group if the group never had a member. Without this, clients that never join could create
        thousands of groups without members.
        """
        group = self._context.groups.get(pending.group_id)
        if group is not None:
            self._remove_pending(group, pending)
            self._rebalances.drop_unused(group)

    def _remove_pending(self, group: Group, pending: PendingMember) -> None:
        """Remove a pending member that left or did not join in time. A rebalance no longer waits for it."""
        if group.pending.get(pending.member_id) is pending:
            self._end_pending(group, pending.member_id)
            if group.state is PREPARING:
                self._rebalances.try_complete_join(group)

    def _end_pending(self, group: Group, member_id: str) -> None:
        pending = group.remove_pending(member_id)
        if pending is not None:
            self._timers.cancel(pending)
            pending.forget_names()


def metadata_changes(before: Protocols, after: Protocols, is_consumer: bool) -> list[str]:
    """Return a description of each change of a member's protocols.

    `is_consumer`: true if the protocols' metadata are subscriptions of consumers.
    """
    old, new = dict(before), dict(after)
    found = [f"added protocol {name}" for name in new if name not in old]
    found += [f"removed protocol {name}" for name in old if name not in new]
    if not found and list(old) != list(new):
        found.append("changed its preference of protocols")
    both = [name for name in new if name in old and old[name] != new[name]]
    if is_consumer and both:
        found += _topic_changes(old[both[0]], new[both[0]])
    if both and not any("subscribe" in words for words in found):
        data = "the owned partitions or the assignor's data" if is_consumer else "the metadata"
        found.append(f"changed {data} of {', '.join(both)}")
    return found


def _topic_changes(before: bytes, after: bytes) -> Iterator[str]:
    """Yield a description of each changed topic; nothing if one of the subscriptions is not readable."""
    try:
        old, new = subscribed_topics(before), subscribed_topics(after)
    except ValueError:
        return
    for topic in sorted(new - old):
        yield f"subscribes to {topic}"
    for topic in sorted(old - new):
        yield f"no longer subscribes to {topic}"
