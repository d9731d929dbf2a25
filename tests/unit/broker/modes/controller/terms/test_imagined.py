"""The imagined ZooKeeper and brokers with which a plan is made. The real ZooKeeper and brokers do not change."""

from __future__ import annotations

import random

import pytest
from support.endpoints import endpoints
from support.memory_zookeeper_client import Ensemble, MemoryZooKeeper
from support.until import until

from minikafka.base.errors import MultiFailed, NoNode
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
    Stat,
    WatchKind,
    ZooKeeper,
)
from minikafka.broker.modes.controller.terms.imagined import ImaginedChannels, ImaginedStore


@pytest.fixture
def ensemble() -> Ensemble:
    ensemble = Ensemble()
    ensemble.put("/a", b"real")
    ensemble.put("/a/x", b"")
    return ensemble


@pytest.fixture
def store(ensemble: Ensemble) -> ImaginedStore:
    zookeeper = MemoryZooKeeper(ensemble)
    zookeeper.attach()
    return ImaginedStore(zookeeper)


async def test_imagined_store_returns_its_writes_and_leaves_zookeeper_unchanged(
    store: ImaginedStore, ensemble: Ensemble
) -> None:
    stats = await store.multi(
        [Check("/e", 4), Set("/a", b"new", 7), Create("/a/y", b"z"), Delete("/a/x", -1)]
    )
    assert [stat.version if stat else None for stat in stats] == [None, 8, 0, None]
    assert (await store.get("/a"))[0] == b"new"
    assert await store.children_many(["/a", "/nowhere"]) == [["y"], None]
    assert await store.exists("/a/x") is None
    assert ensemble.nodes["/a"].data == b"real"
    assert "/a/y" not in ensemble.nodes


async def test_imagined_store_reads_nodes_that_it_did_not_write_from_zookeeper(
    store: ImaginedStore,
) -> None:
    assert (await store.get("/a"))[0] == b"real"
    assert await store.get_many(["/a/x", "/b"]) == [(b"", (await store.get("/a/x"))[1]), None]
    with pytest.raises(NoNode):
        await store.get("/b")
    with pytest.raises(NoNode):
        await store.children("/b")


@pytest.mark.parametrize("seed", range(5))
async def test_imagined_store_and_zookeeper_return_the_same_after_the_same_writes(
    store: ImaginedStore, seed: int
) -> None:
    """The store does not check versions, so only multis that ZooKeeper accepts are applied."""
    zookeeper = MemoryZooKeeper(Ensemble())
    zookeeper.attach()
    await zookeeper.create("/a", b"real")
    await zookeeper.create("/a/x", b"")
    chance = random.Random(seed)
    paths = ["/a", "/a/x", "/a/y", "/a/x/z", "/b", "/b/c"]
    accepted = 0
    for number in range(200):
        ops = [
            random_write(chance, paths, zookeeper.ensemble) for _ in range(chance.choice((1, 2)))
        ]
        try:
            stats = await zookeeper.multi(ops)
        except MultiFailed:
            continue
        accepted += 1
        imagined = await store.multi(ops)
        assert versions(imagined) == versions(stats), f"seed {seed}, write {number}: {ops}"
        assert await seen(store, paths) == await seen(zookeeper, paths)
    assert accepted > 20


def random_write(chance: random.Random, paths: list[str], ensemble: Ensemble) -> MultiOp:
    """Return a random Create, Set, Delete or Check of one of the paths.

    The expected version is the node's current version; for a Delete it may also be -1 (any version).
    """
    path = chance.choice(paths)
    version = ensemble.nodes[path].version if path in ensemble.nodes else 0
    kinds: list[MultiOp] = [
        Create(path, chance.randbytes(2)),
        Set(path, chance.randbytes(2), version),
        Delete(path, chance.choice((-1, version))),
        Check(path, version),
    ]
    return chance.choice(kinds)


def versions(stats: list[Stat | None]) -> list[int | None]:
    return [stat and stat.version for stat in stats]


async def seen(zookeeper: ZooKeeper, paths: list[str]) -> object:
    """Read the paths; return their data, versions and children."""
    nodes = await zookeeper.get_many(paths)
    data = [node and (node.data, node.stat.version) for node in nodes]
    return data, await zookeeper.children_many(paths)


async def test_imagined_store_returns_a_put_node_and_no_longer_lists_a_removed_child(
    store: ImaginedStore,
) -> None:
    store.put("/a", b"theirs", 5)
    store.remove("/a/x")
    data, stat = await store.get("/a")
    assert (data, stat.version) == (b"theirs", 5)
    assert (await store.children("/a"))[0] == []


async def test_imagined_store_returns_none_as_the_children_of_a_removed_node(
    store: ImaginedStore,
) -> None:
    store.remove("/a")
    assert await store.children_many(["/a"]) == [None]


async def test_watch_of_the_imagined_store_does_not_fire_when_a_node_changes(
    store: ImaginedStore, ensemble: Ensemble
) -> None:
    real = MemoryZooKeeper(ensemble)
    real.attach()
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
