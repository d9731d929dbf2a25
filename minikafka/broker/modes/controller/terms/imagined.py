"""An imagined ZooKeeper and imagined brokers, for a plan: reads are real, writes stay in memory.

`ImaginedStore` implements the ZooKeeper port; its multis always succeed. It keeps written nodes in memory,
and a read returns a written node instead of the real node. It does not check versions, parents or children.
`ImaginedChannels` accepts every request and answers every request with success. Invariant: nothing is written
to ZooKeeper or to the controller's log, and nothing is sent to brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NoReturn

from minikafka.base.errors import NoNode
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    UpdateMetadataRequest,
)
from minikafka.base.ports import (
    Check,
    Create,
    Delete,
    MultiOp,
    Node,
    SessionEvent,
    SessionState,
    Stat,
    WatchKind,
    WatchSignal,
    ZooKeeper,
)

OnResponse = Callable[[BrokerId, ControllerRequest, ControllerResponse], None]
_UNKNOWN: Final = 0


class _Watch:
    """A watch that never fires, because a plan passes each change to its machine as an event."""

    async def wait(self) -> NoReturn:
        raise NotImplementedError("a plan must not wait for a watch")

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        return


class ImaginedStore:
    """An implementation of the ZooKeeper port that reads from the real ZooKeeper and keeps writes in memory.

    Methods that a term never calls raise NotImplementedError.
    """

    def __init__(self, real: ZooKeeper) -> None:
        self._real = real
        self._changed: dict[str, Node | None] = {}

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

    async def connected(self) -> int:
        """Wait until the real session is connected; return its generation."""
        return await self._real.connected()

    # Reads of the real nodes, with the plan's changes.

    def put(self, path: str, data: bytes, version: int = 0) -> None:
        """Create or replace a node in memory, as if a broker or an administrator had written the node."""
        self._changed[path] = Node(data, _stat(version, len(data)))

    def remove(self, path: str) -> None:
        """Delete a node in memory, as if a broker or ZooKeeper had deleted the node."""
        self._changed[path] = None

    def lease_valid(self, margin_ms: int = 0) -> bool:
        """Return True: a plan cannot lose its session."""
        return True

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the nodes with the plan's changes applied, None for each absent node."""
        unchanged = [path for path in paths if path not in self._changed]
        nodes = await self._real.get_many(unchanged) if unchanged else []
        found = dict(zip(unchanged, nodes, strict=True)) | self._changed
        return [found[path] for path in paths]

    async def get(self, path: str, *, watch: bool = False) -> Node:
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
        """Return the children of each node with the plan's changes applied, None for each absent node."""
        found = await self._real.children_many(paths)
        return [self._children(path, names) for path, names in zip(paths, found, strict=True)]

    def _children(self, path: str, real: list[str] | None) -> list[str] | None:
        if path in self._changed and self._changed[path] is None:
            return None
        names = set(real or ())
        for changed, node in self._changed.items():
            parent, _, name = changed.rpartition("/")
            if parent == path:
                (names.discard if node is None else names.add)(name)
        return None if real is None and path not in self._changed else sorted(names)

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """Return the children of a node with the plan's changes applied. Raises NoNode."""
        (names,) = await self.children_many([path])
        if names is None:
            raise NoNode(path)
        return names, _stat(0, 0)

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        """Apply all operations in memory, without checks. A Set raises the version of its node by one."""
        return [self._apply(operation) for operation in ops]

    def _apply(self, operation: MultiOp) -> Stat | None:
        if isinstance(operation, Check):
            return None
        if isinstance(operation, Delete):
            self._changed[operation.path] = None
            return None
        version = 0 if isinstance(operation, Create) else operation.version + 1
        stat = _stat(version, len(operation.data))
        self._changed[operation.path] = Node(operation.data, stat)
        return stat

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


def _stat(version: int, size: int) -> Stat:
    unknown = (_UNKNOWN,) * 4
    return Stat(*unknown, version, 0, 0, 0, size, 0, _UNKNOWN)


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
