"""The tree of znodes, and who owns which node.

Invariants: the parent of every node exists, and names it as a child. `ephemerals` and `containers` name exactly
the nodes with these owners.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from minikafka.base.ports import Stat
from minikafka.zookeeper.messages.codes import BAD_ARGUMENTS, Refused
from minikafka.zookeeper.messages.jute import ANYONE, Acl
from minikafka.zookeeper.server.core.acl import READABLE

ROOT: Final = "/"
SYSTEM_PATHS: Final = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""Nodes that every server has, and that no client can delete."""
_ILLEGAL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_BAD_NAMES: Final = re.compile(r"//|/\.\.?(/|$)|[^/]/$")
_PLAIN: Final = re.compile(r"(?:/[A-Za-z0-9_\-:]++)++\Z")
"""Most paths. One match is faster than the checks that all other paths need. It never goes back in a deep path."""


def check_path(path: str | None) -> None:
    """Raise Refused (BAD_ARGUMENTS) for a path that ZooKeeper does not accept in a write."""
    if path and _PLAIN.match(path):
        return
    if not path or path[0] != "/":
        raise Refused(BAD_ARGUMENTS)
    if len(path) > 1 and (_BAD_NAMES.search(path) or _ILLEGAL.search(path)):
        raise Refused(BAD_ARGUMENTS)


def parent_of(path: str) -> str:
    """Return the path of the parent, "/" for a top-level node. The path must contain a slash."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    """Return the last component of the path."""
    return path[path.rindex("/") + 1 :]


def sequence_number(created: int) -> str:
    """Return the number in a sequential node's name."""
    return f"{int32(created):010d}"


def int32(count: int) -> int:
    """Return a count as ZooKeeper keeps it: with 32 bits, so that it goes on below zero."""
    return (count + 2**31) % 2**32 - 2**31


NOBODY: Final = 0
CONTAINER: Final = -(2**63)
"""The owner of containers, in logs and snapshots. A Stat shows 0 instead."""


class DataNode:
    """One znode. `created`: number of children ever created. `data` None and b"" are different values."""

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "created",
        "ctime",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(
        self, data: bytes | None, acl: Acl, zxid: int, time_ms: int, owner: int = NOBODY
    ) -> None:
        self.data = data
        self.acl = acl
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time_ms
        self.version = self.aversion = self.created = 0
        self.owner = owner
        self.children: dict[str, None] | None = None

    def stat(self) -> Stat:
        """Return the node's Stat."""
        return Stat(*self.stat_fields())

    def stat_fields(self) -> tuple[int, ...]:
        """Return the fields of the Stat. As in ZooKeeper, cversion counts creations and deletions of children."""
        count = len(self.children) if self.children else 0
        return (
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            int32(2 * self.created - count),
            self.aversion,
            NOBODY if self.owner == CONTAINER else self.owner,
            len(self.data) if self.data else 0,
            count,
            self.pzxid,
        )


class Tree:
    """All znodes by path. A new tree has the root and the system nodes of a new server."""

    def __init__(self) -> None:
        self.nodes: dict[str, DataNode] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        """Session id → the paths of the ephemeral nodes that the session owns."""
        self.containers: dict[str, None] = {}
        self.nodes[ROOT] = DataNode(b"", ANYONE, 0, 0)
        for path in SYSTEM_PATHS:
            self.add(path, DataNode(b"", ANYONE, 0, 0))
        self.nodes["/zookeeper/config"].acl = READABLE
        self.nodes["/zookeeper/config"].aversion = -1

    @classmethod
    def empty(cls) -> Tree:
        """Return a tree without any node, not even the root, for nodes of another tree (see `place`)."""
        tree = cls()
        tree.nodes.clear()
        return tree

    def place(self, path: str, data: bytes, stat: Stat, children: Iterable[str]) -> None:
        """Add a node with the names of its children as another tree has it. Its parent may be missing here.

        A Stat does not tell the access control list, so that everyone may write the node, nor a container.
        """
        node = DataNode(data, ANYONE, stat.czxid, stat.ctime, stat.ephemeral_owner)
        node.mzxid, node.mtime, node.pzxid = stat.mzxid, stat.mtime, stat.pzxid
        node.version, node.aversion = stat.version, stat.aversion
        node.created = (stat.cversion + stat.num_children) // 2
        node.children = dict.fromkeys(children) or None
        self._own(path, node)

    def add(self, path: str, node: DataNode) -> None:
        """Add a node below its parent, which must exist. The parent's counters stay as they are."""
        slash = path.rindex("/")
        parent = self.nodes[path[:slash] or ROOT]
        assert path not in self.nodes, path
        if parent.children is None:
            parent.children = {}
        parent.children[path[slash + 1 :]] = None
        self._own(path, node)

    def _own(self, path: str, node: DataNode) -> None:
        self.nodes[path] = node
        if node.owner == CONTAINER:
            self.containers[path] = None
        elif node.owner:
            self.ephemerals.setdefault(node.owner, {})[path] = None

    def remove(self, path: str) -> DataNode:
        """Remove a node that has no children; return it. The parent's counters stay as they are."""
        node = self.nodes.pop(path)
        assert not node.children, path
        siblings = self.nodes[parent_of(path)].children
        assert siblings is not None, path
        del siblings[name_of(path)]
        if node.owner == CONTAINER:
            del self.containers[path]
        elif node.owner:
            own = self.ephemerals[node.owner]
            del own[path]
            if not own:
                del self.ephemerals[node.owner]
        return node

    def count_below(self, path: str) -> int:
        """Return the number of nodes below a path. For the path "" the root itself counts too [measured]."""
        if path in ("", ROOT):
            return len(self.nodes) - len(path)
        prefix = path.rstrip("/") + "/"
        return sum(other.startswith(prefix) for other in self.nodes)
