"""The contract of every Transport: sockets under asyncio and uvloop, in the clear and under TLS, and in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import cast

import pytest
import trustme
import uvloop
from support.until import until

from minikafka.base.encryption import Tls
from minikafka.base.ports import Buffer, Link, Listener, StreamHandler, Transport
from minikafka.runtime.tls import RenewableTls, TlsServer
from minikafka.runtime.transport import SocketTransport
from minikafka.simulation.transport import MemoryTransport

Scenario = Callable[[Transport], Awaitable[None]]
Run = Callable[[Scenario], None]


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS contexts of a server and of a client that trusts it."""
    authority = trustme.CA()
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


class TlsSockets:
    """Sockets whose connections are all under TLS."""

    def __init__(self) -> None:
        self._sockets = SocketTransport()

    async def listen(
        self,
        factory: Callable[[], StreamHandler | None],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> Listener:
        return await self._sockets.listen(factory, host, port, TlsServer(lambda: contexts()[0]))

    async def connect(
        self, factory: Callable[[], StreamHandler], host: str, port: int, tls: Tls | None = None
    ) -> StreamHandler:
        return await self._sockets.connect(factory, host, port, RenewableTls(lambda: contexts()[1]))


KINDS: dict[str, tuple[type[Transport], Callable[[], asyncio.AbstractEventLoop]]] = {
    "sockets-asyncio": (SocketTransport, asyncio.new_event_loop),
    "sockets-uvloop": (SocketTransport, uvloop.new_event_loop),
    "tls-asyncio": (TlsSockets, asyncio.new_event_loop),
    "tls-uvloop": (TlsSockets, uvloop.new_event_loop),
    "memory": (MemoryTransport, asyncio.new_event_loop),
}


@pytest.fixture(params=list(KINDS))
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a scenario on one kind of transport and loop.

    An exception that the event loop would only log fails the test.
    """
    make_transport, make_loop = KINDS[request.param]

    def run_scenario(scenario: Scenario) -> None:
        lost: list[object] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, c: lost.append(c))
            async with asyncio.timeout(30):
                await scenario(make_transport())

        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main())
        assert not lost

    return run_scenario


class Recorder:
    """A handler that records its callbacks and the received bytes."""

    def __init__(self, buffer_bytes: int = 64 * 1024) -> None:
        self.link: Link
        self.calls: list[str] = []
        self.received = bytearray()
        self.changed = asyncio.Event()
        self._buffer = bytearray(buffer_bytes)

    def connected(self, link: Link) -> None:
        self.link = link
        self._note("connected")

    def get_buffer(self, hint: int) -> Buffer:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]
        self._note("data")

    def disconnected(self, error: Exception | None) -> None:
        self._note("disconnected")

    def drained(self) -> None:
        self._note("drained")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def until_received(self, count: int) -> None:
        await self.until(lambda: len(self.received) >= count)

    async def until_called(self, call: str) -> None:
        await self.until(lambda: call in self.calls)


async def pair(transport: Transport, *, buffer_bytes: int = 64 * 1024) -> tuple[Recorder, Recorder]:
    """Connect a client to a server and close the listener; return the handlers of the client and the server."""
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder(buffer_bytes))
        return accepted[-1]

    listener = await transport.listen(accept, "127.0.0.1", 0)
    client = await transport.connect(Recorder, "127.0.0.1", listener.port)
    assert isinstance(client, Recorder)
    await until(lambda: accepted)
    server = accepted[0]
    await server.until_called("connected")
    await listener.close()
    return client, server


async def part(*handlers: Recorder) -> None:
    for handler in handlers:
        handler.link.abort()
    for handler in handlers:
        await handler.until_called("disconnected")


@pytest.mark.parametrize("turns", range(8))
def test_connected_is_called_on_every_accepted_handler_before_the_listener_closes(
    run: Run, turns: int
) -> None:
    async def scenario(transport: Transport) -> None:
        accepted: list[Recorder] = []

        def accept() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        listener = await transport.listen(accept, "127.0.0.1", 0)
        connecting = asyncio.ensure_future(transport.connect(Recorder, "127.0.0.1", listener.port))
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        assert all(server.calls[:1] == ["connected"] for server in accepted)
        with suppress(OSError):
            accepted.append(cast("Recorder", await connecting))
        await part(*accepted)

    run(scenario)


def test_connection_ends_or_fails_to_open_if_the_factory_returns_none(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        factories = [lambda: None, Recorder]
        listener = await transport.listen(lambda: factories.pop(0)(), "127.0.0.1", 0)
        with suppress(ConnectionError):  # under TLS, the handshake fails
            refused = await transport.connect(Recorder, "127.0.0.1", listener.port)
            assert isinstance(refused, Recorder)
            await refused.until_called("disconnected")
        accepted = await transport.connect(Recorder, "127.0.0.1", listener.port)
        assert isinstance(accepted, Recorder)
        await listener.close()
        await part(accepted)

    run(scenario)


def test_bytes_arrive_in_the_order_sent(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        slices = [bytes([i % 251]) * (i % 300) for i in range(3000)]
        sent = b""
        for first in range(0, 3000, 250):
            client.link.send(slices[first : first + 250])
            sent += b"".join(slices[first : first + 250])
        client.link.send(slices)
        sent += b"".join(slices)
        client.link.send([])
        client.link.send([b""])
        await server.until_received(len(sent))
        assert server.received == sent
        await part(client, server)

    run(scenario)


def test_buffer_overwritten_after_send_returns_does_not_change_the_sent_bytes(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        server.link.pause_reading()
        reused = bytearray(100_000)
        sent = b""
        for i in range(100):
            reused[:] = bytes([i]) * len(reused)
            client.link.send([memoryview(reused)[:50_000], memoryview(reused)[50_000:]])
            sent += bytes(reused)
        reused[:] = bytes(len(reused))
        server.link.resume_reading()
        await server.until_received(len(sent))
        assert server.received == sent
        await part(client, server)

    run(scenario)


def test_drained_is_called_only_after_the_peer_reads_the_queued_bytes(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        server.link.pause_reading()
        piece = bytes(1024 * 1024)
        sent = 0
        while client.link.queued_bytes() < 2 * len(piece):
            client.link.send([piece])
            sent += len(piece)
            await asyncio.sleep(0)
        assert "drained" not in client.calls
        assert "data" not in server.calls
        server.link.resume_reading()
        await client.until_called("drained")
        assert client.link.queued_bytes() <= 64 * 1024
        await server.until_received(sent)
        assert client.link.queued_bytes() == 0
        await part(client, server)

    run(scenario)


def test_second_pause_or_resume_of_reading_has_no_effect(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        server.link.pause_reading()
        server.link.pause_reading()
        client.link.send([b"abc"])
        for _ in range(20):
            await asyncio.sleep(0)
        assert "data" not in server.calls
        server.link.resume_reading()
        server.link.resume_reading()
        await server.until_received(3)
        await part(client, server)

    run(scenario)


def test_handler_with_a_buffer_of_one_byte_receives_every_byte(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport, buffer_bytes=1)
        client.link.send([b"minikafka"])
        await server.until_received(9)
        assert server.received == b"minikafka"
        assert server.calls.count("data") == 9
        await part(client, server)

    run(scenario)


def test_close_sends_the_queued_bytes_first(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        server.link.pause_reading()
        client.link.send([bytes(20 * 1024 * 1024)])
        assert client.link.queued_bytes() > 0
        client.link.close()
        client.link.send([b"too late"])
        server.link.resume_reading()
        await server.until_called("disconnected")
        await client.until_called("disconnected")
        assert len(server.received) == 20 * 1024 * 1024

    run(scenario)


def test_abort_ends_both_sides_without_sending_more(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        client.link.abort()
        client.link.abort()
        client.link.send([b"too late"])
        await client.until_called("disconnected")
        await server.until_called("disconnected")
        client.link.send([b"too late"])
        client.link.close()
        client.link.pause_reading()
        client.link.resume_reading()
        assert client.link.queued_bytes() == 0
        assert not server.received

    run(scenario)


def test_connected_is_called_first_and_disconnected_last(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        client.link.send([b"x"])
        await server.until_received(1)
        server.link.close()
        await client.until_called("disconnected")
        await server.until_called("disconnected")
        for _ in range(20):
            await asyncio.sleep(0)
        for handler in (client, server):
            assert handler.calls[0] == "connected"
            assert handler.calls[-1] == "disconnected"
            assert handler.calls.count("disconnected") == 1

    run(scenario)


def test_handler_may_send_while_it_receives(run: Run) -> None:
    class Echo(Recorder):
        def buffer_updated(self, count: int) -> None:
            super().buffer_updated(count)
            self.link.send([memoryview(self._buffer)[:count]])

    async def scenario(transport: Transport) -> None:
        accepted: list[Echo] = []

        def accept() -> Echo:
            accepted.append(Echo())
            return accepted[-1]

        listener = await transport.listen(accept, "127.0.0.1", 0)
        client = await transport.connect(Recorder, "127.0.0.1", listener.port)
        assert isinstance(client, Recorder)
        data = bytes(range(256)) * 4096
        client.link.send([data])
        await client.until_received(len(data))
        assert client.received == data
        await part(client, *accepted)
        await listener.close()

    run(scenario)


def test_connecting_to_a_closed_port_raises_oserror(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        listener = await transport.listen(Recorder, "127.0.0.1", 0)
        await listener.close()
        with pytest.raises(OSError, match=r"."):
            await transport.connect(Recorder, "127.0.0.1", listener.port)

    run(scenario)


def test_listening_on_a_used_port_raises_oserror(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        listener = await transport.listen(Recorder, "127.0.0.1", 0)
        with pytest.raises(OSError, match=r"."):
            await transport.listen(Recorder, "127.0.0.1", listener.port)
        await listener.close()
        again = await transport.listen(Recorder, "127.0.0.1", listener.port)
        assert again.port == listener.port
        await again.close()

    run(scenario)


def test_closed_listener_keeps_its_connections_open(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        client.link.send([b"still here"])
        await server.until_received(10)
        await part(client, server)

    run(scenario)


def test_each_side_knows_the_address_of_its_peer(run: Run) -> None:
    async def scenario(transport: Transport) -> None:
        client, server = await pair(transport)
        for handler in (client, server):
            host, _, port = handler.link.peer().rpartition(":")
            assert host == "127.0.0.1"
            assert port.isdecimal()
        await part(client, server)

    run(scenario)
