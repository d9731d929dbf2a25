"""ACLs through the client, against brokers with and without an authorizer."""

from __future__ import annotations

import pytest
from support.security.secured import secured

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
    ResourcePattern,
)
from minikafka.simulation.cluster import MemoryCluster

ALL = AclFilter(
    PatternFilter(AclResourceType.ANY, None, PatternType.ANY),
    None,
    None,
    AclOperation.ANY,
    AclPermission.ANY,
)


def acl(
    principal: str,
    name: str,
    pattern: PatternType = PatternType.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResourceType.TOPIC, name, pattern),
        AclEntry(principal, "10.0.0.1", AclOperation.READ, permission),
    )


ALICE, BOB = acl("User:alice", "orders"), acl("User:bob", "ord", PatternType.PREFIXED)
EVE = acl("User:eve", "orders", permission=AclPermission.DENY)


async def test_created_acls_are_described_until_they_are_deleted() -> None:
    async with secured() as cluster, cluster.client() as client:
        created = await client.acls.create([EVE, BOB, ALICE])
        assert list(created) == [EVE, BOB, ALICE]
        assert all(outcome.ok for outcome in created.values())
        assert await client.acls.describe(ALL) == sorted([ALICE, BOB, EVE])
        concerning = ALL._replace(
            pattern=PatternFilter(AclResourceType.TOPIC, "ord", PatternType.MATCH)
        )
        assert await client.acls.describe(concerning) == [BOB]
        deleted = await client.acls.delete([ALL._replace(principal="User:bob"), concerning])
        assert list(deleted) == [BOB]
        assert await client.acls.describe(ALL) == sorted([ALICE, EVE])


async def test_a_refused_acl_does_not_keep_others_from_being_created() -> None:
    unnamed = acl("User:alice", "")
    async with secured() as cluster, cluster.client() as client:
        created = await client.acls.create([unnamed, ALICE])
        assert created[unnamed].code is ErrorCode.INVALID_REQUEST
        assert created[unnamed].reason == "Invalid empty resource name"
        assert await client.acls.describe(ALL) == [ALICE]


async def test_brokers_without_an_authorizer_refuse_each_request() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        assert (await client.acls.create([ALICE]))[ALICE].code is ErrorCode.SECURITY_DISABLED
        for refused in (client.acls.describe(ALL), client.acls.delete([ALL])):
            with pytest.raises(KafkaError, match="SECURITY_DISABLED: No Authorizer is configured"):
                await refused
