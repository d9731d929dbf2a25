"""Fixtures: an elected controller over an in-memory ZooKeeper, and whole brokers on a real ZooKeeper."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.brokers.controller_bench import ControllerBench
from support.clusters.zookeeper_brokers import NewCluster, ZooKeeperBrokers

from minikafka.zookeeper.processes.apache import ApacheZooKeeper

ROOTS = itertools.count()


@pytest.fixture
async def bench() -> AsyncIterator[ControllerBench]:
    bench = await ControllerBench().elected()
    yield bench
    await bench.close()


@pytest.fixture
def cluster(server: ApacheZooKeeper, tmp_path: Path) -> NewCluster:
    """Return a function that makes a cluster of brokers 1 … N on the shared server, each cluster under a new chroot."""

    def brokers(count: int = 3, **config: object) -> ZooKeeperBrokers:
        root = f"cluster-{next(ROOTS)}"
        data = tmp_path / root
        return ZooKeeperBrokers(f"{server.connect}/{root}", data, range(1, count + 1), **config)

    return brokers
