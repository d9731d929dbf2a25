"""The folder of `kafka-home`: its scripts start servers as a harness of Kafka does, and tools answer as Kafka's."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from support.clusters.running_cluster import create_topic
from support.commands.commands import Ended, call

from minikafka.runtime.clock import SystemRng
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.ports import free_ports

TOOLS = "org.apache.kafka.tools"


async def script(home: Path, name: str, *words: str, **more: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        home / "bin" / name,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **more},
    )
    out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())


async def wait_for(file: Path, pattern: str) -> None:
    """Wait until a line of the file matches: a daemon has no pipe that could be read."""

    def has_line() -> bool:
        return file.exists() and re.search(pattern, file.read_text()) is not None

    async with asyncio.timeout(60):
        while not has_line():  # noqa: ASYNC110  a file has no event
            await asyncio.sleep(0.02)


async def wait_for_end(home: Path) -> None:
    """Wait until no process of the folder's scripts runs: a server closes its log before its process ends."""

    def runs() -> bool:
        words = f"={home}\0".encode()
        return any(words in read_or_nothing(file) for file in Path("/proc").glob("[0-9]*/cmdline"))

    async with asyncio.timeout(60):
        while runs():  # noqa: ASYNC110  a process of somebody else has no event
            await asyncio.sleep(0.02)


def read_or_nothing(file: Path) -> bytes:
    """Return the bytes of a file of a process, which may have ended."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


async def tool(cluster: LocalCluster, name: str, *words: str) -> Ended:
    return await call("kafka-tool", name, *words, "--bootstrap-server", cluster.bootstrap)


async def test_scripts_start_and_stop_a_zookeeper_server_and_a_broker(tmp_path):
    home, logs = tmp_path / "home", tmp_path / "logs"
    assert (await call("kafka-home", str(home))).code == 0
    port, kafka = free_ports(2, SystemRng())
    (tmp_path / "zookeeper.properties").write_text(
        f"dataDir={tmp_path}/zk\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
    )
    (tmp_path / "server.properties").write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://localhost:{kafka}\nlog.dirs={tmp_path}/data\n"
        f"zookeeper.connect=127.0.0.1:{port}/root\nnum.network.threads=3\n"
    )
    directory = {"LOG_DIR": str(logs), "KAFKA_HEAP_OPTS": "-Xmx1G -Xms1G"}
    try:
        await script(
            home,
            "zookeeper-server-start.sh",
            "-daemon",
            str(tmp_path / "zookeeper.properties"),
            **directory,
        )
        await wait_for(logs / "zookeeper.out", "binding to port .*NIOServerCnxnFactory")
        shell = await script(
            home, "zookeeper-shell.sh", f"127.0.0.1:{port}", "create", "/root", "x"
        )
        assert shell.out.endswith("Created /root\n")
        await script(
            home,
            "kafka-server-start.sh",
            "-daemon",
            str(tmp_path / "server.properties"),
            "--override",
            "num.partitions=3",
            **directory,
        )
        started = r"\[KafkaServer id=0\] started \(kafka\.server\.KafkaServer\)"
        await wait_for(logs / "kafkaServer.out", started)
        await wait_for(logs / "server.log", started)
        words = ("--create", "--topic", "t", "--bootstrap-server", f"PLAINTEXT://localhost:{kafka}")
        made = await call("kafka-tool", f"{TOOLS}.TopicCommand", *words)
        assert made.out == "Created topic t.\n"
        assert (tmp_path / "data/t-2").is_dir()
    finally:
        stopped = await script(home, "kafka-server-stop.sh")
        await wait_for(logs / "kafkaServer.out", "shut down completed")
        await script(home, "zookeeper-server-stop.sh")
        await wait_for_end(home)
    assert stopped.code == 0
    again = await script(home, "kafka-server-stop.sh")
    assert (again.code, again.out) == (1, "No kafka server to stop\n")


async def test_topics_tool_prints_what_kafkas_tool_prints(cluster):
    await create_topic(cluster, "described", 1)
    name = f"{TOOLS}.TopicCommand"
    described = await tool(cluster, name, "--describe", "--topic", "described")
    head, partition = described.out.splitlines()
    assert re.fullmatch(
        r"Topic: described\tTopicId: \S{22}\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: .*",
        head,
    )
    assert re.fullmatch(
        r"\tTopic: described\tPartition: 0\tLeader: \d\tReplicas: [\d,]{5}\tIsr: [\d,]{5}"
        r"\tElr: N/A\tLastKnownElr: N/A",
        partition,
    )
    again = await tool(cluster, name, "--create", "--topic", "described")
    failure = "Error while executing topic command : Topic 'described' already exists.\n"
    assert (again.code, again.out) == (1, failure)
    quiet = await tool(cluster, name, "--create", "--topic", "described", "--if-not-exists")
    assert (quiet.code, quiet.out) == (0, "")
    missing = await tool(cluster, name, "--delete", "--topic", "missing")
    assert "Topic 'missing' does not exist as expected" in missing.out


@pytest.mark.parametrize("words", [("--list", "--frob"), ("--list", "--create"), ("--create",)])
async def test_topics_tool_refuses_wrong_options_in_one_sentence(cluster, words):
    refused = await tool(cluster, f"{TOOLS}.TopicCommand", *words)
    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1


async def test_configs_tool_shows_what_it_has_altered(cluster):
    await create_topic(cluster, "configured", 1)
    name, words = (
        "kafka.admin.ConfigCommand",
        ("--entity-type", "topics", "--entity-name", "configured"),
    )
    added = "retention.ms=1000,cleanup.policy=[compact,delete]"
    altered = await tool(cluster, name, "--alter", *words, "--add-config", added)
    assert altered.out == "Completed updating config for topic configured.\n"
    shown = await tool(cluster, name, "--describe", *words)
    assert shown.out.splitlines()[:2] == [
        "Dynamic configs for topic configured are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy="
        "compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
    ]
    refused = await tool(cluster, name, "--alter", *words, "--delete-config", "segment.ms")
    assert (refused.code, refused.err) == (1, "minikafka: Invalid config(s): segment.ms\n")
