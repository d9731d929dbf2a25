"""A current client of Node.js, which fetches by topic id (KIP-516)."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from support.clients.client_drivers import DRIVERS, NPM, build
from support.clusters.running_cluster import create_topic

from minikafka.client import Client
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

COUNT = 40


@pytest.mark.row("R50")
async def test_current_node_client_reads_a_topic_in_a_group(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """@platformatic/kafka reads nothing from brokers that serve Fetch only up to version 12."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path / "driver"
    shutil.copytree(DRIVERS / "platformatic", folder)
    await asyncio.to_thread(build, list(NPM), folder)
    topic = group = "node-ids"
    await create_topic(cluster, topic)
    values = [str(number) for number in range(COUNT)]
    async with Client(cluster.bootstrap) as client:
        await client.produce(topic, [Record(value=value.encode()) for value in values], partition=0)
    process = await asyncio.create_subprocess_exec(
        "node",
        str(folder / "read.mjs"),
        *(cluster.bootstrap, topic, group, str(COUNT)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert json.loads(printed) == values
