"""The loads of `python -m benchmarks.zookeeper`, and the client that sends them.

The client must cost less than any server. So all frames are encoded before the clock starts, every request of a load
has the same size, and so has every reply: the client only counts bytes. A reply of another size is an error.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from benchmarks.closed_loop import LoadError
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.processes.child import HOST, ServerProcess

SESSION_MS: Final = 60_000
ANSWER_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 0.25
"""Time for the reply to one connect request: Apache's server never answers some of those that come during its start."""
POLL_SECONDS: Final = 0.001
START_SECONDS: Final = 60.0
HEADER: Final = struct.Struct(">iiqi")
"""The start of a reply: length, xid, zxid, error code."""
NEW_SESSION: Final = 0
ANY_VERSION: Final = -1
XID: Final = 1
_PROCESS_TIME: Final = 2
"""The clock of a process in `clock_gettime`: ~PID << 3 | 2 (clock_getcpuclockid(3))."""
VALUE: Final = bytes(78)
NODES: Final = 200
PARENTS: Final = 100
WRITES_PER_MULTI: Final = 50
CREATES_PER_MULTI: Final = 500
READS_PER_MULTI: Final = 200
FEW_IN_FLIGHT: Final = 4
ROOT: Final = "/bench"
HOT: Final = [f"{ROOT}/node-{number:04}" for number in range(NODES)]
"""The nodes of the small requests."""


Item = TypeVar("Item")


class Load(NamedTuple):
    """Requests that are sent again and again. `operations`: the operations of one request."""

    name: str
    bodies: Sequence[bytes]
    in_flight: int
    requests: int
    operations: int = 1


class Measured(NamedTuple):
    """One run of a load: operations, seconds, and the processor seconds of the server."""

    operations: int
    seconds: float
    server_seconds: float


class Znodes:
    """Requests for `count` nodes below /bench, in parents of equal size."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.parents = [f"{ROOT}/parent-{number:03}" for number in range(PARENTS)]

    @cached_property
    def paths(self) -> list[str]:
        """The paths of all nodes."""
        each = self.count // PARENTS
        return [f"{parent}/znode-{number:05}" for parent in self.parents for number in range(each)]

    def load(self) -> Load:
        """Return the load that creates the nodes."""
        return self._writes("load", [Create(path, VALUE) for path in self.paths])

    def unload(self) -> Load:
        """Return the load that deletes the nodes."""
        return self._writes("unload", [Delete(path, ANY_VERSION) for path in self.paths])

    def read(self) -> Load:
        """Return the load that reads the nodes."""
        parts = _parts(self.paths, READS_PER_MULTI)
        bodies = [calls.get_data_of_many(part).body for part in parts]
        name = f"read of {self.count:,} nodes, MultiRead of {READS_PER_MULTI}"
        return Load(name, bodies, FEW_IN_FLIGHT, len(bodies), READS_PER_MULTI)

    def _writes(self, name: str, operations: Sequence[MultiOp]) -> Load:
        bodies = [_body(*part) for part in _parts(operations, CREATES_PER_MULTI)]
        title = f"{name} of {self.count:,} nodes, multi of {CREATES_PER_MULTI}"
        return Load(title, bodies, FEW_IN_FLIGHT, len(bodies), CREATES_PER_MULTI)


def small_loads(scale: float) -> list[Load]:
    """Return the loads of small requests on the nodes `HOT`."""
    sets = [calls.set_data(Set(path, VALUE, ANY_VERSION)).body for path in HOT]
    gets = [calls.get_data(path, watch=False).body for path in HOT]
    checked = [_body(Check(path, ANY_VERSION), Set(path, VALUE, ANY_VERSION)) for path in HOT]
    several = [
        _body(*(Set(path, VALUE, ANY_VERSION) for path in HOT[first : first + WRITES_PER_MULTI]))
        for first in range(0, NODES, WRITES_PER_MULTI)
    ]
    many, few = int(40_000 * scale), int(8_000 * scale)
    return [
        Load("set, 1 in flight", sets, 1, few),
        Load("set, 64 in flight", sets, 64, many),
        Load("set, 256 in flight", sets, 256, many),
        Load("get, 1 in flight", gets, 1, few),
        Load("get, 64 in flight", gets, 64, many),
        Load("get, 256 in flight", gets, 256, many),
        Load("check + set multi, 256 in flight", checked, 256, many),
        Load(
            f"sets in multis of {WRITES_PER_MULTI}, {FEW_IN_FLIGHT} in flight",
            several,
            FEW_IN_FLIGHT,
            int(2_000 * scale),
            WRITES_PER_MULTI,
        ),
    ]


class Replies:
    """Counts replies of equal size. The first one says the size."""

    def __init__(self) -> None:
        self.count = 0
        self._size = 0
        self._rest = 0
        """The bytes so far of the reply that is not complete."""

    def add(self, buffer: bytearray, received: int) -> None:
        """Count the replies in the first bytes of the buffer. Raises LoadError if one is an error or of another size.

        Of these replies, only the first whose start is in the buffer is checked, for speed.
        """
        first = self._size - self._rest if self._rest else 0
        if first + HEADER.size <= received:
            size, _, _, code = HEADER.unpack_from(buffer, first)
            size += calls.LENGTH.size
            if code or size != (self._size or size):
                raise LoadError(f"a reply of {size} bytes has error code {code}")
            self._size = size
        if not self._size:
            raise LoadError("the first reply arrives in pieces")
        done, self._rest = divmod(self._rest + received, self._size)
        self.count += done


class Session:
    """A session over a blocking socket. Raises LoadError and OSError."""

    def __init__(self, port: int, connect_seconds: float = ANSWER_SECONDS) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=connect_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)
        connect = calls.connect(NEW_SESSION, b"", SESSION_MS, 0)
        try:
            self._socket.sendall(calls.LENGTH.pack(len(connect)) + connect)
            size = calls.LENGTH.unpack(self._received(calls.LENGTH.size))[0]
            if not calls.decode_connect(self._received(size)).session_id:
                raise ConnectionError("the server has refused a session")
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(ANSWER_SECONDS)

    def close(self) -> None:
        """End the session."""
        self.request(calls.close().body)
        self._socket.close()

    def request(self, body: bytes) -> None:
        """Send one request, and receive the reply. Raises LoadError on an error code."""
        self._socket.sendall(_frame(body))
        size, _, _, code = HEADER.unpack(self._received(HEADER.size))
        if code:
            raise LoadError(f"ZooKeeper answers with error code {code}")
        self._received(calls.LENGTH.size + size - HEADER.size)

    def run(self, load: Load) -> float:
        """Run a load, and return the seconds from the first request to the last reply."""
        frames = [_frame(body) for body in load.bodies]
        [size] = {len(frame) for frame in frames}
        rounds = -(-(load.in_flight + len(frames)) // len(frames))
        data = memoryview(b"".join(frames * rounds))
        replies = Replies()
        sent = 0
        begin = time.perf_counter()
        while replies.count < load.requests:
            more = min(load.in_flight - (sent - replies.count), load.requests - sent)
            if more:
                start = sent % len(frames) * size
                self._socket.sendall(data[start : start + more * size])
                sent += more
            replies.add(self._buffer, self._socket.recv_into(self._buffer) or _ended())
        return time.perf_counter() - begin

    def _received(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            data += piece or bytes(_ended())
        return data


def _ended() -> int:
    raise ConnectionError("the server has closed the connection")


def _body(*operations: MultiOp) -> bytes:
    return calls.multi(operations).body


def _frame(body: bytes) -> bytes:
    """Return the body as a frame. All frames have the same xid, because a server only repeats it."""
    return struct.pack(">ii", calls.LENGTH.size + len(body), XID) + body


def _parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[first : first + size] for first in range(0, len(items), size)]


@contextmanager
def session(port: int) -> Iterator[Session]:
    """Yield a session, and end it afterwards."""
    one = Session(port)
    yield one
    one.close()


def measure(server: ServerProcess, load: Load) -> Measured:
    """Run a load in a session of its own."""
    with session(server.port) as one:
        before = cpu_seconds(server)
        seconds = one.run(load)
        return Measured(load.requests * load.operations, seconds, cpu_seconds(server) - before)


def prepare(server: ServerProcess, znodes: Znodes) -> None:
    """Create the nodes that all loads need."""
    with session(server.port) as one:
        one.request(_body(Create(ROOT, b""), *(Create(path, VALUE) for path in HOT)))
        one.request(_body(*(Create(parent, b"") for parent in znodes.parents)))


def first_session(server: ServerProcess) -> None:
    """Wait until the server grants a session, with short tries. Raises LoadError after START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            Session(server.port, CONNECT_SECONDS).close()
        except OSError:
            time.sleep(POLL_SECONDS)
        else:
            return
    raise LoadError(f"no session after {START_SECONDS:g} s")


def cpu_seconds(server: ServerProcess) -> float:
    """Return the processor time of all threads of the server so far."""
    return time.clock_gettime(~server.pid << 3 | _PROCESS_TIME)


def resident_mb(server: ServerProcess) -> float:
    """Return the resident memory of the server in MB."""
    text = Path(f"/proc/{server.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6
