"""Apache ZooKeeper as a child process: its start, its end, and the data that it keeps."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.zookeeper.zookeepers import eventually

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.tools.cluster.processes import identify
from minikafka.zookeeper.processes.apache import ApacheZooKeeper
from minikafka.zookeeper.processes.child import ServerFailed

PARENT = """
import asyncio, sys
from pathlib import Path
from minikafka.runtime.clock import SystemClock
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

async def main():
    attached = sys.argv[3] == "attached"
    server = ApacheZooKeeper(Path(sys.argv[1]), int(sys.argv[2]), clock=SystemClock(), attached=attached)
    print(await server.start(), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApacheZooKeeper]:
    """A server that is not started yet; its directory's name needs escaping in a Java properties file."""
    [port] = free_ports(1, SystemRng())
    server = ApacheZooKeeper(tmp_path / "ä b\\c", port, clock=SystemClock())
    yield server
    await server.kill()


async def test_server_keeps_port_and_data_when_it_restarts(
    server: ApacheZooKeeper,
) -> None:
    first = await server.start()
    assert first == server.pid
    assert (await server.status())["mode"] == "standalone"
    assert (await server.status())["zookeeper version"].startswith("3.9")
    await server.stop()
    assert not server.is_running()
    assert await server.status() == {}
    second = await server.start()
    assert second != first
    await server.kill()
    assert not server.is_running()
    await server.stop()  # the process has already ended: no error
    assert (server.data_dir / "zookeeper.log").read_text() == ""


async def test_stop_ends_even_a_paused_server_cleanly(
    server: ApacheZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await server.start()
    server.signal(signal.SIGSTOP)
    assert server.is_running()
    await server.stop()
    assert not server.is_running()
    assert caplog.records == []


async def test_start_fails_before_spawning_when_the_port_is_taken(server: ApacheZooKeeper) -> None:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", server.port)
    with pytest.raises(ServerFailed, match=str(server.port)):
        await server.start()
    assert server.pid == 0
    listener.close()


async def test_start_fails_with_the_output_of_the_server_when_it_ends_at_once(
    server: ApacheZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOOKEEPER_JARS", "/nowhere.jar")
    monkeypatch.delenv("SERVER_JVMFLAGS", raising=False)  # the suite's cache has the class
    with pytest.raises(ServerFailed, match="QuorumPeerMain"):
        await server.start()


async def test_server_jvmflags_variable_adds_options_for_java(
    server: ApacheZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_JVMFLAGS", "-Xmx2g -Xlog:gc*:stdout")
    await server.start()
    assert "Heap Max Capacity: 2G" in (server.data_dir / "zookeeper.log").read_text()


@pytest.mark.parametrize("mode", ["attached", "detached"])
async def test_only_a_detached_server_outlives_its_parent(tmp_path: Path, mode: str) -> None:
    [port] = free_ports(1, SystemRng())
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), str(port), mode, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    process = identify(pid)
    assert process is not None
    parent.kill()
    await parent.wait()

    async def is_gone() -> bool:
        return identify(process.pid) != process

    if mode == "attached":
        await eventually(is_gone)
        return
    # If the kernel had sent a signal, it would have arrived before the wait for the parent ended.
    seen_from_here = ApacheZooKeeper(tmp_path, port, clock=SystemClock())

    async def serves() -> bool:
        return "mode" in await seen_from_here.status()

    await eventually(serves)
    assert not await is_gone()
    os.kill(process.pid, signal.SIGTERM)
    await eventually(is_gone)
