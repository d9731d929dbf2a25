"""Kafka's tool for consumer groups and `minikafka groups` print the same output.

Java's consumer shares a group with aiokafka's consumer.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from support.clusters.running_cluster import create_topic
from support.commands.commands import call

from minikafka.base.model import TopicPartition
from minikafka.client import Client, Record
from minikafka.tools.cluster import LocalCluster

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
JAVA: Final = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
JAVA_ASSIGNORS: Final = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
}
PARTITIONS: Final = 4

pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka-tools-3*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka's tools",
)


async def java(main: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(*JAVA, "-cp", f"{JARS}/*", main, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def theirs(cluster: LocalCluster, *arguments: str) -> list[list[str]]:
    """Return the words of each line that Kafka's tool prints. The lines are sorted."""
    process = await java(GROUPS, "--bootstrap-server", cluster.bootstrap, *arguments)
    async with asyncio.timeout(120):
        printed, _ = await process.communicate()
    return words(printed.decode())


async def ours(cluster: LocalCluster, *arguments: str) -> list[list[str]]:
    """Return the words of each line that `minikafka groups` prints. The lines are sorted."""
    done = await call("groups", *arguments, "--bootstrap", cluster.bootstrap)
    return words(done.out)


def words(text: str) -> list[list[str]]:
    """Return the sorted lines of a table, each line as a list of its words without dashes.

    Dashes are left out because Kafka 3.9 leaves some cells empty where our command prints a dash.
    """
    lines = [line for line in text.splitlines() if not line.startswith(("Warn:", "Consumer group"))]
    return sorted([word for word in line.split() if word != "-"] for line in lines if line.strip())


async def fill(cluster: LocalCluster, topic: str) -> None:
    await create_topic(cluster, topic, PARTITIONS)
    async with Client(cluster.bootstrap) as client:
        for number in range(PARTITIONS):
            values = [Record(value=b"%d-%d" % (number, i)) for i in range(10)]
            await client.produce(topic, values, partition=number)


@asynccontextmanager
async def member(
    cluster: LocalCluster, group: str, topic: str, assignor: str = "range"
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        client_id="member",
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=45_000,  # as Java's consumer
        partition_assignment_strategy=(ASSIGNORS[assignor],),
    )
    async with consumer:
        yield consumer


async def test_kafkas_tool_describes_groups_like_our_command(cluster: LocalCluster) -> None:
    await fill(cluster, "told")
    offsets = {TopicPartition("told", number): 3 + number for number in range(3)}
    async with (
        Client(cluster.bootstrap) as client,
        member(cluster, "told-busy", "told") as consumer,
    ):
        await client.groups.alter_offsets("told-idle", offsets)
        for _ in range(15):
            await consumer.getone()
        await consumer.commit()
        for group in ("told-busy", "told-idle"):
            for aspect in ("--offsets", "--members", "--state"):
                found = await theirs(cluster, "--describe", "--group", group, aspect)
                mine = await ours(cluster, "describe", group, aspect)
                assert found == mine or (aspect == "--members" and group == "told-idle")
        for listed in (
            await theirs(cluster, "--list", "--state"),
            await ours(cluster, "list", "--state"),
        ):
            # The groups of earlier tests may become empty during this test.
            assert [row for row in listed if row[0].startswith(("GROUP", "told-"))] == [
                ["GROUP", "STATE"],
                ["told-busy", "Stable"],
                ["told-idle", "Empty"],
            ]


async def test_kafkas_tool_resets_and_deletes_offsets_like_our_command(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await fill(cluster, "moved")
    offsets = {TopicPartition("moved", number): 3 + number for number in range(3)}
    async with Client(cluster.bootstrap) as client:
        await client.groups.alter_offsets("moved-group", offsets)
    reset = ("--reset-offsets", "--group", "moved-group")
    for scenario in (
        ("--shift-by", "-4", "--all-topics"),
        ("--to-current", "--topic", "moved"),
        ("--to-offset", "5", "--topic", "moved:0,3"),
        ("--to-datetime", "2033-01-01T00:00:00.000", "--topic", "moved"),
    ):
        found = await theirs(cluster, *reset, *scenario, "--export", "--dry-run")
        assert found == await ours(cluster, "reset-offsets", "moved-group", *scenario, "--export")
    file = tmp_path / "offsets.csv"
    command = ("reset-offsets", "moved-group", "--topic", "moved", "--to-latest", "--export")
    file.write_text("".join(f"{line[0]}\n" for line in await ours(cluster, *command)))
    await theirs(cluster, *reset, "--from-file", str(file), "--execute")
    deleting = ("--delete-offsets", "--group", "moved-group", "--topic", "moved:0,1")
    assert any("Successful" in line for line in await theirs(cluster, *deleting))
    mine = await ours(cluster, "describe", "moved-group")
    assert [line[2:6] for line in mine[1:]] == [["2", "10", "10", "0"], ["3", "10", "10", "0"]]
    assert await theirs(cluster, "--describe", "--group", "moved-group") != []
    (deleted,) = await theirs(cluster, "--delete", "--group", "moved-group")
    assert deleted[-1] == "successful."
    assert ["moved-group"] not in await ours(cluster, "list")


async def test_kafkas_group_tool_with_rare_options_prints_the_same_as_our_command(
    cluster: LocalCluster,
) -> None:
    await fill(cluster, "rare")
    async with Client(cluster.bootstrap) as client:
        await client.admin.delete_records({TopicPartition("rare", 0): 4})
        offsets = {TopicPartition("rare", 0): 2, TopicPartition("rare", 1): 7}
        await client.groups.alter_offsets("rare-idle", offsets)
    reset = ("--all-topics", "--dry-run", "--export")
    async with member(cluster, "rare-busy", "rare") as consumer:
        await consumer.getone()
        for command, *options in (
            ("describe", "rare-busy", "--members"),
            ("describe", "rare-idle", "--offsets"),
            ("list", "--state", "Empty"),
            ("reset-offsets", "rare-idle", "--shift-by", "-100", *reset),
            ("reset-offsets", "rare-idle", "--to-offset", "99", *reset),
            ("reset-offsets", "rare-idle", "--by-duration", "PT0S", *reset),
            ("reset-offsets", "rare-idle", "--to-current", *reset),
        ):
            group = () if command == "list" else ("--group", options[0])
            rest = options if command == "list" else options[1:]
            found = await theirs(cluster, f"--{command}", *group, *rest)
            mine = await ours(cluster, command, *(word for word in options if word != "--dry-run"))
            assert found == mine, options
        verbose = ("--members", "--verbose")
        found = await theirs(cluster, "--describe", "--group", "rare-busy", *verbose)
        mine = await ours(cluster, "describe", "rare-busy", *verbose)
        assert mine[1][-1] == "rare(0,1,2,3)"
        # Kafka 3.9 omits the topic, although Kafka's documentation shows it.
        assert found[1][-1] == "(0,1,2,3)"
        assert found[1][:-1] == mine[1][:-1]


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
async def test_java_consumer_shares_the_partitions_with_aiokafka(
    cluster: LocalCluster, assignor: str
) -> None:
    topic = f"java-{assignor}"
    await fill(cluster, topic)
    settings = {
        "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[assignor]}",
        "heartbeat.interval.ms": "200",
        "client.id": "java",
    }
    options = [
        word
        for key, value in settings.items()
        for word in ("--consumer-property", f"{key}={value}")
    ]
    async with member(cluster, f"{topic}-group", topic, assignor) as first:
        reading = asyncio.ensure_future(read(first))
        process = await java(
            CONSUMER,
            *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--from-beginning"),
            *("--group", f"{topic}-group", *options),
        )
        try:
            await shared(cluster, f"{topic}-group", 2)
            reading.cancel()
            await asyncio.wait([reading])
            await first.stop()
            await shared(cluster, f"{topic}-group", 1)
            async with member(cluster, f"{topic}-group", topic, assignor) as second:
                reading = asyncio.ensure_future(read(second))
                await shared(cluster, f"{topic}-group", 2)  # Java's consumer is the group leader
                reading.cancel()
                await asyncio.wait([reading])
        finally:
            process.kill()
            await process.communicate()


async def read(consumer: AIOKafkaConsumer) -> None:
    async for _ in consumer:
        pass


async def shared(cluster: LocalCluster, group: str, members: int) -> None:
    """Wait until all partitions are assigned to this number of group members, in equal shares."""
    async with asyncio.timeout(60), Client(cluster.bootstrap) as client:
        while True:
            found = (await client.groups.describe([group]))[group].members
            shares = [member.partitions for member in found]
            whole = len({tp for share in shares for tp in share}) == PARTITIONS
            if whole and [*map(len, shares)] == [PARTITIONS // members] * members:
                return
            await asyncio.sleep(0.1)  # a broker does not notify clients of changes in a group
