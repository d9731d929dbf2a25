"""The imagined ZooKeeper and brokers with which a plan is made. The real ZooKeeper and brokers do not change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from support.brokers.endpoints import endpoints
from support.until import until

from minikafka.base.errors import (
    BadArguments,
    BadVersion,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    ServerVerdict,
    StaleSession,
    TooLarge,
)
from minikafka.base.model import (
    Broker,
    ControllerRequest,
    ControllerResponse,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import (
    Check,
    Create,
    Delete,
    MultiOp,
    Set,
    WatchKind,
    Znode,
    ZooKeeper,
)
from minikafka.broker.modes.controller.terms.imagined import ImaginedChannels, ImaginedStore
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient


@pytest.fixture
def ensemble() -> ZooKeeperInMemory:
    ensemble = ZooKeeperInMemory()
    ensemble.put("/a", b"real")
    ensemble.put("/a/x", b"")
    return ensemble


@pytest.fixture
async def real(ensemble: ZooKeeperInMemory) -> InMemoryClient:
    zookeeper = InMemoryClient(ensemble)
    await zookeeper.attach()
    return zookeeper


@pytest.fixture
def store(real: InMemoryClient) -> ImaginedStore:
    return ImaginedStore(real, ManualClock())


async def test_imagined_store_returns_its_writes_and_leaves_zookeeper_unchanged(
    store: ImaginedStore, ensemble: ZooKeeperInMemory
) -> None:
    ensemble.put("/a", b"real")
    before = {path: (node.data, node.stat()) for path, node in ensemble.nodes.items()}
    stats = await store.multi(
        [Check("/a/x", 0), Set("/a", b"new", 1), Create("/a/y", b"z"), Delete("/a/x", -1)]
    )
    assert [stat.version if stat else None for stat in stats] == [None, 2, 0, None]
    assert (await store.get("/a"))[0] == b"new"
    assert await store.children_many(["/a", "/nowhere"]) == [["y"], None]
    assert await store.exists("/a/x") is None
    assert {path: (node.data, node.stat()) for path, node in ensemble.nodes.items()} == before


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (Set("/a", b"", 0), BadVersion),
        (Check("/a", 0), BadVersion),
        (Set("/b", b"", -1), NoNode),
        (Delete("/b", -1), NoNode),
        (Delete("/a/x", 1), BadVersion),
        (Delete("/a", -1), NotEmpty),
        (Create("/a/x", b""), NodeExists),
        (Create("/b/c", b""), NoNode),
        (Create("/owned/c", b""), NoChildrenForEphemerals),
        (Create("/a/", b""), BadArguments),
        (Create("/a/..", b""), BadArguments),
    ],
)
async def test_imagined_store_refuses_a_multi_that_zookeeper_refuses(
    store: ImaginedStore, real: InMemoryClient, refused: MultiOp, error: type[ServerVerdict]
) -> None:
    await real.create("/owned", b"", ephemeral=True)
    ops = [Set("/a", b"new", 0), Create("/a/y", b""), refused]
    for zookeeper in (store, real):
        with pytest.raises(MultiFailed) as failed:
            await zookeeper.multi(ops)
        assert (failed.value.index, type(failed.value.error)) == (2, error)
        assert await seen(zookeeper, ["/a", "/a/x", "/a/y"]) == (
            [(b"real", 0), (b"", 0), None],
            [["x"], [], None],
        )


async def test_imagined_store_numbers_a_sequential_node_as_zookeeper_does(
    store: ImaginedStore, real: InMemoryClient
) -> None:
    """/a has had one child, so the next number is 1. A node of another client already has the number 2."""
    await real.create("/a/n-0000000003", b"")
    ops = [Create("/a/n-", b"", sequential=True)]
    for zookeeper in (store, real):
        await zookeeper.multi(ops)
        with pytest.raises(MultiFailed) as failed:
            await zookeeper.multi(ops)
        assert type(failed.value.error) is NodeExists
        assert (await zookeeper.children("/a"))[0] == ["n-0000000002", "n-0000000003", "x"]


async def test_imagined_store_refuses_a_write_of_another_session_and_a_large_one(
    store: ImaginedStore,
) -> None:
    assert await store.multi([Set("/a", b"new", 0)], generation=1)
    with pytest.raises(StaleSession):
        await store.multi([Set("/a", b"", -1)], generation=2)
    with pytest.raises(TooLarge):
        await store.multi([Set("/a", bytes(1024 * 1024), -1)])
    assert (await store.get("/a")).data == b"new"


async def test_imagined_store_agrees_with_nodes_that_change_while_it_reads_them(
    store: ImaginedStore, ensemble: ZooKeeperInMemory
) -> None:
    assert await store.exists("/a/x")
    assert await store.exists("/a/y") is None
    ensemble.delete("/a/x")
    ensemble.put("/a/y")
    await store.multi([Delete("/a/x", 0), Create("/a/y", b"ours")])
    assert await store.children_many(["/a", "/a/x"]) == [["y"], None]
    await store.multi([Delete("/a/y", 0), Delete("/a", 0)])


async def test_imagined_store_reads_nodes_that_it_did_not_write_from_zookeeper(
    store: ImaginedStore,
) -> None:
    assert (await store.get("/a"))[0] == b"real"
    assert await store.get_many(["/a/x", "/b"]) == [(b"", (await store.get("/a/x"))[1]), None]
    with pytest.raises(NoNode):
        await store.get("/b")
    with pytest.raises(NoNode):
        await store.children("/b")


async def test_imagined_store_keeps_a_write_that_overtakes_a_read_of_the_same_node(
    store: ImaginedStore, real: InMemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_many, gate = real.get_many, asyncio.Event()

    async def held(paths: Sequence[str]) -> list[Znode | None]:
        nodes = await get_many(paths)
        await gate.wait()
        return nodes

    with monkeypatch.context() as patch:
        patch.setattr(real, "get_many", held)
        reading = asyncio.ensure_future(store.get("/a"))
        await asyncio.sleep(0)
    await store.multi([Set("/a", b"new", 0)])
    gate.set()
    assert (await reading).data == b"new"


@pytest.mark.parametrize("seed", range(10))
async def test_imagined_store_and_zookeeper_answer_the_same_writes_equally(
    store: ImaginedStore, seed: int
) -> None:
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.attach()
    await zookeeper.create("/a", b"real")
    await zookeeper.create("/a/x", b"")
    chance = random.Random(seed)
    paths = ["/a", "/a/x", "/a/y", "/a/x/z", "/b", "/b/c"]
    accepted = 0
    for number in range(200):
        ops = [random_write(chance, paths, zookeeper.server) for _ in range(chance.randint(1, 3))]
        answer = await outcome(zookeeper, ops)
        accepted += isinstance(answer, list)
        assert await outcome(store, ops) == answer, f"seed {seed}, write {number}: {ops}"
        read = chance.sample(paths, 2)
        assert await seen(store, read) == await seen(zookeeper, read), f"seed {seed}, {number}"
    assert 20 < accepted < 180


def random_write(chance: random.Random, paths: list[str], ensemble: ZooKeeperInMemory) -> MultiOp:
    """Return a random Create, Set, Delete or Check of one of the paths, at times with a wrong version."""
    path = chance.choice(paths)
    version = ensemble.nodes[path].version if path in ensemble.nodes else 0
    version = chance.choice((-1, version, version, version, version + 1))
    kinds: list[MultiOp] = [
        Create(path, chance.randbytes(2), sequential=chance.random() < 0.1),
        Create(path, chance.randbytes(2), ephemeral=chance.random() < 0.1),
        Set(path, chance.randbytes(2), version),
        Delete(path, version),
        Check(path, version),
    ]
    return chance.choice(kinds)


async def outcome(zookeeper: ZooKeeper, ops: list[MultiOp]) -> object:
    """Return the parts of the Stats that do not depend on other clients, or the index and type of the error."""
    try:
        stats = await zookeeper.multi(ops)
    except MultiFailed as failed:
        return failed.index, type(failed.error)
    return [
        stat and stat._replace(czxid=0, mzxid=0, ctime=0, mtime=0, pzxid=0, ephemeral_owner=owned)
        for stat in stats
        for owned in [bool(stat and stat.ephemeral_owner)]
    ]


async def seen(zookeeper: ZooKeeper, paths: list[str]) -> object:
    """Read the paths; return their data, versions and children."""
    nodes = await zookeeper.get_many(paths)
    data = [node and (node.data, node.stat.version) for node in nodes]
    return data, await zookeeper.children_many(paths)


async def test_imagined_store_returns_a_put_node_and_no_longer_lists_a_removed_child(
    store: ImaginedStore,
) -> None:
    await store.put("/a", b"theirs")
    await store.remove("/a/x")
    await store.remove("/a/x")
    data, stat = await store.get("/a")
    assert (data, stat.version) == (b"theirs", 1)
    assert (await store.children("/a"))[0] == []
    await store.put("/b", b"new")
    assert (await store.get("/b")).data == b"new"


async def test_imagined_store_returns_none_as_the_children_of_a_removed_node(
    store: ImaginedStore,
) -> None:
    await store.remove("/a/x")
    await store.remove("/a")
    assert await store.children_many(["/a"]) == [None]


async def test_watch_of_the_imagined_store_does_not_fire_when_a_node_changes(
    store: ImaginedStore, ensemble: ZooKeeperInMemory
) -> None:
    real = InMemoryClient(ensemble)
    await real.attach()
    fired: list[str] = []
    for name, session in (("real", real), ("imagined", store)):
        session.watch(WatchKind.DATA, "/a").on_signal(lambda _, name=name: fired.append(name))
        await session.get("/a", watch=True)
    await store.multi([Set("/a", b"imagined", 0)])
    ensemble.put("/a", b"changed")
    await until(lambda: fired)
    assert fired == ["real"]


def test_imagined_channels_answer_with_success_unless_the_broker_was_removed() -> None:
    channels = ImaginedChannels()
    channels.add(Broker(1, endpoints("h", 1, "h", 2)))
    told: list[tuple[int, ControllerRequest, ControllerResponse]] = []
    tp = TopicPartition("t", 0)
    stop = StopReplicaRequest(1, 1, 1, (StopReplicaPartition(tp, 1, delete=True),))
    metadata = UpdateMetadataRequest(1, 1, 1, (), (), ())
    channels.send(1, stop, lambda *found: told.append(found))
    channels.send(2, metadata, lambda *found: told.append(found))
    channels.send(3, metadata, lambda *found: told.append(found))
    channels.remove(3)
    assert channels.answer()
    assert told == [
        (1, stop, ControllerResponse(0, ((tp, 0),))),
        (2, metadata, ControllerResponse(0)),
    ]
    assert not channels.answer()
