"""InspectBroker needs the right Describe on the cluster, and tells nothing without it."""

from __future__ import annotations

import asyncio
import json

import pytest
from support.kafka.peer import Peer
from support.until import until

from minikafka.base.errors import ErrorCode
from minikafka.client import NewTopic
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import INSPECT_BROKER
from minikafka.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from minikafka.simulation.cluster import MemoryCluster

pytestmark = pytest.mark.usefixtures("each_mode")
SECRET = "a secret of the cluster"
KEYS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "offsets_topic_replication_factor": 1,
    "offsets_topic_num_partitions": 1,
    "minikafka_cluster_secret": SECRET,
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9999",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "listener_name_login_plain_sasl_jaas_config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="bobs password";'
    ),
}
QUESTIONS = (
    ("state", {}),
    ("explain", {"topic": "t", "partition": 0}),
    ("explain_group", {"group": "g"}),
    ("plan", {"operation": "kill-broker", "broker": 0}),
    ("ledger", {}),
)
REFUSED = {"controller": [], "leaders": ["plan"]}
"""The questions that the brokers of a mode cannot answer."""


async def inspect(cluster: MemoryCluster, user: str, question: str, argument: object) -> bytes:
    """Ask as this user on a new connection; return the response."""
    peer = Peer()
    await cluster.transport.connect(lambda: peer, "127.0.0.1", 9092)
    connection = next(reversed(cluster.brokers[0].listener._connections))
    connection.client.principal = f"User:{user}"
    body = request(INSPECT_BROKER, 0, question=question, argument=json.dumps(argument))
    peer.link.send([encode_request(INSPECT_BROKER, 0, 7, "a", body)])
    await until(lambda: peer.is_closed or bool(peer.frames()))
    [frame] = peer.frames()
    peer.link.abort()
    return frame


async def test_user_without_the_right_learns_nothing_and_one_with_it_learns_no_secret() -> None:
    async with asyncio.timeout(60), MemoryCluster(1, **KEYS) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 1))
            pattern = ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
            every = ResourcePattern(AclResourceType.TOPIC, "*", PatternType.LITERAL)
            allow = AclPermission.ALLOW
            outcomes = await client.acls.create(
                [
                    AclBinding(pattern, AclEntry("User:bob", "*", AclOperation.DESCRIBE, allow)),
                    AclBinding(every, AclEntry("User:eve", "*", AclOperation.ALL, allow)),
                ]
            )
            assert all(outcome.ok for outcome in outcomes.values())
        for question, argument in QUESTIONS:
            denied = await inspect(cluster, "eve", question, argument)
            answer = decode_response(INSPECT_BROKER, 0, denied)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert (answer.rows, answer.next_position) == ((), "")
            given = await inspect(cluster, "bob", question, argument)
            answer = decode_response(INSPECT_BROKER, 0, given)
            assert bool(answer.rows) == (question not in REFUSED[cluster.coordination])
            assert answer.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert SECRET.encode() not in given
            assert b"bobs password" not in given
