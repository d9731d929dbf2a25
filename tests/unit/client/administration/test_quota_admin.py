"""Quotas through the client, against a broker."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.client.administration.results import Outcome
from minikafka.security.quotas import CONSUMER, DEFAULT, PRODUCER, QuotaEntity
from minikafka.simulation.cluster import MemoryCluster

OK = Outcome(ErrorCode.NONE)
ALICE, ALL_USERS = QuotaEntity("alice"), QuotaEntity(DEFAULT)
BOTH = QuotaEntity("alice", DEFAULT)


async def test_quotas_of_owners_are_described_until_they_are_removed() -> None:
    async with MemoryCluster(1) as cluster, cluster.client() as client:
        assert await client.quotas.alter(ALICE, {PRODUCER: 1000.0, CONSUMER: 2000.0}) == OK
        assert await client.quotas.alter(ALL_USERS, {PRODUCER: 10.0}) == OK
        assert await client.quotas.alter(BOTH, {PRODUCER: 20.0}) == OK
        assert await client.quotas.describe(QuotaEntity()) == {
            ALICE: {PRODUCER: 1000.0, CONSUMER: 2000.0},
            ALL_USERS: {PRODUCER: 10.0},
            BOTH: {PRODUCER: 20.0},
        }
        assert await client.quotas.describe(ALL_USERS) == {ALL_USERS: {PRODUCER: 10.0}}
        assert await client.quotas.alter(ALICE, {PRODUCER: None}) == OK
        assert (await client.quotas.describe(ALICE))[ALICE] == {CONSUMER: 2000.0}
        refused = await client.quotas.alter(ALICE, {"nothing": 1.0})
        assert refused.code is ErrorCode.INVALID_REQUEST
