"""A consumer's side of the group protocol over a MemoryCluster, one request at a time.

`GroupClient` finds the coordinator and retries as clients do. `Member` joins, syncs, sends heartbeats and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.client.connection import BrokerConnection
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SERVED,
    SYNC_GROUP,
)
from minikafka.simulation.cluster import MemoryCluster

START_AGAIN = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)
"""Errors after which a member joins again with a new member id."""
REJOIN = START_AGAIN | {ErrorCode.REBALANCE_IN_PROGRESS}
MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors after which a client looks for the coordinator again."""
RETRY_MS = 50
REQUEST_MS = 20_000
TRIES = 400


class Unanswered(Exception):
    """No coordinator was found, or none answered, in `TRIES` attempts."""


class GroupClient:
    """Sends requests to the coordinator of one group. `home`: index of the broker that gets FindCoordinator first."""

    key_type = 0
    """The key type in FindCoordinator: a group."""

    def __init__(self, cluster: MemoryCluster, group: str, home: int = 0) -> None:
        self.cluster = cluster
        self.group = group
        self.home = home
        self.coordinator: tuple[int, int] | None = None
        """(broker id, port) of the coordinator, None if unknown."""
        self.connections: dict[int, BrokerConnection] = {}
        self.before_response: Callable[[], None] = lambda: None
        """Called after each request was sent, before the response is awaited. It may raise."""
        self.lost: dict[str, int] = {}
        """Number of requests without a response, by the name of the exception."""

    async def send(self, port: int, api: int, version: int | None = None, **values: Any) -> Any:
        """Send one request to a port; return the response. Raises OSError."""
        version = SERVED[api][1] if version is None else version
        connection = self.connections.get(port)
        if connection is None or not connection.is_open:
            connection = self.connections[port] = await self.cluster.transport.connect(
                lambda: BrokerConnection("tester", self.cluster.clock), "127.0.0.1", port
            )
        response = connection.request(
            api, version, codec.request(api, version, **values), REQUEST_MS
        )
        try:
            self.before_response()
        except BaseException:
            response.cancel()
            raise
        return codec.decode_response(api, version, await response)

    async def find(self) -> tuple[int, int]:
        """Send FindCoordinator to the brokers in turn until it succeeds; return the coordinator's (broker id, port)."""
        numbers = list(self.cluster.storages)
        for attempt in range(TRIES):
            port = 9092 + numbers[(self.home + attempt) % len(numbers)]
            try:
                answer = await self.send(
                    port,
                    FIND_COORDINATOR,
                    key_type=self.key_type,
                    coordinator_keys=[self.group],
                )
            except OSError as error:
                self._count(error)
            else:
                (found,) = answer.coordinators
                if not found.error_code:
                    return int(found.node_id), found.port
            await self.cluster.clock.sleep(RETRY_MS)
        raise Unanswered(self.group)

    async def ask(self, api: int, version: int | None = None, **values: Any) -> Any:
        """Send a request to the coordinator and return the response; find the coordinator and retry if necessary."""
        for _ in range(TRIES):
            if self.coordinator is None:
                self.coordinator = await self.find()
            try:
                answer = await self.send(self.coordinator[1], api, version, **values)
            except OSError as error:
                self._count(error)
                self.coordinator = None
            else:
                if not moved(answer):
                    return answer
                self.coordinator = None
            await self.cluster.clock.sleep(RETRY_MS)
        raise Unanswered(self.group)

    async def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
    ) -> set[int]:
        """Commit offsets; return the error codes of the partitions."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            row = {"partition_index": partition, "committed_offset": offset}
            topics.setdefault(topic, []).append({**row, "committed_metadata": ""})
        answer = await self.ask(
            OFFSET_COMMIT,
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[{"name": name, "partitions": rows} for name, rows in topics.items()],
        )
        return {int(p.error_code) for topic in answer.topics for p in topic.partitions}

    async def committed(self) -> dict[tuple[str, int], int]:
        """Return every committed offset of the group."""
        asked = [{"group_id": self.group, "topics": None}]
        answer = await self.ask(OFFSET_FETCH, groups=asked)
        (group,) = answer.groups
        assert not group.error_code
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in group.topics
            for partition in topic.partitions
        }

    def close(self) -> None:
        """Close all connections of this client."""
        for connection in self.connections.values():
            connection.close()

    def _count(self, error: Exception) -> None:
        name = type(error).__name__
        self.lost[name] = self.lost.get(name, 0) + 1


def moved(answer: Any) -> bool:
    """True if the response says that this broker does not coordinate the group, or is still loading the group."""
    codes = {int(getattr(answer, "error_code", 0))}
    codes |= {int(group.error_code) for group in getattr(answer, "groups", ())}
    codes |= {
        int(getattr(row, "error_code", 0)) for row in getattr(answer, "transaction_states", ())
    }
    for topic in getattr(answer, "topics", ()):
        codes |= {int(partition.error_code) for partition in topic.partitions}
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes |= {int(row.partition_error_code) for row in topic.results_by_partition}
    return not MOVED.isdisjoint(codes)


class Member(GroupClient):
    """One group member, with opaque metadata. As the leader, it assigns a different text to every member."""

    metadata = b"opaque"

    def __init__(
        self,
        cluster: MemoryCluster,
        group: str,
        home: int = 0,
        instance: str | None = None,
        session_ms: int = 30_000,
    ) -> None:
        super().__init__(cluster, group, home)
        self.instance = instance
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.assignment = b""
        self.history: list[tuple[int, bytes]] = []
        """(generation, assignment) of every completed rebalance."""

    async def join(self) -> None:
        """Send JoinGroup and SyncGroup until the member has an assignment."""
        while True:
            joined = await self._join()
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                continue
            assert not joined.error_code, joined
            self.member_id, self.generation = joined.member_id, joined.generation_id
            self.is_leader = joined.leader == joined.member_id
            if await self._sync(joined):
                return

    async def _join(self) -> Any:
        return await self.ask(
            JOIN_GROUP,
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.session_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": self.metadata}],
        )

    async def _sync(self, joined: Any) -> bool:
        assignments = [
            {"member_id": member.member_id, "assignment": self.share(joined, number)}
            for number, member in enumerate(joined.members)
        ]
        synced = await self.ask(
            SYNC_GROUP,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments if self.is_leader and not joined.skip_assignment else [],
        )
        if synced.error_code in REJOIN:
            if synced.error_code in START_AGAIN:
                self.member_id = ""
            return False
        assert not synced.error_code, synced
        self.assignment = synced.assignment
        self.history.append((self.generation, self.assignment))
        return True

    def share(self, joined: Any, number: int) -> bytes:
        """Return the bytes that `joined.members[number]` gets as assignment: the generation and an id, as text.

        The id is the instance id, which a returning static member keeps, or the member id of a dynamic member.
        """
        member = joined.members[number]
        return f"{joined.generation_id} {member.group_instance_id or member.member_id}".encode()

    async def beat(self) -> int:
        """Send a heartbeat; return the error code."""
        answer = await self.ask(
            HEARTBEAT,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int(answer.error_code)

    async def commit_as_member(self, offsets: Mapping[tuple[str, int], int]) -> set[int]:
        """Commit offsets with the member's id and generation; return the error codes of the partitions."""
        return await self.commit(offsets, self.generation, self.member_id, self.instance)

    async def leave(self) -> None:
        """Leave the group."""
        member = {"member_id": self.member_id, "group_instance_id": self.instance}
        answer = await self.ask(LEAVE_GROUP, group_id=self.group, members=[member])
        assert not answer.error_code
        self.member_id, self.generation = "", -1
