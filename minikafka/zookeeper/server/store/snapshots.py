"""Snapshots of the tree and the sessions, in the bytes of Apache ZooKeeper.

A snapshot: header, sessions, access control lists by number, the nodes, and the seal, which is an adler32 over all
bytes before it. Each parent stands in front of its children. Apache ZooKeeper adds a digest and a zxid, each with a
seal of its own; they are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import adler32

from minikafka.zookeeper.messages.jute import (
    ANYONE,
    INT,
    NULL,
    Acl,
    JuteReader,
    Malformed,
    acl,
    string,
)
from minikafka.zookeeper.server.core.tree import CONTAINER, ROOT, SYSTEM_PATHS, DataNode, Tree

UNKNOWN_ZXID: Final = -1
_HEADER: Final = struct.Struct("!4siq")
"""Magic, version, and the id of the database.

The id has no meaning for Apache ZooKeeper, which writes -1. Here it is the last zxid in the snapshot.
"""
HEADER: Final = _HEADER.pack(b"ZKSN", 2, UNKNOWN_ZXID)
_HEADER_CHECKED: Final = HEADER[:8]
_SESSION: Final = struct.Struct("!qi")
_NODE: Final = struct.Struct("!qqqqqiiiqq")
"""Number of the ACL, czxid, mzxid, ctime, mtime, version, created, aversion, owner, pzxid."""
_ACL_NUMBER: Final = struct.Struct("!q")
_SEAL: Final = struct.Struct("!q")
_END: Final = string(ROOT)
"""The path behind the last node, and behind a seal. The root itself has the path ""."""
_ANYONE_NUMBER: Final = -1


class Snapshot(NamedTuple):
    """The content of a snapshot. `sessions`: pairs of id and timeout (ms). `zxid`: the last one, if it is known."""

    tree: Tree
    sessions: list[tuple[int, int]]
    zxid: int = UNKNOWN_ZXID


def encode(tree: Tree, sessions: Iterable[tuple[int, int]], zxid: int = UNKNOWN_ZXID) -> bytes:
    """Return the bytes of a sealed snapshot. `sessions`: pairs of id and timeout (ms). `zxid`: the last one in it."""
    packed = [_SESSION.pack(*session) for session in sessions]
    parts = [_HEADER.pack(b"ZKSN", 2, zxid), INT.pack(len(packed)), *packed]
    numbers, by_id = _acl_numbers(tree)
    parts.append(INT.pack(len(numbers)))
    parts += [_ACL_NUMBER.pack(number) + acl(entries) for entries, number in numbers.items()]
    _add_nodes(tree, by_id, parts)
    parts.append(_END)
    content = b"".join(parts)
    return content + _SEAL.pack(adler32(content)) + _END


def _acl_numbers(tree: Tree) -> tuple[dict[Acl, int], dict[int, int]]:
    """Return a number for each access control list but ANYONE, and the number of each list by its `id`.

    Many nodes may share a long list, whose hash takes as long as the list is.
    """
    numbers: dict[Acl, int] = {}
    by_id: dict[int, int] = {}
    for node in tree.nodes.values():
        entries = node.acl
        if id(entries) not in by_id:
            is_anyone = entries is ANYONE or entries == ANYONE
            by_id[id(entries)] = (
                _ANYONE_NUMBER if is_anyone else numbers.setdefault(entries, len(numbers) + 1)
            )
    return numbers, by_id


def _add_nodes(tree: Tree, numbers: dict[int, int], parts: list[bytes]) -> None:
    """Append the bytes of all nodes. In the order of their creation, each parent comes before its children."""
    add, size, pack = parts.append, INT.pack, _NODE.pack
    for path, node in tree.nodes.items():
        name = path.encode() if path != ROOT else b""
        data = node.data
        add(size(len(name)))
        add(name)
        add(NULL if data is None else size(len(data)) + data)
        number = numbers[id(node.acl)]
        times = node.czxid, node.mzxid, node.ctime, node.mtime
        versions = node.version, node.created, node.aversion
        add(pack(number, *times, *versions, node.owner, node.pzxid))


def is_sealed(content: bytes) -> bool:
    """Return True if the seal at the end is right: the snapshot is complete and unchanged."""
    end = len(content) - _SEAL.size - len(_END)
    if end < len(HEADER) or not content.endswith(_END):
        return False
    return _SEAL.unpack_from(content, end)[0] == adler32(memoryview(content)[:end])  # type: ignore[no-any-return]


def decode(content: bytes) -> Snapshot:
    """Return the content of a snapshot. Raises Malformed, also if the seal is missing or wrong."""
    if not content.startswith(_HEADER_CHECKED):
        raise Malformed("the file does not start as a snapshot of ZooKeeper does")
    if not is_sealed(content):
        raise Malformed("the seal at its end is missing or wrong")
    *_, zxid = _HEADER.unpack_from(content)
    reader = JuteReader(content, len(HEADER))
    sessions = reader.items(lambda: (reader.int64(), reader.int32()))
    lists = dict(reader.items(lambda: (reader.int64(), reader.acl() or ())))
    lists[_ANYONE_NUMBER] = ANYONE
    try:
        return Snapshot(_tree(content, reader.position, lists), sessions, zxid)
    except (struct.error, KeyError, ValueError) as error:
        raise Malformed(f"its nodes cannot be read: {error}") from None


def _tree(content: bytes, at: int, lists: dict[int, Acl]) -> Tree:
    """Return the tree whose nodes begin at this byte. One long loop, because a start waits for it.

    Raises struct.error, KeyError or ValueError if the bytes are no nodes.
    """
    tree = Tree()
    fresh = tree.nodes
    nodes: dict[str, DataNode] = {}
    size_of, values_of, make = INT.unpack_from, _NODE.unpack_from, DataNode.__new__
    while True:
        (size,) = size_of(content, at)
        if size < 0:
            raise ValueError(f"no path at byte {at}")
        at += 4 + size
        path = content[at - size : at].decode()
        if path == ROOT:
            break
        (size,) = size_of(content, at)
        at += 4
        node = make(DataNode)
        node.data = None
        if size >= 0:
            node.data = content[at : at + size]
            at += size
        number, node.czxid, node.mzxid, node.ctime, node.mtime, *rest = values_of(content, at)
        node.version, node.created, node.aversion, node.owner, node.pzxid = rest
        at += 68
        node.acl = lists[number]
        node.children = None
        if path:
            slash = path.rindex("/")
            parent = nodes[path[:slash] or ROOT]
            if parent.children is None:
                parent.children = {}
            parent.children[path[slash + 1 :]] = None
            nodes[path] = node
        else:
            nodes[ROOT] = node
        if node.owner:
            _add_owner(tree, path, node.owner)
    tree.nodes = nodes
    for path in SYSTEM_PATHS:
        if path not in nodes:  # ZooKeeper before 3.5 had no /zookeeper/config
            tree.add(path, fresh[path])
    return tree


def _add_owner(tree: Tree, path: str, owner: int) -> None:
    if owner == CONTAINER:
        tree.containers[path] = None
    else:
        tree.ephemerals.setdefault(owner, {})[path] = None
