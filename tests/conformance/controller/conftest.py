"""The elected controller that most tests of a term begin with, and whole brokers on a real ZooKeeper."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.controller_bench import ControllerBench
from support.zookeeper_brokers import NewCluster, ZooKeeperBrokers

from minikafka.zk.managed import ManagedZooKeeper

ROOTS = itertools.count()


@pytest.fixture
async def bench() -> AsyncIterator[ControllerBench]:
    bench = await ControllerBench().elected()
    yield bench
    await bench.close()


@pytest.fixture
def cluster(server: ManagedZooKeeper, tmp_path: Path) -> NewCluster:
    """Return a function that makes brokers 1 … N with a root of their own on the shared server."""

    def brokers(count: int = 3, **config: object) -> ZooKeeperBrokers:
        root = f"cluster-{next(ROOTS)}"
        data = tmp_path / root
        return ZooKeeperBrokers(f"{server.connect}/{root}", data, range(1, count + 1), **config)

    return brokers
