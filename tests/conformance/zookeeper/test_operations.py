"""Results and errors of each ZooKeeper operation, on every server of the fixture `zookeeper`.

kazoo, an independent client, checks the writes of our client.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from support.zookeeper.proxy import MULTI_READ, Proxy
from support.zookeeper.servers import RecordingClient, Zookeeper
from support.zookeeper.zookeepers import Client, Connect, in_thread

from minikafka.base.errors import (
    BadArguments,
    BadVersion,
    Closed,
    CoordinationError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    TooLarge,
)
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set
from minikafka.zookeeper.client.session import REQUEST_MAX
from minikafka.zookeeper.processes.child import ServerProcess


@pytest.fixture
async def client(zookeeper: Zookeeper) -> RecordingClient:
    """A client that has created the nodes /a (data "1") and /a/b and the ephemeral node /e."""
    client: RecordingClient = await zookeeper.connect()
    await client.create("/a", b"1")
    await client.create("/a/b", b"")
    await client.create("/e", b"", ephemeral=True)
    return client


async def test_create_returns_the_path_and_the_stat_that_get_and_exists_return(
    client: RecordingClient,
) -> None:
    path, stat = await client.create("/x", b"data")
    assert path == "/x"
    assert await client.get("/x") == (b"data", stat)
    assert await client.exists("/x") == stat
    assert (stat.version, stat.data_length, stat.ephemeral_owner) == (0, 4, 0)
    assert stat.czxid == stat.mzxid == stat.pzxid


async def test_ephemeral_node_is_owned_by_the_session(client: RecordingClient) -> None:
    stat = await client.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == client.session_id


async def test_sequential_nodes_count_all_children_ever_created(client: RecordingClient) -> None:
    assert (await client.create("/a/s-", b"", sequential=True))[0] == "/a/s-0000000001"
    path, stat = await client.create("/a/s-", b"", sequential=True, ephemeral=True)
    assert path == "/a/s-0000000002"
    assert stat.ephemeral_owner == client.session_id


async def test_set_raises_the_version_and_delete_checks_it(client: RecordingClient) -> None:
    assert (await client.set("/a", b"2", 0)).version == 1
    assert (await client.set("/a", b"3", -1)).version == 2
    assert (await client.get("/a"))[0] == b"3"
    await client.delete("/a/b", 0)
    await client.delete("/a", 2)
    assert await client.exists("/a") is None


async def test_children_are_sorted_and_come_with_the_parents_stat(
    client: RecordingClient,
) -> None:
    for name in "zyx":
        await client.create(f"/a/{name}", b"")
    names, stat = await client.children("/a")
    assert names == ["b", "x", "y", "z"]
    assert (stat.num_children, stat.cversion) == (4, 4)
    assert stat.pzxid > stat.czxid


async def test_null_data_reads_as_empty_bytes(client: RecordingClient) -> None:
    await client.create("/null", None)  # type: ignore[arg-type]
    assert (await client.get("/null"))[0] == b""
    assert await client.get_many(["/null"]) == [await client.get("/null")]


REFUSALS: list[tuple[str, Callable[[RecordingClient], Awaitable[Any]], type[CoordinationError]]] = [
    ("get missing", lambda c: c.get("/no"), NoNode),
    ("children of missing", lambda c: c.children("/no"), NoNode),
    ("set missing", lambda c: c.set("/no", b"", -1), NoNode),
    ("delete missing", lambda c: c.delete("/no", -1), NoNode),
    ("create below missing", lambda c: c.create("/no/x", b""), NoNode),
    ("create existing", lambda c: c.create("/a", b""), NodeExists),
    ("create below ephemeral", lambda c: c.create("/e/x", b""), NoChildrenForEphemerals),
    ("set at other version", lambda c: c.set("/a", b"", 7), BadVersion),
    ("delete at other version", lambda c: c.delete("/a/b", 7), BadVersion),
    ("delete parent", lambda c: c.delete("/a", -1), NotEmpty),
    ("bad path", lambda c: c.create("/a/.", b""), BadArguments),
]


@pytest.mark.parametrize(
    ("call", "error"), [row[1:] for row in REFUSALS], ids=[r[0] for r in REFUSALS]
)
async def test_refused_operation_raises_a_specific_error_and_keeps_the_connection(
    client: RecordingClient,
    call: Callable[[RecordingClient], Awaitable[Any]],
    error: type[CoordinationError],
) -> None:
    with pytest.raises(error):
        await call(client)
    assert client.connection == 1, "a refusal costs no connection"


async def test_multi_returns_stats_of_creates_and_sets_in_order(client: RecordingClient) -> None:
    check, made, gone, changed = await client.multi(
        [Check("/a", 0), Create("/m", b"1", ephemeral=True), Delete("/a/b", 0), Set("/a", b"2", 0)]
    )
    assert (check, gone) == (None, None)
    assert made == await client.exists("/m")
    assert changed == await client.exists("/a")
    assert made.mzxid == changed.mzxid, "one transaction"
    assert await client.multi([]) == []


async def test_multi_replaces_the_ephemeral_node_of_another_session(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    """A broker takes over from a dead controller with this multi; the version of /a is its fence."""
    other = await zookeeper.connect()
    takeover = [Set("/a", b"2", 0), Delete("/e", 0), Create("/e", b"new", ephemeral=True)]
    await other.multi(takeover)
    data, stat = await client.get("/e")
    assert (data, stat.version, stat.ephemeral_owner) == (b"new", 0, other.session_id)
    with pytest.raises(MultiFailed) as refused:
        await client.multi(takeover)
    assert (refused.value.index, type(refused.value.error)) == (0, BadVersion)
    assert await client.get("/e") == (data, stat)


MULTI_REFUSALS: list[tuple[list[MultiOp], int, type[CoordinationError]]] = [
    ([Check("/a", 1), Set("/a", b"", -1)], 0, BadVersion),
    ([Set("/a", b"", -1), Check("/no", 0), Create("/n", b"")], 1, NoNode),
    ([Check("/no", -1)], 0, NoNode),
    ([Create("/n", b""), Create("/n", b"")], 1, NodeExists),
    ([Create("/n", b""), Create("/n/m", b""), Delete("/n", -1)], 2, NotEmpty),
    ([Create("/n/m", b""), Create("/n", b"")], 0, NoNode),
    ([Create("/e/x", b"")], 0, NoChildrenForEphemerals),
    ([Set("/a", b"", 0), Set("/a", b"", 0)], 1, BadVersion),
    ([Delete("/a", 0)], 0, NotEmpty),
    ([Create("/n", b""), Create("/a/..", b"")], 1, BadArguments),
]


@pytest.mark.parametrize(("ops", "index", "error"), MULTI_REFUSALS, ids=range(len(MULTI_REFUSALS)))
async def test_refused_multi_names_the_failed_operation_and_changes_nothing(
    client: RecordingClient, ops: list[MultiOp], index: int, error: type[CoordinationError]
) -> None:
    before = await client.get("/a"), await client.children("/")
    with pytest.raises(MultiFailed) as caught:
        await client.multi(ops)
    assert caught.value.index == index
    assert type(caught.value.error) is error
    assert (await client.get("/a"), await client.children("/")) == before


async def test_ensure_creates_a_node_with_its_parents_and_keeps_existing_data(
    client: RecordingClient,
) -> None:
    await client.ensure("/p/q/r")
    await client.ensure("/p/q/r")
    await client.ensure("/a")
    node = await client.get("/p/q/r")
    assert (node.data, node.stat.version) == (b"", 0)
    assert (await client.get("/a"))[0] == b"1"


async def test_get_many_and_children_many_keep_order_with_none_for_missing_nodes(
    client: RecordingClient,
) -> None:
    a, b = await client.get("/a"), await client.get("/a/b")
    asked = ["/a", "/no", "/a/b"] * 400
    assert await client.get_many(asked) == [a, None, b] * 400
    assert await client.children_many(asked) == [["b"], None, []] * 400
    assert await client.get_many([]) == []
    assert await client.children_many([]) == []


async def test_get_many_and_children_many_work_on_a_server_without_multi_read(
    proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy.connect)
    await client.create("/a", b"1")
    await client.create("/a/b", b"")
    proxy.rewrite(MULTI_READ)
    assert await client.get_many(["/a", "/no"]) == [await client.get("/a"), None]
    assert await client.children_many(["/a", "/no"]) == [["b"], None]


async def test_largest_request_passes_and_a_larger_one_is_never_sent(
    client: RecordingClient,
) -> None:
    around = len(client.root + "/big") + 5 * 4  # xid, opcode, two lengths, version
    largest = REQUEST_MAX - around
    await client.create("/big", b"")
    await client.set("/big", bytes(largest), -1)
    with pytest.raises(TooLarge):
        await client.set("/big", bytes(largest + 1), -1)
    with pytest.raises(TooLarge):
        await client.multi([Set("/big", bytes(600_000), -1), Set("/a", bytes(600_000), -1)])
    assert len((await client.get("/big"))[0]) == largest
    assert client.connection == 1, "nothing that was sent cost the connection"


async def test_missing_chroot_is_created_and_paths_are_relative_to_it(
    server: ServerProcess, connect: Connect
) -> None:
    client = await connect(server.connect, root="/chroot/of/this")
    made, _ = await client.create("/x", b"1")
    assert made == "/x"
    assert (await client.children("/"))[0] == ["x"]

    def look(kazoo: KazooClient) -> object:
        data = kazoo.get("/chroot/of/this/x")[0]
        kazoo.create("/chroot/of/this/by-another", b"2")
        return data

    assert await in_thread(look, server) == b"1"
    await client.sync("/")
    assert (await client.get("/by-another"))[0] == b"2"


async def test_client_without_a_chroot_sees_the_whole_tree(
    server: ServerProcess, connect: Connect
) -> None:
    client = await connect(server.connect, root="")
    await client.sync("/")
    assert "zookeeper" in (await client.children("/"))[0]


async def test_every_client_call_after_close_raises_the_closed_error(
    client: RecordingClient,
) -> None:
    await client.close()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.get("/a"),
        lambda: client.exists("/a"),
        lambda: client.create("/x", b""),
        lambda: client.multi([Check("/a", 0)]),
        lambda: client.sync("/"),
        lambda: client.connected(),
    ]
    for call in calls:
        with pytest.raises(Closed):
            await call()


# The same random operations by this client and by kazoo, each with a separate root.

PATHS = ["/a", "/a/b", "/a/c", "/d", "/d/e", "/d/e/f"]


def random_ops(seed: int, count: int) -> list[MultiOp]:
    chance = random.Random(seed)
    kinds: list[Callable[[str], MultiOp]] = [
        lambda path: Create(path, bytes([chance.randrange(256)]), ephemeral=chance.random() < 0.2),
        lambda path: Create(path + "-", b"", sequential=True),
        lambda path: Set(path, bytes(chance.randrange(9)), chance.choice((-1, 0, 1, 2))),
        lambda path: Delete(path, chance.choice((-1, -1, 0, 1))),
        lambda path: Check(path, chance.choice((-1, 0, 1))),
    ]
    weights = (5, 1, 3, 2, 1)
    return [chance.choices(kinds, weights)[0](chance.choice(PATHS)) for _ in range(count)]


async def outcome_here(client: Client, op: MultiOp) -> object:
    try:
        if isinstance(op, Create):
            made, stat = await client.create(
                op.path, op.data, ephemeral=op.ephemeral, sequential=op.sequential
            )
            return made, stat.version
        if isinstance(op, Set):
            return (await client.set(op.path, op.data, op.version)).version
        if isinstance(op, Delete):
            return await client.delete(op.path, op.version)
        return await client.multi([op])
    except MultiFailed as error:
        return type(error.error).__name__
    except CoordinationError as error:
        return type(error).__name__


def outcome_of_kazoo(kazoo: KazooClient, root: str, op: MultiOp) -> object:
    path = root + op.path
    try:
        if isinstance(op, Create):
            made, stat = kazoo.create(
                path, op.data, ephemeral=op.ephemeral, sequence=op.sequential, include_data=True
            )
            return made.removeprefix(root), stat.version
        if isinstance(op, Set):
            return kazoo.set(path, op.data, op.version).version
        if isinstance(op, Delete):
            kazoo.delete(path, op.version)
            return None
        transaction = kazoo.transaction()
        transaction.check(path, op.version)
        [result] = transaction.commit()
        return _name(result) if isinstance(result, Exception) else [None]
    except KazooException as error:
        return _name(error)


def _name(error: Exception) -> str:
    names = {
        "BadVersionError": "BadVersion",
        "NoNodeError": "NoNode",
        "NodeExistsError": "NodeExists",
    }
    names |= {"NotEmptyError": "NotEmpty"}
    names |= {"NoChildrenForEphemeralsError": "NoChildrenForEphemerals"}
    return names[type(error).__name__]


def tree_of(kazoo: KazooClient, root: str) -> dict[str, object]:
    nodes: dict[str, object] = {}
    paths = [root]
    while paths:
        path = paths.pop()
        data, stat = kazoo.get(path)
        names = sorted(kazoo.get_children(path))
        counts = (stat.version, stat.cversion, stat.ephemeralOwner != 0, stat.numChildren)
        nodes[path.removeprefix(root)] = (data, *counts, tuple(names))
        paths += [f"{path}/{name}" for name in names]
    return nodes


async def test_random_operations_have_the_same_results_as_in_kazoo(
    server: ServerProcess, connect: Connect
) -> None:
    for seed in range(4):
        ops = random_ops(seed, 80)
        client = await connect(server.connect, root=f"/here-{seed}")
        here = [await outcome_here(client, op) for op in ops]

        def elsewhere(
            kazoo: KazooClient, seed: int = seed, ops: list[MultiOp] = ops
        ) -> tuple[list[object], dict[str, object], dict[str, object]]:
            root = f"/there-{seed}"
            kazoo.create(root, b"")
            outcomes = [outcome_of_kazoo(kazoo, root, op) for op in ops]
            return outcomes, tree_of(kazoo, root), tree_of(kazoo, f"/here-{seed}")

        there, their_tree, our_tree = await in_thread(elsewhere, server)  # type: ignore[misc]
        assert here == there, f"seed {seed}"
        assert our_tree == their_tree, f"seed {seed}"
