"""One member's view of its group: member id, generation, state, and the reaction to each error code.

This module does no I/O: the consumer sends the requests, and passes the error code of each response to
`Membership.react`, which returns the next step. The rules are the same as in Kafka's ConsumerCoordinator:

- After UNKNOWN_MEMBER_ID a member forgets its id, its generation and its partitions. After ILLEGAL_GENERATION
  a member keeps its id.
- A rebalance does not end a generation: until the member joins again, its commits and heartbeats contain the
  old generation.
- The response to a request of an earlier generation changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode
from minikafka.client.groups.protocol import NO_GENERATION

NO_MEMBER_ID: Final = ""


class State(Enum):
    """The states of a member, from not joined to having an assignment."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class Call(Enum):
    """The requests whose errors can change the membership."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"


class Reaction(Enum):
    """The next step of a member after the response to one of its requests."""

    GO_ON = "go on"
    RETRY = "send the request again at once"
    BACK_OFF = "send the request again after the backoff"
    FIND_COORDINATOR = "find the coordinator, then send the request again"
    REJOIN = "join the group again"
    FAIL = "raise the error"


_COORDINATOR: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.BACK_OFF,
}
_MEMBERSHIP: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
}
_FATAL: Final = {
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FAIL,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Reaction.FAIL,
}
REACTIONS: Final[dict[Call, dict[ErrorCode, Reaction]]] = {
    Call.JOIN: {
        **_COORDINATOR,
        **_FATAL,
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.RETRY,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RETRY,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.BACK_OFF,
    },
    Call.SYNC: {
        **_COORDINATOR,
        **_MEMBERSHIP,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.REJOIN,
    },
    Call.HEARTBEAT: {**_COORDINATOR, **_MEMBERSHIP, **_FATAL},
    Call.COMMIT: {
        **_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.BACK_OFF,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.BACK_OFF,
    },
}
"""The reaction to each code; FAIL for codes that are not listed.

A commit with a membership error fails, because the partition may already belong to another member. The member
then joins again.
"""


class Generation(NamedTuple):
    """The generation and member id in a request. The coordinator refuses requests of an old generation."""

    number: int
    member_id: str


class Membership:
    """The membership of one consumer in one group."""

    def __init__(self, instance_id: str | None = None) -> None:
        """`instance_id`: the group.instance.id of a static member (KIP-345), None for a dynamic member."""
        self.instance_id = instance_id
        self.state = State.UNJOINED
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self.has_lost_generation = False
        self.must_rejoin = True
        self.reason = "the consumer starts"

    @property
    def identity(self) -> Generation:
        """The generation and member id for the next request."""
        return Generation(self.generation, self.member_id)

    def request_rejoin(self, reason: str) -> None:
        """Record that the member must join again. `reason` is sent in JoinGroup (KIP-800)."""
        if not self.must_rejoin:
            self.must_rejoin = True
            self.reason = reason

    def begin_join(self) -> None:
        """Record that JoinGroup is being sent. A rejoin requested after this call needs another JoinGroup."""
        self.state = State.JOINING
        self.must_rejoin = False

    def joined(self, member_id: str, generation: int) -> None:
        """Record a successful JoinGroup: the member has a new generation."""
        self.member_id = member_id
        self.generation = generation
        self.has_lost_generation = False
        self.state = State.SYNCING

    def synced(self) -> None:
        """Record a successful SyncGroup: the member has its assignment."""
        self.state = State.STABLE

    def abort_join(self) -> None:
        """Record that the join failed and must be repeated. The next JoinGroup contains the same `reason` again."""
        self.state = State.UNJOINED
        self.must_rejoin = True

    def leave(self, reason: str) -> None:
        """Record that the member has left the group and lost its partitions."""
        self._forget(ErrorCode.UNKNOWN_MEMBER_ID)
        self.request_rejoin(reason)

    def react(
        self, call: Call, code: ErrorCode, sent: Generation, member_id: str = NO_MEMBER_ID
    ) -> Reaction:
        """Return the reaction to the error code of a response, and update the membership.

        `sent`: the identity in the request. `member_id`: the id in a MEMBER_ID_REQUIRED response.
        """
        if code is ErrorCode.NONE:
            return Reaction.GO_ON
        reaction = REACTIONS[call].get(code, Reaction.FAIL)
        if sent != self.identity:
            return reaction if call is Call.COMMIT else Reaction.GO_ON
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = member_id
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._forget(code)
        if code in _MEMBERSHIP and (call is not Call.JOIN):
            self._leave_state(f"{call.value} failed with {code.name}")
        return reaction

    def _forget(self, code: ErrorCode) -> None:
        """Forget the generation. After UNKNOWN_MEMBER_ID, also forget the member id."""
        self.has_lost_generation = self.has_lost_generation or self.generation != NO_GENERATION
        self.generation = NO_GENERATION
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = NO_MEMBER_ID
        if self.state is not State.JOINING:
            self.state = State.UNJOINED

    def _leave_state(self, reason: str) -> None:
        if self.state is State.SYNCING:
            self.state = State.UNJOINED
        self.request_rejoin(reason)
