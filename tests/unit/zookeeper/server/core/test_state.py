"""Properties of random writes: a refused multi changes nothing, and the replay of the journal gives the same state."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from support.zookeeper_operations import Operations
from support.zookeeper_state import TICK_MS, World, assert_consistent, image

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.server.core.changes import Deleted, Failed, Multi
from minikafka.zookeeper.server.core.state import ServerState

SEEDS = 20
STEPS = 150


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
        assert_consistent(world.state)
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
    assert_consistent(again)
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
    assert_consistent(again)


def test_replay_skips_a_multi_that_has_a_failure_in_it() -> None:
    """Apache ZooKeeper logs a refused multi with the valid operations in it."""
    world = World()
    client = world.connect()
    world.create(client, "/a")
    parts = (Deleted("/a"), Failed(codes.NO_NODE))
    world.state.replay(world.state.journal[-1]._replace(zxid=9, change=Multi(parts)))
    assert "/a" in world.state.tree.nodes
    assert world.state.zxid == 9
