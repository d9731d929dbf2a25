"""The commands `topics`, `elect`, `configs` and `cluster` against real brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.clusters.running_cluster import eventually, kill
from support.commands.commands import Ended, call

from minikafka.client import Client
from minikafka.tools.cluster import LocalCluster


async def run(cluster: LocalCluster, *arguments: str) -> Ended:
    return await call(*arguments, "--bootstrap", cluster.bootstrap)


async def ok(cluster: LocalCluster, *arguments: str) -> str:
    done = await run(cluster, *arguments)
    assert done.code == 0, done
    return done.out


async def partitions(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    shown = json.loads(await ok(cluster, "topics", "describe", topic, "--json"))
    found: list[dict[str, Any]] = shown[0]["partitions"]
    return found


@pytest.mark.row("M4")
async def test_topics_command_creates_and_extends_a_topic_with_explicit_replica_lists(
    cluster: LocalCluster,
) -> None:
    await ok(
        cluster,
        *("topics", "create", "placed", "--replica-assignment", "1:2,3:1"),
        *("--config", "retention.ms=60000", "--config", "min.insync.replicas=1"),
    )
    header = (await ok(cluster, "topics", "describe", "placed")).splitlines()[0]
    assert "PartitionCount: 2\tReplicationFactor: 2\tConfigs: " in header
    assert "retention.ms=60000" in header
    await ok(
        cluster, "topics", "alter", "placed", "--partitions", "4", "--replica-assignment", "2:3,1:2"
    )
    assert [p["replicas"] for p in await partitions(cluster, "placed")] == [
        [1, 2],
        [3, 1],
        [2, 3],
        [1, 2],
    ]
    fewer = await run(cluster, "topics", "alter", "placed", "--partitions", "2")
    assert fewer.code == 1
    assert "INVALID_PARTITIONS: placed" in fewer.err
    missing = await run(cluster, "topics", "alter", "never-made", "--partitions", "2")
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.err


@pytest.mark.row("M4")
async def test_preferred_election_restores_leaders_after_a_broker_returned(
    cluster: LocalCluster,
) -> None:
    await ok(cluster, "topics", "create", "led", "--replica-assignment", "2:1,1:2,1:3")
    await ok(cluster, "topics", "create", "alone", "--replica-assignment", "2")
    amiss = ("topics", "describe", "led", "alone", "--under-replicated", "--unavailable")
    assert await ok(cluster, *amiss) == ""
    await cluster.stop(2)

    async def are_amiss() -> bool:
        lines = (await ok(cluster, *amiss)).splitlines()
        return [line.split("\t")[1:4] for line in lines] == [
            ["Topic: led", "Partition: 0", "Leader: 1"],
            ["Topic: led", "Partition: 1", "Leader: 1"],
            ["Topic: alone", "Partition: 0", "Leader: none"],
        ]

    async def only_alone_is_offline() -> bool:
        ill = await run(cluster, "cluster", "health", "--json")
        return json.loads(ill.out)["offline_partitions"] == ["alone-0"]

    await eventually(are_amiss)
    await eventually(only_alone_is_offline)
    ill = await run(cluster, "cluster", "health", "--json")
    assert ill.code == 1
    assert {"led-0", "led-1"} <= {*json.loads(ill.out)["under_replicated_partitions"]}
    refused = await run(cluster, "elect", "--preferred", "--topic", "led", "--partition", "0")
    assert refused.code == 1
    assert "led-0: PREFERRED_LEADER_NOT_AVAILABLE" in refused.out
    await cluster.start(2)
    await cluster.wait_for_isr("led")
    elected = json.loads(await ok(cluster, "elect", "--preferred", "--topic", "led", "--json"))
    assert [row["result"] for row in elected["partitions"]] in (
        ["elected", "not_needed", "not_needed"],
        ["not_needed", "not_needed", "not_needed"],  # the automatic election was faster
    )
    assert [p["leader"] for p in await partitions(cluster, "led")] == [2, 1, 1]
    again = await run(cluster, "elect", "--preferred", "--topic", "led")
    assert (again.code, again.out.count("Valid replica already elected")) == (0, 3)
    unknown = await run(cluster, "elect", "--preferred", "--topic", "led", "--partition", "9")
    assert unknown.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in unknown.out


@pytest.mark.usefixtures("with_controller")
async def test_unclean_election_elects_a_leader_when_the_isr_is_down(
    cluster: LocalCluster,
) -> None:
    await ok(
        cluster,
        *("topics", "create", "leaderless", "--replica-assignment", "2:3"),
        *("--config", "min.insync.replicas=1"),
    )
    await kill(cluster, 3)
    await wait_for_isr_of(cluster, "leaderless", [2])
    await kill(cluster, 2)

    async def offline() -> bool:
        return (await partitions(cluster, "leaderless"))[0]["leader"] is None

    await eventually(offline)
    await cluster.start(3)
    refused = await run(cluster, "elect", "--preferred", "--topic", "leaderless")
    assert refused.code == 1
    assert "Successfully" in await ok(
        cluster, "elect", "--unclean", "--topic", "leaderless", "--partition", "0"
    )
    assert (await partitions(cluster, "leaderless"))[0]["leader"] == 3
    await cluster.start(2)


async def wait_for_isr_of(cluster: LocalCluster, topic: str, isr: list[int]) -> None:
    async def shrunk() -> bool:
        return bool((await partitions(cluster, topic))[0]["isr"] == isr)

    await eventually(shrunk)


@pytest.mark.row("M4")
async def test_topic_can_be_created_again_when_topics_delete_with_wait_has_returned(
    cluster: LocalCluster,
) -> None:
    for _ in range(2):
        await ok(cluster, "topics", "create", "short-lived", "--partitions", "4")
        done = await run(cluster, "topics", "delete", "short-lived", "never-made", "--wait")
        assert done.code == 1
        assert done.out == "Topic short-lived is deleted.\n"
        assert "UNKNOWN_TOPIC_OR_PARTITION: never-made" in done.err
    assert "short-lived" not in json.loads(await ok(cluster, "topics", "list", "--json"))


async def test_topic_and_broker_settings_change_at_runtime(cluster: LocalCluster) -> None:
    await ok(cluster, "topics", "create", "tuned")
    await ok(
        cluster, "configs", "set", "--topic", "tuned", "retention.ms=5000", "segment.bytes=99999"
    )
    shown = json.loads(await ok(cluster, "configs", "describe", "--topic", "tuned", "--json"))
    values = {row["name"]: (row["value"], row["source"]) for row in shown["configs"]}
    assert values["retention.ms"] == ("5000", "DYNAMIC_TOPIC_CONFIG")
    await ok(cluster, "configs", "delete", "--topic", "tuned", "retention.ms")
    assert "retention.ms=5000" not in await ok(cluster, "configs", "describe", "--topic", "tuned")
    assert "segment.bytes=99999" in await ok(cluster, "configs", "describe", "--topic", "tuned")
    for arguments in (["retention.ms=soon"], ["no.such.key=1"]):
        refused = await run(cluster, "configs", "set", "--topic", "tuned", *arguments)
        assert (refused.code, refused.err.count("\n")) == (1, 1), refused
        assert "INVALID_CONFIG" in refused.err
    missing = await run(cluster, "configs", "describe", "--topic", "never-made")
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    broker = json.loads(await ok(cluster, "configs", "describe", "--broker", "2", "--json"))
    sources = {row["name"]: row["source"] for row in broker["configs"]}
    assert sources["min.insync.replicas"] == "STATIC_BROKER_CONFIG"


@pytest.mark.usefixtures("with_controller")
async def test_cluster_describe_shows_epochs_and_log_directories(
    cluster: LocalCluster,
) -> None:
    done = await call("cluster", "describe", "--data", str(cluster.directory.path), "--json")
    shown = json.loads(done.out)
    assert [broker["id"] for broker in shown["brokers"]] == [1, 2, 3]
    assert shown["controller_epoch"] >= 1
    assert [broker["controller"] for broker in shown["brokers"]].count(True) == 1
    for broker in shown["brokers"]:
        assert broker["broker_epoch"] > 0
        assert broker["log_dirs"][0]["error"] is None
        assert broker["log_dirs"][0]["total_bytes"] > 0
    text = await ok(cluster, "cluster", "describe")
    assert f"controller  {shown['controller']}" in text
    async with Client(cluster.bootstrap) as client:
        assert (await client.describe_cluster()).cluster_id == shown["cluster_id"]
    assert (await run(cluster, "cluster", "health")).code == 0
