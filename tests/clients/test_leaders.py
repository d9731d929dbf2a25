"""Clients in the leader-coordinated mode while the leader and the coordinator die.

The scenarios are those of the controller mode. With `pytest --coordination leaders`, the whole client matrix and most
other tests of this folder run in this mode.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator

import pytest
from clients import test_failover, test_matrix
from clients.test_matrix import commands, driver
from support.clients.client_drivers import CLIENTS, Driver, MatrixClient
from support.clusters.running_cluster import BROKERS, KEYS, heal
from support.ledger.invariants import check_ledgers
from support.rows import proof

from minikafka.base.coordination import LEADERS
from minikafka.tools.cluster import LocalCluster

__all__ = ["commands", "driver"]

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SESSION_MS = 1_500
"""A death is noticed when the session ends."""
CHOSEN = tuple(client for client in CLIENTS if client.name in ("aiokafka", "franz-go"))


@pytest.fixture(params=CHOSEN, ids=[client.name for client in CHOSEN])
def client(request: pytest.FixtureRequest) -> MatrixClient:
    chosen: MatrixClient = request.param
    return chosen


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("leaders")
    keys = {**KEYS, "zookeeper.session.timeout.ms": SESSION_MS}
    running = LocalCluster(len(BROKERS), data=data, config=keys, coordination=LEADERS)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        asyncio.run(running.stop())
    check_ledgers(data)


@pytest.fixture
async def cluster(shared: LocalCluster) -> AsyncIterator[LocalCluster]:
    proof.note(proof.Level.REAL, LEADERS)
    try:
        yield shared
    finally:
        await heal(shared)
        gc.collect()


async def test_acknowledged_records_of_every_client_survive_a_killed_leader(
    cluster: LocalCluster,
) -> None:
    await test_failover.test_acknowledged_records_of_every_client_survive_a_fault(cluster, "kill")


async def test_no_acknowledged_record_is_lost_when_leader_and_coordinator_die(
    client: MatrixClient, driver: Driver, cluster: LocalCluster
) -> None:
    scenario = test_matrix.test_no_acknowledged_record_is_lost_when_leader_and_coordinator_die
    await scenario(client, driver, cluster)
