"""The client of the control plane."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from support.brokers.endpoints import control_at

from minikafka.base.ports import Call
from minikafka.broker.rpc.client import ControlPlaneClient
from minikafka.broker.rpc.liveness import PRESENT
from minikafka.broker.rpc.server import HttpControlPlane
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.simulation.clocks import ManualClock


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def error_of_call(port: int) -> str:
    client = ControlPlaneClient(b"secret", "c", -1, ManualClock(), SystemRng())
    try:
        with pytest.raises(ConnectionError) as failed:
            await client.call(
                control_at("127.0.0.1", port), "status", {}, target_id=1, timeout_ms=60_000
            )
    finally:
        await client.close()
    return str(failed.value)


async def test_refused_connection_is_reported_without_mentioning_tls(closed_port: int) -> None:
    reason = await error_of_call(closed_port)
    assert reason.startswith(f"127.0.0.1:{closed_port}: ")
    assert "ssl" not in reason


async def test_failure_without_an_errno_is_reported_with_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise aiohttp.ClientOSError(None, "the request body was not written")

    monkeypatch.setattr(aiohttp.ClientSession, "request", fail)
    assert await error_of_call(1) == "127.0.0.1:1: the request body was not written"


async def outcome(client: ControlPlaneClient, host: str, port: int, method: str) -> BaseException:
    with pytest.raises(OSError) as failed:  # noqa: PT011 - the caller compares the type
        await client.call(control_at(host, port), method, {}, target_id=1, timeout_ms=2_000)
    return failed.value


@pytest.fixture
async def client() -> AsyncIterator[ControlPlaneClient]:
    client = ControlPlaneClient(b"secret", "c", -1, SystemClock(), SystemRng())
    yield client
    await client.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_refusal_by_every_address_is_a_refused_connection(
    client: ControlPlaneClient, closed_port: int, host: str
) -> None:
    error = await outcome(client, host, closed_port, PRESENT)
    assert type(error) is ConnectionRefusedError
    assert str(error).startswith(f"{host}:{closed_port}: ")


def resolve_to(monkeypatch: pytest.MonkeyPatch, port: int, *addresses: str) -> None:
    """Make every host name resolve to these IPv4 addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in addresses]

    async def getaddrinfo(*_: object, **__: object) -> object:
        return found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_refusal_by_one_of_two_addresses_is_no_refused_connection(
    client: ControlPlaneClient, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, closed_port, "255.255.255.255", "127.0.0.1")
    error = await outcome(client, "two.addresses", closed_port, PRESENT)
    assert type(error) is ConnectionError

    resolve_to(monkeypatch, closed_port, "127.0.0.2", "127.0.0.1")
    error = await outcome(client, "other.addresses", closed_port, PRESENT)
    assert type(error) is ConnectionRefusedError


async def test_closed_connection_is_no_refused_connection(client: ControlPlaneClient) -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert type(await outcome(client, "127.0.0.1", port, PRESENT)) is ConnectionError


async def test_silence_is_a_timeout(client: ControlPlaneClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        await client.call(
            control_at("127.0.0.1", silent.getsockname()[1]),
            PRESENT,
            {},
            target_id=1,
            timeout_ms=50,
        )


async def test_dead_keep_alive_connections_do_not_hide_a_refusal() -> None:
    clock, rng = SystemClock(), SystemRng()
    broker = HttpControlPlane(b"secret", "c", 1, clock, rng)
    client = ControlPlaneClient(b"secret", "c", -1, clock, rng)
    together = asyncio.Barrier(3)

    async def handle(_: Call) -> dict[str, object]:
        await together.wait()
        return {}

    listener = await broker.serve(handle, "127.0.0.1", 0)
    target = {"target_id": 1, "timeout_ms": 5_000}
    await asyncio.gather(
        *(
            client.call(control_at("127.0.0.1", listener.port), "state", {}, **target)
            for _ in range(3)
        )
    )
    await broker.close()
    assert (
        type(await outcome(client, "127.0.0.1", listener.port, PRESENT)) is ConnectionRefusedError
    )
    await client.close()
