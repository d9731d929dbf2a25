"""The coordinator's data about one group, for `minikafka why` and `trace`.

In addition to the data in DescribeGroups, the report shows which members have joined, when each member sent its
last request, and when the next timeout is due.
"""

from __future__ import annotations

from typing import Any

from minikafka.deciders.groups.group import Group, Member
from minikafka.deciders.groups.offsets import CONSUMER
from minikafka.deciders.groups.records import assigned_partitions, subscribed_topics
from minikafka.deciders.groups.states import COMPLETING, PREPARING


def report(group: Group, now: int) -> dict[str, Any]:
    """Return the data about the group as JSON-able values. Durations are in milliseconds, None if unknown.

    `now`: monotonic ms. `since`: time (Unix ms) at which the group entered its state, -1 if unknown.
    `due_ms`: time until the coordinator stops waiting for missing members. `offsets`: a list of (topic,
    partition, offset, time of the commit in Unix ms). `unstable`: a list of (topic, partition) whose commit is in
    progress, for example in an open transaction.
    """
    timer = {PREPARING: group.join_timer, COMPLETING: group.sync_timer}.get(group.state)
    subscribed = group.subscribed()
    return {
        "state": group.state.value,
        "since": group.state_timestamp,
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol_name,
        "leader": group.leader,
        "due_ms": None if timer is None or timer.at is None else timer.at - now,
        "waits_for_more": group.initial_remaining_ms is not None,
        "is_writing": group.is_writing,
        "pending_members": len(group.pending),
        "topics": None if subscribed is None else sorted(subscribed),
        "members": [_member(group, member, now) for member in group.members.values()],
        "offsets": [
            [tp.topic, tp.partition, found.offset, found.commit_timestamp]
            for tp in group.offsets.partitions()
            if (found := group.offsets.fetch(tp)) is not None
        ],
        "unstable": [[tp.topic, tp.partition] for tp in group.offsets.pending()],
    }


def _member(group: Group, member: Member, now: int) -> dict[str, Any]:
    """Return the data about a member as JSON-able values.

    `joined`, `synced`: False if the current rebalance still waits for the member's JoinGroup or SyncGroup.
    `heard_ms`: time since the member's last request, None if the member waits for its first generation.
    """
    heard_at = (member.at or 0) - member.session_timeout_ms
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "heard_ms": None if member.at is None or member.is_new else now - heard_at,
        "joined": group.state is not PREPARING or member.join_caller is not None,
        "synced": group.state is not COMPLETING or member.member_id not in group.unsynced,
        "topics": _topics(group, member),
        "assigned": _assigned(group, member),
    }


def _topics(group: Group, member: Member) -> list[str] | None:
    """Return the topics to which a consumer subscribes; None if unknown.

    The topics are in the metadata of the consumer's preferred protocol.
    """
    if group.protocol_type != CONSUMER or not member.protocols:
        return None
    try:
        return sorted(subscribed_topics(member.protocols[0][1]))
    except ValueError:
        return None


def _assigned(group: Group, member: Member) -> dict[str, list[int]] | None:
    """Return the partitions assigned to a consumer; None if unknown."""
    if group.protocol_type != CONSUMER:
        return None
    try:
        return assigned_partitions(member.assignment) if member.assignment else {}
    except ValueError:
        return None
