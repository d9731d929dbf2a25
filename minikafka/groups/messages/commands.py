"""The commands of the group coordinator to its host: those of every coordinator, and facts for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.base.coordinators import Answer, Append


class Note(NamedTuple):
    """Write a fact about a group to the ledger.

    `kind`: one of the constants below. The text under each constant lists the `fields` of this kind.
    """

    kind: str
    group_id: str
    generation: int
    fields: Mapping[str, Any]


Command: TypeAlias = Answer | Append | Note

MEMBER_ADDED: Final = "member added"
"""A member was added: `member`, `instance` (or None), `client`, `host`, `reason` (of the client, or None)."""
MEMBER_REMOVED: Final = "member removed"
"""A member was removed: `member`, `instance`, `client`, `host`, `trigger` (see below), `reason` (or None)."""
MEMBER_REPLACED: Final = "member replaced"
"""A static member returned: `member` (the new id), `replaced` (its former id), `instance`, `client`, `host`."""
PREPARING: Final = "rebalance started"
"""A rebalance has started: `trigger` (see below), `member` (that caused the rebalance, or ""), `instance` (of
this member, or None), `reason` (of the client, or None), `from` (state), `members` (number), `partition` (of
`__consumer_offsets`), `timeout_ms` (after which members that have not joined are removed), `changed`
(descriptions of the member's changes; only for METADATA_CHANGED)."""
COMPLETING: Final = "members joined"
"""A new generation has begun: `members` (number), `leader`, `leader_instance` (or None), `protocol_type`,
`protocol`, `joining_ms` (since the rebalance started), `last` (the member that joined last, or ""),
`last_instance`."""
STABLE: Final = "assignment written"
"""The assignment is written: `members` (number), `leader`, `leader_instance`, `assigning_ms` (from the JoinGroup
responses to the leader's SyncGroup), `writing_ms` (from the SyncGroup to the end of the write), `rebalance_ms`
(since the rebalance started)."""
EMPTY: Final = "group empty"
"""A generation without members has begun: `joining_ms` (since the rebalance started)."""
DEAD: Final = "group removed"
"""The group was removed. `trigger`: DELETED (by a request) or EXPIRED (neither members nor offsets were left)."""
APPEND_FAILED: Final = "append failed"
"""A write of the group failed: `what` (assignment, return of a static member, empty group, offsets,
tombstones), `error` (Kafka's code)."""
COMMIT_REFUSED: Final = "commit refused"
"""An OffsetCommit was answered with an error: `member`, `instance`, `of_generation` (in the request), `error`
(Kafka's code), `count` (number of such errors for this member in the generation; recorded at 1, 2, 4, 8, …)."""
LOADED: Final = "group loaded"
"""This broker became the coordinator of a group with members: `partition`, `state`, `members` and `offsets`
(their numbers)."""
UNLOADED: Final = "group unloaded"
"""This broker is no longer the coordinator of a group with members: `members` (number)."""
DELETED: Final = "deleted"
EXPIRED: Final = "expired"

JOINED: Final = "member joined"
REJOINED: Final = "leader rejoined"
METADATA_CHANGED: Final = "member changed its metadata"
STATIC_RETURNED: Final = "static member returned"
LEFT: Final = "member left"
SESSION_EXPIRED: Final = "session expired"
NOT_REJOINED: Final = "did not rejoin in time"
NOT_SYNCED: Final = "did not sync in time"
WRITE_FAILED: Final = "assignment could not be written"
OVER_CAPACITY: Final = "more members than group.max.size"
OVERFLOWED: Final = "refused because of group.max.size"
"""The constants from JOINED to OVERFLOWED are the triggers of rebalances and of removals of members."""
