"""The process of a ZooKeeper server: start, clean end, restart with its data, and errors without a traceback."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.security.certificates import Authority
from support.zookeeper import wire as wire
from support.zookeeper.wire import WireClient

from minikafka.runtime.transport import SocketTransport
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.codes import CREATE


class Server:
    """One process of `minikafka zookeeper` on a free port."""

    def __init__(self, data: Path, *options: str, port: str | None = "0") -> None:
        command = [sys.executable, "-m", "minikafka", "zookeeper", "--data", str(data)]
        if port is not None:
            command += ["--port", port]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def port(self) -> int:
        """Wait until the server is ready; return its port."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "one node, not replicated" in line
        return int(line.partition(": one node")[0].rpartition(":")[2])

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and what was written to stderr."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    started: list[Server] = []
    yield started
    for server in started:
        server.process.kill()
        server.process.communicate()


def start(servers: list[Server], data: Path, *options: str) -> Server:
    servers.append(Server(data, *options))
    return servers[-1]


async def connect(port: int) -> WireClient:
    return await wire.client(SocketTransport(), port, 10_000)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_server_cleanly(tmp_path, servers, number):
    server = start(servers, tmp_path)
    client = await connect(server.port())
    server.process.send_signal(number)
    assert await client.end() == b""
    assert server.end() == (0, "")


async def test_session_and_ephemeral_nodes_survive_a_kill_of_the_server(tmp_path, servers):
    server = start(servers, tmp_path / "not" / "there")
    client = await wire.wire(SocketTransport(), server.port())
    greeting = await client.greet(10_000)
    assert (await client.call(CREATE, wire.create("/a", b"x", 1))).error == 0
    server.process.kill()
    server.end()
    again = start(servers, tmp_path / "not" / "there")
    client = await wire.wire(SocketTransport(), again.port())
    assert await client.greet(10_000, greeting.session_id, greeting.password) == greeting
    reply = await client.call(codes.GET_DATA, wire.read("/a"))
    assert reply.reader().buffer() == b"x"
    assert reply.stat().ephemeral_owner == greeting.session_id


def refused(servers: list[Server], data: Path, *options: str, code: int = 1) -> str:
    """Return the last line of stderr of a server that does not start, and ends with this exit code."""
    ended, errors = start(servers, data, *options).end()
    assert ended == code
    assert "Traceback" not in errors
    return errors.splitlines()[-1]


def test_server_says_that_its_port_is_in_use(tmp_path, servers):
    port = start(servers, tmp_path / "first").port()
    line = refused(servers, tmp_path / "second", "--port", str(port))
    assert f"127.0.0.1:{port} is in use by another process; choose another --port" in line


def test_server_says_that_another_one_uses_its_directory(tmp_path, servers):
    start(servers, tmp_path).port()
    assert "is in use: process" in refused(servers, tmp_path)


def test_server_says_that_its_directory_cannot_be_made(tmp_path, servers):
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(servers, tmp_path / "file" / "data")


def test_server_says_which_file_is_corrupt(tmp_path, servers):
    server = start(servers, tmp_path)
    server.port()
    server.process.terminate()
    server.end()
    (tmp_path / "version-2" / "snapshot.0").write_bytes(b"rubbish")
    assert "version-2" in refused(servers, tmp_path, code=2)


async def test_server_that_cannot_write_ends_and_answers_nothing(tmp_path, servers):
    server = start(servers, tmp_path)
    client = await connect(server.port())
    # Beyond this size, a write fails as on a full disk.
    [log] = (tmp_path / "version-2").glob("log.*")
    size = len(log.read_bytes().rstrip(b"\0"))
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, size))
    client.request(CREATE, wire.create("/a"))
    assert await client.end() == b""
    code, errors = server.end()
    assert code == 1
    assert "minikafka: the transaction log cannot be written" in errors.splitlines()[-1]


def test_server_warns_of_an_address_that_other_machines_reach(tmp_path, servers):
    server = start(servers, tmp_path, "--host", "0.0.0.0")
    assert server.process.stdout is not None
    warning = server.process.stdout.readline()
    port = server.port()
    server.process.terminate()
    assert server.end() == (0, "")
    assert f"0.0.0.0:{port} can be reached from other machines, without encryption" in warning


def test_help_says_what_is_not_implemented(tmp_path):
    command = [sys.executable, "-m", "minikafka", "zookeeper", "--help"]
    text = " ".join(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    )
    assert "It is one node, not replicated" in text
    assert "Not implemented:" in text


def test_server_with_a_parent_that_has_ended_does_not_run(tmp_path, servers):
    server = start(servers, tmp_path, "--parent", str(os.getpid() + 1))
    assert server.end()[0] == -signal.SIGKILL


def test_imports_of_the_server_leave_out_what_it_does_not_need():
    code = """
import sys
import minikafka.tools.cli.main, minikafka.tools.cli.foreground.zookeeper
import minikafka.tools.cli.foreground.zookeeper_process
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unneeded = {"aiozk", "aiohttp", "rich", "kio", "uvloop", "msgpack", "multiprocessing", "email"}
    assert unneeded & set(found.stdout.split()) == set()


async def test_server_with_a_configuration_file_serves_only_its_port_with_tls(tmp_path, servers):
    authority = Authority(tmp_path / "ca")
    config = tmp_path / "zoo.cfg"
    config.write_text(
        f"secureClientPort=0\nssl.clientAuth=need\nssl.keyStore.location={authority.server().pem}\n"
        f"ssl.trustStore.location={authority.pem}\n"
    )
    servers.append(Server(tmp_path / "data", "--config", str(config), port=None))
    port = servers[-1].port()
    context = ssl.create_default_context(cadata=authority.pem_text)
    context.load_cert_chain(authority.client("alice").pem)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(b"ruok")
        assert secure.recv(10) == b"imok"


def test_server_without_a_port_or_with_a_wrong_key_does_not_start(tmp_path, servers):
    config = tmp_path / "zoo.cfg"
    for text, reason in (
        ("superUser=chief", "the server has no port: give --port, or set secureClientPort"),
        ("secureClientPort=0", f"{config}: ssl.keyStore.location is not set"),
        (
            "secureClientPort=0\nssl.keyStore.location=/not/there",
            f"{config}: ssl.keyStore.location: /not/there cannot be read",
        ),
        ("java.security.auth.login.config=/not/there", "java.security.auth.login.config: /not"),
    ):
        config.write_text(text)
        servers.append(Server(tmp_path / "data", "--config", str(config), port=None))
        code, errors = servers[-1].end()
        assert code != 0
        assert reason in errors
        assert "Traceback" not in errors


async def test_certificate_that_changes_is_used_by_new_connections(tmp_path, servers):
    authority = Authority(tmp_path / "ca")
    first, second = authority.server(), authority.server()
    store, config = tmp_path / "server.pem", tmp_path / "zoo.cfg"
    store.write_bytes(first.pem.read_bytes())
    config.write_text(f"secureClientPort=0\nssl.clientAuth=none\nssl.keyStore.location={store}\n")
    servers.append(Server(tmp_path / "data", "--config", str(config), port=None))
    context = ssl.create_default_context(cadata=authority.pem_text)
    address = "127.0.0.1", servers[-1].port()

    def shown() -> bytes | None:
        with (
            socket.create_connection(address) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(b"ruok")
            assert secure.recv(10) == b"imok"
            return secure.getpeercert(binary_form=True)

    assert shown() == first.der
    store.write_bytes(second.pem.read_bytes())
    async with asyncio.timeout(60):
        while shown() != second.der:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.2)
