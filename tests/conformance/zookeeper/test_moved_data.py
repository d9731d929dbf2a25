"""Data directories that move between minikafka's ZooKeeper server and Apache ZooKeeper: nothing changes."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import Create
from kazoo.security import make_acl, make_digest_acl
from support.zookeeper.server_states import RandomWrites, new_state
from support.zookeeper.zookeepers import make_ensemble

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.storage import DiskStorage
from minikafka.tools.cli.zk import zk
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.store.store import Store

LONG_TICK_MS = 20_000
"""Sessions last at least 40 s, so that none expires during a test."""


class Seen(NamedTuple):
    """One node as a client sees it."""

    stat: tuple[int, ...]
    data: bytes | None
    acl: tuple[tuple[int, str, str], ...]


class CreateContainer(Create):
    """The request of a Java client for a container: the one of `create`, with another number."""

    type = 19
    CONTAINER_FLAG = 4


def nodes_of(state: ServerState) -> dict[str, Seen]:
    return {
        path: Seen(tuple(node.stat()), node.data, node.acl)
        for path, node in state.tree.nodes.items()
    }


def read_all(client: KazooClient, path: str = "/") -> dict[str, Seen]:
    """Return all nodes of a server, read by a client of ZooKeeper."""
    data, stat = client.get(path)
    acl = tuple((entry.perms, entry.id.scheme, entry.id.id) for entry in client.get_acls(path)[0])
    found = {path: Seen(tuple(stat), data, acl)}
    for name in client.get_children(path):
        found.update(read_all(client, f"{path.rstrip('/')}/{name}"))
    return found


def without_config(nodes: dict[str, Seen]) -> dict[str, Seen]:
    """Return the nodes without the one in which an ensemble has its members, which is not always stored."""
    return {path: node for path, node in nodes.items() if path != "/zookeeper/config"}


def written_data(directory: Path, seed: int) -> ServerState:
    """Write snapshots and a log as a server does; return the state."""
    state = new_state(LONG_TICK_MS)
    store = Store(DiskStorage(), str(directory))
    store.recover(state)
    writes = RandomWrites(state, Random(seed))
    for number in range(60):
        for _ in range(10):
            writes.step()
        store.append(state.journal)
        state.journal.clear()
        store.sync()
        if number % 12 == 7:
            store.roll()
            store.write_snapshot(state)
            store.purge()
    store.close()
    return state


def recovered(directory: Path) -> ServerState:
    state = new_state()
    store = Store(DiskStorage(), str(directory))
    store.recover(state)
    store.close()
    return state


def move(*arguments: object) -> Any:
    result = CliRunner().invoke(zk, [*map(str, arguments), "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


def write_of_every_kind(client: KazooClient, other: KazooClient) -> None:
    """Make changes of every kind, also refused ones. `other` ends its session."""
    for name in ("/m", "/m/a", "/m/b", "/m/c"):
        client.create(name, b"value")
    client.create("/m/ephemeral", ephemeral=True)
    client.create("/m/sequential-", ephemeral=True, sequence=True)
    client.create("/m/null", None)
    client.set("/m/a", b"changed")
    client.set_acls(
        "/m/b", [make_digest_acl("u", "p", all=True), make_acl("world", "anyone", read=True)]
    )
    client.delete("/m/c")
    everyone = [make_acl("world", "anyone", all=True)]
    container = CreateContainer("/m/container", b"", everyone, CreateContainer.CONTAINER_FLAG)
    waiting = client.handler.async_result()
    client._call(container, waiting)
    waiting.get()
    client.create("/m/container/child")
    for path in ("/m", "/none/none"):
        with suppress(KazooException):
            client.create(path)
    for version in (1, 9):  # the second multi is refused
        multi = client.transaction()
        multi.create("/m/multi-", sequence=True)
        multi.check("/m/a", version)
        multi.set_data("/m/a", b"multi", version=version)
        multi.commit()
    other.create("/m/gone", ephemeral=True)
    other.stop()
    other.close()


def started(connect: str) -> KazooClient:
    client = KazooClient(connect, timeout=60, auth_data=[("digest", "u:p")])
    client.start(60)
    return client


async def test_data_moves_to_apache_zookeeper_and_back(tmp_path: Path) -> None:
    state = await asyncio.to_thread(written_data, tmp_path / "embedded", 1)
    apache = tmp_path / "apache"
    exported = move("export", tmp_path / "embedded", apache / "data")
    assert exported["zxid"] == hex(state.zxid)
    [port] = free_ports(1, SystemRng())
    server = ApacheZooKeeper(apache, port, clock=SystemClock())
    await server.start()
    clients: list[KazooClient] = []
    try:
        assert int((await server.status())["zxid"], 16) == state.zxid
        clients.append(await asyncio.to_thread(started, server.connect))
        assert await asyncio.to_thread(read_all, clients[0]) == nodes_of(state)

        other = await asyncio.to_thread(started, server.connect)
        await asyncio.to_thread(write_of_every_kind, clients[0], other)
        nodes = await asyncio.to_thread(read_all, clients[0])
        zxid = int((await server.status())["zxid"], 16)
        session = clients[0].client_id[0]
    finally:
        await server.kill()
        for client in clients:
            await asyncio.to_thread(client.stop)
            client.close()

    imported = move("import", apache / "data", tmp_path / "back")
    assert (imported["zxid"], imported["nodes"]) == (hex(zxid), len(nodes))
    back = recovered(tmp_path / "back")
    assert nodes_of(back) == nodes
    assert back.zxid == zxid
    assert session in back.sessions.open
    assert back.tree.ephemerals[session].keys() >= {"/m/ephemeral"}
    assert "/m/container" in back.tree.containers
    for old in state.sessions.open.values():
        assert back.sessions.open[old.id].timeout_ms == old.timeout_ms


async def test_data_moves_to_an_ensemble_and_back(tmp_path: Path) -> None:
    state = await asyncio.to_thread(written_data, tmp_path / "embedded", 2)
    move("export", tmp_path / "embedded", tmp_path / "copy")
    members = make_ensemble(tmp_path / "ensemble")
    for member in members:
        shutil.copytree(tmp_path / "copy", member.data_dir / "data")
        member.spawn()
    try:
        for member in members:
            await member.wait_until_serving()
        client = await asyncio.to_thread(started, ",".join(member.connect for member in members))
        nodes = await asyncio.to_thread(read_all, client)
        assert without_config(nodes) == without_config(nodes_of(state))
        await asyncio.to_thread(client.create, "/written-by-the-ensemble")
        nodes = await asyncio.to_thread(read_all, client)
        await asyncio.to_thread(client.sync, "/")
        await asyncio.to_thread(client.stop)
        client.close()
    finally:
        for member in members:
            await member.stop()
    imported = max(
        (
            move("import", member.data_dir / "data", tmp_path / f"back-{number}")
            for number, member in enumerate(members)
        ),
        key=lambda moved: int(moved["zxid"], 16),
    )
    back = recovered(Path(imported["destination"]))
    assert back.zxid >> 32 > state.zxid >> 32
    assert without_config(nodes_of(back)) == without_config(nodes)
