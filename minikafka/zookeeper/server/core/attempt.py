"""One attempt to write: the checks of each operation in ZooKeeper's order, its effect, and how to take it back.

Each operation is checked completely before it changes the tree. All rules about the order of errors: [measured].
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol, TypeAlias

from minikafka.base.ports import Stat
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import Acl, Identity
from minikafka.zookeeper.messages.requests import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    Reconfig,
    SetAcl,
    SetData,
)
from minikafka.zookeeper.server.core import acl
from minikafka.zookeeper.server.core.acl import check_permission, resolved
from minikafka.zookeeper.server.core.changes import AclSet, Checked, Created, DataSet, Deleted
from minikafka.zookeeper.server.core.tree import (
    CONTAINER,
    NOBODY,
    ROOT,
    SYSTEM_PATHS,
    DataNode,
    Tree,
    check_path,
    int32,
    parent_of,
    sequence_number,
)

ANY_VERSION: Final = -1
_EXPANDED_MAX: Final = 1 << 20
"""Maximum length of the ids that `auth` entries of one request stand for, so that its record in the log stays small."""
_PROTECTED: Final = frozenset((ROOT, *SYSTEM_PATHS))
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class Requester(Protocol):
    """Who requests a write: the session that will own ephemeral nodes, and the identities for access control."""

    session_id: int

    @property
    def identities(self) -> Collection[Identity]:
        """Who the connection is."""


class Written(NamedTuple):
    """The outcome of an operation. `node`: the node it created or changed, otherwise None.

    Most replies need no Stat, so that it is made when it is read. Read it before the next operation.
    """

    path: str
    node: DataNode | None

    @property
    def stat(self) -> Stat | None:
        """The Stat of the node at this moment."""
        return self.node.stat() if self.node is not None else None


SingleChange: TypeAlias = Created | Deleted | DataSet | AclSet | Checked


class Attempt:
    """The operations of one request, with one zxid. `time_ms`: Unix ms, for ctime and mtime.

    `schemes`: those that access control lists may have. `changes`: the content of the log record. `events`: (change,
    path, node) for the watches, in the operations' order.
    `childless`: containers created with the ephemeral flag, which take no children within this request [measured].
    """

    __slots__ = (
        "_expanded",
        "changes",
        "childless",
        "events",
        "requester",
        "schemes",
        "time_ms",
        "tree",
        "undo",
        "zxid",
    )

    def __init__(
        self,
        tree: Tree,
        requester: Requester,
        zxid: int,
        time_ms: int,
        schemes: Collection[str] = acl.SCHEMES,
    ) -> None:
        self.tree = tree
        self.requester = requester
        self.schemes = schemes
        self.zxid = zxid
        self.time_ms = time_ms
        self.changes: list[SingleChange] = []
        self.childless: tuple[DataNode, ...] = ()
        self.events: list[tuple[int, str, DataNode]] = []
        self.undo: list[Callable[[], None]] = []
        self._expanded = 0

    def apply(self, operation: Operation) -> Written:
        """Check an operation and carry it out. Raises Refused, and then has changed nothing."""
        if type(operation) is SetData:
            return self._set_data(operation)
        if type(operation) is CreateNode:
            return self._create(operation)
        if type(operation) is DeleteNode:
            return self._delete(operation)
        if type(operation) is CheckVersion:
            return self._check(operation)
        if type(operation) is SetAcl:
            return self._set_acl(operation)
        assert type(operation) is Reconfig
        raise Refused(codes.RECONFIG_DISABLED)

    def roll_back(self) -> None:
        """Undo all operations."""
        # Backwards: a later operation may have deleted or changed what an earlier one has created.
        for step in reversed(self.undo):
            step()

    # ---- create

    def _create(self, op: CreateNode) -> Written:
        wanted = _checked_flags(op)
        found = self._resolved(op.acl)
        above = parent_of(wanted)
        parent = self._node(above)
        check_permission(parent.acl, acl.CREATE, self.requester.identities)
        # The path is checked with its number: "/a/" is a path that ends with a slash, and "/a/0000000001" is none.
        flags = op.flags & (codes.EPHEMERAL | codes.SEQUENTIAL) if op.flags < 4 else 0
        path = wanted + sequence_number(parent.created) if flags & codes.SEQUENTIAL else wanted
        check_path(path)
        if path in self.tree.nodes:
            raise Refused(codes.NODE_EXISTS)
        if parent.owner not in (NOBODY, CONTAINER) or parent in self.childless:
            raise Refused(codes.NO_CHILDREN_FOR_EPHEMERALS)
        is_container = op.kind == codes.CREATE_CONTAINER
        is_ephemeral = not is_container and bool(flags & codes.EPHEMERAL)
        owner = self.requester.session_id if is_ephemeral else CONTAINER if is_container else NOBODY
        node = DataNode(op.data, found, self.zxid, self.time_ms, owner)
        self._add(path, node, parent)
        if is_container and flags & codes.EPHEMERAL:
            self.childless += (node,)
        self.changes.append(Created(op.kind, path, op.data, found, is_ephemeral, parent.created))
        self.events.append((codes.NODE_CREATED, path, node))
        self.events.append((codes.CHILDREN_CHANGED, above, parent))
        return Written(path, node)

    def _resolved(self, wanted: Acl | None) -> Acl:
        """Return the list to store. Raises Refused for an invalid list, and if `auth` entries become too long."""
        found = resolved(wanted, self.requester.identities, self.schemes)
        if found is not wanted and any(scheme == "auth" for _, scheme, _ in wanted or ()):
            self._expanded += sum(len(name) for _, _, name in found)
            if self._expanded > _EXPANDED_MAX:
                raise Refused(codes.INVALID_ACL)
        return found

    def _add(self, path: str, node: DataNode, parent: DataNode) -> None:
        before = parent.created, parent.pzxid
        self.tree.add(path, node)
        parent.created = int32(parent.created + 1)
        parent.pzxid = self.zxid

        def undo() -> None:
            self.tree.remove(path)
            parent.created, parent.pzxid = before

        self.undo.append(undo)

    # ---- delete

    def _delete(self, op: DeleteNode) -> Written:
        path = op.path
        if path is None:
            raise Refused(codes.MARSHALLING_ERROR)
        if "/" not in path or "\0" in path or path in _PROTECTED:
            raise Refused(codes.BAD_ARGUMENTS)
        above = parent_of(path)
        parent = self._node(above)
        check_permission(parent.acl, acl.DELETE, self.requester.identities)
        node = self._node(path)
        _check_version(op.version, node.version)
        if node.children:
            raise Refused(codes.NOT_EMPTY)
        self._remove(path, parent)
        self.changes.append(Deleted(path))
        self.events.append((codes.NODE_DELETED, path, node))
        self.events.append((codes.CHILDREN_CHANGED, above, parent))
        return Written(path, None)

    def _remove(self, path: str, parent: DataNode) -> None:
        before = parent.pzxid
        node = self.tree.remove(path)
        parent.pzxid = self.zxid

        def undo() -> None:
            self.tree.add(path, node)
            parent.pzxid = before

        self.undo.append(undo)

    # ---- set and check

    def _set_data(self, op: SetData) -> Written:
        node = self._existing(op.path)
        check_permission(node.acl, acl.WRITE, self.requester.identities)
        version = _next_version(op.version, node.version)
        before = node.data, node.version, node.mzxid, node.mtime
        node.data, node.version, node.mzxid, node.mtime = op.data, version, self.zxid, self.time_ms

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime = before

        assert op.path is not None
        self.undo.append(undo)
        self.changes.append(DataSet(op.path, op.data, version))
        self.events.append((codes.DATA_CHANGED, op.path, node))
        return Written(op.path, node)

    def _set_acl(self, op: SetAcl) -> Written:
        check_path(op.path)
        found = self._resolved(op.acl)
        node = self._node(op.path)
        check_permission(node.acl, acl.ADMIN, self.requester.identities)
        version = _next_version(op.version, node.aversion)
        before = node.acl, node.aversion
        node.acl, node.aversion = found, version

        def undo() -> None:
            node.acl, node.aversion = before

        assert op.path is not None
        self.undo.append(undo)
        self.changes.append(AclSet(op.path, found, version))
        return Written(op.path, node)

    def _check(self, op: CheckVersion) -> Written:
        node = self._existing(op.path)
        check_permission(node.acl, acl.READ, self.requester.identities)
        version = _next_version(op.version, node.version)
        assert op.path is not None
        self.changes.append(Checked(op.path, version))
        return Written(op.path, None)

    def _existing(self, path: str | None) -> DataNode:
        """Return the node. A path with bad syntax is refused as such; paths in the tree need no check of it."""
        node = self.tree.nodes.get(path) if path else None
        if node is None:
            check_path(path)
            raise Refused(codes.NO_NODE)
        return node

    def _node(self, path: str | None) -> DataNode:
        node = self.tree.nodes.get(path) if path else None
        if node is None:
            raise Refused(codes.NO_NODE)
        return node


def _checked_flags(op: CreateNode) -> str:
    """Return the path of the request, once its flags and the shape of the path are acceptable."""
    if not 0 <= op.flags <= codes.FLAGS_MAX:
        raise Refused(codes.BAD_ARGUMENTS)
    if (
        op.flags >= codes.TTL_FLAG
    ):  # as on a server with its default settings, without extended types
        raise Refused(codes.UNIMPLEMENTED)
    path = op.path
    if path is None:
        raise Refused(codes.MARSHALLING_ERROR)
    if op.kind == codes.CREATE_TTL or "/" not in path or "\0" in path:
        raise Refused(codes.BAD_ARGUMENTS)
    return path


def _check_version(wanted: int, current: int) -> None:
    if wanted not in (ANY_VERSION, current):
        raise Refused(codes.BAD_VERSION)


def _next_version(wanted: int, current: int) -> int:
    """Return the version after a write. The version after -2 is 0, because -1 means any version."""
    _check_version(wanted, current)
    if current == ANY_VERSION - 1:
        return 0
    return _INT_MIN if current == _INT_MAX else current + 1
