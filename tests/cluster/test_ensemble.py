"""Brokers on an ensemble of three ZooKeeper servers whose members fail under load."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from support.clusters.controller_writes import audit
from support.clusters.load import PARTITIONS, load
from support.clusters.running_cluster import (
    BROKERS,
    KEYS,
    busiest,
    create_topic,
    eventually,
    heal,
    wait_for_leaders,
)
from support.zookeeper.transaction_log import transactions
from support.zookeeper.zookeepers import heal_servers, make_ensemble

from minikafka.tools.cluster import LocalCluster
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

TICK_MS = 300
TIMES = {"zookeeper.session.timeout.ms": 4_000, "replica.lag.time.max.ms": 3_000}

Ensemble = list[ApacheZooKeeper]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    running = make_ensemble(tmp_path_factory.mktemp("ensemble"), tick_time_ms=TICK_MS)
    try:
        asyncio.run(heal_servers(running))
        yield running
    finally:
        for one in running:
            asyncio.run(one.stop())


@pytest.fixture(scope="module")
def brokers(members: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    connect = ",".join(one.connect for one in members)
    data = tmp_path_factory.mktemp("brokers")
    running = LocalCluster(len(BROKERS), data=data, config=KEYS | TIMES, zookeeper=connect)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        asyncio.run(running.stop())


@pytest.fixture
async def cluster(brokers: LocalCluster, members: Ensemble) -> AsyncIterator[LocalCluster]:
    try:
        yield brokers
    finally:
        await heal_servers(members)
        await heal(brokers)


async def member_of(broker: int, members: Ensemble) -> ApacheZooKeeper | None:
    """Return the ZooKeeper server of `members` to which the broker's session is connected; None without a session.

    After its session has expired, the broker has no session until it registers again.
    """

    def session() -> int | None:
        kazoo = KazooClient(",".join(one.connect for one in members))
        kazoo.start(timeout=15)
        try:
            return int(kazoo.get(layout.broker_path(broker))[1].ephemeralOwner)
        except NoNodeError:
            return None
        finally:
            kazoo.stop()
            kazoo.close()

    owner = await asyncio.to_thread(session)
    if owner is not None:
        for member in members:
            if f"sid={owner:#x}," in await member.four_letter_word("cons", 20_000):
                return member
    return None


async def fail(member: ApacheZooKeeper, fault: str) -> None:
    if fault == "kill":
        await member.kill()
    else:
        member.signal(signal.SIGSTOP)


async def wait_for_move(broker: int, members: Ensemble, away: ApacheZooKeeper) -> None:
    """Wait until the broker's session is connected to a server other than `away`."""
    others = [member for member in members if member is not away]

    async def is_on_another() -> bool:
        return await member_of(broker, others) is not None

    await eventually(is_on_another)


async def wait_until_all_serve(cluster: LocalCluster) -> None:
    """Wait until every broker is registered again: the creation of a topic counts the registered brokers."""

    async def all_serve() -> bool:
        return not (await cluster.state()).not_serving(BROKERS)

    await eventually(all_serve)


@pytest.mark.parametrize("fault", ["kill", "pause"])
@pytest.mark.parametrize("whose", ["the controller", "another broker"])
async def test_cluster_survives_the_loss_of_the_zookeeper_server_that_a_broker_uses(
    cluster: LocalCluster, members: Ensemble, fault: str, whose: str
) -> None:
    topic = f"{whose}-{fault}".replace(" ", "-")
    async with load(cluster, topic):
        controller = (await cluster.state()).controller
        assert controller is not None
        broker = controller if whose == "the controller" else controller % len(BROKERS) + 1
        while (away := await member_of(broker, members)) is None:  # noqa: ASYNC110 - its session moves
            await asyncio.sleep(0.05)
        await fail(away, fault)
        await wait_for_move(broker, members, away)
        await wait_until_all_serve(cluster)
        await create_topic(cluster, f"{topic}-meanwhile")
        victim = await busiest(cluster)
        await cluster.kill(victim)
        await wait_for_leaders(cluster, [topic], PARTITIONS, victim)
        await heal_servers(members)


async def test_cluster_recovers_when_the_quorum_returns(
    cluster: LocalCluster, members: Ensemble
) -> None:
    async with load(cluster, "no-quorum"):
        for member in members[:2]:
            await member.kill()
        await asyncio.sleep(TIMES["replica.lag.time.max.ms"] / 1000)
        await heal_servers(members)
        await wait_until_all_serve(cluster)
        await create_topic(cluster, "no-quorum-after")
        await cluster.kill(await busiest(cluster))


async def test_earlier_tests_of_this_module_had_one_controller_writing_at_a_time(
    cluster: LocalCluster, members: Ensemble
) -> None:
    found = audit(transactions(*(member.data_dir for member in members)))
    assert found.faults == []
    assert found.elections >= 1
