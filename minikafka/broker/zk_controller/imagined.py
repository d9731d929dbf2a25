"""A ZooKeeper and brokers that are only imagined, for a plan: what is read is real, what is written stays here.

`ImaginedStore` is a Coordination whose multis always succeed and change only a picture laid over the real nodes.
It has no rules of ZooKeeper but one: a set makes the version one higher. `ImaginedChannels` takes every
request and has healthy brokers answer. Invariant: nothing of this reaches ZooKeeper, a broker or the logs of
the controller.
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
    Coordination,
    Create,
    Delete,
    MultiOp,
    SessionEvent,
    SessionState,
    Stat,
    WatchKind,
    WatchSignal,
)

Node = tuple[bytes, Stat]
OnResponse = Callable[[BrokerId, ControllerRequest, ControllerResponse], None]
_NOT_KNOWN: Final = 0


class _Watch:
    """Never fires: what changes in the plan is told to its machine."""

    async def wait(self) -> NoReturn:
        raise NotImplementedError("nobody waits in a plan")

    def fired(self) -> bool:
        return False

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        return


class ImaginedStore:
    """See the module. The part of Coordination that a term uses; the rest raises NotImplementedError."""

    def __init__(self, real: Coordination) -> None:
        self._real = real
        self._changed: dict[str, Node | None] = {}

    # As it really is.

    @property
    def generation(self) -> int:
        """See Coordination."""
        return self._real.generation

    @property
    def connection(self) -> int:
        """See Coordination."""
        return self._real.connection

    @property
    def session_id(self) -> int:
        """See Coordination."""
        return self._real.session_id

    @property
    def session_password(self) -> bytes:
        """Nobody's."""
        return b""

    @property
    def session_timeout_ms(self) -> int:
        """See Coordination."""
        return self._real.session_timeout_ms

    @property
    def state(self) -> SessionState:
        """See Coordination."""
        return self._real.state

    async def connected(self) -> int:
        """See Coordination."""
        return await self._real.connected()

    # As it is imagined.

    def put(self, path: str, data: bytes, version: int = 0) -> None:
        """Somebody else made or changed the node."""
        self._changed[path] = (data, _stat(version, len(data)))

    def remove(self, path: str) -> None:
        """Somebody else removed the node."""
        self._changed[path] = None

    def lease_valid(self, margin_ms: int = 0) -> bool:
        """Always: there is no authority to lose."""
        return True

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """See Coordination."""
        unchanged = [path for path in paths if path not in self._changed]
        nodes = await self._real.get_many(unchanged) if unchanged else []
        found = dict(zip(unchanged, nodes, strict=True)) | self._changed
        return [found[path] for path in paths]

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """See Coordination."""
        (node,) = await self.get_many([path])
        if node is None:
            raise NoNode(path)
        return node

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """See Coordination."""
        (node,) = await self.get_many([path])
        return node[1] if node else None

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """See Coordination."""
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
        """See Coordination."""
        (names,) = await self.children_many([path])
        if names is None:
            raise NoNode(path)
        return names, _stat(0, 0)

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        """Always succeeds; versions are one higher than those that were expected."""
        return [self._apply(operation) for operation in ops]

    def _apply(self, operation: MultiOp) -> Stat | None:
        if isinstance(operation, Check):
            return None
        if isinstance(operation, Delete):
            self._changed[operation.path] = None
            return None
        version = 0 if isinstance(operation, Create) else operation.version + 1
        stat = _stat(version, len(operation.data))
        self._changed[operation.path] = (operation.data, stat)
        return stat

    async def sync(self, path: str) -> None:
        """Nothing to wait for."""

    def watch(self, kind: WatchKind, path: str) -> _Watch:
        """One that never fires."""
        return _Watch()

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        """Nothing to remove."""

    # What no term does.

    async def start(self) -> None:
        """Not in a plan."""
        raise NotImplementedError

    def events(self) -> AsyncIterator[SessionEvent]:
        """Not in a plan."""
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
        """Not in a plan."""
        raise NotImplementedError

    async def ensure(self, path: str, data: bytes = b"") -> None:
        """Not in a plan."""
        raise NotImplementedError

    async def set(
        self, path: str, data: bytes, version: int, *, generation: int | None = None
    ) -> Stat:
        """Not in a plan."""
        raise NotImplementedError

    async def delete(self, path: str, version: int, *, generation: int | None = None) -> None:
        """Not in a plan."""
        raise NotImplementedError

    async def close(self) -> None:
        """Not in a plan."""
        raise NotImplementedError


def _stat(version: int, size: int) -> Stat:
    unknown = (_NOT_KNOWN,) * 4
    return Stat(*unknown, version, 0, 0, 0, size, 0, _NOT_KNOWN)


class ImaginedChannels:
    """Channels to brokers that do what they are told, when `answer` is called."""

    def __init__(self) -> None:
        self._asked: deque[tuple[BrokerId, ControllerRequest, OnResponse]] = deque()

    def add(self, broker: Broker) -> None:
        """Nothing to open."""

    def remove(self, broker_id: BrokerId) -> None:
        """What the broker was asked is never answered."""
        self._asked = deque(asked for asked in self._asked if asked[0] != broker_id)

    def send(
        self, broker_id: BrokerId, request: ControllerRequest, on_response: OnResponse
    ) -> None:
        """Keep it for `answer`."""
        self._asked.append((broker_id, request, on_response))

    def stop(self) -> None:
        """Drop what was not answered."""
        self._asked.clear()

    def waiting(self, broker_id: BrokerId) -> int:
        """Imagined brokers are quick."""
        return 0

    def backlog(self) -> dict[BrokerId, int]:
        """Nothing waits."""
        return {}

    def answer(self) -> bool:
        """Every broker says that it did what it was asked; whether there was anything."""
        asked, self._asked = self._asked, deque()
        for broker_id, request, on_response in asked:
            told = () if isinstance(request, UpdateMetadataRequest) else request.partitions
            done = tuple((state.tp, 0) for state in told)
            on_response(broker_id, request, ControllerResponse(0, done))
        return bool(asked)
