"""The condition of a cluster's processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.security.certificates import Authority

from minikafka.base.config.security import SecurityKeys
from minikafka.base.ports import Buffer, Link
from minikafka.base.zookeeper import EMBEDDED, EXTERNAL
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.storage import DiskStorage
from minikafka.runtime.transport import SocketTransport
from minikafka.storage.log.directory import LogDirectory
from minikafka.tools.cluster.directory import HOST, BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.observation import sights
from minikafka.tools.cluster.observation.causes import causes_of
from minikafka.tools.cluster.observation.sights import (
    DOWN,
    PAUSED,
    RUNS,
    ProcessSight,
    Sights,
    ZooKeeperSight,
    _answers_clients,
    full_among,
    last_line,
    look,
)
from minikafka.tools.cluster.processes import ProcessId, identify

THIS = identify(os.getpid())


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def write(
    path: Path,
    process: ProcessId | None,
    zookeeper: ProcessId | None,
    *,
    zookeeper_port: int = 1,
    kind: str = EMBEDDED,
    port: int | None = None,
) -> ClusterDirectory:
    """Write the record of a cluster with one broker, and make its log directory and ZooKeeper's directory."""
    directory = ClusterDirectory(path)
    directory.zookeeper.mkdir(exist_ok=True)
    directory.broker_data(1).mkdir(parents=True, exist_ok=True)
    brokers = (BrokerRecord(1, port or free_port(), free_port(), process),)
    address = f"{HOST}:{zookeeper_port}"
    directory.write(
        ClusterRecord(brokers, address, zookeeper_process=zookeeper, zookeeper_kind=kind)
    )
    return directory


async def seen_in(directory: ClusterDirectory) -> Sights:
    return await look(directory, SystemClock(), SystemRng())


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    """A process that is paused."""
    child = subprocess.Popen(["sleep", "60"])
    process = identify(child.pid)
    assert process is not None
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)  # returns when the child is stopped
    yield process
    child.kill()
    child.wait()


async def test_processes_are_seen_as_running_paused_or_down(
    tmp_path: Path, sleeper: ProcessId
) -> None:
    seen = await seen_in(write(tmp_path, sleeper, None))
    assert seen.brokers[1].process.state == PAUSED
    assert seen.zookeeper.process is not None
    assert seen.zookeeper.process.state == DOWN
    assert seen.zookeeper_is_away
    other = await seen_in(write(tmp_path, THIS, sleeper))
    assert other.brokers[1].process.state == RUNS
    assert other.zookeeper.process is not None
    assert other.zookeeper.process.state == PAUSED
    assert [cause.name for cause in causes_of(other)] == ["zookeeper-paused", "broker-silent"]


async def test_port_of_a_dead_broker_that_another_process_uses_is_seen(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        seen = await seen_in(write(tmp_path, None, THIS, port=port))
    assert seen.brokers[1].process.taken == (port,)


async def answering(answer: bytes | None) -> asyncio.Server:
    """Return a server that sends `answer` after a request; None: it never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
            await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, HOST, 0)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"Zookeeper version: 3.9\n", ""),
        (b"srvr is not executed because it is not in the whitelist.\n", ""),
        (
            b"This ZooKeeper instance is not currently serving requests\n",
            "this zookeeper instance is not currently serving requests",
        ),
        (None, "no answer within 0.05 s"),
    ],
)
async def test_zookeeper_serves_if_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, failure: str
) -> None:
    monkeypatch.setattr(sights, "LOOK_MS", 50 if answer is None else 10_000)
    server = await answering(answer)
    port = server.sockets[0].getsockname()[1]
    try:
        seen = await seen_in(write(tmp_path, None, None, zookeeper_port=port, kind=EXTERNAL))
    finally:
        server.close()
    assert (seen.zookeeper.failure, seen.zookeeper.process) == (failure, None)


async def test_zookeeper_that_refuses_connections_does_not_serve(tmp_path: Path) -> None:
    port = free_port()
    seen = await seen_in(write(tmp_path, None, None, zookeeper_port=port, kind=EXTERNAL))
    assert seen.zookeeper.failure == "connection refused"


def test_last_line_of_a_log_is_the_last_that_is_not_blank(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    assert last_line(log) == ""
    log.write_text("first\nminikafka: no luck\n\n")
    assert last_line(log) == "minikafka: no luck"
    written = log.stat().st_mtime_ns // 1_000_000
    assert last_line(log, written) == "minikafka: no luck"
    assert last_line(log, written + 1) == ""


def test_directory_on_a_file_system_without_free_space_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(tmp_path)
    assert full_among([here, f"{here}/missing"]) == ()
    monkeypatch.setattr(sights, "FULL_BYTES", 2**63)
    assert full_among([here, f"{here}/missing"]) == (here,)


async def test_zookeeper_is_asked_for_the_controller_only_if_the_brokers_disagree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = {"session_state": "connected", "is_controller": True, "controller_epoch": 3}
    answers = {1: claim}

    async def call_all(*_: object, **__: object) -> dict[int, dict[str, object]]:
        return answers

    async def elected(*_: object) -> int:
        return 2

    async def serves(*_: object) -> ZooKeeperSight:
        return ZooKeeperSight("z", ProcessSight(RUNS, 5))

    monkeypatch.setattr(sights, "call_all", call_all)
    monkeypatch.setattr(sights, "_elected", elected)
    monkeypatch.setattr(sights, "_zookeeper", serves)
    directory = write(tmp_path, THIS, None)
    assert (await seen_in(directory)).elected is None
    answers[2] = {**claim, "controller_epoch": 4}
    directory.write(
        replace(
            directory.read_existing(),
            brokers=tuple(BrokerRecord(id_, free_port(), free_port(), THIS) for id_ in (1, 2)),
        )
    )
    assert (await seen_in(directory)).elected == 2


async def test_log_directories_without_a_cluster_id_are_the_reason_for_no_answer(
    tmp_path: Path,
) -> None:
    seen = (await seen_in(write(tmp_path, THIS, None))).brokers[1]
    assert seen.failure == "no log directory of the cluster has a cluster id (meta.properties)"


@pytest.mark.parametrize("change", ["removed", "moved"])
async def test_log_directory_is_missing_only_after_the_broker_has_locked_it(
    tmp_path: Path, change: str
) -> None:
    directory = write(tmp_path, THIS, None)
    place = directory.broker_data(1)
    place.rmdir()

    async def missing() -> tuple[str, ...]:
        return (await seen_in(directory)).brokers[1].process.missing

    assert await missing() == (), "a broker that starts has not made it yet"
    log_directory = LogDirectory(DiskStorage(), str(place))
    log_directory.lock()
    assert await missing() == ()
    if change == "removed":
        shutil.rmtree(place)
    else:
        place.rename(tmp_path / "elsewhere")
    assert await missing() == (str(place),)
    log_directory.abandon()


async def test_missing_data_directory_of_a_running_zookeeper_is_seen(tmp_path: Path) -> None:
    directory = write(tmp_path, THIS, THIS)
    missing = []
    for _ in range(2):
        process = (await seen_in(directory)).zookeeper.process
        assert process is not None
        missing.append(process.missing)
        if directory.zookeeper.is_dir():
            directory.zookeeper.rmdir()
    assert missing == [(), (str(directory.zookeeper),)]


class Silent:
    """The handler of a connection to which nothing is sent after the handshake."""

    def connected(self, link: Link) -> None:
        pass

    def get_buffer(self, hint: int) -> Buffer:
        return bytearray(16)

    def buffer_updated(self, count: int) -> None:
        pass

    def disconnected(self, error: Exception | None) -> None:
        pass

    def drained(self) -> None:
        pass


@pytest.mark.parametrize("client_auth", ["none", "required"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_broker_answers_clients_if_its_encrypted_listener_shakes_hands(
    tmp_path: Path, client_auth: str, version: str
) -> None:
    authority = Authority(tmp_path)
    keys = SecurityKeys(
        ssl_keystore_location=str(authority.server("elsewhere").pem),
        ssl_truststore_location=str(authority.pem),
        ssl_client_auth=client_auth,
        ssl_enabled_protocols=(version,),
    )
    transport = SocketTransport()
    tls = transport.tls(keys, server=True)
    listener = await transport.listen(Silent, HOST, 0, tls)
    broker = BrokerRecord(1, 0, 1, None, {"SSL": listener.port}, {"SSL": "SSL"})
    assert await _answers_clients(broker)
    await listener.close()
    assert not await _answers_clients(broker)


async def test_program_that_speaks_no_tls_does_not_answer_as_an_encrypted_listener() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        broker = BrokerRecord(1, 0, 1, None, {"SSL": port}, {"SSL": "SSL"})
        assert not await _answers_clients(broker)
