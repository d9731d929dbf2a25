"""The cluster id in ZooKeeper, compared with that of a broker's log directories, at every session."""

from __future__ import annotations

import asyncio

import pytest
from support.until import until

from minikafka.base.errors import ClusterLost
from minikafka.base.ports import SessionState
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.zookeeper import CONNECT, PORT, ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import ids, layout

KNOWN = "iDeNtItYiDeNtItYiDeNtA"
OTHER = "oThErOtHeRoThErOtHeRoA"


class Follower:
    """A client that knows the id of its cluster. `crashes`: the errors of its tasks."""

    def __init__(self, zookeeper: ZooKeeperInMemory, connect: str = CONNECT) -> None:
        self.crashes: list[Exception] = []
        tasks = TaskRegistry(lambda _, error: self.crashes.append(error))
        self.client = InMemoryClient(zookeeper, tasks=tasks, connect=connect)

    async def start(self) -> None:
        await self.client.start()
        assert await ids.cluster_id(self.client, lambda: bytes(16)) == KNOWN


async def replace(zookeeper: ZooKeeperInMemory, cluster_id: str | None, writes: int = 0) -> None:
    """Put another server in the place of the running one. It has a cluster, and this number of other writes."""
    await zookeeper.close()
    zookeeper._renew()
    await zookeeper.start()
    for number in range(writes):
        zookeeper.put(f"/write-{number}", b"")
    if cluster_id is not None:
        zookeeper.put(layout.CLUSTER_ID, layout.encode_cluster_id(cluster_id))


@pytest.fixture
def zookeeper() -> ZooKeeperInMemory:
    zookeeper = ZooKeeperInMemory()
    for number in range(20):
        zookeeper.put(f"/before-{number}", b"")
    zookeeper.put(layout.CLUSTER_ID, layout.encode_cluster_id(KNOWN))
    return zookeeper


async def test_broker_accepts_the_cluster_of_its_log_directories(
    zookeeper: ZooKeeperInMemory,
) -> None:
    client = InMemoryClient(zookeeper)
    await ids.verify(client, KNOWN)
    assert await ids.cluster_id(client, lambda: bytes(16)) == KNOWN


@pytest.mark.parametrize("found", [None, OTHER])
async def test_broker_refuses_a_zookeeper_without_its_cluster_and_writes_nothing(
    found: str | None,
) -> None:
    zookeeper = ZooKeeperInMemory()
    if found:
        zookeeper.put(layout.CLUSTER_ID, layout.encode_cluster_id(found))
    client = InMemoryClient(zookeeper)
    with pytest.raises(ClusterLost, match=f"cluster {KNOWN}.*minikafka zk recover"):
        await ids.verify(client, KNOWN)
    assert await client.exists(layout.CLUSTER_ID) is None or found
    assert await client.exists(layout.COORDINATION) is None


async def test_new_broker_joins_an_empty_zookeeper(caplog: pytest.LogCaptureFixture) -> None:
    client = InMemoryClient(ZooKeeperInMemory())
    await ids.verify(client, None)
    for _ in range(2):
        assert await ids.cluster_id(client, lambda: bytes(16), "h:1/x") == "AAAAAAAAAAAAAAAAAAAAAA"
    assert [text.partition(";")[0] for text in caplog.messages] == [
        "zookeeper.connect = h:1/x: below the chroot was no cluster, so a new one begins"
    ]


@pytest.mark.parametrize("found", [None, OTHER])
@pytest.mark.parametrize("writes", [0, 60])  # below and above what the client has seen
async def test_client_ends_when_another_zookeeper_takes_the_place_of_its_own(
    zookeeper: ZooKeeperInMemory, found: str | None, writes: int
) -> None:
    follower = Follower(zookeeper)
    await follower.start()
    await replace(zookeeper, found, writes)
    follower.client.reconnect()
    async with asyncio.timeout(10):
        await until(lambda: bool(follower.crashes))
    assert isinstance(follower.crashes[0], ClusterLost)
    assert follower.client.state is not SessionState.CONNECTED
    assert follower.client.generation == 1


@pytest.mark.parametrize("writes", [0, 60])
async def test_client_keeps_on_when_its_cluster_is_still_there(
    zookeeper: ZooKeeperInMemory, writes: int, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(zookeeper)
    await follower.start()
    await replace(zookeeper, KNOWN, writes)
    follower.client.reconnect()
    if writes:
        await until(lambda: follower.client.generation == 2)
    else:
        await until(lambda: "its data are older than those that this broker" in caplog.text)
    assert follower.crashes == []
    direct_writes, own = 1, 1 if writes else 0
    await until(lambda: len(zookeeper.state.sessions.open) == direct_writes + own)


async def test_expired_session_is_followed_by_a_verified_one(zookeeper: ZooKeeperInMemory) -> None:
    follower = Follower(zookeeper)
    await follower.start()
    for generation in (2, 3):
        await follower.client.expire()
        await follower.client.attach()
        assert await follower.client.connected() == generation
    zookeeper.delete(layout.CLUSTER_ID)
    await follower.client.expire()
    follower.client.gate.release()
    async with asyncio.timeout(10):
        await until(lambda: bool(follower.crashes))
    assert follower.client.generation == 3


async def test_one_server_without_the_cluster_does_not_end_the_client(
    zookeeper: ZooKeeperInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """The other server of the ensemble is down, and may have the cluster."""
    follower = Follower(zookeeper, f"memory:{PORT},memory:{PORT + 1}")
    await follower.start()
    await replace(zookeeper, None)
    follower.client.reconnect()
    async with asyncio.timeout(10):
        await until(lambda: caplog.text.count("ZooKeeper has no node /cluster/id") >= 2)
    assert follower.crashes == []
