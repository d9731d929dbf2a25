"""Every API answers users with and without rights with the error codes of Apache Kafka 3.9."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from support.kafka.peer import Peer
from support.security import right_scenes as scenes
from support.until import until

from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import NAMES, OWN, SERVED
from minikafka.simulation.cluster import MemoryCluster

DIFFERENT = {
    "OffsetFetch v1": ("none", "only-DESCRIBE-TOPIC"),
    "Fetch replica-of-old-version": ("all", "half", "only-CLUSTER_ACTION-CLUSTER"),
}
"""Request → the users whose answers are different on purpose.

OffsetFetch: each partition has the error of the group, which Kafka leaves out. Fetch: a broker that holds no replica
may read with an old version, which brokers here do not send.
"""
pytestmark = pytest.mark.usefixtures("each_mode")
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


async def send(cluster: MemoryCluster, user: str, frame: bytes) -> bytes | None:
    """Send a request as this user on a new connection; return the response, None if the connection was closed."""
    peer = Peer()
    await cluster.transport.connect(lambda: peer, "127.0.0.1", 9092 + scenes.BROKER_ID)
    listener = cluster.brokers[scenes.BROKER_ID].listener
    connection = next(reversed(listener._connections))
    connection.client.principal = f"User:{user}"
    connection.client.listener = "LOGIN"
    peer.link.send([frame])
    await until(lambda: peer.is_closed or bool(peer.frames()))
    frames = peer.frames()
    peer.link.abort()
    return frames[0] if frames else None


async def answered() -> list[str]:
    """Return the facts about the answers of a broker in memory."""
    keys = {
        "authorizer_class_name": AUTHORIZER,
        "super_users": f"User:ANONYMOUS;User:{scenes.ADMIN}",
        "offsets_topic_num_partitions": 1,
        "offsets_topic_replication_factor": 1,
        "transaction_state_log_num_partitions": 1,
        "transaction_state_log_replication_factor": 1,
        "transaction_state_log_min_isr": 1,
        "group_initial_rebalance_delay_ms": 0,
        "delegation_token_secret_key": scenes.TOKEN_SECRET,
        "listeners": f"PLAINTEXT://127.0.0.1:{9092 + scenes.BROKER_ID},LOGIN://127.0.0.1:9999",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256",
    }
    ids = range(scenes.BROKER_ID, scenes.BROKER_ID + 1)
    found: list[str] = []
    async with asyncio.timeout(300), MemoryCluster(ids=ids, **keys) as cluster:

        async def ask(api: int, version: int, **values: Any) -> Any:
            frame = encode_request(api, version, 7, "a", request(api, version, **values))
            data = await send(cluster, scenes.ADMIN, frame)
            assert data is not None
            return decode_response(api, version, data)

        known = await scenes.prepare(ask, {user: user for user in scenes.USERS})
        for scene in scenes.SCENES:
            for user in scenes.users_of(scenes.name_of(scene.api)):
                data = await send(cluster, user, scene.frame(user, known))
                facts = ["closed"] if data is None else scenes.facts(scene, data, known)
                found += scenes.lines(scene, user, facts)
    return found


async def test_every_api_answers_with_kafkas_codes_for_each_right() -> None:
    kafka, ours = facts_by_request(scenes.FILE.read_text().splitlines()), await answered()
    found = facts_by_request(ours)
    differing = {
        one: {"kafka": kafka[one] - found[one], "ours": found[one] - kafka[one]}
        for one in kafka.keys() | found.keys()
        if kafka[one] != found[one]
    }
    expected = {f"{name} {user}" for name, users in DIFFERENT.items() for user in users}
    assert {one: differing[one] for one in differing.keys() - expected} == {}
    assert differing.keys() == expected


def facts_by_request(lines: list[str]) -> defaultdict[str, set[str]]:
    """Return the facts by request and user."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        api, name, user, fact = line.split(" ", 3)
        found[f"{api} {name} {user}"].add(fact)
    return found


def test_recorded_facts_have_each_api_and_each_right() -> None:
    asked = {tuple(line.split(" ", 3)[::2]) for line in scenes.FILE.read_text().splitlines()}
    of_logins = {"SaslHandshake", "SaslAuthenticate"}
    assert {api for api, _ in asked} == {NAMES[api] for api in SERVED.keys() - OWN} - of_logins
    assert {one for one, _ in asked} == {scenes.name_of(scene.api) for scene in scenes.SCENES}
    assert {user for api, user in asked if api == "Produce"} == set(scenes.users_of("Produce"))
