"""The tree of znodes as a place for nodes of another tree, and the number of nodes below a path."""

from __future__ import annotations

from support.zookeeper.state import World

from minikafka.zookeeper.server.core.tree import DataNode, Tree


def test_placed_node_has_the_stat_children_and_owner_of_the_node_that_was_read() -> None:
    read = Tree()
    read.add("/a", DataNode(b"data", (), 5, 7, owner=3))
    for name in ("x", "y"):
        read.add(f"/a/{name}", DataNode(None, (), 6, 8))
    node = read.nodes["/a"]
    node.created, node.version, node.aversion, node.pzxid, node.mzxid, node.mtime = 5, 1, 2, 9, 8, 4
    tree = Tree.empty()
    tree.place("/a", b"data", node.stat(), ["x", "y"])
    placed = tree.nodes["/a"]
    assert (placed.data, placed.stat(), placed.created) == (b"data", node.stat(), 5)
    assert list(placed.children or ()) == ["x", "y"]
    assert tree.ephemerals == {3: {"/a": None}}
    assert list(tree.nodes) == ["/a"]


def test_placed_nodes_take_and_lose_children_like_other_nodes() -> None:
    tree = Tree.empty()
    tree.place("/a", b"", DataNode(b"", (), 1, 1).stat(), [])
    tree.add("/a/x", DataNode(b"", (), 2, 2))
    assert list(tree.nodes["/a"].children or ()) == ["x"]
    tree.remove("/a/x")
    assert tree.nodes["/a"].stat().num_children == 0


def test_number_of_nodes_below_a_path() -> None:
    world = World()
    client = world.connect()
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        world.create(client, path)
    counts = {
        path: world.state.tree.count_below(path) for path in ("/a", "/ab", "/", "", "/zookeeper")
    }
    assert counts == {"/a": 2, "/ab": 0, "/": 7, "": 8, "/zookeeper": 2}
