"""A cluster whose ZooKeeper lost its data, as a user finds, rebuilds and starts it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.clusters.running_cluster import eventually
from support.commands.commands import call
from support.rows.proof import MODES

from minikafka.base.model import topic_id_text
from minikafka.client import Client, Record
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper

CONFIG = {"min.insync.replicas": 2, "default.replication.factor": 3, "num.partitions": 3}
RECORDS = 600
GROUP = "readers"


@pytest.mark.parametrize("mode", MODES)
async def test_cluster_with_an_empty_zookeeper_is_refused_and_rebuilt_without_loss(
    tmp_path: Path, mode: str
) -> None:
    data = ("--data", str(tmp_path))
    """Broker 2 is down when the last records are acknowledged, and has shorter logs."""
    cluster = LocalCluster(3, data=tmp_path, config=CONFIG, coordination=mode)
    await cluster.start()
    try:
        await produce(cluster, range(RECORDS // 2))
        read = await call("consume", "events", "--group", GROUP, "-n", "100", "-q", *data)
        assert len(read.out.splitlines()) == 100
        offsets = await committed(data)
        assert sum(offsets.values()) == 100
        await cluster.kill(2)
        await produce(cluster, range(RECORDS // 2, RECORDS))
        topic_id = await topic_id_of(cluster)
        await cluster.kill_zookeeper()
        shutil.rmtree(cluster.directory.zookeeper)

        with pytest.raises(ClusterError, match=r"ZooKeeper has no node /cluster/id.*zk recover"):
            await cluster.start_zookeeper()
        assert cluster.zookeeper_process() is None
        health = await call("cluster", "health", "--json", *data)
        assert "zookeeper-lost" in [cause["name"] for cause in json.loads(health.out)["causes"]]
        refused = await call("zk", "recover", *data)
        assert (refused.code, "1, 3 are running" in refused.err) == (1, True)
        await brokers_end_at_an_empty_zookeeper(cluster, tmp_path / "other")

        with pytest.raises(ClusterError, match="No broker was started"):
            await cluster.start()
        assert [cluster.process(id_) for id_ in (1, 2, 3)] == [None] * 3
        rebuilt = await call("zk", "recover", "--json", *data)
        [topic] = [t for t in json.loads(rebuilt.out)["topics"] if t["name"] == "events"]
        assert topic["topic_id"] == topic_id
        in_sync = [set(one["isr"]) for one in topic["partitions"]]
        assert all({1, 3} <= isr for isr in in_sync)
        assert {1, 3} in in_sync  # those that have records which broker 2 lacks

        await cluster.start()
        async with Client(cluster.bootstrap) as client:
            found = [int(r.value or b"") async for r in client.consume("events", until_end=True)]
        assert sorted(found) == list(range(RECORDS))
        assert await committed(data) == offsets
        await cluster.wait_until_in_sync()
        await produce(cluster, [RECORDS])
        again = await call("zk", "recover", *data)
        assert again.code == 1
    finally:
        await cluster.stop()


async def test_failed_starts_leave_the_files_of_a_zookeeper_without_its_logs(
    tmp_path: Path,
) -> None:
    """`durable-end` says what was lost; without it, the server would start without data."""
    data = ("--data", str(tmp_path))
    cluster = LocalCluster(1, data=tmp_path)
    await cluster.start()
    await cluster.stop()
    shutil.rmtree(cluster.directory.zookeeper_data / "version-2")
    left = set(cluster.directory.zookeeper_data.iterdir())
    for command in (("zk", "recover"), ("up",), ("up",)):
        assert (await call(*command, *data)).code == 1
        assert left <= set(cluster.directory.zookeeper_data.iterdir())


async def brokers_end_at_an_empty_zookeeper(cluster: LocalCluster, data: Path) -> None:
    """Start an empty server in the place of the cluster's ZooKeeper, and wait until brokers 1 and 3 have ended."""
    port = int(cluster.zookeeper.rpartition(":")[2])
    other = EmbeddedZooKeeper(data, port, clock=SystemClock())
    await other.start()
    try:

        async def have_ended() -> bool:
            return cluster.process(1) is None and cluster.process(3) is None

        await eventually(have_ended)
    finally:
        await other.stop()
    for broker in (1, 3):
        log = (cluster.directory.logs / f"broker-{broker}.log").read_text()
        assert log.splitlines()[-1].startswith("minikafka: ZooKeeper has no node /cluster/id")


async def produce(cluster: LocalCluster, numbers: range | list[int]) -> None:
    async with Client(cluster.bootstrap) as client:
        await client.produce("events", [Record(value=str(number).encode()) for number in numbers])


async def topic_id_of(cluster: LocalCluster) -> str:
    async with Client(cluster.bootstrap) as client:
        [topic] = await client.describe_topics("events")
        return topic_id_text(topic.topic_id)


async def committed(data: tuple[str, ...]) -> dict[int, int]:
    """Return the group's committed offset by partition."""
    done = await call("groups", "describe", GROUP, "--json", *data)
    [group] = json.loads(done.out)
    return {row["partition"]: row["current_offset"] for row in group["partitions"]}
