"""Commands of the group coordinator to its runner, in the order in which they must be carried out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.groups.responses import Response

Caller: TypeAlias = Hashable
"""An object that the runner needs to answer a request; the coordinator only returns it."""
KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record of `__consumer_offsets`; value None is a tombstone."""


class Answer(NamedTuple):
    """Send a response. Every caller gets exactly one."""

    caller: Caller
    response: Response


class Append(NamedTuple):
    """Append one batch to a partition of `__consumer_offsets` with acks=all.

    The runner calls `GroupCoordinator.appended(token, error, now)` exactly once, with the error code of the
    append or 0, even after it unloaded the partition. Tokens rise; a partition's batches must be appended in
    the order of their tokens.
    """

    partition: int
    records: Sequence[KeyValue]
    token: int


class Note(NamedTuple):
    """Record a fact about a group in the ledger.

    `kind` is one of the constants below; the text under each constant lists its `fields`.
    """

    kind: str
    group_id: str
    generation: int
    fields: Mapping[str, Any]


Command: TypeAlias = Answer | Append | Note

MEMBER_ADDED: Final = "member added"
"""`member`, `instance` (or None), `client`, `host`, `reason` (of the client, or None)."""
MEMBER_REMOVED: Final = "member removed"
"""`member`, `instance`, `client`, `host`, `trigger` (see below), `reason` (of the client, or None)."""
MEMBER_REPLACED: Final = "member replaced"
"""A static member returned: `member` (the new id), `replaced` (its former id), `instance`, `client`, `host`."""
PREPARING: Final = "rebalance started"
"""`trigger` (see below), `member` (that caused the rebalance, or ""), `instance` (of that member, or None),
`reason` (of the client, or None), `from` (state), `members` (number), `partition` (of `__consumer_offsets`),
`timeout_ms` (after which members that have not joined are removed), `changed` (for METADATA_CHANGED: what the
member changed, in words)."""
COMPLETING: Final = "members joined"
"""A new generation: `members` (number), `leader`, `leader_instance` (or None), `protocol_type`, `protocol`,
`joining_ms` (since the rebalance started), `last` (the member that joined last, or ""), `last_instance`."""
STABLE: Final = "assignment written"
"""`members`, `leader`, `leader_instance`, `assigning_ms` (from the last JoinGroup response to the leader's SyncGroup),
`writing_ms` (until the assignment was written), `rebalance_ms` (since the rebalance started)."""
EMPTY: Final = "group empty"
"""A generation without members: the last one is gone. `joining_ms` (since the rebalance started)."""
DEAD: Final = "group removed"
"""`trigger`: DELETED (by a request), EXPIRED (no members and no offsets were left)."""
APPEND_FAILED: Final = "append failed"
"""A write of the group failed: `what` (assignment, return of a static member, empty group, offsets,
tombstones), `error` (Kafka's code)."""
COMMIT_REFUSED: Final = "commit refused"
"""An OffsetCommit was answered with an error: `member`, `instance`, `of_generation` (in the request), `error`
(Kafka's code), `count` (of this member's refusals with this error in the generation; recorded at 1, 2, 4, 8,
…)."""
LOADED: Final = "group loaded"
"""A group with members arrived at this broker: `partition`, `state`, `members`, `offsets` (numbers)."""
UNLOADED: Final = "group unloaded"
"""A group with members left this broker: `members` (number)."""
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
"""The names from JOINED to this one are the triggers of rebalances and of removals of members."""
