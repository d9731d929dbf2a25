"""Real ZooKeeper servers that the tests of this folder share, and a fixture that runs a test in both modes."""

from __future__ import annotations

import pytest
from support.rows import proof
from support.zookeeper.zookeepers import (
    connect,
    ensemble,
    server,
    shared_embedded,
    shared_ensemble,
    shared_server,
)

from minikafka.simulation.cluster import MemoryCluster

__all__ = [
    "connect",
    "each_mode",
    "ensemble",
    "server",
    "shared_embedded",
    "shared_ensemble",
    "shared_server",
]


@pytest.fixture(params=proof.MODES)
def each_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test once in each coordination mode, which is the mode of its in-memory clusters."""
    monkeypatch.setattr(MemoryCluster, "default_coordination", request.param)
