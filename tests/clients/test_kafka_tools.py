"""The command line tools of Kafka 3.9 against a cluster.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 (kafka_2.13, kafka-tools
and their dependencies) and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from support.clusters.running_cluster import eventually, kill

from minikafka.client import Client
from minikafka.kafka.records.batch import Record
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
MAIN: Final = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "elect": "org.apache.kafka.tools.LeaderElectionCommand",
    "configs": "kafka.admin.ConfigCommand",
    "logdirs": "org.apache.kafka.tools.LogDirsCommand",
    "acls": "kafka.admin.AclCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "offsets": "org.apache.kafka.tools.GetOffsetShell",
    "features": "org.apache.kafka.tools.FeatureCommand",
}
QUICK: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka-tools-3*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka's tools",
)


async def run_java(main: str, *arguments: str) -> str:
    """Run a Java program and return its standard output and error."""
    process = await asyncio.create_subprocess_exec(
        "java",
        *QUICK,
        "-cp",
        f"{JARS}/*",
        main,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        printed, _ = await process.communicate()
    return printed.decode()


class Tools:
    """The tools, run against one cluster; their input files are written to `directory`."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.bootstrap = cluster.bootstrap
        self.directory = directory

    async def run(self, tool: str, *arguments: str) -> str:
        """Run a tool and return its standard output and error."""
        return await run_java(MAIN[tool], "--bootstrap-server", self.bootstrap, *arguments)

    async def do(self, tool: str, *arguments: str) -> str:
        """Run a tool that must succeed and return its output."""
        printed = await self.run(tool, *arguments)
        assert "Exception" not in printed, printed
        assert "Error" not in printed, printed
        return printed

    def file(self, name: str, content: Any) -> str:
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps({"version": 1, **content}))
        return str(path)

    async def create(self, topic: str, assignment: str, *more: str) -> None:
        printed = await self.do(
            "topics", "--create", "--topic", topic, "--replica-assignment", assignment, *more
        )
        assert f"Created topic {topic}" in printed

    async def describe(self, topic: str) -> str:
        return await self.do("topics", "--describe", "--topic", topic)

    async def configs(self, kind: str, name: str, *what: str) -> str:
        entity = ("--entity-name", name) if name else ("--entity-default",)
        return await self.do("configs", "--entity-type", kind, *entity, *what)


@pytest.fixture
def tools(cluster: LocalCluster, tmp_path: Path) -> Tools:
    return Tools(cluster, tmp_path)


@pytest.mark.row("I9", "L1")
async def test_topics_are_created_extended_described_and_deleted(tools: Tools) -> None:
    await tools.create("tool-topic", "1:2,2:3", "--config", "retention.ms=60000")
    shown = await tools.describe("tool-topic")
    assert (
        "PartitionCount: 2\tReplicationFactor: 2\tConfigs: min.insync.replicas=2,retention.ms=60000"
        in shown
    )
    await tools.do("topics", "--alter", "--topic", "tool-topic", "--partitions", "4")
    refused = await tools.run("topics", "--alter", "--topic", "tool-topic", "--partitions", "3")
    assert "currently has 4 partitions, which is higher than the requested 3." in refused
    assert "PartitionCount: 4" in await tools.describe("tool-topic")
    assert "already exists" in await tools.run(
        "topics", "--create", "--topic", "tool-topic", "--partitions", "1"
    )
    assert "tool-topic" in await tools.do("topics", "--list")
    assert "tool-topic" not in await tools.do("topics", "--list", "--under-min-isr-partitions")
    await tools.do("topics", "--delete", "--topic", "tool-topic")
    assert "tool-topic" not in await tools.do("topics", "--list")


@pytest.mark.row("R57")
async def test_verify_removes_the_throttle_of_a_completed_reassignment(
    cluster: LocalCluster, tools: Tools
) -> None:
    await tools.create("tool-move", "1:2,2:3")
    topics = tools.file("topics", {"topics": [{"topic": "tool-move"}]})
    proposed = await tools.do(
        "reassign", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3"
    )
    assert "Proposed partition reassignment configuration" in proposed
    moves = [{"topic": "tool-move", "partition": 0, "replicas": [3, 1]}]
    plan = ("--reassignment-json-file", tools.file("moves", {"partitions": moves}))
    started = await tools.do("reassign", "--execute", *plan, "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in started
    assert "Successfully started partition reassignment for tool-move-0" in started
    throttled = await tools.configs("topics", "tool-move", "--describe")
    assert "leader.replication.throttled.replicas=0:1,0:2" in throttled
    assert "follower.replication.throttled.rate=1000000" in await tools.configs(
        "brokers", "3", "--describe"
    )

    async def is_complete() -> bool:
        verified = await tools.do("reassign", "--verify", *plan)
        return "Reassignment of partition tool-move-0 is completed." in verified

    await eventually(is_complete)
    assert "Replicas: 3,1" in await tools.describe("tool-move")
    assert "throttled" not in await tools.configs("topics", "tool-move", "--describe")
    assert "throttled" not in await tools.configs("brokers", "3", "--describe")
    assert "No partition reassignments found." in await tools.do("reassign", "--list")


@pytest.mark.row("R57")
async def test_pending_reassignment_is_listed_and_cancelled(
    cluster: LocalCluster, tools: Tools
) -> None:
    await tools.create("tool-cancel", "1:2")
    moves = [{"topic": "tool-cancel", "partition": 0, "replicas": [1, 3]}]
    plan = ("--reassignment-json-file", tools.file("moves", {"partitions": moves}))
    await cluster.hold("broker.leader_and_isr", [3])
    try:
        await tools.do("reassign", "--execute", *plan)
        listed = await tools.do("reassign", "--list")
        assert "tool-cancel-0: replicas: 1,3,2. adding: 3. removing: 2." in listed
        assert "is still in progress" in await tools.do("reassign", "--verify", *plan)
        assert "Adding Replicas: 3\tRemoving Replicas: 2" in await tools.describe("tool-cancel")
        assert "reassignment is in progress" in await tools.run(
            "topics", "--alter", "--topic", "tool-cancel", "--partitions", "2"
        )
        cancelled = await tools.do("reassign", "--cancel", *plan)
        assert "cancelled partition reassignment for: tool-cancel-0" in cancelled
    finally:
        await cluster.release("broker.leader_and_isr", [3])
    assert "Replicas: 1,2" in await tools.describe("tool-cancel")


@pytest.mark.row("R61", "H6")
async def test_preferred_leaders_are_elected(cluster: LocalCluster, tools: Tools) -> None:
    await tools.create("tool-elect", "2:1")
    await cluster.stop(2)
    await cluster.start(2)

    async def is_replicated() -> bool:
        shown = await tools.describe("tool-elect")
        return "Isr: 1,2" in shown or "Isr: 2,1" in shown

    await eventually(is_replicated)
    this = ("--topic", "tool-elect", "--partition", "0")
    elected = await tools.do("elect", "--election-type", "preferred", *this)
    assert "tool-elect-0" in elected

    async def is_elected() -> bool:
        """True once the broker that the tool queries shows the elected leader."""
        return "Leader: 2" in await tools.describe("tool-elect")

    await eventually(is_elected)
    again = await tools.do("elect", "--election-type", "preferred", *this)
    assert "Valid replica already elected for partitions tool-elect-0" in again
    await tools.do("elect", "--election-type", "preferred", "--all-topic-partitions")
    unknown = await tools.run(
        "elect", "--election-type", "unclean", "--topic", "tool-none", "--partition", "0"
    )
    assert "UnknownTopicOrPartitionException" in unknown


@pytest.mark.usefixtures("with_controller")
@pytest.mark.row("R61", "H3")
async def test_unclean_election_elects_a_leader_outside_the_isr(
    cluster: LocalCluster, tools: Tools
) -> None:
    await tools.create("tool-unclean", "2:3")
    await kill(cluster, 3)

    async def is_alone() -> bool:
        shown = await tools.describe("tool-unclean")
        return "Isr: 2\t" in shown

    await eventually(is_alone)
    await kill(cluster, 2)
    await cluster.start(3)

    async def is_leaderless() -> bool:
        return "Leader: none" in await tools.describe("tool-unclean")

    await eventually(is_leaderless)
    this = ("--topic", "tool-unclean", "--partition", "0")
    refused = await tools.run("elect", "--election-type", "preferred", *this)
    assert "PreferredLeaderNotAvailableException" in refused
    elected = await tools.do("elect", "--election-type", "unclean", *this)
    assert (
        "Successfully completed leader election (UNCLEAN) for partitions tool-unclean-0" in elected
    )
    assert "Leader: 3" in await tools.describe("tool-unclean")


@pytest.mark.row("R71")
async def test_topic_and_broker_settings_are_altered_and_described(tools: Tools) -> None:
    await tools.create("tool-configs", "1:2:3")
    await tools.configs(
        "topics", "tool-configs", "--alter", "--add-config", "segment.bytes=100000,segment.ms=5000"
    )
    shown = await tools.configs("topics", "tool-configs", "--describe")
    assert (
        "segment.bytes=100000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=100000, "
        "DEFAULT_CONFIG:log.segment.bytes=1073741824}"
    ) in shown
    await tools.configs("topics", "tool-configs", "--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes" not in await tools.configs("topics", "tool-configs", "--describe")
    topic = ("--entity-type", "topics", "--entity-name", "tool-configs", "--alter")
    refused = await tools.run("configs", *topic, "--add-config", "segment.bytes=3")
    assert "InvalidConfigurationException" in refused
    assert "segment.bytes" in refused
    for name in ("2", ""):
        await tools.configs("brokers", name, "--alter", "--add-config", "log.retention.ms=77")
        shown = await tools.configs("brokers", name, "--describe")
        assert "log.retention.ms=77 sensitive=false" in shown
        await tools.configs("brokers", name, "--alter", "--delete-config", "log.retention.ms")
        assert "log.retention.ms" not in await tools.configs("brokers", name, "--describe")
    assert "broker.id=2 sensitive=false" in await tools.configs(
        "brokers", "2", "--describe", "--all"
    )
    broker = ("--entity-type", "brokers", "--entity-name", "2", "--alter")
    refused = await tools.run("configs", *broker, "--add-config", "broker.rack=r")
    assert "Cannot update these configs dynamically: broker.rack" in refused


async def test_log_directories_are_described(cluster: LocalCluster, tools: Tools) -> None:
    await tools.create("tool-dirs", "1:2:3")
    printed = await tools.do("logdirs", "--describe", "--topic-list", "tool-dirs")
    shown = json.loads(printed.splitlines()[-1])
    assert {broker["broker"] for broker in shown["brokers"]} == {1, 2, 3}
    for broker in shown["brokers"]:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None
        assert [row["partition"] for row in directory["partitions"]] == ["tool-dirs-0"]


async def test_deleted_records_raise_the_log_start_offset(
    cluster: LocalCluster, tools: Tools
) -> None:
    await tools.create("tool-cut", "1:2:3")
    async with Client(cluster.bootstrap) as client:
        for number in range(10):
            await client.produce("tool-cut", [Record(value=b"%d" % number)])
    partition = {"topic": "tool-cut", "partition": 0}
    file = tools.file("cut", {"partitions": [{**partition, "offset": 4}]})
    printed = await tools.do("delete-records", "--offset-json-file", file)
    assert "partition: tool-cut-0\tlow_watermark: 4" in printed
    offsets = await tools.do("offsets", "--topic", "tool-cut", "--time", "earliest")
    assert "tool-cut:0:4" in offsets
    beyond = tools.file("beyond", {"partitions": [{**partition, "offset": 11}]})
    refused = await tools.run("delete-records", "--offset-json-file", beyond)
    assert "OffsetOutOfRangeException" in refused


async def test_requests_about_security_and_features_get_kafkas_answers(tools: Tools) -> None:
    assert "SecurityDisabledException" in await tools.run("acls", "--list")
    grant = ("--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    assert "No Authorizer is configured" in await tools.run("acls", "--add", *grant)
    refused = await tools.run("acls", "--remove", *grant, "--force")
    assert "No Authorizer is configured" in refused
    for kind in ("users", "clients", "ips"):
        await tools.do("configs", "--describe", "--entity-type", kind)
    await tools.do("configs", "--describe", "--entity-type", "users", "--entity-name", "a")
    disabled = await tools.run("features", "disable", "--feature", "metadata.version")
    assert "Can not delete non-existing finalized feature." in disabled


async def test_log_level_of_a_running_broker_is_altered(tools: Tools) -> None:
    logger = "minikafka.broker.replicas.manager"
    assert "root=INFO" in await tools.configs("broker-loggers", "2", "--describe")
    await tools.configs("broker-loggers", "2", "--alter", "--add-config", f"{logger}=DEBUG")
    described = await tools.configs("broker-loggers", "2", "--describe")
    assert f"{logger}=DEBUG" in described
    await tools.configs("broker-loggers", "2", "--alter", "--delete-config", logger)
    assert f"{logger}=INFO" in await tools.configs("broker-loggers", "2", "--describe")


async def test_scram_credentials_are_written_described_and_deleted_through_brokers(
    tools: Tools,
) -> None:
    alter = ("--alter", "--add-config")
    both = "SCRAM-SHA-512=[iterations=8192,password=secret-of-alice],SCRAM-SHA-256=[password=x]"
    await tools.configs("users", "CN=alice,O=x y", *alter, both)
    shown = await tools.configs("users", "CN=alice,O=x y", "--describe")
    assert "SCRAM-SHA-512=iterations=8192" in shown
    assert "SCRAM-SHA-256=iterations=4096" in shown
    gone = ("--alter", "--delete-config", "SCRAM-SHA-256")
    await tools.configs("users", "CN=alice,O=x y", *gone)
    assert "SCRAM-SHA-256" not in await tools.configs("users", "CN=alice,O=x y", "--describe")
    user = ("--entity-type", "users", "--entity-name", "CN=alice,O=x y")
    refused = await tools.run("configs", *user, *gone)
    assert "Attempt to delete a user credential that does not exist" in refused
    many = await tools.run("configs", *user, *alter, "SCRAM-SHA-256=[iterations=20000,password=x]")
    assert "Too many iterations" in many


@pytest.mark.parametrize("coordination", ["controller", "leaders"])
async def test_user_that_was_written_to_zookeeper_before_the_first_start_is_known(
    tmp_path: Path, coordination: str
) -> None:
    (port,) = free_ports(1, SystemRng())
    zookeeper = EmbeddedZooKeeper(tmp_path / "zookeeper", port, clock=SystemClock())
    await zookeeper.start()
    try:
        alter = ("--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=x]")
        user = ("--entity-type", "users", "--entity-name", "admin")
        to = ("--zookeeper", zookeeper.connect)
        written = await run_java(MAIN["configs"], *to, *user, *alter)
        assert "Completed updating config for entity: user-principal 'admin'" in written
        async with LocalCluster(
            1, data=tmp_path / "data", zookeeper=to[1], coordination=coordination
        ) as cluster:
            tools = Tools(cluster, tmp_path)
            shown = await tools.configs("users", "admin", "--describe")
            assert "SCRAM-SHA-512=iterations=8192" in shown
            await tools.configs("users", "admin", "--alter", "--delete-config", "SCRAM-SHA-512")
            assert "SCRAM" not in await run_java(MAIN["configs"], *to, *user, "--describe")
    finally:
        await zookeeper.kill()


async def test_quotas_are_written_described_and_deleted(tools: Tools) -> None:
    both = "producer_byte_rate=1024,request_percentage=12.5"
    alice = ("--entity-type", "users", "--entity-name", "al ice")
    everyone = ("--entity-type", "users", "--entity-default")
    client = ("--entity-type", "clients", "--entity-name", "c")
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    rate = ("--alter", "--add-config", "consumer_byte_rate=2048")
    await tools.do("configs", *alice, "--alter", "--add-config", both)
    await tools.do("configs", *alice, *client, *rate)
    await tools.do("configs", *everyone, *rate)
    connections = "connection_creation_rate=7"
    await tools.do("configs", *address, "--alter", "--add-config", connections)
    shown = await tools.do("configs", "--describe", *alice)
    assert "Quota configs for user-principal 'al ice' are" in shown
    assert "producer_byte_rate=1024.0" in shown
    assert "request_percentage=12.5" in shown
    assert "consumer_byte_rate=2048.0" in await tools.do("configs", "--describe", *alice, *client)
    assert "consumer_byte_rate=2048.0" in await tools.do("configs", "--describe", *everyone)
    assert "connection_creation_rate=7.0" in await tools.do("configs", "--describe", *address)
    refused = await tools.run("configs", *client, "--alter", "--add-config", connections)
    assert "connection_creation_rate" in refused
    gone = ("--alter", "--delete-config")
    await tools.do("configs", *alice, *gone, "producer_byte_rate,request_percentage")
    await tools.do("configs", *alice, *client, *gone, "consumer_byte_rate")
    await tools.do("configs", *everyone, *gone, "consumer_byte_rate")
    await tools.do("configs", *address, *gone, "connection_creation_rate")
    assert "producer_byte_rate" not in await tools.do("configs", "--describe", *alice)
