"""Loads for group coordinators over plain connections: commits, rebalances, a failover, idle members.

The loads work with any Kafka broker that serves FindCoordinator v1, OffsetCommit v7, JoinGroup v3, SyncGroup v3
and Heartbeat v3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, Final

from benchmarks import kafka
from benchmarks.closed_loop import Answer, Load, LoadError
from benchmarks.kafka import Session
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import (
    FIND_COORDINATOR,
    JOIN_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
)

Address = tuple[str, int]

COORDINATOR_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
SETTLE_SECONDS: Final = 0.03
"""Pause after each request, so that the broker has read all earlier requests before the measured request."""
SESSION_MS: Final = 30_000
COMMIT_VERSION: Final = 7
GROUP_VERSION: Final = 3
ASSIGNMENT: Final = bytes(40)
METADATA: Final = bytes(30)


def coordinator_of(brokers: Sequence[Address], group: str, topic: str) -> Address:
    """Repeat an OffsetCommit until the group's coordinator stores the offset; return the coordinator's address.

    Raises LoadError after 60 s.
    """
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while time.monotonic() < deadline:
        for broker in brokers:
            with suppress(OSError, LoadError):
                if coordinator := committing_coordinator(broker, group, topic):
                    return coordinator
        time.sleep(POLL_SECONDS)
    raise LoadError(f"{group} has no coordinator after {COORDINATOR_SECONDS:g} s")


def committing_coordinator(broker: Address, group: str, topic: str) -> Address | None:
    """Ask a broker for the group's coordinator, and commit an offset there. Return the coordinator's address.

    Return None if the broker reports no coordinator, or if the coordinator refuses the commit. Raises OSError,
    LoadError.
    """
    with Session(*broker) as session:
        found = session.ask(FIND_COORDINATOR, 1, key=group, key_type=0)
    if found.error_code:
        return None
    with Session(found.host, found.port) as session:
        body = commit_body(group, topic, 1)
        answer = session.ask(OFFSET_COMMIT, COMMIT_VERSION, **body)
    stored = answer.topics[0].partitions[0].error_code == 0
    return (found.host, found.port) if stored else None


def commit_body(group: str, topic: str, offset: int) -> dict[str, Any]:
    """Return the fields of an OffsetCommit request for one partition, without member id and generation."""
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
    }


def commit_load(coordinator: Address, group: str, topic: str, total: int) -> Load:
    """Return the load of one connection that sends OffsetCommit requests, with one request in flight."""
    body = codec.request(OFFSET_COMMIT, COMMIT_VERSION, **commit_body(group, topic, 1))
    request = codec.encode_request(OFFSET_COMMIT, COMMIT_VERSION, 1, kafka.CLIENT_ID, body)
    # length | correlation, throttle time, topics, name, partitions, index | error
    size = 4 + 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2
    answer = Answer(size, Struct(f">i{size - 6}xh"), (size - 4, 0))
    return Load(*coordinator, [request], answer, 1, total)


class Member:
    """One member of a group, with its own connection. Sending and receiving are separate methods."""

    def __init__(self, coordinator: Address, group: str) -> None:
        self.session = Session(*coordinator)
        self.group = group
        self.id = self.leader = ""
        self.generation = -1

    def send_join(self) -> None:
        """Send JoinGroup, with the member id from the last JoinGroup response, or "" for the first request."""
        self._send(JOIN_GROUP, **join_body(self.group, self.id))

    def receive_join(self) -> None:
        """Receive the response to JoinGroup. Raises LoadError."""
        answer = self._receive(JOIN_GROUP)
        self.id, self.leader, self.generation = (
            answer.member_id,
            answer.leader,
            answer.generation_id,
        )

    def send_sync(self, ids: Sequence[str]) -> None:
        """Send SyncGroup. `ids`: the members to assign partitions to (empty if this member is not the leader)."""
        self._send(SYNC_GROUP, **sync_body(self.group, self.generation, self.id, ids))

    def receive_sync(self) -> None:
        """Receive the response to SyncGroup. Raises LoadError."""
        if self._receive(SYNC_GROUP).assignment != ASSIGNMENT:
            raise LoadError("SyncGroup returned another assignment than the leader sent")

    def _send(self, api: int, **values: Any) -> None:
        body = codec.request(api, GROUP_VERSION, **values)
        self.session.socket.sendall(
            codec.encode_request(api, GROUP_VERSION, 1, kafka.CLIENT_ID, body)
        )

    def _receive(self, api: int) -> Any:
        answer = codec.decode_response(api, GROUP_VERSION, self.session.receive())
        if answer.error_code:
            raise LoadError(f"API {api} was answered with error {answer.error_code}")
        return answer


def join_body(group: str, member_id: str) -> dict[str, Any]:
    """Return the fields of a JoinGroup request with one protocol."""
    return {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
    }


def sync_body(group: str, generation: int, member_id: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a SyncGroup request. `ids`: all members if the leader sends the request, else empty."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "assignments": [{"member_id": each, "assignment": ASSIGNMENT} for each in ids],
    }


def heartbeat_body(group: str, generation: int, member_id: str) -> dict[str, Any]:
    """Return the fields of a Heartbeat request."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
    }


def three_members(coordinator: Address, group: str) -> list[Member]:
    """Return three members of a stable group."""
    members = [Member(coordinator, group) for _ in range(3)]
    for count in range(1, len(members) + 1):
        # The new member joins first and starts the rebalance. Then the other members join again.
        answer_last(list(reversed(members[:count])), Member.send_join, Member.receive_join)
    sync(members)
    return members


def rebalance(members: Sequence[Member]) -> tuple[float, float]:
    """Make all members join again. Return the durations of the JoinGroup phase and the SyncGroup phase in ms.

    A phase is measured from the last member's request until all members have received their responses.
    """
    leader_first = sorted(members, key=lambda member: member.id != member.leader)
    joined = answer_last(leader_first, Member.send_join, Member.receive_join)
    return joined * 1_000, sync(members) * 1_000


def sync(members: Sequence[Member]) -> float:
    """Make all members send SyncGroup, the leader last.

    Return the seconds from the leader's SyncGroup until all members have received their responses.
    """
    ids = [member.id for member in members]
    leader_last = sorted(members, key=lambda member: member.id == member.leader)
    return answer_last(
        leader_last,
        lambda member: member.send_sync(ids if member.id == member.leader else []),
        Member.receive_sync,
    )


def answer_last(
    members: Sequence[Member], send: Callable[[Member], None], receive: Callable[[Member], None]
) -> float:
    """Send one request per member. Return the seconds from the last request to the last response."""
    for member in members[:-1]:
        send(member)
        time.sleep(SETTLE_SECONDS)
    began = time.perf_counter()
    send(members[-1])
    for member in members:
        receive(member)
    return time.perf_counter() - began
