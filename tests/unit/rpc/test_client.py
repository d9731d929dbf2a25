"""The client of the control plane."""

from __future__ import annotations

import socket

import aiohttp
import pytest
from support.manual_clock import ManualClock

from minikafka.rpc.client import ControlPlaneClient
from minikafka.runtime.clock import SystemRng


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def error_of_call(port: int) -> str:
    client = ControlPlaneClient(b"secret", "c", -1, ManualClock(), SystemRng())
    try:
        with pytest.raises(ConnectionError) as failed:
            await client.call("127.0.0.1", port, "status", {}, target_id=1, timeout_ms=60_000)
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
