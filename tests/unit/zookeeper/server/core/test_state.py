"""Properties of random writes: a refused multi changes nothing, and the replay of the journal gives the same state.

The writes go to a small tree, so that both success and refusal are frequent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import pytest
from support.zookeeper.state import TICK_MS, World, assert_consistent, image

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE, Acl
from minikafka.zookeeper.messages.requests import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    SetAcl,
    SetData,
)
from minikafka.zookeeper.server.core.acl import READABLE
from minikafka.zookeeper.server.core.changes import Deleted, Failed, Multi
from minikafka.zookeeper.server.core.state import ServerState

T = TypeVar("T")
PATHS = ["/a", "/b", "/a/c", "/a/d", "/b/e", "/a/c/f", "/a/.", "/zookeeper"]
NO_DELETE: Acl = ((31 - 8, "world", "anyone"),)
ACLS: list[Acl | None] = [ANYONE, ANYONE, ANYONE, ANYONE, NO_DELETE, READABLE, ()]
KINDS = [codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER]


class Operations:
    """A source of random writes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, choices: Sequence[T]) -> T:
        return self.chance.choice(choices)

    def several(self) -> list[Operation]:
        return [
            CheckVersion(self.pick(PATHS), self._version())
            if self.chance.random() < 0.1
            else self.one()
            for _ in range(self.chance.randrange(5))
        ]

    def one(self) -> Operation:
        (kind,) = self.chance.choices((CreateNode, SetData, DeleteNode, SetAcl), (6, 3, 4, 0.5))
        path = self.pick(PATHS)
        if kind is CreateNode:
            flags = self.chance.choices((0, 1, 2, 3), (5, 2, 1, 1))[0]
            return CreateNode(self.pick(KINDS), path, self._data(), self.pick(ACLS), flags)
        if kind is SetData:
            return SetData(path, self._data(), self._version())
        if kind is DeleteNode:
            return DeleteNode(path, self._version())
        return SetAcl(path, self.pick(ACLS), self._version())

    def _data(self) -> bytes | None:
        return self.pick((None, b"", b"x", b"data"))

    def _version(self) -> int:
        return self.pick((-1, -1, -1, 0, 1))


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
