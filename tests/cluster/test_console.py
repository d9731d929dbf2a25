"""The console on a real cluster: brokers that are paused, actions, and the console that `up` starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.clusters.running_cluster import create_topic
from support.commands.commands import call
from support.commands.console_server import console_of, events, get

from minikafka.client import Client
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.directory import ClusterDirectory
from minikafka.tools.cluster.processes import is_alive
from minikafka.tools.console import standby

pytestmark = pytest.mark.cluster


@pytest.fixture
async def page(cluster: LocalCluster) -> AsyncIterator[aiohttp.ClientSession]:
    async with console_of(cluster) as page:
        yield page


async def test_console_shows_what_the_others_know_while_a_broker_is_paused(
    cluster: LocalCluster, page: aiohttp.ClientSession
) -> None:
    await create_topic(cluster, "console-seen", 3)
    async with Client(cluster.bootstrap) as client:
        await client.produce("console-seen", [Record(0, 0, b"k", b'{"a": 1}', ())], partition=1)
    row: Any = (await get(page, "/api/partition/console-seen/1?history=no"))["replicas"][0]
    assert (row["role"], row["log_end"], row["in_isr"]) == ("leader", 1, True)
    paused = row["broker"]
    async with page.get("/api/stream?topics=console-seen") as stream, asyncio.timeout(30):
        seen = events(stream)
        name, snapshot = await anext(seen)
        assert name == "snapshot"
        assert set(snapshot["partitions"]) == {f"console-seen-{number}" for number in range(3)}
        assert snapshot["unseen"] == []
        await cluster.pause(paused)
        found: dict[str, Any] = {}
        async for name, data in seen:
            found[name] = data
            is_led = name == "frame" and data.get("partitions", {}).get("console-seen-1", [None])[0]
            if is_led and "unseen" in found:
                break
        assert found["unseen"]["what"] == f"broker {paused}"
        assert is_led != paused
    records = await get(page, "/api/records/console-seen?key=k&from=start")
    assert [one["value"]["json"] for one in records["records"]] == [{"a": 1}]
    replicas = (await get(page, "/api/partition/console-seen/1"))["replicas"]
    assert {one["broker"]: one["state"] for one in replicas}[paused] == "paused"
    why = await get(page, "/api/why/partition/console-seen/1")
    assert f"broker {paused} is paused" in " ".join(why["lines"])
    for path in ("/api/groups", "/api/transactions", "/api/topics"):
        await get(page, path)


async def test_action_runs_the_command_that_it_shows(
    cluster: LocalCluster, page: aiohttp.ClientSession
) -> None:
    await create_topic(cluster, "console-act", 1)
    body = {"action": "produce", "arguments": {"topic": "console-act", "value": "<b>"}}
    async with page.post("/api/actions/run", json=body) as response:
        assert response.status == 400, "nothing runs without a confirmation"
    async with page.post("/api/actions/plan", json=body) as response:
        command = (await response.json())["command"]
    async with page.post("/api/actions/run", json=body | {"confirmed": True}) as response:
        done = await response.json()
    assert (done["command"], done["exit_code"]) == (command, 0)
    found = await get(page, "/api/records/console-act?from=start")
    assert [one["value"]["text"] for one in found["records"]] == ["<b>"]
    [run] = await get(page, "/api/actions/runs")
    assert (run["command"], run["exit_code"]) == (command, 0)


async def test_console_of_up_wakes_for_a_visitor_and_ends_with_down(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):
        up = await call("up", "--brokers", "1", "--json", "--data", str(data))
        url = json.loads(up.out)["console_url"]
        assert url in up.err
        record = standby.read(ClusterDirectory(data))
        assert record is not None
        async with aiohttp.ClientSession() as client:
            async with client.get(url) as response:
                assert response.status == 200
            async with client.get(url.replace("/?", "/api/topics?")) as response:
                assert await response.json() == []
        assert is_alive(record.process), "the console is the same process"
        await call("down", "--data", str(data))
        assert not is_alive(record.process)
        assert json.loads((data / "console.json").read_text())["process"] is None
        assert (data / "console.json").stat().st_mode & 0o77 == 0
    assert record.url == url, "the second start has the URL of the first"
