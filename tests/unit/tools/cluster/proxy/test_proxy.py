"""Connections through the proxy, to a server of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop
from support.until import until

from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cluster.proxy.front import ProxyRoute
from minikafka.tools.cluster.proxy.pipe import End
from minikafka.tools.cluster.proxy.proxy import FaultProxy
from minikafka.tools.cluster.proxy.relay import RelaySocket
from minikafka.tools.cluster.proxy.rules import CLIENTS, CUT, DROP, FETCH, ONE, RESET, FaultRule

HOST = "127.0.0.1"
REQUEST = bytes(1_000_000)
REPLY = b"reply" * 200_000

Scenario = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A proxy in front of a server that reads a request to its end, and then replies."""

    def __init__(self, proxy: FaultProxy, port: int) -> None:
        self.proxy = proxy
        self.port = port
        self.heard = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port, limit=2 * len(REPLY))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        request = await reader.read(1)
        self.heard += len(request)
        request += await reader.read(-1)
        if len(request) == len(REQUEST):
            writer.write(REPLY)
        writer.close()

    async def close(self) -> None:
        """Wait until the server has served and closed every connection that it has accepted."""
        while serving := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*serving, return_exceptions=True)
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    async def main(scenario: Scenario) -> None:
        tasks = TaskRegistry()
        proxy = FaultProxy(SystemClock(), tasks)
        stage = Stage(proxy, free_port())
        server = await asyncio.start_server(stage.serve, HOST, 0)
        behind = server.sockets[0].getsockname()[1]
        proxy.set_routes([ProxyRoute(stage.port, behind, 1, FETCH, False)])
        try:
            async with asyncio.timeout(20):
                await scenario(stage)
        finally:
            proxy.close()
            await tasks.close()
            await (
                stage.close()
            )  # a connection that is accepted while the server closes would be lost
            server.close()

    def run_scenario(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main(scenario))

    return run_scenario


def test_request_and_its_end_that_a_cut_has_held_get_the_whole_reply(run):
    async def scenario(stage: Stage) -> None:
        reader, writer = await stage.connect()
        key = stage.proxy.cause(FaultRule(CUT, CLIENTS, 1, ONE))
        writer.write(REQUEST)
        writer.write_eof()
        await until(lambda: stage.proxy.active[key].bytes == len(REQUEST))
        stage.proxy.heal([key])

        assert await reader.read(-1) == REPLY
        writer.close()

    run(scenario)


def test_end_that_the_event_loop_reports_twice_is_passed_on_once():
    taken: list[object] = []
    with socket.socket() as sock:
        side = RelaySocket(sock, taken.append, taken.append, taken.clear)

        assert side.eof_received()  # uvloop: again when reading continues after a pause
        assert side.eof_received()

    assert taken == [End(is_reset=False)]


def test_connection_that_is_closed_during_a_cut_never_reaches_the_server(run):
    async def scenario(stage: Stage) -> None:
        key = stage.proxy.cause(FaultRule(CUT, CLIENTS, 1))
        reader, writer = await stage.connect()
        writer.write(b"hello")
        writer.write_eof()
        await until(lambda: [one for one in stage.proxy.relays.values() if one.is_given_up])
        stage.proxy.heal([key])
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
        writer.close()

        assert stage.heard == 0
        assert stage.proxy.active[key].hits()["connections"] == 1

    run(scenario)


@pytest.mark.parametrize("verb", [DROP, RESET])
def test_connection_that_has_lost_bytes_or_is_reset_breaks(run, verb: str):
    async def scenario(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(b"x")
        await until(lambda: stage.heard)
        key = stage.proxy.cause(FaultRule(verb, CLIENTS, 1))
        if verb == DROP:
            writer.write(b"y")
            await until(lambda: stage.proxy.active[key].bytes)
        stage.proxy.heal([key])

        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
        assert stage.proxy.active[key].hits()["connections"] == 1
        writer.close()

    run(scenario)


def test_port_refuses_connections_when_the_server_behind_it_has_ended(run):
    async def scenario(stage: Stage) -> None:
        stage.proxy.set_routes([ProxyRoute(stage.port, free_port(), 1, FETCH, False)])
        reader, _ = await stage.connect()  # the proxy does not know yet
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)

        with pytest.raises(ConnectionRefusedError):
            await stage.connect()

    run(scenario)
