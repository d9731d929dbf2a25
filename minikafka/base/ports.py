"""The seams of a broker: what it gets as arguments instead of reaching for a global.

Protocols only. `runtime/`, `zk/` and `rpc/` hold the production side; tests and the simulator bring
their own. Times: `now` is monotonic milliseconds (int), `wall_ms` is Unix milliseconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from minikafka.base.endpoints import PLAINTEXT, SecurityProtocol

Buffer: TypeAlias = bytes | bytearray | memoryview


class Timer(Protocol):
    """A callback that was asked for later."""

    def cancel(self) -> None:
        """Forget the callback; harmless when it already ran."""


class Clock(Protocol):
    """Monotonic and wall time."""

    def now(self) -> int:
        """Monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Unix milliseconds; jumps with the machine's clock."""

    async def sleep(self, ms: float) -> None:
        """Wait that long."""

    def call_later(self, ms: float, callback: Callable[[], None]) -> Timer:
        """Run the callback once, that much later."""


class Rng(Protocol):
    """Everything that is drawn by chance."""

    def bytes(self, count: int) -> bytes:
        """So many random bytes, fit for secrets and ids."""

    def uniform(self, low: float, high: float) -> float:
        """A number between the two, for jitter."""

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """The same items in an order by chance."""


class Tasks(Protocol):
    """The tasks of one broker incarnation: named, kept, cancelled on close."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Awaitable[None]:
        """Start it; an exception that leaves it is logged and given to the owner's `on_crash`."""

    async def close(self) -> None:
        """Cancel all and wait until the last has ended."""


class Executor(Protocol):
    """Where work that blocks is done (recovery of a log, deletion of a directory)."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """The function's result, without holding up the loop."""


class File(Protocol):
    """One open file. Every OSError comes out as `StorageFailed`."""

    path: str

    def pread(self, count: int, position: int) -> bytes:
        """At most so many bytes from there; fewer only at the end of the file."""

    def pwritev(self, slices: Sequence[Buffer], position: int) -> int:
        """Write all the slices there, whatever their number; the bytes written."""

    def size(self) -> int:
        """Bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file to that size."""

    def sync(self) -> None:
        """fsync: data and size."""

    def close(self) -> None:
        """Give the descriptor back; harmless twice."""


class Storage(Protocol):
    """A file system, synchronous: the page cache is the fast path. Every OSError comes out as `StorageFailed`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """The file for reading and writing."""

    def read(self, path: str) -> bytes:
        """The whole file."""

    def write_atomically(
        self, path: str, data: bytes, *, private: bool = False, sync: bool = True
    ) -> None:
        """Replace the file as a whole (write beside, fsync, rename, fsync the directory). `private`: mode 0600."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def names(self, directory: str) -> list[str]:
        """Entries of the directory, sorted."""

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory."""

    def make_directories(self, path: str) -> bool:
        """Create it with its parents; False when it was there already."""

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        """Move a file or directory, and fsync the parent."""

    def link(self, path: str, other: str) -> bool:
        """Give the file a second name; False where that cannot be (too many names, one is taken, no file)."""

    def remove(self, path: str) -> None:
        """Delete one file; no error when it is not there."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all in it; no error when it is not there."""

    def sync_directory(self, path: str) -> None:
        """fsync the directory entry itself."""

    def room(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the disk that the path is on."""

    def lock(self, path: str) -> File | None:
        """Hold an exclusive lock file until closed; None when another process holds it."""


class Link(Protocol):
    """The writing side of one byte-stream connection."""

    def send(self, slices: Sequence[Buffer]) -> None:
        """Write now if nothing is queued, else queue. Slices are free to be reused when this returns."""

    def queued_bytes(self) -> int:
        """Bytes accepted but not yet taken by the peer's socket."""

    def pause_reading(self) -> None:
        """Stop calling `buffer_updated` until resumed; harmless twice."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`; harmless twice."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Drop the connection now."""

    def peer(self) -> str:
        """host:port of the other side, for logs."""


class StreamHandler(Protocol):
    """What a broker puts behind a connection. Called by the transport, never awaits."""

    def connected(self, link: Link) -> None:
        """Once, before anything else."""

    def get_buffer(self, hint: int) -> Buffer:
        """A writable buffer of at least one byte for what comes next (asyncio.BufferedProtocol)."""

    def buffer_updated(self, count: int) -> None:
        """That many bytes were put into the buffer."""

    def disconnected(self, error: Exception | None) -> None:
        """Once, last. Nothing may be sent any more."""

    def drained(self) -> None:
        """The queue of `Link.send` fell below its mark."""


class Listener(Protocol):
    """A listening socket."""

    port: int

    async def close(self) -> None:
        """Stop accepting; open connections stay with their owners."""


class Transport(Protocol):
    """Byte streams between processes. `security`: the protocol of the listener; only PLAINTEXT is implemented."""

    async def listen(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        security: SecurityProtocol = PLAINTEXT,
    ) -> Listener:
        """Accept connections; port 0 takes a free port. Raises OSError, and ConfigError for the protocol."""

    async def connect(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        security: SecurityProtocol = PLAINTEXT,
    ) -> StreamHandler:
        """Open a connection. Raises OSError, and ConfigError for the protocol."""


class Stat(NamedTuple):
    """A znode's ZooKeeper Stat, by ZooKeeper's own names."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class SessionState(Enum):
    """States of the coordination session."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LEASE_EXPIRED = "lease_expired"
    EXPIRED = "expired"
    CLOSED = "closed"


class SessionEvent(NamedTuple):
    """One change of the session, in order and never lost."""

    state: SessionState
    generation: int
    connection: int
    now: int


class WatchKind(Enum):
    """What a one-shot watch looks at. EXISTS also fires when the node is created."""

    DATA = "data"
    EXISTS = "exists"
    CHILDREN = "children"


class WatchSignal(Enum):
    """Why a watch completed; never what changed: read again."""

    CHANGED = "changed"
    RESYNC = "resync"


class Check(NamedTuple):
    """Multi operation: the node is at this version."""

    path: str
    version: int


class Create(NamedTuple):
    """Multi operation: create a node. `private` nodes keep ZooKeeper's open ACL until security exists."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Multi operation: replace the data of a node at this version (-1: any)."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Multi operation: delete a node at this version (-1: any)."""

    path: str
    version: int


MultiOp: TypeAlias = Check | Create | Set | Delete


class Watch(Protocol):
    """A registered one-shot watch."""

    async def wait(self) -> WatchSignal:
        """Until it fired or the consumer must read everything again."""

    def fired(self) -> bool:
        """Whether it has."""

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        """Call back once, in the loop, when it fires (at once if it has)."""


class Coordination(Protocol):
    """ZooKeeper as a broker sees it. Paths are without the chroot.

    Mutating calls take `generation`: when the session is another one by now they raise `StaleSession`
    without sending (None: whatever session there is). Writes are never repeated. Errors: `base.errors`
    CoordinationError family. Reads are repeated inside a deadline while the generation lasts.
    """

    @property
    def generation(self) -> int:
        """Number of the session: +1 for every new one, 0 before the first."""

    @property
    def connection(self) -> int:
        """Number of the connection: +1 for every one, in whatever session."""

    @property
    def session_id(self) -> int:
        """ZooKeeper's id of the session; the owner of its ephemeral nodes."""

    @property
    def session_password(self) -> bytes:
        """What else it takes to attach to the session."""

    @property
    def session_timeout_ms(self) -> int:
        """As the server granted it."""

    @property
    def state(self) -> SessionState:
        """Where the session stands now."""

    async def start(self) -> None:
        """Connect; returns when CONNECTED for the first time."""

    def lease_valid(self, margin_ms: int = 0) -> bool:
        """Whether the server cannot have expired this session yet, by the local monotonic clock."""

    def events(self) -> AsyncIterator[SessionEvent]:
        """A lossless, ordered stream of session events from now on; each call is its own stream."""

    async def connected(self) -> int:
        """Wait until CONNECTED; the generation."""

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        """Data (never None) and Stat. `watch`: arm the watch registered for DATA on this path."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """In the order asked, by MultiRead; None where there is no node. Sets no watches."""

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Stat, or None."""

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """Sorted names."""

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Sorted names of each, by MultiRead; None where there is no node."""

    async def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        generation: int | None = None,
    ) -> tuple[str, Stat]:
        """The path made and its Stat."""

    async def ensure(self, path: str, data: bytes = b"") -> None:
        """Create the persistent node and its parents where absent."""

    async def set(
        self, path: str, data: bytes, version: int, *, generation: int | None = None
    ) -> Stat:
        """The new Stat."""

    async def delete(self, path: str, version: int, *, generation: int | None = None) -> None:
        """Delete at that version (-1: any)."""

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        """All or nothing, Stats of creates and sets in order (None for check and delete); or `MultiFailed`."""

    async def sync(self, path: str) -> None:
        """Make this server catch up with the leader."""

    def watch(self, kind: WatchKind, path: str) -> Watch:
        """Register before the read (same path, `watch=True`) that arms it."""

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        """Remove the watch from the server and forget it (D10)."""

    async def close(self) -> None:
        """End the session; its ephemeral nodes go."""


class Ledger(Protocol):
    """Takes down what happened, one line per call, in order (`ledger/record.py`). Never raises."""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """`cause`: id of the controller event behind it, "" when there is none. Fields are JSON-able."""


class Gate(Protocol):
    """Where an operation can be held at a named step (`controller/steps.py`), for a test to look or kill."""

    async def reached(self, operation: str, step: str) -> None:
        """Returns at once, or when the step is released."""


class Call(NamedTuple):
    """One control-plane call as a server sees it: method name and msgpack-able body."""

    method: str
    body: dict[str, Any]


class ControlPlane(Protocol):
    """Controller RPC: signed msgpack bodies over HTTP in production."""

    async def serve(
        self, handler: Callable[[Call], Awaitable[dict[str, Any]]], host: str, port: int
    ) -> Listener:
        """Answer calls; port 0 takes a free one."""

    async def call(
        self, host: str, port: int, method: str, body: dict[str, Any], *, timeout_ms: int
    ) -> dict[str, Any]:
        """One call. Raises OSError (also TimeoutError) when no answer came, `KafkaError` when it was refused."""

    async def close(self) -> None:
        """Give up all connections."""
