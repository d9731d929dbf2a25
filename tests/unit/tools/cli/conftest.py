"""A cluster of scripted brokers for commands that use the client."""

from __future__ import annotations

import pytest
from support.clients.stub_cluster import StubCluster
from support.commands.stub_commands import serve_commands

from minikafka.simulation.transport import MemoryTransport


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> StubCluster:
    """Return brokers that run during each command and keep their topics. Any value of `--bootstrap` leads to them."""
    return serve_commands(StubCluster(MemoryTransport()), monkeypatch)
