"""The tools of `kafka-home` print what scripts parse from Kafka's tools."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.clusters.running_cluster import create_topic
from support.commands.commands import Ended, call, run

from minikafka.base.model import TopicPartition
from minikafka.client import Client, Record
from minikafka.tools.cluster import LocalCluster

TOOLS = "org.apache.kafka.tools"


async def tool(cluster: LocalCluster, name: str, *words: str, code: int = 0) -> Ended:
    ended = await call("kafka-tool", name, *words, "--bootstrap-server", cluster.bootstrap)
    assert ended.code == code, ended
    return ended


async def test_console_tools_write_and_read_records(cluster: LocalCluster, tmp_path: Path):
    await create_topic(cluster, "console", 1)
    name = "kafka.tools.ConsoleProducer"
    words = ("--property", "parse.key=true", "--property", "key.separator=:", "--topic", "console")
    sent = run(
        "kafka-tool",
        name,
        *words,
        "--broker-list",
        cluster.bootstrap,
        cwd=tmp_path,
        stdin="a:1\nb:2\n",
    )
    assert (sent.code, sent.out, sent.err) == (0, "", "")
    read = ("--topic", "console", "--from-beginning", "--max-messages", "2")
    shown = ("print.key", "print.partition", "print.offset", "print.headers")
    properties = [word for one in shown for word in ("--property", f"{one}=true")]
    got = await tool(cluster, f"{TOOLS}.consumer.ConsoleConsumer", *read, *properties)
    assert got.out == (
        "Partition:0\tOffset:0\tNO_HEADERS\ta\t1\nPartition:0\tOffset:1\tNO_HEADERS\tb\t2\n"
    )
    assert got.err == "Processed a total of 2 messages\n"
    more = ("--from-beginning", "--timeout-ms", "300", "--group", "console-group")
    group = await tool(cluster, f"{TOOLS}.consumer.ConsoleConsumer", "--topic", "console", *more)
    assert group.out == "1\n2\n"
    listed = await tool(
        cluster, f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--list", "--state"
    )
    assert re.search(r"^GROUP +STATE$", listed.out, re.MULTILINE)
    assert re.search(r"^console-group +Empty$", listed.out, re.MULTILINE)


async def test_groups_tool_describes_resets_and_deletes(cluster: LocalCluster):
    await create_topic(cluster, "grouped", 1)
    async with Client(cluster.bootstrap) as client:
        await client.produce("grouped", [Record(value=b"x")] * 5)
        await client.groups.alter_offsets("tool-group", {TopicPartition("grouped", 0): 2})
    name, group = f"{TOOLS}.consumer.group.ConsumerGroupCommand", ("--group", "tool-group")
    described = await tool(cluster, name, "--describe", *group)
    empty, head, row = described.out.splitlines()
    assert (empty, head.split()[:6]) == (
        "",
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"],
    )
    assert row.split() == ["tool-group", "grouped", "0", "2", "5", "3", "-", "-", "-"]
    assert "Consumer group 'tool-group' has no active members." in described.err
    reset = ("--reset-offsets", "--topic", "grouped", "--to-earliest", "--execute")
    done = await tool(cluster, name, *group, *reset)
    assert done.out.splitlines()[2].split() == ["tool-group", "grouped", "0", "0"]
    deleted = await tool(cluster, name, "--delete", *group)
    assert deleted.out == ("Deletion of requested consumer groups ('tool-group') was successful.\n")
    again = await tool(cluster, name, "--delete", *group, code=1)
    assert "* Group 'tool-group' could not be deleted due to: org.apache.kafka" in again.out
    gone = await tool(cluster, name, "--describe", *group)
    assert gone.out == "\nError: Consumer group 'tool-group' does not exist.\n"


async def test_tools_of_partitions_print_offsets_elections_and_directories(
    cluster: LocalCluster, tmp_path: Path
):
    await create_topic(cluster, "partitioned", 2)
    async with Client(cluster.bootstrap) as client:
        await client.produce("partitioned", [Record(value=b"x")] * 3, partition=1)
    offsets = await tool(cluster, f"{TOOLS}.GetOffsetShell", "--topic", "partitioned")
    assert offsets.out == "partitioned:0:0\npartitioned:1:3\n"
    rule = ("--topic-partitions", "partitioned:1-", "--time", "-2")
    assert (await tool(cluster, f"{TOOLS}.GetOffsetShell", *rule)).out == "partitioned:1:0\n"
    kind = ("--election-type", "preferred", "--topic", "partitioned", "--partition", "0")
    elected = await tool(cluster, f"{TOOLS}.LeaderElectionCommand", *kind)
    assert elected.out == "Valid replica already elected for partitions partitioned-0\n"
    file = tmp_path / "offsets.json"
    row = {"topic": "partitioned", "partition": 1, "offset": 2}
    file.write_text(json.dumps({"version": 1, "partitions": [row]}))
    deleted = await tool(cluster, f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(file))
    assert deleted.out.splitlines()[-1] == "partition: partitioned-1\tlow_watermark: 2"
    words = ("--describe", "--topic-list", "partitioned")
    first, _, line = (await tool(cluster, f"{TOOLS}.LogDirsCommand", *words)).out.splitlines()
    assert first == "Querying brokers for log directories information"
    listed = json.loads(line)["brokers"][0]["logDirs"][0]["partitions"]
    assert sorted(one["partition"] for one in listed) == ["partitioned-0", "partitioned-1"]


async def test_reassignment_tool_starts_and_verifies_a_move(cluster: LocalCluster, tmp_path: Path):
    await create_topic(cluster, "moved", 1)
    async with Client(cluster.bootstrap) as client:
        [topic] = await client.describe_topics("moved")
    replicas = list(topic.partitions[0].replicas)
    file = tmp_path / "plan.json"
    row = {"topic": "moved", "partition": 0, "replicas": replicas[::-1]}
    file.write_text(json.dumps({"version": 1, "partitions": [row]}))
    name = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    words = ("--reassignment-json-file", str(file))
    started = (await tool(cluster, name, "--execute", *words)).out.splitlines()
    assert started[0] == "Current partition replica assignment"
    assert json.loads(started[2])["partitions"][0]["replicas"] == replicas
    assert started[-1] == "Successfully started partition reassignment for moved-0"
    verified = await tool(cluster, name, "--verify", *words)
    assert verified.out.splitlines()[:2] == [
        "Status of partition reassignment:",
        "Reassignment of partition moved-0 is completed.",
    ]
    assert (await tool(cluster, name, "--list")).out == "No partition reassignments found.\n"
    unknown = {**row, "replicas": [99]}
    file.write_text(json.dumps({"version": 1, "partitions": [unknown]}))
    refused = await tool(cluster, name, "--execute", *words, code=1)
    assert refused.out == "Error: Unknown broker id 99\n"


async def test_verifiable_producer_prints_an_object_for_each_record(cluster: LocalCluster):
    await create_topic(cluster, "verified", 1)
    words = ("--topic", "verified", "--max-messages", "3", "--value-prefix", "7")
    sent = await tool(cluster, f"{TOOLS}.VerifiableProducer", *words)
    events = [json.loads(line) for line in sent.out.splitlines()]
    success = ["producer_send_success"] * 3
    assert [one["name"] for one in events] == [
        "startup_complete",
        *success,
        "shutdown_complete",
        "tool_data",
    ]
    assert [(one["value"], one["offset"]) for one in events[1:4]] == [
        ("7.0", 0),
        ("7.1", 1),
        ("7.2", 2),
    ]
    assert (events[-1]["sent"], events[-1]["acked"]) == (3, 3)


async def test_performance_tools_print_rates(cluster: LocalCluster):
    await create_topic(cluster, "measured", 1)
    words = (
        "--topic",
        "measured",
        "--num-records",
        "300",
        "--record-size",
        "10",
        "--throughput",
        "-1",
    )
    properties = ("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=1")
    sent = await call("kafka-tool", f"{TOOLS}.ProducerPerformance", *words, *properties)
    assert re.fullmatch(
        r"300 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
        r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n",
        sent.out,
    )
    read = ("--topic", "measured", "--messages", "300")
    head, row = (await tool(cluster, f"{TOOLS}.ConsumerPerformance", *read)).out.splitlines()
    assert head.split(", ")[4] == "data.consumed.in.nMsg"
    assert row.split(", ")[4] == "300"


async def test_tools_of_the_cluster_print_ids_apis_and_transactions(cluster: LocalCluster):
    versions = await tool(cluster, "kafka.admin.BrokerApiVersionsCommand")
    assert re.search(r"^127\.0\.0\.1:\d+ \(id: \d rack: null\) -> \($", versions.out, re.MULTILINE)
    assert re.search(r"^\tProduce\(0\): \d+ to \d+ \[usable: \d+\],$", versions.out, re.MULTILINE)
    found = await tool(cluster, f"{TOOLS}.ClusterTool", "cluster-id")
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", found.out)
    listed = await tool(cluster, f"{TOOLS}.TransactionsCommand", "list")
    assert listed.out.splitlines()[0].split() == [
        "TransactionalId",
        "Coordinator",
        "ProducerId",
        "TransactionState",
    ]


async def test_acls_tool_reports_that_the_brokers_have_no_authorizer(cluster: LocalCluster):
    words = ("--add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Read")
    refused = await tool(cluster, "kafka.admin.AclCommand", *words, code=1)
    adding, entry, _, failure = refused.out.splitlines()
    assert adding == (
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`: "
    )
    assert entry == " \t(principal=User:a, host=*, operation=READ, permissionType=ALLOW)"
    assert failure.startswith("Error while executing ACL command: ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{TOOLS}.LeaderElectionCommand", ("--election-type", "best", "--all-topic-partitions")),
        (f"{TOOLS}.GetOffsetShell", ("--time", "yesterday")),
        (f"{TOOLS}.TransactionsCommand", ("frob",)),
        ("kafka.admin.ConfigCommand", ("--describe", "--entity-type", "frobs")),
        (f"{TOOLS}.consumer.group.ConsumerGroupCommand", ("--describe",)),
    ],
)
async def test_tools_refuse_wrong_values_in_one_sentence(
    cluster: LocalCluster, name: str, words: tuple[str, ...]
):
    refused = await tool(cluster, name, *words, code=1)
    assert len(refused.err.splitlines()) == 1
    assert refused.err.startswith("minikafka: ")
