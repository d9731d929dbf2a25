"""Tests of real brokers: the shipped cluster file, the memory per record, and the packages that a broker loads.

Spark writes and reads the records.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from aiozk import protocol
from support.commands.commands import call
from support.rows import proof

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.explain.nodes import read_nodes

ROOT = Path(__file__).parents[2]
ROWS = 300_000
LEADER = 1
BUDGET_KB = 8_000
"""Maximum memory growth: less than 28 bytes per row. The smallest bytes object needs about twice as much."""


def read(spark, bootstrap: str, topic: str):
    reader = spark.read.format("minikafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).load()


@pytest.mark.row("N1")
async def test_spark_reads_from_a_broker_started_with_the_shipped_cluster_file(spark, tmp_path):
    for part in ("pyproject.toml", "README.md", "scripts", "tests", "benchmarks", "minikafka"):
        assert (ROOT / part).exists()
    data = str(tmp_path / "data")
    given = ["--config", str(ROOT / "cluster.toml"), "--brokers", "1", "--port", "0"]
    started = await call("up", *given, "--data", data)
    proof.note(proof.Level.REAL)
    try:
        assert started.code == 0, started.err
        bootstrap = started.out.split()[-1]
        async with Client(bootstrap) as client:
            await client.create_topics(NewTopic("shipped", 1, 1))
            await client.produce("shipped", [Record(value=b"%d" % n) for n in range(3)])
        rows = await asyncio.to_thread(read(spark, bootstrap, "shipped").collect)
        described = await call("configs", "describe", "--broker", "1", "--all", "-b", bootstrap)
    finally:
        assert (await call("down", "--data", data)).code == 0
    assert [(row.offset, bytes(row.value)) for row in rows] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert re.search(r"zookeeper\.session\.timeout\.ms\D+6000\b", described.out), described


def told_by_system(cluster: LocalCluster, broker: int, file: str) -> str:
    """Return the content of a /proc file of the broker's process."""
    process = cluster.process(broker)
    assert process is not None
    return Path(f"/proc/{process.pid}/{file}").read_text()


def memory_kb(cluster: LocalCluster, broker: int) -> int:
    """Return the private memory (RssAnon) of the broker's process in kB."""
    status = told_by_system(cluster, broker, "status")
    return int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)[1])


@pytest.mark.row("N4")
async def test_leader_keeps_no_object_per_record_that_it_appends_and_serves(spark, cluster):
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("allocations", assignment={0: [LEADER, 2, 3]}))
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "allocations"}
    options["kafka.batch.size"] = "16384"

    def write_and_read(total: int) -> None:
        rows = spark.range(ROWS).selectExpr("string(id) value").coalesce(1)
        rows.write.format("minikafka").mode("append").options(**options).save()
        assert read(spark, cluster.bootstrap, "allocations").count() == total

    write_and_read(ROWS)
    before = memory_kb(cluster, LEADER)
    write_and_read(2 * ROWS)
    assert memory_kb(cluster, LEADER) - before < BUDGET_KB


@pytest.mark.row("N6")
async def test_running_brokers_have_loaded_uvloop_msgpack_and_aiohttp(cluster, monkeypatch):
    for broker in (1, 2, 3):
        loaded = told_by_system(cluster, broker, "maps")
        for library in ("uvloop/loop", "msgpack/_cmsgpack", "aiohttp/_http_parser"):
            assert f"/{library}." in loaded, f"broker {broker} has not loaded {library}"
    serialized, sent = protocol.GetChildren2Request.serialize, []

    def serialize(self, xid=None):
        sent.append(self)
        return serialized(self, xid)

    monkeypatch.setattr(protocol.GetChildren2Request, "serialize", serialize)
    tp = TopicPartition("none", 0)
    nodes = await read_nodes(cluster.zookeeper, tp, SystemClock(), SystemRng())
    assert nodes is not None
    assert sent, "aiozk makes the requests to ZooKeeper"
