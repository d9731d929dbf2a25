"""Clients of a Spark Connect server (pip-installed pyspark) use `format("minikafka")` without installing minikafka."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from scripts.standalone_spark import Daemon, environment

NEEDED = ("grpc", "grpc_status", "google.protobuf", "google.rpc", "pandas", "zstandard")
CLIENT = """
import sys
from pyspark.sql import SparkSession

address, bootstrap, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
servers = {"kafka.bootstrap.servers": bootstrap}
stream = spark.readStream.format("minikafka").options(**servers, subscribe="remote")
sink = stream.option("startingOffsets", "earliest").load().writeStream.format("minikafka")
sink = sink.options(**servers, topic="remote-copy").option("checkpointLocation", checkpoint)
sink.trigger(availableNow=True).start().awaitTermination()
spark.sql(
    "CREATE TEMPORARY VIEW copied USING minikafka "
    f"OPTIONS ('kafka.bootstrap.servers' '{bootstrap}', 'subscribe' 'remote-copy')"
)
print(spark.sql("SELECT count(*) FROM copied").first()[0])
from minikafka.spark import register  # a client may also bring the source itself
register(spark)
print(spark.read.format("minikafka").options(**servers, subscribe="remote").load().count())
"""


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.skipif(
    not all(map(is_installed, NEEDED)), reason="needs pip install 'pyspark[connect]'"
)
async def test_spark_connect_client_copies_a_topic_by_a_stream_and_queries_the_copy(
    cluster, tmp_path
):
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("remote", 2, 3), NewTopic("remote-copy", 2, 3))
        await client.produce("remote", [Record(value=b"%d" % n) for n in range(50)], partition=1)
    variables = os.environ | environment()

    def run() -> str:
        submit = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
        for setting in ("binding.address=127.0.0.1", "binding.port=0"):
            submit += ["--conf", f"spark.connect.grpc.{setting}"]
        submit += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        server = Daemon(tmp_path, "connect", [*submit, "spark-internal"], memory="1g")
        try:
            port = server.wait_for(r"Spark Connect server started at: \S+:(\d+)")[1]
            program = [f"sc://127.0.0.1:{port}", cluster.bootstrap, str(tmp_path / "checkpoint")]
            command = [sys.executable, "-c", CLIENT, *program]
            return subprocess.check_output(command, env=variables, text=True)
        finally:
            server.end()

    assert await asyncio.to_thread(run) == "50\n50\n"
