"""A pipeline of Spark's declarative pipelines (`spark-pipelines run`) from a topic to a topic."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

import minikafka
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster
from scripts.standalone_spark import environment

NEEDED = ("grpc", "grpc_status", "google.protobuf", "google.rpc", "pandas", "yaml", "zstandard")
SPEC = """
name: lines
storage: {directory}/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""
PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
servers = {{"kafka.bootstrap.servers": "{servers}"}}


@dp.table
def lines():
    options = servers | {{"subscribe": "declared", "startingOffsets": "earliest"}}
    stream = spark.readStream.format("minikafka").options(**options).load()
    return stream.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")


@dp.materialized_view
def counts():
    return spark.read.table("lines").groupBy("key").count()


dp.create_sink("copies", "minikafka", servers | {{"topic": "declared-to"}})


@dp.append_flow(target="copies")
def copy():
    return spark.readStream.table("lines").selectExpr("key", "upper(value) AS value")
"""
SQL = "CREATE MATERIALIZED VIEW busy AS SELECT key, count FROM counts WHERE count > 1;\n"


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def write(directory: Path, servers: str) -> None:
    (directory / "transformations").mkdir()
    (directory / "spark-pipeline.yml").write_text(SPEC.format(directory=directory.as_uri()))
    (directory / "transformations" / "lines.py").write_text(PYTHON.format(servers=servers))
    (directory / "transformations" / "busy.sql").write_text(SQL)


def run(directory: Path) -> None:
    command = Path(sys.executable).with_name("spark-pipelines")
    root = str(Path(minikafka.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    variables = os.environ | environment() | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
    done = subprocess.run(
        [str(command), "run", "--conf", "spark.sql.catalogImplementation=hive"],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def values(cluster: LocalCluster, topic: str) -> list[str]:
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap)
    await consumer.start()
    try:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        end = (await consumer.end_offsets([tp]))[tp]
        found: list[str] = []
        while len(found) < end:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found += [one.value.decode() for one in records]
        return sorted(found)
    finally:
        await consumer.stop()


@pytest.mark.skipif(
    not all(map(is_installed, NEEDED)), reason="needs pip install 'pyspark[pipelines]'"
)
async def test_declarative_pipeline_writes_exactly_the_new_rows_to_its_sink(cluster, tmp_path):
    write(tmp_path, cluster.bootstrap)
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("declared", 1, 3), NewTopic("declared-to", 1, 3))
        for expected in (["A0", "A1", "A2"], ["A0", "A1", "A2", "B0", "B1"]):
            new = [text for text in expected if text not in await values(cluster, "declared-to")]
            records = [Record(key=text[:1].encode(), value=text.lower().encode()) for text in new]
            await client.produce("declared", records, partition=0)
            await asyncio.to_thread(run, tmp_path)
            assert await values(cluster, "declared-to") == expected
    tables = sorted(path.name for path in (tmp_path / "spark-warehouse").iterdir())
    assert tables == ["busy", "counts", "lines"]
