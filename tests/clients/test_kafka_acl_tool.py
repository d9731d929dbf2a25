"""Kafka's kafka-acls, through a broker and directly through ZooKeeper, and the ACLs that real clients then have.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.clusters.apache_kafka import needs_kafka, run_java
from support.clusters.running_cluster import eventually

from minikafka.base.errors import KafkaError
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

pytestmark = needs_kafka
TOOL = "kafka.admin.AclCommand"
KEYS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:nobody",
}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(2, config=KEYS) as cluster:
        yield cluster


async def allowed(client: Client) -> bool:
    try:
        await client.produce("orders", [Record(value=b"v")], partition=0)
    except KafkaError:
        return False
    return True


async def test_acls_of_kafkas_tool_take_effect_on_every_broker(cluster: LocalCluster) -> None:
    zookeeper = f"--authorizer-properties=zookeeper.connect={cluster.zookeeper}"
    anonymous = ("--allow-principal", "User:ANONYMOUS")
    async with Client(cluster.bootstrap) as client:
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await client.create_topics(NewTopic("orders", 1, 2))
        # directly in ZooKeeper, as an administrator of a cluster does whose ACLs lock everyone out
        cluster_rights = (
            "--operation",
            "Create",
            "--operation",
            "Alter",
            "--operation",
            "Describe",
        )
        cluster_rights += ("--operation", "ClusterAction")
        await run_java(TOOL, zookeeper, "--add", *anonymous, *cluster_rights, "--cluster")

        async def created() -> bool:
            try:
                await client.create_topics(NewTopic("orders", 1, 2))
            except KafkaError:
                return False
            return True

        await eventually(created)
        assert not await allowed(client)
        broker = ("--bootstrap-server", cluster.bootstrap)
        prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed")
        added = await run_java(
            TOOL, *broker, "--add", *anonymous, "--operation", "Write", *prefixed
        )
        assert "operation=WRITE, permissionType=ALLOW" in added
        await eventually(lambda: allowed(client))
        listed = await run_java(
            TOOL, *broker, "--list", "--topic", "orders", "--resource-pattern-type", "match"
        )
        assert "name=ord, patternType=PREFIXED" in listed
        direct = await run_java(TOOL, zookeeper, "--list", "--topic", "ord", *prefixed[2:])
        assert "principal=User:ANONYMOUS, host=*, operation=WRITE" in direct
        await run_java(TOOL, *broker, "--remove", "--force", *prefixed)
        assert "operation=WRITE" not in await run_java(TOOL, *broker, "--list")

        async def denied() -> bool:
            return not await allowed(client)

        await eventually(denied)
