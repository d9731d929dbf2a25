"""The ZooKeeper port over Apache ZooKeeper: adds the chroot to paths, retries reads, and keeps one-shot watches.

Writes are not retried, except in `ensure` and `start`, where repeating a creation is harmless. Invariant: a
call returns or raises ZooKeeper's answer, or raises OutcomeUnknown.

A watch tells its consumer to read again; it does not contain the new state. Invariant: a consumer that registers a
watch before it reads misses no change. Each change that the server reports completes the watches on the changed path.
Each new connection completes all watches, because changes before the connection may not have been reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, TypeVar

from minikafka.base.errors import (
    Closed,
    CoordinationError,
    NodeExists,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    ServerError,
    StaleSession,
)
from minikafka.base.ports import (
    Clock,
    Create,
    Delete,
    MultiOp,
    Rng,
    SessionEvent,
    SessionState,
    Set,
    Stat,
    Tasks,
    Transport,
    WatchKind,
    WatchSignal,
    Znode,
)
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess
from minikafka.zookeeper.client.calls import Answer, ZooKeeperCall
from minikafka.zookeeper.client.ending import end_session
from minikafka.zookeeper.client.session import Verification, ZooKeeperSession
from minikafka.zookeeper.messages import codes

logger = logging.getLogger(__name__)
Other = TypeVar("Other")

DEFAULT_PORT: Final = 2181
IN_FLIGHT_MAX: Final = 256
MANY_PATHS: Final = 200
"""Maximum number of paths in one MultiRead; gives the best throughput with four requests in flight."""
MANY_BYTES: Final = 512 * 1024
MANY_CALLS: Final = 4
_RETRY_MS: Final = 50
_MS_PER_S: Final = 1_000


class ZooKeeperClient:
    """The client of ZooKeeper: implements the port `base.ports.ZooKeeper` with a session and its successors.

    `connect`: host:port,host:port/chroot, as in `zookeeper.connect`. A missing chroot is created.
    `connect_timeout_ms`: maximum time for which `start` waits for a server; default: the session timeout. `access`:
    encryption, authentication and the access control lists of new nodes.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        clock: Clock,
        rng: Rng,
        tasks: Tasks,
        transport: Transport,
        *,
        access: ZooKeeperAccess = OPEN_ACCESS,
        in_flight_max: int = IN_FLIGHT_MAX,
        connect_timeout_ms: int | None = None,
    ) -> None:
        servers, self._chroot = parse_connect(connect)
        self._acl_of = access.acl_of
        self._clock = clock
        self._watches = Watches()
        self._is_old_server = False
        self._session = ZooKeeperSession(
            servers,
            session_timeout_ms,
            clock,
            rng,
            tasks,
            transport,
            access,
            connect_timeout_ms=connect_timeout_ms or session_timeout_ms,
            in_flight_max=in_flight_max,
            on_event=self._on_event,
            on_attached=self._on_attached,
        )

    # ---- the session

    @property
    def generation(self) -> int:
        return self._session.generation

    @property
    def connection(self) -> int:
        """Number of the current connection: 1 for the first connection, plus 1 for each new connection."""
        return self._session.connection

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def session_password(self) -> bytes:
        """Password of the current session. Another process needs it to end the session."""
        return self._session.password

    @property
    def session_timeout_ms(self) -> int:
        return self._session.timeout_ms

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def last_zxid(self) -> int:
        return self._session.last_zxid

    async def start(self) -> None:
        """Connect, and create the chroot. Raises NotConnected if no server answers within the connect timeout.

        Raises ZooKeeperLoginRefused, if every server refuses the login.
        """
        await self._session.start()
        try:
            if self._chroot:
                await self._ensure(self._chroot)
        except BaseException:
            await self.close()
            raise

    def verify_sessions(self, path: str, verify: Callable[[bytes | None], None]) -> None:
        sync = calls.sync(self._full("/"))
        read = calls.get_data(self._full(path), watch=False)
        self._session.verification = Verification(sync, read, verify)

    def lease_valid(self, margin_ms: int = 0) -> bool:
        return self._session.lease_valid(margin_ms)

    def events(self) -> AsyncIterator[SessionEvent]:
        return self._session.events()

    async def connected(self) -> int:
        return await self._session.connected()

    async def close(self) -> None:
        """End the session, within about one second. All pending calls and watches complete."""
        await self._session.close()
        self._watches.resync()

    @contextmanager
    def _detect_old_server(self) -> Iterator[None]:
        """Suppress the error of a server that has no MultiRead (before ZooKeeper 3.6).

        After this error, every method of this object reads node by node.
        """
        try:
            yield
        except ServerError as error:
            if error.code != codes.UNIMPLEMENTED:
                raise
            logger.warning(
                "the server is older than ZooKeeper 3.6 and has no MultiRead: reading node by node"
            )
            self._is_old_server = True

    # ---- reads

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        """Return a node's data and Stat; set a data watch if `watch` is true. Raises NoNode."""
        return await self._read(calls.get_data(self._full(path), watch=watch))

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return a node's Stat, None if the node does not exist. `watch`: set a watch in both cases."""
        with suppress(NoNode):
            return await self._read(calls.exists(self._full(path), watch=watch))
        return None

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        return await self._read(calls.get_children(self._full(path), watch=watch))

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        if not self._is_old_server:
            with self._detect_old_server():
                return await self._read_many(paths, calls.get_data_of_many)
        return [await self._or_none(calls.get_data(self._full(p), watch=False)) for p in paths]

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Return the sorted names of each node's children, None for a missing node. Sets no watches."""
        if not self._is_old_server:
            with self._detect_old_server():
                return await self._read_many(paths, calls.get_children_of_many)
        reads = [calls.get_children(self._full(path), watch=False) for path in paths]
        found = [await self._or_none(read) for read in reads]
        return [None if answer is None else answer[0] for answer in found]

    async def sync(self, path: str) -> None:
        """Wait until this session's server has applied all writes committed before this call.

        This method sends a multi with only a version check, because the quorum commits a multi like a write.
        ZooKeeper's own sync request is not enough: ZooKeeper's leader answers it without the quorum, so a
        later read may miss a write that another client has already seen.
        """
        await self._read(calls.sync(self._full("/")))

    async def _read(self, call: ZooKeeperCall[Answer]) -> Answer:
        [answer] = await self._repeated(lambda losses: [call], self.generation)
        return answer

    async def _or_none(self, call: ZooKeeperCall[Answer]) -> Answer | None:
        with suppress(NoNode):
            return await self._read(call)
        return None

    async def _read_many(
        self, paths: Sequence[str], many: Callable[[Sequence[str]], ZooKeeperCall[list[Other]]]
    ) -> list[Other]:
        generation = self.generation
        chunks = list(_chunks([self._full(path) for path in paths]))
        found: list[Other] = []
        for start in range(0, len(chunks), MANY_CALLS):
            calls = partial(_smaller, many, chunks[start : start + MANY_CALLS])
            answers = await self._repeated(calls, generation)
            found += [item for answer in answers for item in answer]
        return found

    async def _repeated(
        self, calls_after: Callable[[int], Sequence[ZooKeeperCall[Answer]]], generation: int
    ) -> list[Answer]:
        """Send reads and return the responses. Repeat the reads if the connection is lost.

        `calls_after`: number of lost connections → the reads. Raises the last error after the session timeout, and
        StaleSession if a new session has started.
        """
        calls, losses = calls_after(0), 0
        reason: CoordinationError = OutcomeUnknown(f"no response for {calls[0].path}")
        try:
            async with asyncio.timeout(self.session_timeout_ms / _MS_PER_S):
                while True:
                    connection = self.connection
                    try:
                        return await self._answers(calls)
                    except (NotConnected, OutcomeUnknown) as error:
                        reason = error
                    if await self.connected() != generation:
                        raise StaleSession(f"the session of generation {generation} is over")
                    if self.connection == connection:  # the connection was not lost
                        await self._clock.sleep(_RETRY_MS)
                    else:
                        losses += 1
                        calls = calls_after(losses)
        except TimeoutError:
            raise reason from None

    async def _answers(self, calls: Sequence[ZooKeeperCall[Answer]]) -> list[Answer]:
        answers: list[asyncio.Future[Answer]] = []
        try:
            for call in calls:
                answers.append(self._session.submit(call))  # noqa: PERF401 - `finally` needs the futures before a failure
            await asyncio.wait(answers)
            return [answer.result() for answer in answers]
        finally:
            for answer in answers:
                if not answer.cancel():
                    answer.exception()  # otherwise asyncio logs every error that is not raised

    # ---- writes

    async def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        generation: int | None = None,
    ) -> tuple[str, Stat]:
        """Create a node; return its path and Stat.

        Raises NodeExists, NoNode (for a missing parent), NoChildrenForEphemerals.
        """
        op = Create(self._full(path), data, ephemeral, sequential)
        made, stat = await self._session.submit(calls.create(op, self._acl_of(path)), generation)
        return self._stripped(made), stat

    async def ensure(self, path: str) -> None:
        await self._ensure(self._full(path))

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        """Set a node's data if the node has this version; return the new Stat. Raises NoNode, BadVersion."""
        op = Set(self._full(path), data, version)
        return await self._session.submit(calls.set_data(op))

    async def delete(self, path: str, version: int) -> None:
        """Delete a node if the node has this version. Raises NoNode, BadVersion, NotEmpty."""
        op = Delete(self._full(path), version)
        await self._session.submit(calls.delete(op))

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        """Execute all operations or none. Return a Stat for each create and set, None for each other operation.

        Callers should send at most 512 kB and 1,000 operations. Raises MultiFailed, and TooLarge above 1 MiB.
        """
        if not ops:
            return []
        full = [op._replace(path=self._full(op.path)) for op in ops]
        acls = [self._acl_of(op.path) for op in ops]
        return await self._session.submit(calls.multi(full, acls), generation)

    async def _ensure(self, full: str) -> None:
        if await self._or_none(calls.exists(full, watch=False)) is not None:
            return
        parent = full.rpartition("/")[0]
        if parent:
            await self._ensure(parent)
        with suppress(NodeExists):
            is_below = full.startswith(self._chroot + "/")
            acl = self._acl_of(self._stripped(full) if is_below else full)
            await self._read(calls.create(Create(full, b""), acl))

    # ---- watches

    def watch(self, kind: WatchKind, path: str) -> OneShot:
        """Register a one-shot watch. Raises Closed after `close`, because the watch would never complete."""
        if self.state is SessionState.CLOSED:
            raise Closed("the ZooKeeper session was closed")
        return self._watches.register(kind, path)

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        self._watches.forget(kind, path)
        if kind is WatchKind.CHILDREN:
            await self._remove(calls.remove_watch(self._full(path), codes.CHILD_WATCH))
            return
        # The server has one watch for existence and data. Keep it while a watch of the other kind exists.
        other = WatchKind.EXISTS if kind is WatchKind.DATA else WatchKind.DATA
        if not self._watches.is_registered(other, path):
            await self._remove(calls.remove_watch(self._full(path), codes.DATA_WATCH))

    async def _remove(self, call: ZooKeeperCall[None]) -> None:
        """Remove a watch from the server. Without a connection there is no watch to remove."""
        try:
            await self._session.submit(call)
        except (NotConnected, OutcomeUnknown, StaleSession, Closed):
            return
        except ServerError as error:
            if error.code != codes.NO_WATCHER:
                raise

    def _on_event(self, change: int, full: str) -> None:
        if full == self._chroot or full.startswith(self._chroot + "/"):
            self._watches.changed(change, self._stripped(full))

    def _on_attached(self) -> None:
        """Complete all watches, because the server of a new connection does not know the watches."""
        self._watches.resync()

    # ---- paths

    def _full(self, path: str) -> str:
        assert path.startswith("/"), path  # otherwise the path would be outside the chroot
        return self._chroot if self._chroot and path == "/" else self._chroot + path

    def _stripped(self, full: str) -> str:
        return full[len(self._chroot) :] or "/"


def parse_connect(connect: str) -> tuple[list[tuple[str, int]], str]:
    """Parse host:port,host:port/chroot; return the servers and the chroot ("" if there is none)."""
    names, slash, chroot = connect.partition("/")
    servers = []
    for name in names.split(","):
        host, _, port = name.strip().rpartition(":")
        if not port.isdecimal() or not host:
            host, port = name.strip(), str(DEFAULT_PORT)
        servers.append((host.strip("[]"), int(port)))
    return servers, (slash + chroot).rstrip("/")


async def close_session(
    connect: str,
    session_id: int,
    password: bytes,
    clock: Clock,
    transport: Transport,
    access: ZooKeeperAccess = OPEN_ACCESS,
) -> bool:
    """End the session of another client. ZooKeeper then deletes the session's ephemeral nodes.

    Return False if there is no such session. Raises NotConnected if no server answers.
    """
    servers = parse_connect(connect)[0]
    return await end_session(servers, session_id, password, clock, transport, access)


def _smaller(
    many: Callable[[Sequence[str]], ZooKeeperCall[list[Other]]],
    chunks: Sequence[Sequence[str]],
    losses: int,
) -> list[ZooKeeperCall[list[Other]]]:
    """Return the reads of the chunks, of fewer paths each after every lost connection.

    A server may end the connection because the answer would be too long.
    """
    size = max(1, MANY_PATHS >> 2 * losses)
    parts = (chunk[at : at + size] for chunk in chunks for at in range(0, len(chunk), size))
    return [many(part) for part in parts]


def _chunks(paths: Sequence[str]) -> Iterator[list[str]]:
    """Split the paths into lists of at most MANY_PATHS paths and MANY_BYTES bytes."""
    chunk: list[str] = []
    size = 0
    for path in paths:
        length = len(path.encode())
        if chunk and (len(chunk) == MANY_PATHS or size + length > MANY_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(path)
        size += length
    if chunk:
        yield chunk


# ---- watches

_COMPLETES: Final = {
    codes.NODE_CREATED: (WatchKind.DATA, WatchKind.EXISTS),
    codes.NODE_DELETED: (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN),
    codes.DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    codes.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}
"""Kinds of watch that each kind of change completes. (The server sets no data watch on a missing node.)"""


class OneShot:
    """A watch: the implementation of the port `Watch`.

    A future calls the callbacks, so that an exception in one callback does not stop the other callbacks.
    """

    def __init__(self) -> None:
        self._signal: asyncio.Future[WatchSignal] = asyncio.get_running_loop().create_future()

    async def wait(self) -> WatchSignal:
        """Wait until the watch completes; return the signal."""
        # Awaiting the future itself would cancel the future when the waiting task is cancelled.
        await asyncio.wait([self._signal])
        return self._signal.result()

    def fired(self) -> bool:
        """True if the watch has completed."""
        return self._signal.done()

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        if self._signal.done():
            callback(self._signal.result())
        else:
            self._signal.add_done_callback(lambda signal: callback(signal.result()))

    def complete(self, signal: WatchSignal) -> None:
        """Complete the watch. Further calls have no effect."""
        if not self._signal.done():
            self._signal.set_result(signal)


class Watches:
    """All watches of one session, by kind and path (without the chroot)."""

    def __init__(self) -> None:
        self._one_shots: dict[tuple[WatchKind, str], list[OneShot]] = {}

    def register(self, kind: WatchKind, path: str) -> OneShot:
        """Return a new watch. All watches of one kind on one path complete together."""
        watch = OneShot()
        self._one_shots.setdefault((kind, path), []).append(watch)
        return watch

    def forget(self, kind: WatchKind, path: str) -> None:
        """Remove all watches of this kind on this path without completing them."""
        self._one_shots.pop((kind, path), None)

    def is_registered(self, kind: WatchKind, path: str) -> bool:
        """True if there is a watch of this kind on this path."""
        return (kind, path) in self._one_shots

    def changed(self, change: int, path: str) -> None:
        """Complete the watches on `path` for this kind of change, which the server has reported."""
        for kind in _COMPLETES.get(change, ()):
            self._complete((kind, path), WatchSignal.CHANGED)

    def resync(self) -> None:
        """Complete all watches with RESYNC, because some changes may not have been reported."""
        for key in list(self._one_shots):
            self._complete(key, WatchSignal.RESYNC)

    def _complete(self, key: tuple[WatchKind, str], signal: WatchSignal) -> None:
        for watch in self._one_shots.pop(key, ()):
            watch.complete(signal)
