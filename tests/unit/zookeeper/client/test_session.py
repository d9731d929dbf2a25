"""The lease of a ZooKeeper session: it never ends later than the session can end at the server.

The server is a stub in the test's loop, which answers when the test says so. The clock is set by the test.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest
from support.until import until

from minikafka.base.errors import NoNode
from minikafka.base.ports import SessionState
from minikafka.runtime.clock import SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.simulation.clocks import ManualClock
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.session import Verification, ZooKeeperSession
from minikafka.zookeeper.messages import codes

IN_FLIGHT_MAX = 10
TIMEOUT_MS = 600_000
LEASE_EXPIRED, SUSPENDED = SessionState.LEASE_EXPIRED, SessionState.SUSPENDED


class Server:
    """A stub of a ZooKeeper server. `granted`: the session timeout that it grants."""

    def __init__(self) -> None:
        self.granted = TIMEOUT_MS
        self.session_id = 7
        self.requests: list[bytes] = []
        self.writer: asyncio.StreamWriter
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.connections += 1
        self.requests.clear()
        try:
            while True:
                (length,) = struct.unpack("!i", await reader.readexactly(4))
                self.requests.append(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def send(self, body: bytes) -> None:
        self.writer.write(struct.pack("!i", len(body)) + body)

    def grant(self) -> None:
        """Answer the connect request."""
        self.send(struct.pack("!iiqi", 0, self.granted, self.session_id, 16) + bytes(17))

    def answer(self, xid: int) -> None:
        """Answer an `exists` request, or a ping, with "no node"."""
        error = 0 if xid == codes.PING_XID else -101
        self.send(struct.pack("!iqi", xid, 5, error))


class Bench:
    def __init__(self, clock: ManualClock, server: Server, session: ZooKeeperSession) -> None:
        self.clock = clock
        self.server = server
        self.session = session

    def lease_ends_at(self, end: int) -> bool:
        """True if the lease is valid until this time, and not longer. The clock is not moved."""
        left = end - self.clock.now()
        return self.session.lease_valid(left - 1) and not self.session.lease_valid(left)

    async def attach(self, *, took_ms: int = 0) -> None:
        """Let the session connect. The server answers after `took_ms`."""
        before = self.server.connections
        await until(lambda: self.server.connections == before + 1 and self.server.requests)
        self.clock.advance(took_ms)
        self.server.grant()
        await until(lambda: self.session.state is SessionState.CONNECTED)

    async def ask(self, xid: int, *, sent: int, answered: int) -> None:
        """Send request number `xid` at one time, and let the server answer it at a later time."""
        self.clock.advance(sent - self.clock.now())
        asked = asyncio.ensure_future(self.session.submit(calls.exists("/a", watch=False)))
        await until(lambda: len(self.server.requests) == xid + 1)
        self.clock.advance(answered - self.clock.now())
        self.server.answer(xid)
        with pytest.raises(NoNode):
            await asked


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock, tasks, server = ManualClock(), TaskRegistry(), Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    session = ZooKeeperSession(
        [listening.sockets[0].getsockname()[:2]],
        TIMEOUT_MS,
        clock,
        SystemRng(),
        tasks,
        SocketTransport(),
        connect_timeout_ms=60_000,
        in_flight_max=IN_FLIGHT_MAX,
        on_event=lambda change, path: None,
        on_attached=lambda: None,
    )
    starting = asyncio.ensure_future(session.start())
    bench = Bench(clock, server, session)
    yield bench
    starting.cancel()
    session._end()
    await tasks.close()
    await asyncio.gather(starting, return_exceptions=True)
    listening.close()
    await listening.wait_closed()


async def test_lease_begins_when_the_connect_request_is_sent(bench: Bench) -> None:
    await bench.attach(took_ms=2_000)
    assert bench.clock.now() == 2_000
    assert bench.lease_ends_at(TIMEOUT_MS)


async def test_answer_extends_the_lease_from_the_time_of_its_request(bench: Bench) -> None:
    await bench.attach()
    await bench.ask(1, sent=5_000, answered=9_000)
    assert bench.lease_ends_at(5_000 + TIMEOUT_MS)


async def test_answer_to_an_older_request_does_not_shorten_the_lease(bench: Bench) -> None:
    await bench.attach()
    await bench.ask(1, sent=5_000, answered=9_000)
    bench.session.on_answer(4_000)
    assert bench.lease_ends_at(5_000 + TIMEOUT_MS)


async def test_request_without_an_answer_does_not_extend_the_lease(bench: Bench) -> None:
    await bench.attach()
    bench.clock.advance(5_000)
    asked = bench.session.submit(calls.exists("/a", watch=False))
    await until(lambda: len(bench.server.requests) == 2)
    assert bench.lease_ends_at(TIMEOUT_MS)
    asked.cancel()


async def test_lease_has_the_length_that_the_server_grants(bench: Bench) -> None:
    bench.server.granted = 40_000
    await bench.attach(took_ms=1_000)
    assert bench.lease_ends_at(40_000)
    await bench.ask(1, sent=2_000, answered=3_000)
    assert bench.lease_ends_at(42_000)


async def test_lease_is_kept_when_the_session_continues_on_another_connection(
    bench: Bench,
) -> None:
    await bench.attach()
    bench.clock.advance(1_000)
    bench.server.writer.close()
    await until(lambda: bench.session.state is SUSPENDED)
    assert bench.lease_ends_at(TIMEOUT_MS)
    bench.clock.advance(3_000)
    await bench.attach(took_ms=2_000)
    assert bench.lease_ends_at(4_000 + TIMEOUT_MS)
    assert bench.clock.waiting() == 0, "the timer of the suspended session"


async def test_lease_of_an_expired_session_does_not_count_for_the_next_session(
    bench: Bench,
) -> None:
    await bench.attach()
    bench.clock.advance(1_500)
    bench.server.writer.close()
    await until(lambda: bench.session.state is SUSPENDED)
    bench.server.session_id, bench.server.granted = 8, 40_000
    await bench.attach()
    assert bench.session.generation == 2
    assert bench.lease_ends_at(41_500)


async def test_no_lease_is_valid_before_the_first_connection_and_after_the_session(
    bench: Bench,
) -> None:
    assert not bench.session.lease_valid()
    await bench.attach()
    bench.server.writer.close()
    await until(lambda: bench.session.state is SUSPENDED)
    bench.session._expire()
    assert not bench.session.lease_valid()


async def test_suspended_session_reports_the_end_of_its_lease_on_time(bench: Bench) -> None:
    await bench.attach()
    await bench.ask(1, sent=5_000, answered=9_000)
    bench.server.writer.close()
    await until(lambda: bench.session.state is SUSPENDED)
    bench.clock.advance(5_000 + TIMEOUT_MS - 1 - bench.clock.now())
    assert bench.session.state is SUSPENDED
    bench.clock.advance(1)
    assert bench.session.state is LEASE_EXPIRED
    assert not bench.session.lease_valid()


async def test_requests_of_a_verified_session_are_limited_like_those_of_others(
    bench: Bench,
) -> None:
    read = calls.exists("/a", watch=False)
    bench.session.verification = Verification(read, read, lambda data: None)
    await until(lambda: bench.server.connections == 1 and bench.server.requests)
    bench.server.grant()
    await until(lambda: len(bench.server.requests) == 3)
    bench.server.answer(1)
    bench.server.answer(2)
    await until(lambda: bench.session.state is SessionState.CONNECTED)
    asked = [bench.session.submit(read) for _ in range(IN_FLIGHT_MAX + 1)]
    await until(lambda: len(bench.server.requests) == 3 + IN_FLIGHT_MAX)
    assert len(bench.session._queue) == 1
    bench.server.answer(3)
    await until(lambda: len(bench.server.requests) == 4 + IN_FLIGHT_MAX)
    for one in asked:
        one.add_done_callback(lambda answer: answer.exception())
