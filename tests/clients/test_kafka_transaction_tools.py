"""Kafka's tool for transactions and `minikafka transactions` print the same output, and abort the same transactions.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import json
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from support.clusters.apache_kafka import needs_kafka, run_java
from support.clusters.running_cluster import create_topic, eventually
from support.commands.commands import Ended, call

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Client, Record
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.client.network import request
from minikafka.kafka.records.batch import build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.kafka.wire.versions import PRODUCE
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import LocalCluster

TOOL: Final = "org.apache.kafka.tools.TransactionsCommand"
HOUR_MS: Final = 3_600_000
GHOST: Final = 424_242
"""The id of a producer that no coordinator knows."""
VERIFICATION: Final = "transaction.partition.verification.enable"

pytestmark = needs_kafka


async def theirs(cluster: LocalCluster, *arguments: str) -> list[list[str]]:
    """Return the words of each line that Kafka's tool prints, without the header.

    A missing number, which the tool prints as -1 or None, is a dash, as in the output of our command.
    """
    rows = words(await run_java(TOOL, "--bootstrap-server", cluster.bootstrap, *arguments))
    return [["-" if word in ("-1", "None") else word for word in row] for row in rows]


async def ours(cluster: LocalCluster, *arguments: str) -> Ended:
    """Run `minikafka transactions`."""
    return await call("transactions", *arguments, "--bootstrap", cluster.bootstrap)


def words(text: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines()[1:])


async def why(cluster: LocalCluster, tp: str) -> dict[str, Any]:
    """Return the output of `minikafka why --json`."""
    done = await call("why", tp, "--json", "--data", str(cluster.directory.path))
    found: dict[str, Any] = json.loads(done.out)
    return found


async def test_kafkas_tool_and_our_command_show_and_abort_the_same_transaction(
    cluster: LocalCluster,
) -> None:
    await create_topic(cluster, "told-open", 2)
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        transactional_id="told-open",
        transaction_timeout_ms=HOUR_MS // 4,
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        for number in range(2):
            await producer.send_and_wait("told-open", b"v", partition=number)
        listed = words((await ours(cluster, "list")).out)
        assert [row[:4] for row in listed] == await theirs(cluster, "list")
        (mine,) = [row for row in listed if row[0] == "told-open"]
        assert (mine[3], mine[4][-1:]) == ("Ongoing", "s")
        (row,) = words((await ours(cluster, "describe", "told-open")).out)
        (other,) = await theirs(cluster, "describe", "--transactional-id", "told-open")
        assert row[:7] == other[:7]
        assert row[8].split(",") == sorted(other[8].split(",")) == ["told-open-0", "told-open-1"]
        rows = words((await ours(cluster, "describe-producers", "told-open-0")).out)
        place = ("--topic", "told-open", "--partition", "0")
        assert rows == await theirs(cluster, "describe-producers", *place)
        found = await why(cluster, "told-open-0")
        (one,) = found["open_transactions"]
        assert (one["transactional_id"], one["start_offset"]) == ("told-open", 0)
        assert [str(one["coordinator"]), str(one["producer_id"])] == [row[0], row[2]]
        assert (found["last_stable_offset"], found["high_watermark"]) == (0, 1)
        await theirs(cluster, "abort", *place, "--start-offset", "0")
        done = await ours(cluster, "abort", "told-open-1", "--start-offset", "0")
        assert (done.code, "not hanging: told-open" in done.err) == (0, True)
        for tp in ("told-open-0", "told-open-1"):
            found = await why(cluster, tp)
            assert (found["open_transactions"], found["last_stable_offset"]) == ([], 2)
        for level, lines in (("read_committed", 0), ("read_uncommitted", 2)):
            where = ("--isolation-level", level, "-b", cluster.bootstrap)
            done = await call("consume", "told-open", "--exit", *where)
            assert (done.code, len(done.out.splitlines())) == (0, lines)
    finally:
        await producer.stop()


async def write_ghost(cluster: LocalCluster, tp: TopicPartition) -> None:
    """Write a batch of a transaction that no coordinator knows, an hour ago by its timestamp."""
    record = Record(0, SystemClock().wall_ms() - HOUR_MS, None, b"ghost")
    batch = build(
        [record], producer_id=GHOST, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    body = request(
        PRODUCE,
        transactional_id="ghost",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            {"name": tp.topic, "partition_data": [{"index": tp.partition, "records": batch}]}
        ],
    )
    async with Client(cluster.bootstrap) as client:

        async def is_written() -> bool:
            leader = await client._metadata.leader(*tp)
            answer = await client._network.call(leader.address, PRODUCE, 30_000, body)
            code = answer.responses[0].partition_responses[0].error_code
            assert code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return bool(code == ErrorCode.NONE)

        everyone = Resource(ResourceType.BROKER, "")
        await client.admin.alter_configs({everyone: {VERIFICATION: "false"}})
        try:
            await eventually(is_written)
        finally:
            await client.admin.alter_configs({everyone: {VERIFICATION: None}})


async def test_kafkas_tool_and_our_command_find_the_same_hanging_transaction(
    cluster: LocalCluster,
) -> None:
    await create_topic(cluster, "told-ghost", 1)
    await write_ghost(cluster, TopicPartition("told-ghost", 0))
    done = await ours(cluster, "find-hanging", "--topic", "told-ghost")
    (row,) = words(done.out)
    assert row[:6] == ["told-ghost", "0", str(GHOST), "0", "-", "0"]
    (other,) = await theirs(cluster, "find-hanging", "--topic", "told-ghost")
    assert other == row
    found = await why(cluster, "told-ghost-0")
    assert found["findings"][0]["because"][0]["name"] == "hanging-transaction"
    assert (await ours(cluster, "abort", "told-ghost-0", "--start-offset", "0")).code == 0
    assert json.loads((await ours(cluster, "find-hanging", "--json")).out) == []
    assert (await why(cluster, "told-ghost-0"))["healthy"]
