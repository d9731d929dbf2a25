"""A cache of ZooKeeper's loaded classes (JEP 514), which saves 0.3 of 0.75 s of processor time per server.

    python -m support.zookeeper.cache FILE

The conformance suite, ensembles and clusters of Apache Kafka run on Apache ZooKeeper. The program makes the cache while
the workers collect the tests. Servers that start before FILE exists use no cache. Java 24 and earlier ignore the
options.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import JVM_FLAGS, ApacheZooKeeper
from minikafka.zookeeper.processes.child import POLL_MS

TESTS = Path(__file__).parents[2]
QUIET = "-Xlog:disable -XX:+IgnoreUnrecognizedVMOptions"


class ZooKeeperCache:
    """A pytest plugin for the process that starts the workers. The cache exists until this process ends."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="zookeeper-cache-")
        file = Path(self._directory.name) / "classes.aot"
        command = [sys.executable, "-m", "support.zookeeper.cache", str(file)]
        self._making = subprocess.Popen(command, cwd=TESTS, start_new_session=True)
        os.environ.setdefault(JVM_FLAGS, f"{QUIET} -XX:AOTCache={file}")

    def pytest_unconfigure(self) -> None:
        """Wait until the cache is complete, and remove it."""
        self._making.wait()
        self._directory.cleanup()


async def make(file: Path) -> None:
    """Start a server and end it; Java then writes the cache. `file` appears when the cache is complete."""
    clock = SystemClock()
    [port] = free_ports(1, SystemRng())
    with tempfile.TemporaryDirectory(dir=file.parent) as directory:
        made = Path(directory) / file.name
        os.environ[JVM_FLAGS] = f"{QUIET} -XX:AOTCacheOutput={made}"
        server = ApacheZooKeeper(Path(directory), port, clock=clock)
        await server.start()
        server.signal(signal.SIGTERM)
        while server.is_running():
            await clock.sleep(POLL_MS)
        if made.exists():
            made.replace(file)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1])))
