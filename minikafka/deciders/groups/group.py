"""One consumer group: its members, its state, its generation, and the rules for changing them.

Source: Kafka's `GroupMetadata`. Invariants: the state changes only as `states.LEGAL_FROM` allows. `joining` is the
number of members that wait for a JoinGroup response. All members have at least one protocol in common. The leader is a
member. The generation never falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from sys import getsizeof, intern
from typing import Any, Final, TypeAlias

from minikafka.base.errors import ErrorCode, IllegalTransition
from minikafka.deciders.decider import Caller
from minikafka.deciders.groups.commands import DescribedGroup, DescribedMember, JoinedMember, Note
from minikafka.deciders.groups.memory import PENDING_BYTES, Held, group_bytes, member_bytes
from minikafka.deciders.groups.offsets import CONSUMER, GroupOffsets
from minikafka.deciders.groups.records import GroupMetadataValue, MemberMetadata, subscribed_topics
from minikafka.deciders.groups.states import COMPLETING, EMPTY, LEGAL_FROM, STABLE, GroupState
from minikafka.deciders.groups.timers import HeapTimer

NO_TIME: Final = -1
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""The (name, metadata) pairs of a member's protocols, in the order of preference."""


def as_protocols(protocols: Sequence[tuple[str, bytes]]) -> Protocols:
    """Return the protocols of a JoinGroup in the form in which `Member` stores them.

    Equal names share one string, which saves memory.
    """
    return tuple((intern(name), bytes(metadata)) for name, metadata in protocols)


class PendingMember(HeapTimer):
    """A client that received a member id, and must join with this id before its session timeout (KIP-394)."""

    __slots__ = ("group_id", "member_id")

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id

    def forget_names(self) -> None:
        """Free the names: the client has joined or was forgotten. They can be long, and the object lives on."""
        self.group_id = self.member_id = ""


class Member(HeapTimer):
    """A member of a group. The timer is due when the member's session expires.

    `join_caller`, `sync_caller`: the callers that wait for a response to the member's JoinGroup or SyncGroup, None
    without such a request. `is_new`: true until the first generation with the member begins.
    """

    __slots__ = (
        "assignment",
        "bytes",
        "client_host",
        "client_id",
        "group_id",
        "instance_id",
        "is_new",
        "join_caller",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_caller",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.bytes = 0
        """The memory of the member at the last call of `weigh`."""
        self.join_caller: Caller | None = None
        self.sync_caller: Caller | None = None
        self.is_new = False

    def weigh(self) -> int:
        """Measure the member's memory again; return how much it has grown."""
        before = self.bytes
        self.bytes = member_bytes(
            self.member_id, self.instance_id, self.client_id, self.protocols, self.assignment
        )
        return self.bytes - before

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id (KIP-345)."""
        return self.instance_id is not None

    def metadata(self, protocol: str) -> bytes:
        """Return the metadata that the member sent for a protocol. Raises KeyError for other protocols."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first protocol in the member's order of preference that is one of the candidates.

        The member must support at least one candidate.
        """
        return next(name for name, _ in self.protocols if name in candidates)

    def needs_heartbeat(self) -> bool:
        """True if the member's session can expire now.

        A member sends no heartbeats while it waits for a response, so its session does not expire then. The
        exception is a new member, which may wait at most `NEW_MEMBER_JOIN_TIMEOUT_MS`.
        """
        return self.is_new or (self.join_caller is None and self.sync_caller is None)


class GroupTimer(HeapTimer):
    """A timer of a group."""

    __slots__ = ("group",)

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group


class JoinTimer(GroupTimer):
    """The end of the initial delay, or of the wait for the members' JoinGroup requests."""

    __slots__ = ()


class SyncTimer(GroupTimer):
    """The end of the wait for the members' SyncGroup requests."""

    __slots__ = ()


class Phases:
    """The times (monotonic ms) at which the phases of the last rebalance began, for the ledger."""

    __slots__ = ("joined_at", "last_joined", "preparing_at", "synced_at")

    def __init__(self) -> None:
        self.preparing_at = NO_TIME
        self.joined_at = NO_TIME
        self.synced_at = NO_TIME
        self.last_joined = ""
        """Id of the last member that joined."""


class Group:
    """A consumer group. `partition`: the partition of `__consumer_offsets` that stores the group."""

    __slots__ = (
        "generation",
        "group_id",
        "held",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_writing",
        "join_timer",
        "joining",
        "leader",
        "members",
        "new_member_added",
        "offsets",
        "partition",
        "pending",
        "phases",
        "protocol_name",
        "protocol_type",
        "refusals",
        "state",
        "state_timestamp",
        "static_ids",
        "supporters",
        "sync_timer",
        "unsynced",
    )

    def __init__(
        self, group_id: str, partition: int, offsets: GroupOffsets, state_timestamp: int
    ) -> None:
        self.group_id = group_id
        self.held = Held()
        """The memory of the group and its members, without its offsets."""
        self.held.add(group_bytes(group_id))
        self.partition = partition
        self.offsets = offsets
        self.state = EMPTY
        self.state_timestamp = state_timestamp
        """Time (Unix ms) at which the group entered its current state, NO_TIMESTAMP if unknown."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids of the static members by instance id."""
        self.pending: dict[str, PendingMember] = {}
        self.joining = 0
        self.supporters: Counter[str] = Counter()
        """Number of members that support each protocol."""
        self.unsynced: set[str] = set()
        """Ids of the members that have not sent a SyncGroup in this generation yet."""
        self.is_writing = False
        """True while the leader's assignment is being written."""
        self.new_member_added = False
        """True if a member has joined during the initial delay, so that the delay will be extended."""
        self.initial_delay_ms = 0
        self.initial_remaining_ms: int | None = None
        """Milliseconds by which the initial delay can still be extended; None outside the initial delay."""
        self.join_timer: JoinTimer | None = None
        self.sync_timer: SyncTimer | None = None
        self.phases = Phases()
        self.refusals: Counter[tuple[str, int]] = Counter()
        """Number of refused commits in this generation by (member id, error), for the ledger."""

    # ---- state

    def move(self, state: GroupState, wall_ms: int) -> None:
        """Change the group's state. Raises IllegalTransition if `LEGAL_FROM` does not allow the change."""
        if self.state not in LEGAL_FROM[state]:
            raise IllegalTransition(
                f"group {self.group_id}: {self.state.value} to {state.value} is not a legal transition"
            )
        has_leader = self.leader in self.members
        assert has_leader or state not in (COMPLETING, STABLE), (self.group_id, state)
        self.state = state
        self.state_timestamp = wall_ms

    def begin_generation(self, wall_ms: int) -> None:
        """Begin the next generation. The new state is CompletingRebalance, or Empty if there are no members."""
        self.generation += 1
        self.unsynced.clear()
        self.refusals.clear()
        self.is_writing = False
        self.protocol_name = self.choose_protocol() if self.members else None
        self.move(COMPLETING if self.members else EMPTY, wall_ms)

    def subscribed(self) -> frozenset[str] | None:
        """Return the topics to which the members subscribe; None if unknown, or for another type than `consumer`.

        The topics are read from the members' metadata, because they can take twenty times as much memory.
        """
        if self.protocol_type != CONSUMER:
            return None
        protocol = self.protocol_name or ""
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics |= subscribed_topics(member.metadata(protocol))
        except (ValueError, KeyError):
            return None
        return frozenset(topics)

    # ---- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member, which must support a protocol that all other members support."""
        assert member.member_id not in self.members, (self.group_id, member.member_id)
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.supporters.update({name for name, _ in member.protocols})
        if member.join_caller is not None:
            self.joining += 1
        self._weigh(member)

    def remove(self, member: Member) -> None:
        """Remove a member. If the member was the leader, another member becomes the leader."""
        del self.members[member.member_id]
        self.held.add(-member.bytes)
        self._withdraw_support(member)
        self.set_join_caller(member, None)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self.unsynced.discard(member.member_id)

    def replace_static(self, member: Member, member_id: str) -> None:
        """Give a static member a new member id, and replace the old id everywhere in the group."""
        before = member.member_id
        assert member.instance_id is not None
        assert member_id not in self.members, (self.group_id, member_id)
        del self.members[before]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_ids[member.instance_id] = member_id
        if self.leader == before:
            self.leader = member_id
        if before in self.unsynced:
            self.unsynced.remove(before)
            self.unsynced.add(member_id)

    def update(
        self,
        member: Member,
        protocols: Protocols,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Replace a member's protocols and timeouts with the values from its latest JoinGroup."""
        self._withdraw_support(member)
        member.protocols = protocols
        self.supporters.update({name for name, _ in protocols})
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._weigh(member)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set a member's assignment."""
        member.assignment = assignment
        self._weigh(member)

    def _weigh(self, member: Member) -> None:
        self.held.add(member.weigh())

    def add_pending(self, pending: PendingMember) -> None:
        """Add a client that has received a member id and has not joined yet."""
        self.pending[pending.member_id] = pending
        self.held.add(PENDING_BYTES + getsizeof(pending.member_id))

    def remove_pending(self, member_id: str) -> PendingMember | None:
        """Remove a pending member; return None if there is none with this id."""
        pending = self.pending.pop(member_id, None)
        if pending is not None:
            self.held.add(-PENDING_BYTES - getsizeof(member_id))
        return pending

    def set_join_caller(self, member: Member, caller: Caller | None) -> None:
        """Set the caller that waits for the member's JoinGroup response; None if no caller waits."""
        self.joining += (caller is not None) - (member.join_caller is not None)
        member.join_caller = caller
        assert 0 <= self.joining <= len(self.members), (self.group_id, self.joining)

    def _withdraw_support(self, member: Member) -> None:
        for name in {name for name, _ in member.protocols}:
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    def has_all_joined(self) -> bool:
        """True if every member waits for its JoinGroup response and there are no pending members."""
        return self.joining == len(self.members) and not self.pending

    def elect_joined_leader(self) -> bool:
        """Make a joined member the leader if the leader has not joined. Return False if none has joined."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_caller is None:
            joined = (member for member in self.members.values() if member.join_caller is not None)
            leader = next(joined, None)
            if leader is None:
                return False
            self.leader = leader.member_id
        return True

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members, at least 0."""
        return max(0, *(member.rebalance_timeout_ms for member in self.members.values()), 0)

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        """Return the error for a request with these ids; NONE if they identify a member of the group.

        The member id and the instance id of a static member must belong to the same member.
        """
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # ---- protocols

    def instance_of(self, member_id: str | None) -> str | None:
        """Return the `group.instance.id` of a member; None for a dynamic or unknown member."""
        member = self.members.get(member_id or "")
        return None if member is None else member.instance_id

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """True if a member with this protocol type and these protocols may join.

        The protocol type must equal the group's type, and one of the protocols must be supported by all members. A
        group in the state Empty accepts every nonempty type and every nonempty list of protocols.
        """
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        count = len(self.members)
        return any(self.supporters[name] == count for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Return the protocol with the most votes, among the protocols that all members support."""
        count = len(self.members)
        candidates = {name for name, supporters in self.supporters.items() if supporters == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    # ---- descriptions and records

    def note(self, kind: str, **fields: Any) -> Note:
        """Return the command that writes a fact about the group to the ledger."""
        return Note(kind, self.group_id, self.generation, fields)

    def joined_members(self) -> list[JoinedMember]:
        """Return the members in the form of the leader's JoinGroup response."""
        protocol = self.protocol_name
        assert protocol is not None
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        ]

    def describe(self) -> DescribedGroup:
        """Return the group in the form of a DescribeGroups response."""
        is_stable = self.state is STABLE
        protocol = (self.protocol_name or "") if is_stable else ""
        return DescribedGroup(
            self.group_id,
            0,
            self.state.value,
            self.protocol_type or "",
            protocol,
            [
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(protocol) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self.members.values()
            ],
        )

    def assignments(self) -> dict[str, bytes]:
        """Return the members' assignments by member id."""
        return {member.member_id: member.assignment for member in self.members.values()}

    def value(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the group in the form of a record's value. `assignments`: assignment by member id."""
        protocol = self.protocol_name or ""
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader,
            self.state_timestamp,
            tuple(
                MemberMetadata(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(protocol),
                    assignments[member.member_id],
                )
                for member in self.members.values()
            ),
        )

    def restore(self, value: GroupMetadataValue) -> None:
        """Restore the group from the value of a record.

        The new state is Stable if the group has members, else Empty.
        """
        assert not self.members, "only a new group is restored"
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.state_timestamp = value.current_state_timestamp
        protocol = value.protocol or ""
        for stored in value.members:
            member = Member(
                self.group_id,
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                stored.session_timeout_ms,
                stored.rebalance_timeout_ms,
                ((protocol, stored.subscription),),
            )
            member.assignment = stored.assignment
            self.add(member, value.protocol_type)
        if self.members:
            self.state = STABLE
            if value.leader in self.members:
                self.leader = value.leader

    def is_removable(self) -> bool:
        """True if the group has no members, no pending members and no offsets."""
        return self.state is EMPTY and not self.pending and self.offsets.is_unused()
