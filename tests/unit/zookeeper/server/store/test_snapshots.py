"""The bytes of snapshots."""

from __future__ import annotations

from random import Random
from zlib import adler32

import pytest
from support.zookeeper.server_states import RandomWrites, fingerprint, new_state

from minikafka.zookeeper.messages.jute import ANYONE, INT, LONG, Malformed, string
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.core.tree import DataNode, Tree
from minikafka.zookeeper.server.store.snapshots import HEADER, decode, encode, is_sealed

SESSIONS = [(72057594037927936, 6000), (-5, 40_000)]


def varied_state() -> ServerState:
    state = new_state()
    writes = RandomWrites(state, Random(4))
    for _ in range(300):
        writes.step()
    return state


def sealed(content: bytes) -> bytes:
    """Return the bytes with a seal behind them."""
    return content + LONG.pack(adler32(content)) + string("/")


def test_snapshot_is_read_back() -> None:
    state = varied_state()
    sessions = [(one.id, one.timeout_ms) for one in state.sessions.open.values()]
    snapshot = decode(encode(state.tree, sessions))
    assert snapshot.sessions == sessions
    other = new_state()
    other.zxid, other.tree = state.zxid, snapshot.tree
    for session in sessions:
        other.sessions.add(*session)
    assert fingerprint(other) == fingerprint(state)


def test_list_that_every_node_has_stays_one_object() -> None:
    tree = decode(encode(Tree(), [])).tree
    assert tree.nodes["/"].acl is ANYONE


def test_what_apache_adds_behind_the_seal_is_ignored() -> None:
    plain = encode(Tree(), SESSIONS)
    with_digest = sealed(plain + LONG.pack(77) + INT.pack(2) + LONG.pack(12345))
    with_zxid = sealed(with_digest + LONG.pack(77))
    for content in (plain, with_digest, with_zxid):
        assert is_sealed(content)
        snapshot = decode(content)
        assert snapshot.sessions == SESSIONS
        assert snapshot.tree.nodes.keys() == Tree().nodes.keys()


def test_no_changed_or_cut_byte_is_accepted() -> None:
    content = encode(varied_state().tree, SESSIONS)
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        if 8 <= at < 16:  # the id of the database, which has no meaning; the seal covers it
            assert not is_sealed(bytes(changed))
        with pytest.raises(Malformed):
            decode(bytes(changed))
        with pytest.raises(Malformed):
            decode(content[:at])


def test_parents_stand_in_front_of_their_children() -> None:
    tree = varied_state().tree
    content = encode(tree, [])
    places = {path: content.index(string(path)) for path in tree.nodes if path != "/"}
    for path in places:
        parent = path[: path.rindex("/")]
        assert not parent or places[parent] < places[path]


def test_data_of_zookeeper_34_get_the_node_of_the_configuration() -> None:
    tree = Tree()
    tree.remove("/zookeeper/config")
    assert "/zookeeper/config" in decode(encode(tree, [])).tree.nodes


@pytest.mark.parametrize("path", ["/a/b", "relative", ""])
def test_sealed_nonsense_is_malformed(path: str) -> None:
    node = string(path) + INT.pack(0) + bytes(68)
    start = HEADER + INT.pack(0) + INT.pack(0)
    with pytest.raises(Malformed, match="its nodes cannot be read"):
        decode(sealed(start + node + string("/")))


def test_negative_length_is_malformed() -> None:
    with pytest.raises(Malformed, match="no path at byte"):
        decode(sealed(HEADER + INT.pack(0) + INT.pack(0) + INT.pack(-9)))


def test_node_with_null_data_stays_null() -> None:
    tree = Tree()
    tree.add("/null", DataNode(None, ANYONE, 1, 2))
    tree.add("/empty", DataNode(b"", ANYONE, 1, 2))
    nodes = decode(encode(tree, [])).tree.nodes
    assert nodes["/null"].data is None
    assert nodes["/empty"].data == b""
