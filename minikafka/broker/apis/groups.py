"""Consumer groups, their members and rebalances; and the coordinators of groups and transactional ids.

FindCoordinator 10, versions 0–6.
- Returns the broker that leads the partition of a group (key type 0) in `__consumer_offsets`, or the partition of a
  transactional id (key type 1, from version 1) in `__transaction_state`. A request has one key up to version 3, a list
  of keys from version 4 (KIP-699). The first request creates the topic.
- Until this topic exists and has a leader, the response is COORDINATOR_NOT_AVAILABLE, which clients retry. The topic
  is not created before `offsets.topic.replication.factor` or `transaction.state.log.replication.factor` brokers are
  live.
- INVALID_REQUEST for other key types.

JoinGroup 11, versions 0–9.
- Answered when all members have joined or the rebalance has timed out. Until then, later requests of the connection
  get no response.
- More than 100 protocols get INVALID_REQUEST. So does more than 1 MiB of metadata, which no group record can hold.
- COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if the groups would need more than
  `minikafka.groups.memory.max.bytes`. A member that joins again without growing is never refused for this reason.
- Version 4 and later: a new dynamic member first gets MEMBER_ID_REQUIRED and its id (KIP-394). 5: static members
  (KIP-345). 8: reasons, which go into the ledger (KIP-800). 9: the leader may be told to skip the assignment (KIP-814).

SyncGroup 14, versions 0–5.
- Answered when the assignment of the group's leader is on all in-sync replicas. From version 5 the protocol's type and
  name must be given and match the group's (INCONSISTENT_GROUP_PROTOCOL, KIP-559).

Heartbeat 12, versions 0–4. LeaveGroup 13, versions 0–5: several members from version 3.

DescribeGroups 15, versions 0–5. ListGroups 16, versions 0–5: filter by state from version 4
  (KIP-518), and by type from version 5 (KIP-848). Every group has the type classic.
DeleteGroups 42, versions 0–2.
- ListGroups lists the groups that this broker coordinates. If authorized operations are requested, all operations are
  returned, because there is no authorizer.

Any request about a group gets NOT_COORDINATOR if another broker coordinates the group, and
COORDINATOR_LOAD_IN_PROGRESS while this broker reads the group's partition after an election.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.clients.access import EVERYTHING
from minikafka.broker.request_parts import AT_ONCE_ROWS, Respond, answer_in_parts, in_rows
from minikafka.broker.services import (
    LATER,
    Entity,
    Handler,
    Later,
    RequestContext,
    Services,
    Steps,
)
from minikafka.deciders.groups.commands import (
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    LeftMember,
    ListGroupsResponse,
    SyncResponse,
)
from minikafka.deciders.groups.events import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    ListGroupsRequest,
    SyncRequest,
)
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from minikafka.security.operations import (
    CLUSTER,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TRANSACTIONAL_ID,
    need,
)

_FIND: Final = {
    0: need("FindCoordinator", DESCRIBE, GROUP),
    1: need("FindCoordinator", DESCRIBE, TRANSACTIONAL_ID),
}
"""Key type → the right that is needed for a key of this type."""
_JOIN: Final = need("JoinGroup", READ, GROUP)
_SYNC: Final = need("SyncGroup", READ, GROUP)
_BEAT: Final = need("Heartbeat", READ, GROUP)
_LEAVE: Final = need("LeaveGroup", READ, GROUP)
_DESCRIBE: Final = need("DescribeGroups", DESCRIBE, GROUP)
_LIST_ALL: Final = need("ListGroups", DESCRIBE, CLUSTER)
_LIST: Final = need("ListGroups", DESCRIBE, GROUP)
_DELETE: Final = need("DeleteGroups", DELETE, GROUP)
_NOT_ASKED: Final = -(2**31)

_COORDINATORS_SINCE: Final = 4
_GROUP: Final = 0
"""Key type of a consumer group in FindCoordinator. Version 0 has only this type."""
_TRANSACTION: Final = 1
_CLIENT_ID_MAX: Final = 1_000
"""Maximum number of characters of the client id in a member id, so that the member id fits into every response."""
_PROTOCOLS_MAX: Final = 100
_METADATA_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of metadata in one JoinGroup request. The coordinator keeps the metadata in memory."""
_MEMBER_ID_REQUIRED_SINCE: Final = 4
_PROTOCOL_NULLABLE_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9
_PROTOCOL_MANDATORY_SINCE: Final = 5
_SEVERAL_LEAVE_SINCE: Final = 3


_CLASSIC: Final = "classic"
"""The type of every group (KIP-848)."""


def find_coordinator(services: Services, request: Entity, context: RequestContext) -> bytes | Steps:
    """Return the response to a FindCoordinator request. From version 4 (several keys), return it as `Steps`."""
    if context.version < _COORDINATORS_SINCE:
        found = _coordinator(services, request.key, request.key_type, context)
        return response(FIND_COORDINATOR, context.version, **found)
    keys = dict.fromkeys(request.coordinator_keys)
    coordinators = (
        {"key": key, **_coordinator(services, key, request.key_type, context)} for key in keys
    )
    return response_in_steps(FIND_COORDINATOR, context.version, coordinators=coordinators)


def _coordinator(
    services: Services, key: str, key_type: int, context: RequestContext
) -> dict[str, Any]:
    """Return the response fields for one key: the coordinator of the key, or an error."""
    topics = {_GROUP: services.groups.topic, _TRANSACTION: services.transactions.topic}
    topic = topics.get(key_type)
    wanted = _FIND.get(key_type)
    code: ErrorCode
    reason: str | None
    if wanted is not None and not services.access.allows(context.connection, wanted, key):
        code, reason = wanted.error, wanted.message
    elif topic is None:
        code, reason = ErrorCode.INVALID_REQUEST, f"coordinator key type {key_type} is unknown"
    else:
        node, reason = topic.locate(key, context.connection.listener)
        if node is not None:
            return {"node_id": node.id, "host": node.host, "port": node.port}
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {
        "error_code": code,
        "error_message": reason,
        "node_id": -1,
        "host": "",
        "port": -1,
    }


# ---- members


def join_group(services: Services, request: Entity, context: RequestContext) -> Steps | Later:
    """Handle a JoinGroup request."""
    if not services.access.allows(context.connection, _JOIN, request.group_id):
        return _joined(context.version, JoinResponse(_JOIN.error, ""))
    if (
        len(request.protocols) > _PROTOCOLS_MAX
        or sum(len(protocol.metadata) for protocol in request.protocols) > _METADATA_BYTES_MAX
    ):
        refused = JoinResponse(int(ErrorCode.INVALID_REQUEST), request.member_id)
        return _joined(context.version, refused)
    session_timeout_ms = request.session_timeout_ms
    rebalance_timeout_ms = session_timeout_ms
    if context.version > 0:
        rebalance_timeout_ms = request.rebalance_timeout_ms
    services.groups.handle(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=(context.client_id or "")[:_CLIENT_ID_MAX],
            client_host=_host(context),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
            reason=request.reason,
            requires_member_id=context.version >= _MEMBER_ID_REQUIRED_SINCE,
            can_skip_assignment=context.version >= _SKIP_ASSIGNMENT_SINCE,
            caller=context.answer_with(_joined),
        )
    )
    return LATER


def _joined(version: int, joined: JoinResponse) -> Steps:
    protocol_name = joined.protocol_name
    if protocol_name is None and version < _PROTOCOL_NULLABLE_SINCE:
        protocol_name = ""
    return response_in_steps(
        JOIN_GROUP,
        version,
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=(
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in joined.members
        ),
    )


def sync_group(services: Services, request: Entity, context: RequestContext) -> bytes | Later:
    """Handle a SyncGroup request."""
    protocol_type = request.protocol_type
    protocol_name = request.protocol_name
    is_named = protocol_type is not None and protocol_name is not None
    if context.version >= _PROTOCOL_MANDATORY_SINCE and not is_named:
        error = int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return _synced(context.version, SyncResponse(error))
    if not services.access.allows(context.connection, _SYNC, request.group_id):
        return _synced(context.version, SyncResponse(_SYNC.error))
    services.groups.handle(
        SyncRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[(entry.member_id, entry.assignment) for entry in request.assignments],
            caller=context.answer_with(_synced),
        )
    )
    return LATER


def _synced(version: int, synced: SyncResponse) -> bytes:
    return response(
        SYNC_GROUP,
        version,
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def heartbeat(services: Services, request: Entity, context: RequestContext) -> bytes | Later:
    """Handle a Heartbeat request."""
    if not services.access.allows(context.connection, _BEAT, request.group_id):
        return _beat(context.version, HeartbeatResponse(_BEAT.error))
    services.groups.handle(
        HeartbeatRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            caller=context.answer_with(_beat),
        )
    )
    return LATER


@lru_cache(maxsize=64)
def _beat(version: int, answer: HeartbeatResponse) -> bytes:
    """Return the encoded response to a Heartbeat request, from a cache if possible.

    Heartbeats are frequent, and few responses differ.
    """
    return response(HEARTBEAT, version, error_code=answer.error)


def leave_group(services: Services, request: Entity, context: RequestContext) -> Steps | Later:
    """Handle a LeaveGroup request."""
    if not services.access.allows(context.connection, _LEAVE, request.group_id):
        return _left(context.version, LeaveResponse(_LEAVE.error, ()))

    def leave(members: Sequence[LeavingMember], respond: Respond) -> None:
        services.groups.handle(LeaveRequest(request.group_id, members, caller=respond))

    if context.version < _SEVERAL_LEAVE_SINCE:
        leave([LeavingMember(request.member_id)], context.answer_with(_left))
    elif len(request.members) > AT_ONCE_ROWS:
        parts = map(_leaving, in_rows(request.members))
        return answer_in_parts(leave, parts, _left_in_parts, context)
    else:
        leave(_leaving(request.members), context.answer_with(_left))
    return LATER


def _leaving(members: Sequence[Entity]) -> list[LeavingMember]:
    return [
        LeavingMember(member.member_id, member.group_instance_id, member.reason)
        for member in members
    ]


def _left(version: int, left: LeaveResponse) -> Steps:
    error = left.error
    if version < _SEVERAL_LEAVE_SINCE and not error and left.members:
        error = left.members[0].error
    return response_in_steps(
        LEAVE_GROUP, version, error_code=error, members=map(_left_member, left.members)
    )


def _left_in_parts(version: int, outcomes: Sequence[LeaveResponse]) -> Steps:
    """Return the response to a large LeaveGroup request as `Steps`.

    The top-level error is the error of the first part that failed.
    """
    error = next((left.error for left in outcomes if left.error), 0)
    members = () if error else chain.from_iterable(left.members for left in outcomes)
    return (
        yield from response_in_steps(
            LEAVE_GROUP, version, error_code=error, members=map(_left_member, members)
        )
    )


def _left_member(member: LeftMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "error_code": member.error,
    }


# ---- administration


def describe_groups(services: Services, request: Entity, context: RequestContext) -> Steps | Later:
    """Handle a DescribeGroups request."""
    access, client = services.access, context.connection
    allowed = access.allowed(client, _DESCRIBE)

    def operations(group: str) -> int:
        if not request.include_authorized_operations:
            return _NOT_ASKED
        return access.operations(client, GROUP, group)

    def describe(group_ids: Sequence[str], respond: Respond) -> None:
        known = [name for name in group_ids if name in allowed]

        def described(outcome: DescribeGroupsResponse) -> None:
            denied = [
                DescribedGroup(name, _DESCRIBE.error) for name in group_ids if name not in allowed
            ]
            respond(DescribeGroupsResponse([*denied, *outcome.groups]))

        services.groups.handle(DescribeGroupsRequest(known, caller=described))

    def encode(version: int, outcomes: Sequence[DescribeGroupsResponse]) -> Steps:
        return _described(operations, version, outcomes)

    names = list(dict.fromkeys(request.groups))
    if len(names) > AT_ONCE_ROWS:
        return answer_in_parts(describe, in_rows(names), encode, context)
    describe(names, context.answer_with(lambda version, outcome: encode(version, [outcome])))
    return LATER


def _described(
    operations: Callable[[str], int], version: int, outcomes: Sequence[DescribeGroupsResponse]
) -> Steps:
    """Return the response to a DescribeGroups request. `operations(group)`: what the client may do with a group."""
    groups = (
        _described_group(group, operations) for described in outcomes for group in described.groups
    )
    return response_in_steps(DESCRIBE_GROUPS, version, groups=groups)


def _described_group(group: DescribedGroup, operations: Callable[[str], int]) -> dict[str, Any]:
    return {
        "error_code": group.error,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": (
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ),
        "authorized_operations": _NOT_ASKED if group.error else operations(group.group_id),
    }


def list_groups(services: Services, request: Entity, context: RequestContext) -> Later:
    """Handle a ListGroups request."""
    access, client = services.access, context.connection
    shown = EVERYTHING if access.allows(client, _LIST_ALL) else access.allowed(client, _LIST)
    respond = context.answer_with(partial(_listed, shown))
    types = [name.lower() for name in request.types_filter]
    if types and _CLASSIC not in types:
        respond(ListGroupsResponse(0, ()))
    else:
        states = request.states_filter
        services.groups.handle(ListGroupsRequest(states=states, caller=respond))
    return LATER


def _listed(shown: Container[str], version: int, listed: ListGroupsResponse) -> Steps:
    return response_in_steps(
        LIST_GROUPS,
        version,
        error_code=listed.error,
        groups=(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": _CLASSIC,
            }
            for group in listed.groups
            if group.group_id in shown
        ),
    )


def delete_groups(services: Services, request: Entity, context: RequestContext) -> Steps | Later:
    """Handle a DeleteGroups request."""

    allowed = services.access.allowed(context.connection, _DELETE)

    def delete(group_ids: Sequence[str], respond: Respond) -> None:
        known = [name for name in group_ids if name in allowed]

        def deleted(outcome: DeleteGroupsResponse) -> None:
            denied = [(name, _DELETE.error) for name in group_ids if name not in allowed]
            respond(DeleteGroupsResponse([*outcome.groups, *denied]))

        services.groups.handle(DeleteGroupsRequest(known, caller=deleted))

    names = list(dict.fromkeys(request.groups_names))
    if len(names) > AT_ONCE_ROWS:
        return answer_in_parts(delete, in_rows(names), _deleted, context)
    delete(names, context.answer_with(lambda version, outcome: _deleted(version, [outcome])))
    return LATER


def _deleted(version: int, outcomes: Sequence[DeleteGroupsResponse]) -> Steps:
    return response_in_steps(
        DELETE_GROUPS,
        version,
        results=(
            {"group_id": name, "error_code": error}
            for deleted in outcomes
            for name, error in deleted.groups
        ),
    )


def _host(context: RequestContext) -> str:
    """Return the address of the client as Kafka prints it, such as /127.0.0.1."""
    return "/" + context.connection.host


HANDLERS: Final[dict[int, Handler]] = {
    FIND_COORDINATOR: find_coordinator,
    JOIN_GROUP: join_group,
    SYNC_GROUP: sync_group,
    HEARTBEAT: heartbeat,
    LEAVE_GROUP: leave_group,
    DESCRIBE_GROUPS: describe_groups,
    LIST_GROUPS: list_groups,
    DELETE_GROUPS: delete_groups,
}
