"""Measures a real controller and a real ZooKeeper with many partitions on simulated brokers.

The benchmark starts three processes: ZooKeeper (as in `minikafka up`), the simulated brokers
(`controller_brokers.py`), and the controller under test (`controller_term.py`).
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import controller_brokers, controller_term
from benchmarks.controller_setting import fill
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

SECRET = "a secret for one benchmark"
LINE_MAX = 1 << 20


class Cluster(NamedTuple):
    """The size of the simulated cluster. Leaders and replicas are balanced."""

    partitions: int
    replicas: int
    brokers: int


async def measure(cluster: Cluster, *, shut_down: bool) -> dict[str, Any]:
    """Measure how a new controller loads the state of the cluster.

    If `shut_down` is True, measure instead how this controller moves the leaders away from a broker that shuts down.
    """
    ids = list(range(cluster.brokers))
    with tempfile.TemporaryDirectory(prefix="minikafka-bench-") as directory:
        [port] = free_ports(1, SystemRng())
        zookeeper = ApacheZooKeeper(Path(directory), port, clock=SystemClock())
        children: list[asyncio.subprocess.Process] = []
        try:
            await zookeeper.start()
            await fill(zookeeper.connect, cluster.partitions, cluster.replicas, ids)
            brokers = await _child(
                controller_brokers.__name__,
                controller_brokers.Orders(zookeeper.connect, SECRET, ids, ids[1:]),
                children,
            )
            ports = await _line(brokers)
            controller = await _child(
                controller_term.__name__,
                controller_term.Orders(
                    zookeeper.connect, SECRET, ids[0], ports["0"], ids[1] if shut_down else None
                ),
                children,
            )
            facts = await _line(controller)
            for child in (controller, brokers):
                assert child.stdin is not None
                child.stdin.close()
                await child.wait()
        finally:
            for child in children:
                if child.returncode is None:
                    child.kill()
                    await child.wait()
            await zookeeper.stop()
    return {**cluster._asdict(), **facts}


async def _child(
    module: str, orders: Any, children: list[asyncio.subprocess.Process]
) -> asyncio.subprocess.Process:
    """Start a process, send the parameters `orders`, and add the process to `children`."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=-1, stdout=-1, limit=LINE_MAX
    )
    children.append(child)
    assert child.stdin is not None
    child.stdin.write(json.dumps(orders._asdict()).encode() + b"\n")
    return child


async def _line(child: asyncio.subprocess.Process) -> dict[str, Any]:
    assert child.stdout is not None
    line = await child.stdout.readline()
    if not line:
        raise RuntimeError(f"process {child.pid} of the benchmark ended early")
    facts: dict[str, Any] = json.loads(line)
    return facts
