"""A client's connection when a request of it meets a defect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.controller_bench import until
from support.memory_cluster import MemoryCluster

from minikafka.broker import listener
from minikafka.wire.versions import DELETE_TOPICS


async def test_a_defect_that_a_request_meets_costs_that_client_its_connection_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    met = 0

    async def defect(*_: Any) -> Any:
        nonlocal met
        met += 1
        raise KeyError("of a defect")

    async with MemoryCluster(1) as cluster, cluster.client() as other, cluster.client() as unlucky:
        assert await other.list_topics() == []
        monkeypatch.setitem(listener.HANDLERS, DELETE_TOPICS, defect)
        trying = asyncio.ensure_future(unlucky.delete_topics("t"))
        await until(lambda: met > 1)  # it connected again
        trying.cancel()
        assert "of a defect" in caplog.text
        assert await other.list_topics() == []
        assert cluster.crashes == []
