"""Multis: all operations or none, with one zxid; and the journal, whose replay gives the same state."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from support.zookeeper_operations import Operations
from support.zookeeper_state import TICK_MS, Connection, World, assert_consistent, image

from minikafka.zk.core import codes
from minikafka.zk.core.acl import ANYONE
from minikafka.zk.core.changes import Checked, Created, DataSet, Deleted, Failed, Multi
from minikafka.zk.core.codes import Refused
from minikafka.zk.core.operations import Check, Create, Delete, SetData
from minikafka.zk.core.state import Result, ServerState

SEEDS = 20
STEPS = 150


def create(path: str, flags: int = 0) -> Create:
    return Create(codes.CREATE, path, b"x", ANYONE, flags)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Connection:
    return world.connect()


def test_multi_applies_all_operations_with_one_zxid(world: World, client: Connection) -> None:
    zxid = world.state.zxid
    results = world.state.multi(
        client,
        5,
        [create("/a"), create("/a/n", codes.SEQUENTIAL), Check("/a", 0), SetData("/a", b"new", 0)],
        7,
    )
    assert world.state.zxid == zxid + 1
    paths = [result.path for result in results if isinstance(result, Result)]
    assert paths == ["/a", "/a/n0000000000", "/a", "/a"]
    changes = world.state.journal[-1].change
    assert changes == Multi(
        (
            Created(codes.CREATE, "/a", b"x", ANYONE, False, 1),
            Created(codes.CREATE, "/a/n0000000000", b"x", ANYONE, False, 1),
            Checked("/a", 1),
            DataSet("/a", b"new", 1),
        )
    )


def test_stat_of_a_multi_is_the_one_right_after_the_operation(
    world: World, client: Connection
) -> None:
    results = world.state.multi(
        client, 0, [create("/a"), SetData("/a", b"longer", -1), Delete("/a", 1)], 7
    )
    stats = [result.stat for result in results if isinstance(result, Result)]
    assert [s and (s.version, s.data_length) for s in stats] == [(0, 1), (1, 6), None]


def test_refused_multi_names_the_operation_at_fault(world: World, client: Connection) -> None:
    zxid = world.state.zxid
    codes_ = world.state.multi(
        client, 0, [create("/a"), Delete("/missing", -1), create("/b"), create("/c")], 7
    )
    assert codes_ == [0, codes.NO_NODE, codes.RUNTIME_INCONSISTENCY, codes.RUNTIME_INCONSISTENCY]
    assert world.state.journal[-1].change == Failed(codes.NO_NODE)
    assert world.state.zxid == zxid + 1
    assert "/a" not in world.state.tree.nodes


def test_container_with_the_ephemeral_flag_takes_no_child_in_its_own_multi(
    world: World, client: Connection
) -> None:
    container = Create(codes.CREATE_CONTAINER, "/c", b"", ANYONE, codes.EPHEMERAL)
    assert world.state.multi(client, 0, [container, create("/c/n")], 7) == [
        0,
        codes.NO_CHILDREN_FOR_EPHEMERALS,
    ]
    again = [container, Delete("/c", -1), create("/c"), create("/c/n")]
    results = world.state.multi(client, 0, again, 7)
    assert [type(result) for result in results] == [Result] * 4, "only this node refuses children"
    world.state.multi(client, 0, [Delete("/c/n", -1), Delete("/c", -1), container], 7)
    results = world.state.multi(client, 0, [create("/c/n")], 7)
    assert type(results[0]) is Result, "an applied container takes children"


def test_empty_multi_succeeds_and_uses_up_a_zxid(world: World, client: Connection) -> None:
    zxid = world.state.zxid
    assert world.state.multi(client, 0, [], 7) == []
    assert world.state.zxid == zxid + 1
    assert world.state.journal[-1].change == Multi(())


def test_watches_fire_after_a_multi_in_the_order_of_its_operations(
    world: World, client: Connection
) -> None:
    watcher = world.connect()
    world.state.add_watch(watcher, "/", 1)
    world.state.multi(client, 0, [create("/b"), create("/a"), Delete("/b", -1)], 7)
    assert watcher.seen() == [
        (codes.NODE_CREATED, "/b"),
        (codes.NODE_CREATED, "/a"),
        (codes.NODE_DELETED, "/b"),
    ]


def test_refused_multi_fires_no_watch(world: World, client: Connection) -> None:
    world.state.data(client, "/", watch=True)
    world.state.children(client, "/", watch=True)
    world.state.multi(client, 0, [create("/b"), create("/b")], 7)
    assert client.events == []
    assert world.state.child_watches.has("/", client, 1), "the watch has not been used up"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_refused_multi_leaves_the_tree_as_it_was(seed: int) -> None:
    world, operations = World(), Operations(random.Random(seed))
    clients = [world.connect() for _ in range(3)]
    refused = 0
    for _ in range(STEPS):
        before = image(world.state.tree)
        results = world.state.multi(operations.pick(clients), 0, operations.several(), 7)
        if any(type(result) is int for result in results):
            refused += 1
            assert image(world.state.tree) == before
        assert_consistent(world.state.tree)
    assert 10 < refused < STEPS - 10, "both outcomes must be tried"


def run(seed: int) -> World:
    """Carry out random writes, multis and ends of sessions."""
    world, operations = World(), Operations(random.Random(seed))
    clients = [world.connect() for _ in range(3)]
    for _ in range(STEPS):
        client = operations.pick(clients)
        kind = operations.chance.random()
        if kind < 0.6:
            with suppress(Refused):
                world.write(client, operations.one())
        elif kind < 0.9:
            world.state.multi(client, 0, operations.several(), operations.chance.randrange(99))
        elif kind < 0.95:
            world.state.remove_empty_containers(8)
        else:
            world.state.close_session(client.session_id, 0, 9)
            clients[clients.index(client)] = world.connect()
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replay_of_the_journal_gives_the_same_state(seed: int) -> None:
    world = run(seed)
    again = ServerState(tick_ms=TICK_MS)
    for transaction in world.state.journal:
        again.replay(transaction)
    assert image(again.tree) == image(world.state.tree)
    assert_consistent(again.tree)
    assert again.zxid == world.state.zxid
    assert {i: s.timeout_ms for i, s in again.sessions.open.items()} == {
        i: s.timeout_ms for i, s in world.state.sessions.open.items()
    }
    assert again.sessions.next_id() == world.state.sessions.next_id()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_second_replay_of_the_journal_leaves_the_state(seed: int) -> None:
    """A snapshot that was written while the server worked may hold transactions that the log has too."""
    world = run(seed)
    again = ServerState(tick_ms=TICK_MS)
    half = len(world.state.journal) // 2
    for transaction in world.state.journal:
        again.replay(transaction)
    expected = image(again.tree)
    for transaction in world.state.journal[half:]:
        again.replay(transaction)
    assert image(again.tree) == expected
    assert_consistent(again.tree)


def test_replay_skips_a_multi_that_has_a_failure_in_it() -> None:
    """Apache ZooKeeper logs a refused multi with the valid operations in it."""
    world = World()
    client = world.connect()
    world.create(client, "/a")
    parts = (Deleted("/a"), Failed(codes.NO_NODE))
    world.state.replay(world.state.journal[-1]._replace(zxid=9, change=Multi(parts)))
    assert "/a" in world.state.tree.nodes
    assert world.state.zxid == 9
