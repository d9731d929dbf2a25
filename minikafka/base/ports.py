"""The ports of a broker: interfaces to the outside world, passed as arguments.

Protocols only. `runtime/`, `zookeeper/` and `broker/rpc/` implement them for production, and `simulation/`
in memory. Times: `now` is monotonic milliseconds (int), `wall_ms` is Unix milliseconds.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from minikafka.base.encryption import Tls
from minikafka.base.endpoints import Endpoint
from minikafka.base.protocol_versions import UNVERSIONED, Versions

Buffer: TypeAlias = bytes | bytearray | memoryview


class DeferredBytes(Protocol):
    """Bytes of a response that are read when they can be sent. `left`: number of bytes not read yet."""

    left: int

    def __len__(self) -> int:
        """Return the total number of bytes, whether read or not."""

    def read(self, max_bytes: int) -> bytes:
        """Return the next bytes, at most `max_bytes`. Raises RecordsGone."""


Slice: TypeAlias = Buffer | DeferredBytes
"""A part of a response: bytes in memory, or bytes that are read when they can be sent."""
QUEUE_MARK_BYTES: Final = 64 * 1024
"""`StreamHandler.drained` is called each time the queue of a `Link` shrinks to this size or below."""


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; no effect if the callback has already run."""


class Clock(Protocol):
    """Monotonic and wall-clock time."""

    advanced_ms: int  # by how much a user has moved `wall_ms` ahead of the machine's clock

    def now(self) -> int:
        """Return monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Return Unix milliseconds. The value jumps when the machine's clock is set."""

    async def sleep(self, ms: float) -> None:
        """Wait for this many milliseconds."""

    def call_later(self, ms: float, callback: Callable[[], None]) -> Timer:
        """Run the callback once after this many milliseconds."""


class Processor(Protocol):
    """The processor, which this process shares with other processes."""

    def yield_ns(self) -> int:
        """Let another process run if one waits for the processor; return how many nanoseconds that took."""

    def time_ns(self) -> int:
        """Return monotonic nanoseconds, for the time that a piece of work takes."""


class Rng(Protocol):
    """The source of randomness."""

    def bytes(self, count: int) -> bytes:
        """Return this many random bytes, suitable for secrets and ids."""

    def uniform(self, low: float, high: float) -> float:
        """Return a random number between the two bounds, for jitter."""

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """Return the items in random order."""


class Tasks(Protocol):
    """The asyncio tasks of one broker process: named, referenced until they end, and cancelled by `close`."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Awaitable[None]:
        """Start a task. An exception that the task raises is logged and passed to the owner's `on_crash`."""

    async def close(self) -> None:
        """Cancel all tasks and wait until the last one has ended."""


class Executor(Protocol):
    """Runs blocking work, such as the recovery of a log, outside the event loop."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run the function without blocking the event loop and return its result."""


class Cleaners(Protocol):
    """Carries out the cleanings of logs (`storage/log/cleaner`) outside the event loop, several at once."""

    async def clean(
        self, task: Mapping[str, Any], on_group: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> Mapping[str, Any]:
        """Carry out an encoded `CleaningTask`; return the encoded `CleaningOutcome`.

        `on_group` is awaited with each encoded `CleanedGroup`, one after the other; if it raises, the
        cleaning ends. No part of the cleaning is running when this call returns, raises or has been
        cancelled. Raises CleaningFailed, and StorageFailed.
        """

    async def close(self) -> None:
        """Free the resources that are kept for later cleanings."""


class File(Protocol):
    """One open file. Every OSError is raised as `StorageFailed`."""

    path: str

    def pread(self, count: int, position: int) -> bytes:
        """Read this many bytes at a position; return fewer bytes only at the end of the file."""

    def pwritev(self, slices: Sequence[Buffer], position: int) -> int:
        """Write all slices at a position; return the number of bytes written."""

    def size(self) -> int:
        """Return the size of the file in bytes."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file to this size. Its other names (hard links) keep the former content."""

    def sync(self) -> None:
        """Flush data and size to the disk (fsync)."""

    def close(self) -> None:
        """Close the file; a second call has no effect."""


class Storage(Protocol):
    """A file system. Calls are synchronous, because the page cache is fast.

    A power loss may take back every change of a directory's names (a file or directory created, renamed or removed)
    until the directory has been fsynced. A method with a parameter `sync` does so before it returns, unless `sync` is
    False; after any other change, the caller calls `sync_directory`. Every OSError is raised as `StorageFailed`.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; a symbolic link is refused."""

    def read(self, path: str) -> bytes:
        """Return the content of a file."""

    def write_atomically(
        self, path: str, data: bytes, *, private: bool = False, sync: bool = True
    ) -> None:
        """Replace a file as a whole by a rename; fsync it and its directory if `sync`. `private`: mode 0600."""

    def exists(self, path: str) -> bool:
        """True if a file or directory with this path exists."""

    def names(self, directory: str) -> list[str]:
        """Return the entries of a directory, sorted."""

    def modified_ms(self, path: str) -> int:
        """Return the time (Unix ms) of the last change of a file's content."""

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the time (Unix ms) of the last change of a file's content."""

    def is_directory(self, path: str) -> bool:
        """True if the path is a directory."""

    def is_link(self, path: str) -> bool:
        """True if the path itself is a symbolic link, whether or not its target exists."""

    def make_directories(self, path: str, *, sync: bool = True) -> bool:
        """Create a directory with its parents, and fsync the parent of each if `sync`; return False if it existed."""

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        """Rename a file or directory, and fsync the parent directory unless `sync` is False."""

    def link(self, path: str, other: str) -> bool:
        """Create `other` as a hard link to the file `path`. Return False if the file system cannot."""

    def remove(self, path: str) -> None:
        """Delete one file; no error if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its content; no error if it does not exist."""

    def sync_directory(self, path: str) -> None:
        """Flush the entries of a directory to the disk (fsync)."""

    def room(self, path: str) -> tuple[int, int]:
        """Return the (total, usable) bytes of the disk that holds the path."""

    def lock(self, path: str) -> File | None:
        """Lock a file until the returned File is closed; return None if another process holds the lock."""

    def place(self, path: str) -> str:
        """Return a text that no copy of this directory has, on this machine or another. Raises StorageFailed."""

    def lock_holder(self, path: str) -> str:
        """Return the process that holds the lock of a file, as text for an error."""


class Link(Protocol):
    """The sending side of one byte-stream connection."""

    def send(self, slices: Sequence[Buffer]) -> None:
        """Write the bytes at once if nothing is queued, else queue them. The caller may then reuse the buffers."""

    def queued_bytes(self) -> int:
        """Return the bytes accepted by `send` but not yet taken by the socket."""

    def pause_reading(self) -> None:
        """Stop calling `buffer_updated` until `resume_reading`; a second call has no effect."""

    def resume_reading(self) -> None:
        """Continue reading after `pause_reading`; a second call has no effect."""

    def has_ended(self) -> bool:
        """Return True if the other side has closed or reset the connection, even while reading is paused."""

    def close(self) -> None:
        """Send all queued bytes, then close the connection."""

    def abort(self) -> None:
        """Close the connection at once and drop queued bytes."""

    def peer(self) -> str:
        """Return host:port of the other side, for logs."""

    def peer_certificate(self) -> bytes | None:
        """Return the X.509 certificate of the other side, in DER; None if it has proven none."""

    def hand_over(self, handler: StreamHandler, received: bytes = b"") -> None:
        """Let another handler take over, which gets these bytes as if they had just arrived."""


class StreamHandler(Protocol):
    """The receiver of a connection's bytes. The transport calls its methods, none of which is a coroutine."""

    def connected(self, link: Link) -> None:
        """Called once, before all other calls."""

    def get_buffer(self, hint: int) -> Buffer:
        """Return a writable buffer of at least one byte for the next bytes (asyncio.BufferedProtocol)."""

    def buffer_updated(self, count: int) -> None:
        """Called after this many bytes were received into the buffer."""

    def disconnected(self, error: Exception | None) -> None:
        """Called once, as the last call; nothing can be sent any more."""

    def drained(self) -> None:
        """Called each time the queue of `Link.send` has shrunk to `QUEUE_MARK_BYTES` or below."""


class Listener(Protocol):
    """A listening socket."""

    port: int

    async def close(self) -> None:
        """Stop accepting connections; open connections stay open."""


class Descriptors(Protocol):
    """The file descriptors of this process."""

    def limit(self) -> int:
        """Return the maximum number of open descriptors."""

    def used(self) -> int:
        """Return the number of open descriptors."""


class Transport(Protocol):
    """Byte streams between processes. `tls`: how they are encrypted; None: in the clear."""

    async def listen(
        self,
        factory: Callable[[], StreamHandler | None],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> Listener:
        """Accept connections on a port; 0: any free port. `factory` returns None to refuse one. Raises OSError."""

    async def connect(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> StreamHandler:
        """Open a connection, whose handler gets the link when it is encrypted. Raises OSError."""


class Stat(NamedTuple):
    """A znode's ZooKeeper Stat, with ZooKeeper's field names."""

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


class Znode(NamedTuple):
    """A znode as it was read: its data (never None) and its Stat."""

    data: bytes
    stat: Stat


class SessionState(Enum):
    """States of the ZooKeeper session."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LEASE_EXPIRED = "lease_expired"
    EXPIRED = "expired"
    CLOSED = "closed"


class SessionEvent(NamedTuple):
    """One change of the session's state; changes arrive in order and none is lost."""

    state: SessionState
    generation: int
    connection: int
    now: int


class WatchKind(Enum):
    """The kind of a one-shot watch. EXISTS also fires when the node is created."""

    DATA = "data"
    EXISTS = "exists"
    CHILDREN = "children"


class WatchSignal(Enum):
    """The reason why a watch completed. To learn what has changed, the owner must read the node again."""

    CHANGED = "changed"
    RESYNC = "resync"


class Check(NamedTuple):
    """Multi operation: require that a node has this version."""

    path: str
    version: int


class Create(NamedTuple):
    """Multi operation: create a node."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Multi operation: replace the data of a node, which must have this version (-1: any)."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Multi operation: delete a node, which must have this version (-1: any)."""

    path: str
    version: int


MultiOp: TypeAlias = Check | Create | Set | Delete


class Watch(Protocol):
    """A registered one-shot watch."""

    async def wait(self) -> WatchSignal:
        """Wait until the watch fires (CHANGED), or until its owner must read all nodes again (RESYNC)."""

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        """Call the callback once, in the event loop, when the watch fires; at once if it has already fired."""


class ZooKeeper(Protocol):
    """ZooKeeper as a broker sees it. Paths are without the chroot.

    `create` and `multi` have an argument `generation`: if the current session has another generation, they send
    nothing and raise `StaleSession` (None: any session). Writes are never repeated. Reads are repeated until a
    deadline, as long as the session has not changed. All errors are subclasses of CoordinationError.
    """

    @property
    def generation(self) -> int:
        """Number of the session: increases by 1 with every new session; 0 before the first."""

    @property
    def session_id(self) -> int:
        """ZooKeeper's id of the session, the owner of its ephemeral nodes."""

    @property
    def session_password(self) -> bytes:
        """ZooKeeper's password of the session, needed to attach to the session."""

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout as granted by the server."""

    @property
    def state(self) -> SessionState:
        """Current state of the session."""

    @property
    def last_zxid(self) -> int:
        """The highest zxid that a server has answered with: reads sent from now on see all writes up to it.

        Every answer has the zxid of the server's last write. The same zxid in a later answer means that no node has
        changed in between.
        """

    async def start(self) -> None:
        """Connect to ZooKeeper; return when the session is CONNECTED for the first time."""

    def verify_sessions(self, path: str, verify: Callable[[bytes | None], None]) -> None:
        """Call `verify` with the data of a node, None if it is missing, before anything else uses a later session.

        It is also called with the node of a server that refuses this session because its data are older than what this
        client has seen. If it raises ClusterLost for each server, the client's task ends, and no session is used.
        """

    def lease_valid(self, margin_ms: int = 0) -> bool:
        """True if, by the local monotonic clock, no server can expire the session in the next `margin_ms`."""

    def events(self) -> AsyncIterator[SessionEvent]:
        """Return a new stream of all session events from now on, in order."""

    async def connected(self) -> int:
        """Wait until the session is CONNECTED and return its generation."""

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        """Return the node. `watch`: arm the DATA watch registered for this path."""

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return the nodes in the order of `paths`, None for a missing node. Uses MultiRead and sets no watches."""

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return the node's Stat, or None if the node does not exist."""

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """Return the sorted names of the children, and the node's Stat."""

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Return the sorted names of each node's children, None for a missing node. Uses MultiRead if possible."""

    async def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        generation: int | None = None,
    ) -> tuple[str, Stat]:
        """Create a node; return its path and Stat."""

    async def ensure(self, path: str) -> None:
        """Create the persistent node and its parents if they do not exist."""

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        """Replace the node's data and return the new Stat."""

    async def delete(self, path: str, version: int) -> None:
        """Delete a node if it has this version (-1: any)."""

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        """Apply all operations or none; return one result per operation. Raises `MultiFailed`.

        The result of a create or set is the new Stat, the result of a check or delete is None.
        """

    async def sync(self, path: str) -> None:
        """Wait until the connected server has caught up with the ensemble's leader."""

    def watch(self, kind: WatchKind, path: str) -> Watch:
        """Register and return a watch. The next read of the same path with `watch=True` arms it."""

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        """Remove all watches of this kind on this path.

        The watch on the server is removed too, unless watches of another kind need it (D10).
        """

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes."""


class Ledger(Protocol):
    """A record of events, one line per call, in order (`broker/ledger/record.py`). Never raises."""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Write one line with JSON-able fields.

        `cause`: id of the controller event that caused the recorded fact, "" if no event caused it.
        """


class Gate(Protocol):
    """A gate at the named steps of operations (`deciders/controller/steps.py`).

    A test or a user can hold a step. An operation then waits at this step until the step is released.
    """

    async def reached(self, operation: str, step: str) -> None:
        """Wait until the step is released, if a test or a user holds the step. Otherwise return at once."""


class Call(NamedTuple):
    """One control-plane call as received by a server: method name, and a body that msgpack can encode."""

    method: str
    body: dict[str, Any]


class ControlPlane(Protocol):
    """Calls to brokers from other brokers and from tools; in production signed msgpack over HTTP."""

    versions: Versions  # of the protocol between brokers: those that the caller has

    async def serve(
        self,
        handler: Callable[[Call], Awaitable[dict[str, Any]]],
        host: str,
        port: int,
        metrics: Callable[[], AsyncIterator[str]] | None = None,
        refusal: Callable[[str, str], Awaitable[int]] | None = None,
    ) -> Listener:
        """Serve calls on a port; 0: any free port. `metrics` yields the text of `/metrics`, for whom `refusal` is 0."""

    async def call(
        self,
        endpoint: Endpoint,
        method: str,
        body: dict[str, Any],
        *,
        target_id: int,
        timeout_ms: int,
        version: str = UNVERSIONED,
    ) -> dict[str, Any]:
        """Make one call in a version of the protocol to the broker `target_id`; another broker there refuses the call.

        Raises OSError if there is no response: ConnectionRefusedError if every address of the host refused the
        connection, another ConnectionError if the connection ended, TimeoutError if the broker was silent. Raises
        KafkaError if the call is refused.
        """

    async def clock_offset(self, endpoint: Endpoint, *, target_id: int, timeout_ms: int) -> int:
        """Return by how many milliseconds the wall clock of the broker `target_id` is ahead of this process's.

        Raises OSError and KafkaError like `call`.
        """

    async def close(self) -> None:
        """Close all connections. Later calls raise OSError."""
