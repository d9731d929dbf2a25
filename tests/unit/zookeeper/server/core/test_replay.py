"""The replay of logged transactions, also over a snapshot that was written while the server served."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from support.zookeeper.server_states import Client, RandomWrites, fingerprint, new_state

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.messages.requests import CreateNode
from minikafka.zookeeper.server.core.changes import LoggedTransaction
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.core.tree import DataNode


def history(seed: int, count: int) -> tuple[ServerState, list[LoggedTransaction]]:
    """Return a state after random writes, and all its transactions."""
    state = new_state()
    writes = RandomWrites(state, Random(seed))
    for _ in range(count):
        writes.step()
    return state, state.journal


def replayed(state: ServerState, transactions: Sequence[LoggedTransaction]) -> ServerState:
    for transaction in transactions:
        state.replay(transaction)
    return state


def copied(node: DataNode) -> DataNode:
    twin = DataNode(node.data, node.acl, node.czxid, node.ctime, node.owner)
    twin.mzxid, twin.mtime, twin.pzxid = node.mzxid, node.mtime, node.pzxid
    twin.version, twin.aversion, twin.created = node.version, node.aversion, node.created
    return twin


class FuzzySnapshot:
    """A snapshot as Apache ZooKeeper writes it: the server goes on between any two of its nodes."""

    def __init__(self, transactions: Sequence[LoggedTransaction], random: Random) -> None:
        self.random = random
        self.left = list(transactions)
        self.live = new_state()
        self._advance(random.randrange(len(self.left)))
        self.state = new_state()
        self.state.zxid = self.live.zxid
        for session in self.live.sessions.open.values():
            self.state.sessions.add(session.id, session.timeout_ms)
        self.after = list(self.left)
        """The transactions after the start of the snapshot."""
        self.state.tree.nodes.clear()
        self._add("/")

    def _advance(self, count: int) -> None:
        replayed(self.live, self.left[:count])
        del self.left[:count]

    def _add(self, path: str) -> None:
        """Copy a node, and then those of its children that still exist when it is their turn."""
        node = self.live.tree.nodes.get(path)
        if node is None:
            return
        names = list(node.children or ())
        if path == "/":
            self.state.tree.nodes[path] = copied(node)
        else:
            self.state.tree.add(path, copied(node))
        for name in names:
            self._advance(self.random.randrange(8))
            self._add(f"{path.rstrip('/')}/{name}")


def test_replay_over_a_fuzzy_snapshot_leads_to_the_same_state() -> None:
    for seed in range(150):
        state, transactions = history(seed, 60)
        for number in range(5):
            snapshot = FuzzySnapshot(transactions, Random(number))
            assert fingerprint(replayed(snapshot.state, snapshot.after)) == fingerprint(state)


def test_second_replay_has_no_effect() -> None:
    state, transactions = history(1, 300)
    for start in range(0, len(transactions), 30):
        twice = replayed(replayed(new_state(), transactions), transactions[start:])
        assert fingerprint(twice) == fingerprint(state)


def test_count_of_children_that_goes_below_zero_is_replayed() -> None:
    states = new_state(), new_state()
    for state in states:
        state.tree.nodes["/"].created = 2**31 - 2
    client = Client(states[0].open_session(9000, 0, 1).id)
    for name in ("/a", "/b", "/c"):
        states[0].write(client, 1, CreateNode(codes.CREATE, name, b"", ANYONE, 0), 1)
    assert fingerprint(replayed(states[1], states[0].journal)) == fingerprint(states[0])
    assert states[1].tree.nodes["/"].created == 1 - 2**31
