"""An imagined ZooKeeper and imagined brokers, for a plan: reads are real, writes stay in memory.

`ImaginedStore` is an overlay on the tree of a ZooKeeper server (`zookeeper/server/core/`). A node is read from the real
ZooKeeper when it is first needed, and placed into the tree. The plan's writes are checked and carried out on the tree,
so that a plan fails where a real controller's write would fail. Access control lists are not read: the plan may write
every node. `ImaginedChannels` accepts every request and answers every request with success. Invariant: nothing is
written to ZooKeeper or to the controller's log, and nothing is sent to brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NoReturn

from minikafka.base.errors import MultiFailed, NoNode, ServerVerdict, StaleSession
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    UpdateMetadataRequest,
)
from minikafka.base.ports import (
    Clock,
    Create,
    Delete,
    MultiOp,
    SessionEvent,
    SessionState,
    Set,
    Stat,
    WatchKind,
    WatchSignal,
    Znode,
    ZooKeeper,
)
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.session import check_size
from minikafka.zookeeper.messages import codes, requests
from minikafka.zookeeper.messages.codes import Refused
from minikafka.zookeeper.messages.jute import ANYONE, Identity
from minikafka.zookeeper.server.core.attempt import ANY_VERSION, Attempt
from minikafka.zookeeper.server.core.tree import ROOT, Tree, name_of, parent_of

OnResponse = Callable[[BrokerId, ControllerRequest, ControllerResponse], None]


class _Watch:
    """A watch that never fires, because a plan passes each change to its machine as an event."""

    async def wait(self) -> NoReturn:
        raise NotImplementedError("a plan must not wait for a watch")

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        return


class _Session:
    """The session that requests the plan's writes. `session_id`: the owner of the plan's ephemeral nodes."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.identities: list[Identity] = []


class _Overlay:
    """The real nodes that were read so far, with the plan's changes.

    A path in `known` was read. The tree has its node with the names of all its children, or the node does not
    exist. The tree has no other nodes, so that it may have a node without its parent.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self._tree = Tree.empty()
        self._zxid = 0

    def place(self, path: str, node: Znode | None, children: Sequence[str]) -> None:
        """Add a node as it was read, None for an absent node. A path that is known already keeps its changes."""
        if path in self.known:
            return
        self.known.add(path)
        if node is not None:
            self._tree.place(path, node.data, node.stat, children)
            self._zxid = max(self._zxid, node.stat.mzxid, node.stat.pzxid)

    def node(self, path: str) -> Znode | None:
        """Return the node at a known path, None if it does not exist."""
        node = self._tree.nodes.get(path)
        return None if node is None else Znode(node.data or b"", node.stat())

    def children(self, path: str) -> list[str] | None:
        """Return the sorted names of the children of the node at a known path, None if it does not exist."""
        node = self._tree.nodes.get(path)
        return None if node is None else sorted(node.children or ())

    def write(self, ops: Sequence[MultiOp], session_id: int, time_ms: int) -> list[Stat | None]:
        """Carry out all operations or none, as a ZooKeeper server does. Raises MultiFailed.

        The nodes on which the operations depend must be known.
        """
        self._zxid += 1
        attempt = Attempt(self._tree, _Session(session_id), self._zxid, time_ms)
        stats: list[Stat | None] = []
        for op in ops:
            self._join(op.path)
            try:
                stats.append(attempt.apply(_operation(op)).stat)
            except Refused as refused:
                attempt.roll_back()
                error = calls.error_of(refused.code, op.path)
                assert isinstance(error, ServerVerdict)
                raise MultiFailed(len(stats), error) from refused
        return stats

    def _join(self, path: str) -> None:
        """Make the parent name the node, which was perhaps created after the parent was read."""
        parent = self._tree.nodes.get(parent_of(path)) if path.startswith("/") else None
        if parent is not None and path in self._tree.nodes and path != ROOT:
            parent.children = parent.children or {}
            parent.children[name_of(path)] = None


def _needed(op: MultiOp) -> list[str]:
    """Return the paths of the nodes on which the outcome of an operation depends."""
    return [op.path, parent_of(op.path)] if isinstance(op, Create | Delete) else [op.path]


def _operation(op: MultiOp) -> requests.Operation:
    if isinstance(op, Create):
        flags = codes.EPHEMERAL * op.ephemeral | codes.SEQUENTIAL * op.sequential
        return requests.CreateNode(codes.CREATE2, op.path, op.data, ANYONE, flags)
    if isinstance(op, Set):
        return requests.SetData(op.path, op.data, op.version)
    if isinstance(op, Delete):
        return requests.DeleteNode(op.path, op.version)
    return requests.CheckVersion(op.path, op.version)


class ImaginedStore:
    """An implementation of the ZooKeeper port that reads from the real ZooKeeper and keeps writes in memory.

    Methods that a term never calls raise NotImplementedError.
    """

    def __init__(self, real: ZooKeeper, clock: Clock) -> None:
        self._real = real
        self._clock = clock
        self._overlay = _Overlay()

    # Calls that are passed to the real session.

    @property
    def generation(self) -> int:
        """Number of the broker's real ZooKeeper session."""
        return self._real.generation

    @property
    def session_id(self) -> int:
        """Id of the broker's real ZooKeeper session."""
        return self._real.session_id

    @property
    def session_password(self) -> bytes:
        """Empty password, because a plan opens no session."""
        return b""

    @property
    def session_timeout_ms(self) -> int:
        """Timeout (ms) of the broker's real ZooKeeper session."""
        return self._real.session_timeout_ms

    @property
    def state(self) -> SessionState:
        """State of the broker's real ZooKeeper session."""
        return self._real.state

    @property
    def last_zxid(self) -> int:
        """The highest zxid that the real ZooKeeper has answered with."""
        return self._real.last_zxid

    async def connected(self) -> int:
        """Wait until the real session is connected; return its generation."""
        return await self._real.connected()

    def lease_valid(self, margin_ms: int = 0) -> bool:
        """Return True: a plan cannot lose its session."""
        return True

    # Reads of the real nodes, with the plan's changes.

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return the nodes with the plan's changes applied, None for each absent node."""
        await self._read(paths)
        return [self._overlay.node(path) for path in paths]

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        """Return a node with the plan's changes applied. Raises NoNode."""
        (node,) = await self.get_many([path])
        if node is None:
            raise NoNode(path)
        return node

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return the Stat of a node with the plan's changes applied, None for an absent node."""
        (node,) = await self.get_many([path])
        return node.stat if node else None

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        await self._read(paths)
        return [self._overlay.children(path) for path in paths]

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """Return the children and the Stat of a node with the plan's changes applied. Raises NoNode."""
        _, stat = await self.get(path)
        return self._overlay.children(path) or [], stat

    async def _read(self, paths: Iterable[str]) -> None:
        """Read the nodes that are not known yet, and the names of their children."""
        unknown = [path for path in dict.fromkeys(paths) if path not in self._overlay.known]
        if not unknown:
            return
        nodes = dict(zip(unknown, await self._real.get_many(unknown), strict=True))
        parents = [path for path, node in nodes.items() if node and node.stat.num_children]
        names = await self._real.children_many(parents) if parents else []
        children = dict(zip(parents, names, strict=True))
        for path, node in nodes.items():
            self._overlay.place(path, node, children.get(path) or ())

    # Writes, which change only the overlay.

    async def put(self, path: str, data: bytes) -> None:
        """Create or replace a node, as if an administrator had written the node. Raises MultiFailed."""
        is_new = await self.exists(path) is None
        await self.multi([Create(path, data) if is_new else Set(path, data, ANY_VERSION)])

    async def remove(self, path: str) -> None:
        """Delete a node if it exists, as if its owner had deleted the node. Raises MultiFailed."""
        if await self.exists(path) is not None:
            await self.multi([Delete(path, ANY_VERSION)])

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        """Carry out all operations or none, with ZooKeeper's checks. Raises MultiFailed, StaleSession, TooLarge."""
        if generation not in (None, self.generation):
            raise StaleSession(f"the session of generation {generation} is over")
        check_size(calls.multi(ops))
        await self._read(path for op in ops if op.path.startswith("/") for path in _needed(op))
        await self._read(self._rivals(ops))
        return self._overlay.write(ops, self.session_id, self._clock.wall_ms())

    def _rivals(self, ops: Sequence[MultiOp]) -> list[str]:
        """Return the children that may have the name of a sequential node that the operations create."""
        prefixes = [op.path for op in ops if isinstance(op, Create) and op.sequential]
        return [
            path
            for prefix in prefixes
            for name in self._overlay.children(parent_of(prefix)) or ()
            if (path := f"{parent_of(prefix).rstrip('/')}/{name}").startswith(prefix)
        ]

    async def sync(self, path: str) -> None:
        """Do nothing: a plan needs no sync."""

    def watch(self, kind: WatchKind, path: str) -> _Watch:
        """Return a watch that never fires."""
        return _Watch()

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        """Do nothing: there are no real watches."""

    # Methods that a term never calls.

    async def start(self) -> None:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError

    def verify_sessions(self, path: str, verify: Callable[[bytes | None], None]) -> None:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError

    def events(self) -> AsyncIterator[SessionEvent]:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError

    async def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        generation: int | None = None,
    ) -> tuple[str, Stat]:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError

    async def ensure(self, path: str) -> None:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError

    async def delete(self, path: str, version: int) -> None:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError

    async def close(self) -> None:
        """Raise NotImplementedError: a term never calls this method."""
        raise NotImplementedError


class ImaginedChannels:
    """Channels to imagined brokers: requests are kept until `answer` answers them with success."""

    def __init__(self) -> None:
        self._unanswered: deque[tuple[BrokerId, ControllerRequest, OnResponse]] = deque()

    def add(self, broker: Broker) -> None:
        """Do nothing: requests are accepted for any broker."""

    def remove(self, broker_id: BrokerId) -> None:
        """Drop the unanswered requests to a broker."""
        self._unanswered = deque(kept for kept in self._unanswered if kept[0] != broker_id)

    def send(
        self, broker_id: BrokerId, request: ControllerRequest, on_response: OnResponse
    ) -> None:
        """Keep the request until `answer` is called."""
        self._unanswered.append((broker_id, request, on_response))

    def stop(self) -> None:
        """Drop all unanswered requests."""
        self._unanswered.clear()

    def waiting(self, broker_id: BrokerId) -> int:
        """Return 0: a plan does not show queue lengths."""
        return 0

    def backlog(self) -> dict[BrokerId, int]:
        """Return an empty mapping: a plan does not show queue lengths."""
        return {}

    def answer(self) -> bool:
        """Answer all unanswered requests with success; return True if there were any requests."""
        requests, self._unanswered = self._unanswered, deque()
        for broker_id, request, on_response in requests:
            named = () if isinstance(request, UpdateMetadataRequest) else request.partitions
            done = tuple((state.tp, 0) for state in named)
            on_response(broker_id, request, ControllerResponse(0, done))
        return bool(requests)
