"""A member of a group, and a pending member, which has a member id but has not joined yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from sys import intern
from typing import TypeAlias

from minikafka.base.coordinators import Caller
from minikafka.groups.state.memory import member_bytes
from minikafka.groups.state.timers import Timer

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""The (name, metadata) pairs of a member's protocols, in the order of preference."""


def as_protocols(protocols: Sequence[tuple[str, bytes]]) -> Protocols:
    """Return the protocols of a JoinGroup in the form in which `Member` stores them.

    Equal names share one string, which saves memory.
    """
    return tuple((intern(name), bytes(metadata)) for name, metadata in protocols)


class PendingMember(Timer):
    """A client that received a member id, and must join with this id before its session timeout (KIP-394)."""

    __slots__ = ("group_id", "member_id")

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id

    def forget_names(self) -> None:
        """Free the names: the client has joined or was forgotten. They can be long, and the object lives on."""
        self.group_id = self.member_id = ""


class Member(Timer):
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
