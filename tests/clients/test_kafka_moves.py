"""Kafka's own tools move a replica between the log directories of a broker."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.test_kafka_tools import JARS, MAIN, run_java
from support.clusters.running_cluster import eventually
from support.commands.commands import NEW_INTERPRETER, run

from minikafka import LocalCluster
from minikafka.client import Client, NewTopic, Record

OWN = 9


class Disks:
    """A broker with two log directories, next to a cluster of one broker."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.paths = [f"{directory}/disk1", f"{directory}/disk2"]
        secret = (cluster.directory.path / "secret").read_text().strip()
        (directory / "broker.toml").write_text(
            "[broker]\n"
            f"broker.id = {OWN}\n"
            f'zookeeper.connect = "{cluster.zookeeper}"\n'
            f'minikafka.cluster.secret = "{secret}"\n'
            f'log.dirs = "{",".join(self.paths)}"\n'
            'listeners = "PLAINTEXT://127.0.0.1:0"\n'
        )
        command = [*NEW_INTERPRETER, "broker", "--config", str(directory / "broker.toml")]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1) as made:
        yield made


@pytest.fixture(scope="module")
def disks(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    made = Disks(cluster, tmp_path_factory.mktemp("disks"))
    yield made
    made.process.kill()
    made.process.wait()


class Topic:
    """A topic of one replica, with 3 MB."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    async def write(self) -> None:
        async def is_there() -> bool:
            return OWN in (await self._client.admin.describe_cluster()).brokers

        await eventually(is_there)
        await self._client.admin.create_topics([NewTopic(self._name, assignment={0: (OWN,)})])
        for number in range(60):
            record = Record(value=b"%d" % number + b"x" * 50_000)
            await self._client.produce(self._name, [record], partition=0)

    async def places(self) -> list[str]:
        """Return the directory of the replica, and after it that of its copy."""
        found = await self._client.admin.describe_log_dirs(brokers=[OWN])
        rows = [
            (one.is_future, entry.path)
            for entry in found.get(OWN, [])
            for one in entry.replicas
            if one.tp.topic == self._name
        ]
        return [path for _, path in sorted(rows)]


async def test_reassign_empties_a_log_directory(
    cluster: LocalCluster, disks: Disks, tmp_path: Path
) -> None:
    def command(*words: str) -> str:
        ended = run(*words, "--bootstrap", cluster.bootstrap, cwd=tmp_path)
        assert ended.code == 0, ended
        return ended.out

    file = tmp_path / "plan.json"
    async with Client(cluster.bootstrap) as client:
        topic = Topic(client, "emptied")
        await topic.write()
        [now] = await topic.places()
        [other] = {*disks.paths} - {now}
        file.write_text(command("reassign", "--generate", "--from-dir", f"{OWN}:{now}", "--json"))
        limit = ("--replica-alter-log-dirs-throttle", "2000000")
        assert "is completed." in command("reassign", "--file", str(file), *limit)
        assert await topic.places() == [other]
        assert "is completed." in command("reassign", "--verify", "--file", str(file))


@pytest.mark.skipif(
    not JARS or shutil.which("java") is None, reason="needs the jars of Kafka's tools, and java"
)
async def test_kafka_reassign_partitions_moves_a_replica(
    cluster: LocalCluster, disks: Disks, tmp_path: Path
) -> None:
    async def tool(name: str, *arguments: str) -> str:
        return await run_java(MAIN[name], "--bootstrap-server", cluster.bootstrap, *arguments)

    file = tmp_path / "plan.json"
    reassign = ("reassign", "--reassignment-json-file", str(file))
    async with Client(cluster.bootstrap) as client:
        topic = Topic(client, "t")
        await topic.write()
        [now] = await topic.places()
        [other] = {*disks.paths} - {now}
        entry = {"topic": "t", "partition": 0, "replicas": [OWN], "log_dirs": [other]}
        file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        limit = ("--replica-alter-log-dirs-throttle", "400000")
        printed = await tool(*reassign, "--execute", *limit)
        assert f"Successfully started moving log directory to {other}" in printed, printed
        assert await topic.places() == [now, other]
        assert '"isFuture":true' in await tool("logdirs", "--describe", "--topic-list", "t")

        async def has_moved() -> bool:
            return await topic.places() == [other]

        await eventually(has_moved)
        printed = await tool(*reassign, "--verify")
        assert f"Reassignment of replica t-0-{OWN} completed successfully" in printed, printed
