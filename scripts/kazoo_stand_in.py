"""A plugin of pytest for kazoo's tests: their ZooKeeper cluster is one server of `minikafka zookeeper`.

It takes the place of the module `kazoo.testing.common`, which starts ensembles of Apache ZooKeeper from its jars.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper

TICK_MS = 2_000
"""The tick time that kazoo's own class sets."""


class Server:
    """One server, with the names that kazoo's tests use."""

    def __init__(self) -> None:
        [port] = free_ports(1, SystemRng())
        directory = Path(tempfile.mkdtemp(prefix="minikafka-kazoo-"))
        self._zookeeper = EmbeddedZooKeeper(
            directory, port, clock=SystemClock(), tick_time_ms=TICK_MS
        )
        self.address = self.secure_address = self._zookeeper.connect
        self.client_port = port

    @property
    def running(self) -> bool:
        """True if the server's process exists."""
        return self._zookeeper.is_running()

    def run(self) -> None:
        """Start the server if it does not run."""
        if not self.running:
            asyncio.run(self._zookeeper.start())

    def stop(self) -> None:
        """Stop the server, and keep its data."""
        asyncio.run(self._zookeeper.stop())

    def destroy(self) -> None:
        """Stop the server, and remove its data."""
        self.stop()
        shutil.rmtree(self._zookeeper.data_dir, ignore_errors=True)


class ZookeeperCluster:
    """A cluster of one server, whatever size the tests ask for."""

    def __init__(self, **_: object) -> None:
        self._servers = [Server()]

    def __getitem__(self, index: int) -> Server:
        return self._servers[index]

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers)

    def start(self) -> None:
        """Start the server."""
        for server in self:
            server.run()

    def terminate(self) -> None:
        """Stop the server, and remove its data."""
        for server in self:
            server.destroy()

    def get_logs(self) -> list[str]:
        """Return nothing: kazoo prints the logs of its servers after a failure."""
        return []


module = ModuleType("kazoo.testing.common")
module.ZookeeperCluster = ZookeeperCluster  # type: ignore[attr-defined]
sys.modules[module.__name__] = module
