"""The changes of a transaction, which are the content of a record of ZooKeeper's log, and their replay after a restart.

Applying a transaction needs no further check. A snapshot may already contain later transactions, because Apache
ZooKeeper writes it while it serves. So a replay has no effect on nodes that have the change already.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import Acl
from minikafka.zookeeper.server.core.sessions import Sessions
from minikafka.zookeeper.server.core.tree import CONTAINER, NOBODY, DataNode, Tree, int32, parent_of


class Created(NamedTuple):
    """A new node. `kind`: CREATE, CREATE2, CREATE_CONTAINER or CREATE_TTL.

    `created`: number of children that the parent has ever had, this one included (ZooKeeper's parentCVersion).
    """

    kind: int
    path: str
    data: bytes | None
    acl: Acl
    is_ephemeral: bool
    created: int


class Deleted(NamedTuple):
    """A deleted node. `is_container`: the server removed an empty container."""

    path: str
    is_container: bool = False


class DataSet(NamedTuple):
    """New data. `version`: the new version."""

    path: str
    data: bytes | None
    version: int


class AclSet(NamedTuple):
    """A new access control list. `version`: the new aversion."""

    path: str
    acl: Acl
    version: int


class Checked(NamedTuple):
    """A version check of a multi; changes nothing. `version`: one above the checked version, as ZooKeeper logs it."""

    path: str
    version: int


class SessionOpened(NamedTuple):
    """A new session."""

    timeout_ms: int


class SessionClosed(NamedTuple):
    """The end of a session; deletes these ephemeral nodes. `paths` is empty in logs of ZooKeeper before 3.6."""

    paths: tuple[str, ...]


class Failed(NamedTuple):
    """A refused write, which uses up a zxid."""

    code: int


class Multi(NamedTuple):
    """Several changes with one zxid."""

    changes: tuple[Created | Deleted | DataSet | AclSet | Checked | Failed, ...]


Change: TypeAlias = (
    Created | Deleted | DataSet | AclSet | Checked | SessionOpened | SessionClosed | Failed | Multi
)


class LoggedTransaction(NamedTuple):
    """One record of the log. `cxid`: the client's number of the request. `time_ms`: Unix ms."""

    session_id: int
    cxid: int
    zxid: int
    time_ms: int
    change: Change


# ---- replay


def replay(transaction: LoggedTransaction, tree: Tree, sessions: Sessions) -> None:
    """Apply a transaction to the tree and the sessions."""
    _apply(transaction.change, transaction, tree, sessions)


def _apply(change: Change, header: LoggedTransaction, tree: Tree, sessions: Sessions) -> None:
    if isinstance(change, DataSet):
        _set_data(change, header, tree)
    elif isinstance(change, Created):
        _create(change, header, tree)
    elif isinstance(change, Deleted):
        _delete(change.path, header.zxid, tree)
    elif isinstance(change, AclSet):
        if node := tree.nodes.get(change.path):
            node.acl, node.aversion = change.acl, change.version
    elif isinstance(change, Multi):
        # Apache ZooKeeper logs a refused multi with the valid operations in it.
        if not any(isinstance(part, Failed) for part in change.changes):
            for part in change.changes:
                _apply(part, header, tree, sessions)
    elif isinstance(change, SessionOpened):
        sessions.add(header.session_id, change.timeout_ms)
    elif isinstance(change, SessionClosed):
        for path in dict.fromkeys((*change.paths, *tree.ephemerals.get(header.session_id, ()))):
            _delete(path, header.zxid, tree)
        sessions.remove(header.session_id)


def _create(change: Created, header: LoggedTransaction, tree: Tree) -> None:
    parent = tree.nodes.get(parent_of(change.path))
    if parent is None:
        return
    created = change.created if change.created != -1 else int32(parent.created + 1)
    if change.path not in tree.nodes:
        owner = header.session_id if change.is_ephemeral else NOBODY
        if change.kind == codes.CREATE_CONTAINER:
            owner = CONTAINER
        tree.add(change.path, DataNode(change.data, change.acl, header.zxid, header.time_ms, owner))
    if int32(created - parent.created) > 0:  # also when the count has gone below zero
        parent.created = created
        parent.pzxid = header.zxid


def _delete(path: str, zxid: int, tree: Tree) -> None:
    """Delete a node with all nodes below it.

    The snapshot may have been written later: it may lack the node, or have the next node with this path, even with
    children. These are deleted too, because the log has their creation after this transaction.
    """
    parent = tree.nodes.get(parent_of(path))
    if parent is not None:
        parent.pzxid = max(parent.pzxid, zxid)
    if path in tree.nodes:
        for below in reversed(_subtree(path, tree)):
            tree.remove(below)


def _subtree(path: str, tree: Tree) -> list[str]:
    """Return the path and all paths below it, each parent before its children."""
    found = [path]
    for above in found:
        found += [f"{above}/{name}" for name in tree.nodes[above].children or ()]
    return found


def _set_data(change: DataSet, header: LoggedTransaction, tree: Tree) -> None:
    node = tree.nodes.get(change.path)
    if node is not None:
        node.data, node.version = change.data, change.version
        node.mzxid, node.mtime = header.zxid, header.time_ms
