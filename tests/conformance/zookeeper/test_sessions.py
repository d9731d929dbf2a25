"""Sessions on both standalone servers under every fault of the network and the server."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from support.until import until
from support.zookeeper.proxy import CREATE, GET_DATA, MULTI, PING, SET_DATA, Frame, Proxy
from support.zookeeper.zookeepers import Client, Connect, eventually, in_thread

from minikafka.base.errors import Closed, NotConnected, OutcomeUnknown
from minikafka.base.ports import Check, SessionState, Set
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster.ports import free_ports
from minikafka.tools.cluster.processes import identify, is_paused
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.client import close_session
from minikafka.zookeeper.processes.child import ServerProcess

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
LEASE_EXPIRED, EXPIRED, CLOSED = (
    SessionState.LEASE_EXPIRED,
    SessionState.EXPIRED,
    SessionState.CLOSED,
)


FIVE_ATTEMPTS_S = 0.35
"""Minimum time for five attempts: half of the four pauses of 50, 100, 200 and 400 ms, minus a margin."""


@pytest.fixture
async def client(proxy: Proxy, connect: Connect) -> Client:
    """A client behind the proxy that has created the node /a (data "0") and the ephemeral node /e."""
    client = await connect(proxy.connect)
    await client.create("/a", b"0")
    await client.create("/e", b"", ephemeral=True)
    return client


async def lives(client: Client, *, connections: int = 2) -> None:
    """Check that the client has connected `connections` times in one session, which still has the ephemeral node /e."""
    async with asyncio.timeout(20):
        while client.connection < connections or client.state is not CONNECTED:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    stat = await client.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == client.session_id
    assert (client.generation, client.connection) == (1, connections)
    assert EXPIRED not in client.states()
    assert client.lease_valid()


async def exists_for_others(server: ServerProcess, client: Client, path: str) -> bool:
    return bool(await in_thread(lambda kazoo: kazoo.exists(client.root + path), server))


async def attempts_take(proxy: Proxy, count: int) -> float:
    """Wait for `count` more connection attempts, and return the seconds that they took."""
    last, begun = proxy.connections + count, time.monotonic()
    await until(lambda: proxy.connections >= last, seconds=20)
    return time.monotonic() - begun


async def answered_pings(proxy: Proxy, count: int) -> None:
    """Wait until the server has answered `count` more pings."""
    pings: list[int] = []
    enough = asyncio.Event()

    def look(frame: Frame) -> None:
        if frame.opcode == PING:
            pings.append(frame.xid)
            if len(pings) == count:
                enough.set()

    proxy.answers = look
    async with asyncio.timeout(20):
        await enough.wait()


# Connections that end.


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_idle_connection_that_ends_is_replaced_in_the_same_session(
    client: Client, proxy: Proxy, how: str
) -> None:
    getattr(proxy, how)()
    await lives(client)
    assert client.states() == [SUSPENDED, CONNECTED]
    assert [event.connection for event in client.seen] == [1, 2]


async def test_response_cut_in_the_middle_leaves_the_outcome_unknown(
    client: Client, proxy: Proxy
) -> None:
    proxy.cut_answer_in_the_middle(SET_DATA)
    with pytest.raises(OutcomeUnknown):
        await client.set("/a", b"1", 0)
    await lives(client)
    assert (await client.get("/a"))[1].version == 1, "it had been applied"


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_write_whose_response_was_lost_raises_outcome_unknown_and_is_not_repeated(
    client: Client, proxy: Proxy, how: str
) -> None:
    writes: list[tuple[int, Callable[[], Any]]] = [
        (SET_DATA, lambda: client.set("/a", b"1", 0)),
        (CREATE, lambda: client.create("/once-", b"", sequential=True)),
        (MULTI, lambda: client.multi([Check("/a", 1), Set("/a", b"2", 1)])),
    ]
    for connections, (opcode, write) in enumerate(writes, 2):
        proxy.lose_answer(opcode, getattr(proxy, how))
        with pytest.raises(OutcomeUnknown):
            await write()
        await lives(client, connections=connections)
        assert proxy.seen.count(opcode) - (opcode == CREATE) * 3 == 1
    assert (await client.get("/a"))[1].version == 2
    names, _ = await client.children("/")
    assert len([name for name in names if name.startswith("once-")]) == 1


async def test_get_request_whose_response_was_lost_is_repeated(
    client: Client, proxy: Proxy
) -> None:
    proxy.lose_answer(GET_DATA, proxy.rst)
    assert (await client.get("/a"))[0] == b"0"
    await lives(client)


async def test_session_is_suspended_before_any_request_fails(client: Client, proxy: Proxy) -> None:
    states: list[SessionState] = []
    proxy.answers_flowing.clear()
    writes = [asyncio.ensure_future(client.set("/a", b"1", -1)) for _ in range(3)]
    await until(lambda: proxy.seen.count(SET_DATA) == 3)
    for write in writes:
        write.add_done_callback(lambda _: states.append(client.state))
    proxy.accepting = False
    proxy.heal()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknown] * 3
    await until(lambda: len(states) == 3)
    assert states == [SUSPENDED] * 3
    proxy.accepting = True
    await lives(client)


async def test_lost_connect_response_delays_the_session_but_does_not_end_it(
    server: ServerProcess, proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy.connect, session_ms=4_500)
    await client.create("/e", b"", ephemeral=True)
    swallowed: list[int] = []

    def swallow(frame: Frame) -> bool | None:
        if frame.opcode or len(swallowed) == 2:
            return None
        swallowed.append(frame.xid)
        return False

    proxy.answers = swallow
    proxy.fin()
    await client.until(CONNECTED)
    # Each of the two attempts took a third of the session timeout and restarted the timeout at the server.
    assert len(swallowed) == 2
    await lives(client)


async def test_refused_connections_are_retried_with_pauses_in_the_same_session(
    client: Client, proxy: Proxy
) -> None:
    proxy.accepting = False
    proxy.fin()
    assert await attempts_take(proxy, 5) >= FIVE_ATTEMPTS_S
    proxy.accepting = True
    await lives(client)


async def test_connection_closed_after_the_handshake_is_retried_with_pauses(
    client: Client, proxy: Proxy
) -> None:
    def hang_up(frame: Frame) -> None:
        if frame.opcode == 0:
            asyncio.get_running_loop().call_later(0.01, proxy.fin)

    proxy.answers = hang_up
    proxy.fin()
    assert await attempts_take(proxy, 5) >= FIVE_ATTEMPTS_S
    proxy.answers = lambda frame: None
    await client.connected()
    await lives(client, connections=client.connection)


async def test_client_keeps_its_session_when_a_server_lags_behind(
    client: Client, proxy: Proxy
) -> None:
    """A lagging follower rejects a client that has seen a later zxid. Another server may accept this client."""
    session: Any = client._session
    seen = session._current.last_zxid
    assert seen >= (await client.set("/a", b"", -1)).mzxid - 1
    session._current.last_zxid = seen + 1_000_000
    proxy.fin()
    before = proxy.connections
    await until(lambda: proxy.connections >= before + 3)
    assert client.state is SUSPENDED
    session._last_zxid = seen
    await lives(client)


# Writes without a connection, and in sessions that have ended.


async def test_write_without_a_connection_raises_not_connected_and_is_never_sent(
    client: Client, proxy: Proxy
) -> None:
    proxy.accepting = False
    proxy.fin()
    await client.until(SUSPENDED)
    seen = len(proxy.seen)
    with pytest.raises(NotConnected):
        await client.set("/a", b"1", 0)
    proxy.accepting = True
    await lives(client)
    assert (await client.get("/a"))[1].version == 0
    assert SET_DATA not in proxy.seen[seen:]


async def test_close_session_fails_when_no_server_answers() -> None:
    [port] = free_ports(1, SystemRng())
    with pytest.raises(NotConnected):
        await close_session(f"127.0.0.1:{port}", 1, bytes(16), SystemClock(), SocketTransport())


# Servers that do not answer.


async def test_silent_network_ends_first_the_connection_then_the_lease_then_the_session(
    proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy.connect, session_ms=4_000)
    await client.create("/e", b"", ephemeral=True)
    assert client.lease_valid()
    assert client.lease_valid(200)
    assert not client.lease_valid(4_001)
    proxy.flowing.clear()
    await client.until(SUSPENDED)
    assert client.lease_valid(), "the server cannot have given the session up yet"
    await client.until(LEASE_EXPIRED)
    assert not client.lease_valid()
    assert client.state is LEASE_EXPIRED
    await asyncio.sleep(1.5)  # meanwhile the session times out at the server
    proxy.heal()
    await client.until(CONNECTED)
    assert client.states() == [SUSPENDED, LEASE_EXPIRED, EXPIRED, CONNECTED]
    assert client.generation == 2
    assert client.lease_valid()
    assert await client.exists("/e") is None
    suspended, lease_expired = client.seen[:2]
    assert lease_expired.now - suspended.now <= 4_000


async def test_request_that_is_never_answered_ends_with_the_session_timeout(
    proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy.connect, session_ms=3_000)
    await client.create("/a", b"")
    proxy.lose_answer(SET_DATA, None)
    before = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        await client.set("/a", b"1", 0)
    assert 2.9 < time.monotonic() - before < 20
    assert (await client.get("/a"))[1].version == 1


async def test_idle_session_stays_alive_by_pings(proxy: Proxy, connect: Connect) -> None:
    client = await connect(proxy.connect, session_ms=3_000)
    await client.create("/e", b"", ephemeral=True)
    await answered_pings(proxy, 4)  # the client sends three per session timeout
    await lives(client, connections=1)
    assert client.seen == []


async def test_busy_event_loop_is_not_treated_as_a_silent_server(
    server: ServerProcess, connect: Connect
) -> None:
    client = await connect(server.connect, session_ms=6_000)
    await client.create("/e", b"", ephemeral=True)
    await asyncio.sleep(0.1)
    time.sleep(4.2)  # noqa: ASYNC251 - that is the point
    await asyncio.sleep(0.6)
    await lives(client, connections=1)
    assert client.seen == []


# Restarted and slow servers.


async def test_session_continues_when_a_paused_server_resumes(
    server: ServerProcess, connect: Connect
) -> None:
    client = await connect(server.connect, session_ms=9_000)
    await client.create("/e", b"", ephemeral=True)
    server.signal(signal.SIGSTOP)
    await client.until(SUSPENDED)
    server.signal(signal.SIGCONT)
    await client.until(CONNECTED)
    await lives(client, connections=client.connection)


async def test_restarted_server_knows_session_and_nodes(
    server: ServerProcess, connect: Connect
) -> None:
    client = await connect(server.connect, session_ms=10_000)
    await client.create("/a", b"0")
    await client.create("/e", b"", ephemeral=True)
    await server.kill()
    await client.until(SUSPENDED)
    with pytest.raises(NotConnected):
        await client.set("/a", b"1", 0)
    await server.start()
    await client.until(CONNECTED)
    await lives(client, connections=client.connection)
    assert (await client.get("/a"))[0] == b"0"


# Start and close of a client.


async def test_start_gives_up_after_the_session_timeout_without_a_server(
    connect: Connect,
) -> None:
    [port] = free_ports(1, SystemRng())
    before = time.monotonic()
    with pytest.raises(NotConnected, match=str(port)):
        await connect(f"127.0.0.1:{port}", session_ms=500)
    assert time.monotonic() - before < 20


async def test_start_waits_for_a_slow_server_as_long_as_the_connect_timeout(
    server: ServerProcess, connect: Connect
) -> None:
    await server.kill()
    patient = asyncio.create_task(connect(server.connect, session_ms=2_000, connect_ms=60_000))
    with pytest.raises(NotConnected):
        await connect(server.connect, session_ms=2_000)
    await server.start()
    client = await patient
    assert client.state is CONNECTED


async def test_start_fails_when_the_peer_is_not_zookeeper(connect: Connect) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(NotConnected):
        await connect(f"127.0.0.1:{port}", session_ms=500)
    listener.close()


@pytest.mark.parametrize("trouble", ["suspended", "silent", "stopped"])
async def test_close_takes_under_two_seconds_when_the_server_is_silent_or_unreachable(
    server: ServerProcess, client: Client, proxy: Proxy, trouble: str
) -> None:
    if trouble == "suspended":
        proxy.accepting = False
        proxy.rst()
        await client.until(SUSPENDED)
    elif trouble == "silent":
        proxy.flowing.clear()
    else:
        server.signal(signal.SIGSTOP)
        process = identify(server.pid)
        assert process is not None
        await until(lambda: is_paused(process))
    waiting = asyncio.ensure_future(client.get("/a"))
    await asyncio.sleep(0)
    before = time.monotonic()
    await client.close()
    assert time.monotonic() - before < 2
    with pytest.raises((Closed, OutcomeUnknown)):
        await waiting
    with pytest.raises(Closed):
        await client.connected()
    assert [event async for event in client.events()] == []
    server.signal(signal.SIGCONT)


async def test_requests_in_flight_are_answered_before_the_session_closes(
    client: Client,
) -> None:
    writes = [asyncio.ensure_future(client.set("/a", b"x", -1)) for _ in range(50)]
    await asyncio.sleep(0)
    await client.close()
    versions = [(await write).version for write in writes]
    assert versions == list(range(1, 51))


async def test_client_close_ends_the_session_although_the_task_registry_is_closed(
    server: ServerProcess, client: Client
) -> None:
    await client.tasks.close()
    await client.close()
    assert not await exists_for_others(server, client, "/e")


# The bound on requests in progress.


async def test_number_of_requests_in_flight_is_bounded(
    server: ServerProcess, proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy.connect, in_flight_max=16)
    await client.create("/a", b"")
    proxy.answers_flowing.clear()
    writes = [asyncio.ensure_future(client.set("/a", b"x", -1)) for _ in range(40)]
    await until(lambda: proxy.seen.count(SET_DATA) >= 16)
    await asyncio.sleep(0.1)
    assert proxy.seen.count(SET_DATA) == 16
    writes[0].cancel()  # sent, so the server applies it
    writes[20].cancel()  # queued, so it is never sent
    proxy.answers_flowing.set()
    results = await asyncio.gather(*writes, return_exceptions=True)
    versions = [result.version for result in results if not isinstance(result, BaseException)]
    assert versions == list(range(2, 40)), "answered in the order of the calls"
    assert (await client.get("/a"))[1].version == 39


async def test_bytes_in_flight_are_bounded_to_four_mebibytes(
    proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy.connect)
    await client.create("/a", b"")
    proxy.answers_flowing.clear()
    writes = [asyncio.ensure_future(client.set("/a", bytes(1_000_000), -1)) for _ in range(7)]
    await until(lambda: proxy.seen.count(SET_DATA) >= 4)
    await asyncio.sleep(0.1)
    assert proxy.seen.count(SET_DATA) == 4
    proxy.heal()
    async with asyncio.timeout(3):  # the writes fail at once, not at their timeouts
        results = await asyncio.gather(*writes, return_exceptions=True)
    kinds = [type(result) for result in results]
    assert kinds == [OutcomeUnknown] * 4 + [NotConnected] * 3, "what was queued was never sent"


async def test_thousands_of_concurrent_requests_all_end(proxy: Proxy, connect: Connect) -> None:
    """Unmodified aiozk hangs in this test. The session timeout is long, in case the machine is busy."""
    client = await connect(proxy.connect, session_ms=60_000)
    await client.create("/a", b"0")
    session: Any = client._session
    path = client.root + "/a"
    answers = [session.submit(calls.set_data(Set(path, b"x", -1))) for _ in range(5_000)]
    await asyncio.wait(answers)
    assert [answer.result().version for answer in answers] == list(range(1, 5_001))


async def test_each_write_is_applied_once_although_responses_are_lost(
    server: ServerProcess, client: Client, proxy: Proxy
) -> None:
    """After a write with an unknown outcome the client reads the node; every write must have been applied once."""
    version = 0
    while version < 12:
        if version % 3 == 0:
            proxy.lose_answer(SET_DATA, proxy.rst)
        try:
            version = (await client.set("/a", b"%d" % (version + 1), version)).version
        except (OutcomeUnknown, NotConnected):
            await client.connected()
            data, stat = await client.get("/a")
            assert int(data) == stat.version
            version = stat.version

    def look(kazoo: KazooClient) -> tuple[bytes, int]:
        data, stat = kazoo.get(client.root + "/a")
        return data, stat.version

    assert await in_thread(look, server) == (b"12", 12)
    await eventually(lambda: _is_connected(client))


async def _is_connected(client: Client) -> bool:
    return client.state is CONNECTED
