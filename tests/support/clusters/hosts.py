"""Hosts on this machine: network namespaces that share one bridge, each with an address of its own.

Creating them needs the command `ip` and the right to administer the network; `needs_hosts` skips a test without them.
A host can be unplugged: its packets are lost, while its processes go on running.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from minikafka.zookeeper.processes.child import ServerProcess

KAFKA_PORT = 9092
SECRET = "one secret of all hosts"


def _may_administer() -> bool:
    probe = f"mk-probe-{os.getpid()}"
    if shutil.which("ip") is None or _ip("netns", "add", probe).returncode:
        return False
    made = _ip("-n", probe, "link", "add", "mk-bridge", "type", "bridge")
    _ip("netns", "del", probe)
    return made.returncode == 0


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


def _do(*arguments: str) -> None:
    done = _ip(*arguments)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


needs_hosts = pytest.mark.skipif(
    not _may_administer(), reason="needs the right to create network namespaces and bridges"
)


class Hosts:
    """Network namespaces NAME-1 … NAME-N with the addresses .11 … of one /24 network; this machine has .1."""

    def __init__(self, count: int) -> None:
        number = os.getpid() % 250
        self.network = f"10.197.{number}"
        self.numbers = range(1, count + 1)
        self._bridge = f"mkbr{number}"
        self._name = f"mk{os.getpid()}"

    @property
    def gateway(self) -> str:
        """The address of this machine."""
        return f"{self.network}.1"

    def address(self, number: int) -> str:
        """Return the address of one host."""
        return f"{self.network}.{10 + number}"

    def command(self, number: int, *command: str) -> list[str]:
        """Return the command that runs `command` on a host. The process keeps its pid."""
        return ["ip", "netns", "exec", self._host(number), *command]

    def plug(self, number: int, *, plugged: bool) -> None:
        """Connect a host to the network, or let all its packets be lost."""
        _do("link", "set", self._port(number), "up" if plugged else "down")

    def create(self) -> None:
        """Create the bridge and the hosts."""
        _do("link", "add", self._bridge, "type", "bridge")
        _do("address", "add", f"{self.gateway}/24", "dev", self._bridge)
        _do("link", "set", self._bridge, "up")
        for number in self.numbers:
            host, port = self._host(number), self._port(number)
            _do("netns", "add", host)
            _do("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _do("link", "set", port, "master", self._bridge, "up")
            _do("-n", host, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            _do("-n", host, "link", "set", "eth0", "up")
            _do("-n", host, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Remove the hosts and the bridge."""
        for number in self.numbers:
            _ip("netns", "del", self._host(number))
            _ip("link", "del", self._port(number))
        _ip("link", "del", self._bridge)

    def _host(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _port(self, number: int) -> str:
        return f"{self._bridge}p{number}"


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Create hosts, and remove them at the end."""
    found = Hosts(count)
    try:
        found.create()
        yield found
    finally:
        found.remove()


class SpreadCluster:
    """One broker on each host, and Apache ZooKeeper on this machine. Broker ids are the numbers of the hosts."""

    def __init__(self, on: Hosts, directory: Path, zookeeper: str, **config: object) -> None:
        self.hosts = on
        self.directory = directory
        self._zookeeper = zookeeper
        self._config = {key.replace("_", "."): value for key, value in config.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(
            f"{self.hosts.address(number)}:{KAFKA_PORT}" for number in self.hosts.numbers
        )

    def start(self, number: int) -> None:
        """Start a broker, without waiting until it serves."""
        folder = self.directory / f"host-{number}"
        folder.mkdir(exist_ok=True)
        keys = {
            "broker.id": number,
            "listeners": f"PLAINTEXT://{self.hosts.address(number)}:{KAFKA_PORT}",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": self._zookeeper,
            "minikafka.cluster.secret": SECRET,
            **self._config,
        }
        lines = (f'"{key}" = {_toml(value)}\n' for key, value in keys.items())
        (folder / "broker.toml").write_text("[broker]\n" + "".join(lines))
        command = [
            sys.executable,
            "-m",
            "minikafka",
            "broker",
            "--config",
            str(folder / "broker.toml"),
        ]
        with (folder / "log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                self.hosts.command(number, *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, number: int) -> None:
        """Send SIGKILL to a broker, and wait until the process has ended."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill all brokers."""
        for number in list(self._processes):
            self.kill(number)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'


@asynccontextmanager
async def spread_cluster(
    on: Hosts, directory: Path, zookeeper: ServerProcess, **config: object
) -> AsyncIterator[SpreadCluster]:
    """Start one broker on each host. The brokers reach ZooKeeper, which serves on 127.0.0.1, through this machine."""
    port = int(zookeeper.connect.rpartition(":")[2])

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, there), _copy(back, writer))

    server = await asyncio.start_server(forward, on.gateway, 0)
    connect = f"{on.gateway}:{server.sockets[0].getsockname()[1]}"
    cluster = SpreadCluster(on, directory, connect, **config)
    try:
        for number in on.numbers:
            cluster.start(number)
        yield cluster
    finally:
        cluster.close()
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
