"""SIGKILL of `minikafka zookeeper` under load, and the check that nothing acknowledged or read is lost.

One session sends sets, up to 200 unanswered, and owns an ephemeral node. Another session reads. A third one is closed
in every round. The server writes a snapshot and begins a new log after every few thousand transactions. After each
kill, both sessions attach to the next server with the last zxid that they know.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from minikafka.base.ports import Create, Set, Znode
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.calls import ZooKeeperCall
from minikafka.zookeeper.processes.child import HOST, EmbeddedZooKeeper

SNAPSHOT_COUNT: Final = 4_000
IN_FLIGHT: Final = 200
READS_IN_FLIGHT: Final = 20
NODES: Final = 40
SETS_MAX: Final = 8_000
"""The most sets between two kills."""
SESSION_MS: Final = 30_000
ANSWER_SECONDS: Final = 30.0
EARLY_KILL: Final = 0.25
"""The share of starts that are killed during the start."""
START_SECONDS: Final = 0.3
ROOT: Final = "/deaths"
EPHEMERAL: Final = f"{ROOT}/ephemeral"
CLOSED: Final = f"{ROOT}/closed"
PATHS: Final = [f"{ROOT}/node-{number}" for number in range(NODES)]


class FrequentSnapshots(EmbeddedZooKeeper):
    """A server that writes a snapshot after every SNAPSHOT_COUNT transactions."""

    def command(self) -> list[str]:
        return [*super().command(), "--snapshot-count", str(SNAPSHOT_COUNT)]


class Violation(AssertionError):
    """The server has broken its promise."""


@dataclass
class Counts:
    """What has happened so far."""

    kills: int = 0
    early_kills: int = 0
    acked: int = 0
    unanswered: int = 0
    """Sets without an answer at a kill, which may or may not have been applied."""
    reads: int = 0


class Session:
    """A session over a stream, which survives the server. `zxid`: the last one that the server has sent."""

    def __init__(self, port: int) -> None:
        self.id = 0
        self.zxid = 0
        self._port = port
        self._password = b""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def attach(self) -> None:
        """Open the session, or attach to it again. Raises Violation if the server refuses that."""
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        request = calls.connect(self.id, self._password, SESSION_MS, self.zxid)
        self._writer.write(calls.LENGTH.pack(len(request)) + request)
        try:
            answer = calls.decode_connect(await self._frame())
        except OSError as error:
            raise Violation(f"refuses a client that has seen zxid {self.zxid:#x}") from error
        if not answer.session_id or self.id not in (0, answer.session_id):
            raise Violation(f"session {self.id:#x} has not survived the kill")
        self.id, self._password = answer.session_id, answer.password

    def send(self, *sent: ZooKeeperCall[object]) -> None:
        """Send requests."""
        bodies = [calls.LENGTH.pack(1) + call.body for call in sent]
        self._writer.write(b"".join(calls.LENGTH.pack(len(body)) + body for body in bodies))

    async def answer(self) -> tuple[int, bytes]:
        """Return error code and payload of the next answer. Raises OSError if the server has died."""
        frame = await self._frame()
        _, zxid, code = calls.REPLY.unpack_from(frame)
        if zxid < self.zxid:
            raise Violation(f"zxid {zxid:#x} after {self.zxid:#x}")
        self.zxid = zxid
        return code, frame[calls.REPLY.size :]

    async def call(self, call: ZooKeeperCall[object]) -> int:
        """Send a request, and return the error code of its answer."""
        self.send(call)
        return (await self.answer())[0]

    async def leave(self) -> None:
        """Close the connection without ending the session."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _frame(self) -> bytes:
        async with asyncio.timeout(ANSWER_SECONDS):
            try:
                head = await self._reader.readexactly(calls.LENGTH.size)
                return await self._reader.readexactly(calls.LENGTH.unpack(head)[0])
            except asyncio.IncompleteReadError as error:
                raise ConnectionResetError("the server has closed the connection") from error


class Deaths:
    """The load, and the kills of `server`, which must run. `seed`: chooses when to kill."""

    def __init__(self, server: FrequentSnapshots, seed: int) -> None:
        self.counts = Counts()
        self._server = server
        self._random = random.Random(seed)
        self._writer, self._reader = Session(server.port), Session(server.port)
        self._numbers = _numbers()
        self._sent = dict.fromkeys(PATHS, 0)
        self._known = dict.fromkeys(PATHS, 0)
        """The highest number of each node that was acknowledged or read."""

    async def prepare(self) -> None:
        """Create the nodes."""
        await self._attach()
        for create in [Create(path, b"0") for path in (ROOT, *PATHS)]:
            await self._succeed(self._writer, calls.create(create))
        await self._succeed(self._writer, calls.create(Create(EPHEMERAL, b"", ephemeral=True)))

    async def round(self) -> None:
        """Load the server, kill it, start it again, and check what it has. Raises Violation."""
        await self._open_and_close()
        wanted = self.counts.acked + self._random.randrange(SETS_MAX)
        enough = asyncio.Event()
        load = [self._write(wanted, enough), self._read(), self._kill_after(enough)]
        async with asyncio.TaskGroup() as tasks:
            for part in load:
                tasks.create_task(part)
        self.counts.kills += 1
        await self._start_again()
        await self._attach()
        await self._check()

    async def close(self) -> None:
        """Close the connections."""
        for session in (self._writer, self._reader):
            await session.leave()

    async def _attach(self) -> None:
        await self._writer.attach()
        await self._reader.attach()

    async def _open_and_close(self) -> None:
        """Create an ephemeral node in a session that is closed: the node must never come back."""
        session = Session(self._server.port)
        await session.attach()
        await self._succeed(session, calls.create(Create(CLOSED, b"", ephemeral=True)))
        await self._succeed(session, calls.close())
        await session.leave()

    async def _succeed(self, session: Session, call: ZooKeeperCall[object]) -> None:
        if code := await session.call(call):
            raise Violation(f"error {code} for {call.path}")

    # ---- load

    async def _write(self, wanted: int, enough: asyncio.Event) -> None:
        waiting: deque[tuple[str, int]] = deque()
        try:
            while True:
                sets = list(islice(self._numbers, IN_FLIGHT - len(waiting)))
                self._sent.update(sets)
                writes = (calls.set_data(Set(path, b"%d" % number, -1)) for path, number in sets)
                self._writer.send(*writes)
                waiting += sets
                code, _ = await self._writer.answer()
                path, number = waiting.popleft()
                if code:
                    raise Violation(f"error {code} for a set of {path}")
                self._know(path, number)
                self.counts.acked += 1
                if self.counts.acked >= wanted:
                    enough.set()
        except OSError:
            self.counts.unanswered += len(waiting)
            await self._writer.leave()

    async def _read(self) -> None:
        waiting: deque[tuple[ZooKeeperCall[Znode], int]] = deque()
        paths = cycle(PATHS)
        try:
            while True:
                more = islice(paths, READS_IN_FLIGHT - len(waiting))
                reads = [calls.get_data(path, watch=False) for path in more]
                self._reader.send(*reads)
                waiting += [(call, self._known[call.path]) for call in reads]
                code, payload = await self._reader.answer()
                self._judge(*waiting.popleft(), code, payload)
        except OSError:
            await self._reader.leave()

    async def _kill_after(self, enough: asyncio.Event) -> None:
        await enough.wait()
        await self._server.kill()

    async def _start_again(self) -> None:
        """Start the server; kill some servers during their start."""
        while self._random.random() < EARLY_KILL:
            self._server.spawn()
            await asyncio.sleep(self._random.random() * START_SECONDS)
            await self._server.kill()
            self.counts.early_kills += 1
        await self._server.start()

    # ---- checks

    async def _check(self) -> None:
        """Read all nodes in both sessions."""
        for session in (self._writer, self._reader):
            for path in PATHS:
                call = calls.get_data(path, watch=False)
                session.send(call)
                self._judge(call, self._known[path], *await session.answer())
        call = calls.get_data(EPHEMERAL, watch=False)
        self._reader.send(call)
        code, payload = await self._reader.answer()
        if code or call.decode(payload).stat.ephemeral_owner != self._writer.id:
            raise Violation(f"the ephemeral node of an open session is lost: error {code}")
        if not await self._reader.call(calls.exists(CLOSED, watch=False)):
            raise Violation("the ephemeral node of a closed session is back")

    def _judge(self, call: ZooKeeperCall[Znode], known: int, code: int, payload: bytes) -> None:
        """Check a read of a node whose value was at least `known` when the read was sent."""
        if code:
            raise Violation(f"error {code} for a read of {call.path}")
        number = int(call.decode(payload).data)
        if not known <= number <= self._sent[call.path]:
            raise Violation(f"{call.path} is {number}, after {known} was acknowledged or read")
        self._know(call.path, number)
        self.counts.reads += 1

    def _know(self, path: str, number: int) -> None:
        self._known[path] = max(self._known[path], number)


def _numbers() -> Iterator[tuple[str, int]]:
    number = 0
    while True:
        number += 1
        for path in PATHS:
            yield path, number
