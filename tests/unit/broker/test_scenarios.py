"""The ledgers of brokers in a `MemoryCluster`. Every test also checks that no invariant is violated."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.ledger.invariants import violations
from support.until import until

from minikafka.base.model import TopicPartition
from minikafka.broker.ledger.reader import Line
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.tools.explain.summary import Story

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(3) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 2, 3))
        yield cluster
        assert violations(cluster.history()) == []


def facts(cluster: MemoryCluster, broker_id: int) -> list[str]:
    return [line["fact"] for line in cluster.ledger(broker_id) if line["kind"] == "broker"]


def of_kind(lines: list[Line], kind: str, **fields: Any) -> list[Line]:
    return [
        line
        for line in lines
        if line["kind"] == kind and all(line.get(name) == value for name, value in fields.items())
    ]


async def test_ledger_of_a_broker_has_its_start_its_registration_and_its_shutdown(
    cluster: MemoryCluster,
) -> None:
    await cluster.stop(2)
    assert facts(cluster, 2) == [
        "started",
        "registered",
        "stopping",
        "controlled shutdown asked",
        "controlled shutdown answered",
        "stopped",
    ]
    (event,) = of_kind(cluster.history(), "event", event="ControlledShutdownRequested")
    answers = of_kind(cluster.history(), "answer", cause=event["cause"])
    assert [answer["results"][0]["code"] for answer in answers] == ["NONE"]


async def test_brokers_that_were_stopped_all_at_once_are_not_shown_as_lost(
    cluster: MemoryCluster,
) -> None:
    await asyncio.gather(*(cluster.stop(number, controlled=False) for number in range(3)))
    lines = cluster.history()
    [sentence] = Story(lines, T0).endings(lines[-1]["time"], ())
    assert sentence.startswith("brokers 0,1,2 were stopped cleanly")


async def test_line_numbers_of_a_ledger_continue_after_a_restart(cluster: MemoryCluster) -> None:
    await cluster.stop(2)
    await cluster.start(2)
    lines = cluster.ledger(2)
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert facts(cluster, 2).count("started") == 2


async def test_ledger_contains_the_election_and_the_resignation_of_a_controller(
    cluster: MemoryCluster,
) -> None:
    ruling = next(
        id_ for id_, broker in cluster.brokers.items() if broker.capabilities.diagnostics.is_active
    )
    await cluster.stop(ruling)
    won, resigned = of_kind(cluster.ledger(ruling), "election")
    assert (won["outcome"], won["epoch"], won["cause"]) == ("won", 1, "1-0")
    assert (resigned["outcome"], resigned["reason"]) == ("resigned", "asked to")
    (write,) = of_kind(cluster.ledger(ruling), "write", cause="1-0")
    assert [operation["path"] for operation in write["operations"]] == [
        "/controller",
        "/controller_epoch",
        "/controller_epoch",
    ]


async def test_ledger_contains_isr_changes_with_their_versions(cluster: MemoryCluster) -> None:
    await cluster.stop(2)
    await cluster.start(2)

    def joined() -> list[Line]:
        lines = of_kind(cluster.history(), "isr", outcome="ok", change="expand")
        return [line for line in lines if 2 in line["isr"]]

    await until(lambda: len(joined()) >= 2)
    line = joined()[0]
    assert line["actual"] == line["expected"] + 1
    assert line["zxid"] > 0
    assert set(line["isr"]) - set(line["before"]) == {2}


async def test_ledger_contains_a_failed_directory_and_the_controllers_reaction(
    cluster: MemoryCluster,
) -> None:
    broker = next(
        b for b in cluster.brokers.values() if (p := b.replicas.partition(T0)) and p.is_leader
    )
    broker_id = broker.config.broker_id
    cluster.storages[broker_id].fail(broker.config.log_dirs[0], errno.EIO)
    broker.replicas.checkpoints.write_high_watermarks()
    (line,) = of_kind(ledger_now(cluster, broker), "broker", fact="log directory failed")
    assert line["partitions"]["t"]
    await until(lambda: of_kind(cluster.history(), "event", event="LogDirsFailed"))


def ledger_now(cluster: MemoryCluster, broker: Any) -> list[Line]:
    """Write the broker's queued ledger lines and return the ledger, which is not in the failed directory."""
    broker.ledger.flush()
    return cluster.ledger(broker.config.broker_id)


async def test_ledger_lines_of_brokers_name_the_controller_event_that_caused_them(
    cluster: MemoryCluster,
) -> None:
    async with cluster.client() as client:
        await client.produce("t", [Record(value=b"x")])
    lines = cluster.history()
    (event,) = of_kind(lines, "event", event="TopicsChanged")
    effects = of_kind(lines, "effect", cause=event["cause"], request="LeaderAndIsr")
    assert {(line["broker"], line["phase"]) for line in effects} == {
        (id_, phase) for id_ in cluster.brokers for phase in ("received", "completed")
    }
    became = [result["became"] for line in effects for result in line.get("results", ())]
    assert sorted(set(became)) == ["follower", "leader"]
