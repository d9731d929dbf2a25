"""A new server of Apache ZooKeeper and a new one of minikafka, for comparisons of the two."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import JVM_FLAGS, ApacheZooKeeper
from minikafka.zookeeper.processes.child import TICK_MS, EmbeddedZooKeeper, ServerProcess

_FLAGS = " ".join(
    (
        "-Dznode.container.checkIntervalMs=1000000000",  # the removal of containers uses up zxids
        "-Dzookeeper.forceSync=no",
    )
)

_KEEPING_CONTAINERS = (
    "from minikafka.zookeeper.server import settings; settings.CONTAINERS_MS = 10**9; "
    "from minikafka.tools.cli.main import main; main()"
)


class _Apache(ApacheZooKeeper):
    """A server that answers all four-letter words."""

    def _write_config(self) -> str:
        name = super()._write_config()
        with (self.data_dir / name).open("a") as file:
            file.write("4lw.commands.whitelist=*\n")
        return name


class _Embedded(EmbeddedZooKeeper):
    """A server that keeps empty containers."""

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-c", _KEEPING_CONTAINERS, *arguments]


class Pair(NamedTuple):
    """Both servers, running."""

    apache: ServerProcess
    embedded: ServerProcess

    @property
    def ports(self) -> tuple[int, int]:
        return self.apache.port, self.embedded.port


@asynccontextmanager
async def running_pair(directory: Path, *, tick_ms: int = TICK_MS) -> AsyncIterator[Pair]:
    """Run both servers below a directory during the `with` body."""
    ports, clock = free_ports(2, SystemRng()), SystemClock()
    pair = Pair(
        _Apache(directory / "apache", ports[0], clock=clock, tick_time_ms=tick_ms),
        _Embedded(directory / "embedded", ports[1], clock=clock, tick_time_ms=tick_ms),
    )
    try:
        with patch.dict(os.environ, {JVM_FLAGS: f"{os.environ.get(JVM_FLAGS, '')} {_FLAGS}"}):
            pair.apache.spawn()
        pair.embedded.spawn()
        for server in pair:
            await server.wait_until_serving()
        yield pair
    finally:
        for server in pair:
            await server.stop()
