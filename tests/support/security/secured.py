"""In-memory clusters with an authorizer, and connections of any user to them."""

from __future__ import annotations

from typing import Any, Final

from support.kafka.peer import Peer
from support.until import until

from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from minikafka.simulation.cluster import MemoryCluster

AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def secured(brokers: int = 1, **config: object) -> MemoryCluster:
    """Return a cluster with an authorizer, whose brokers and own clients are super users."""
    keys: dict[str, object] = {
        "authorizer_class_name": AUTHORIZER,
        "super_users": "User:ANONYMOUS",
        "offsets_topic_num_partitions": 1,
        "offsets_topic_replication_factor": 1,
        "group_initial_rebalance_delay_ms": 0,
    }
    return MemoryCluster(brokers, **keys | config)


class User:
    """One connection of a user to a broker."""

    def __init__(self, cluster: MemoryCluster, name: str, broker: int = 0) -> None:
        self.cluster = cluster
        self.name = name
        self.broker = broker
        self.peer = Peer()
        self.connection: Any = None

    async def connect(self) -> User:
        """Connect, and let the broker take the connection for the user's."""
        await self.cluster.transport.connect(lambda: self.peer, "127.0.0.1", 9092 + self.broker)
        listener = self.cluster.brokers[self.broker].listener
        self.connection = next(reversed(listener._connections))
        self.connection.client.principal = f"User:{self.name}"
        return self

    async def ask(self, api: int, version: int, **values: Any) -> Any:
        """Send a request on this connection and return the decoded response."""
        received = len(self.peer.frames())
        body = request(api, version, **values)
        self.peer.link.send([encode_request(api, version, 7, self.name, body)])
        await until(lambda: self.peer.is_closed or len(self.peer.frames()) > received)
        assert not self.peer.is_closed
        return decode_response(api, version, self.peer.frames()[-1])


async def grant(
    cluster: MemoryCluster,
    principal: str,
    operation: AclOperation,
    name: str,
    *,
    resource: AclResourceType = AclResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    permission: AclPermission = ALLOW,
    broker: int = 0,
) -> None:
    """Add an ACL through one broker."""
    entry = AclEntry(f"User:{principal}", "*", operation, permission)
    store = cluster.brokers[broker].capabilities.acls
    where = ResourcePattern(resource, name, pattern)
    await store.alter(where, lambda before: before | {entry})


async def revoke(
    cluster: MemoryCluster,
    name: str,
    *,
    resource: AclResourceType = AclResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    broker: int = 0,
) -> None:
    """Remove all ACLs of a pattern through one broker."""
    store = cluster.brokers[broker].capabilities.acls
    await store.alter(ResourcePattern(resource, name, pattern), lambda before: frozenset())
