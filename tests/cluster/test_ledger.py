"""The ledgers of a real cluster against what ZooKeeper and the brokers show; trace, why and plan over them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.invariants import check_ledgers
from support.running_cluster import eventually

from minikafka.client import Client, NewTopic
from minikafka.cluster import LocalCluster
from minikafka.ledger.reader import Line, read_all
from minikafka.rpc.messages import PLAN

KEYS = {
    "zookeeper.session.timeout.ms": 4_000,
    "replica.lag.time.max.ms": 30_000,
    "auto.leader.rebalance.enable": False,
}
PARTITIONS = 6


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(3, data=tmp_path, config=KEYS) as running:
        async with Client(running.bootstrap) as client:
            await client.create_topics(NewTopic("t", PARTITIONS, 3))
        await running.wait_for_isr("t")
        yield running
    check_ledgers(tmp_path)


def lines_of(cluster: LocalCluster) -> list[Line]:
    return read_all([cluster.directory.broker_ledger(i) for i in (1, 2, 3)])


async def controller_of(cluster: LocalCluster) -> int:
    controller = (await cluster.state()).controller
    assert controller is not None
    return controller


def written_and_sent(lines: list[Any]) -> list[Any]:
    """What a plan and the real thing must have in common, in order."""
    told = []
    for line in lines:
        if line["kind"] == "write":
            told.append((line["check"], line["outcome"], line["operations"]))
        elif line["kind"] == "request":
            told.append((line["to"], line["request"], line["broker_epoch"], line["states"]))
    return told


async def planned(cluster: LocalCluster, **question: Any) -> list[Any]:
    answers = await cluster.ask(PLAN, question)
    (lines,) = [answer["lines"] for answer in answers.values() if isinstance(answer, dict)]
    return list(lines)


async def kill_and_wait(cluster: LocalCluster, broker: int) -> str:
    """Kill it; the cause of the event by which the controller learned of it, once all was carried out."""
    before = {line["cause"] for line in lines_of(cluster)}
    await cluster.kill(broker)
    found: list[str] = []

    async def is_done() -> bool:
        state = await cluster.state()
        views = state.partitions.values()
        if not all(view.leader not in (None, broker) and broker not in view.isr for view in views):
            return False
        found[:] = [
            line["cause"]
            for line in lines_of(cluster)
            if line["kind"] == "event"
            and line["event"] in ("BrokersChanged", "ControllerElected")
            and line["cause"] not in before
        ]
        return bool(found)

    await eventually(is_done)
    return found[0]


@pytest.mark.row("C38")
async def test_a_plan_to_kill_a_broker_is_what_its_real_death_leads_to(
    cluster: LocalCluster,
) -> None:
    victim = 1 + await controller_of(cluster) % 3
    plan = await planned(cluster, operation="kill-broker", broker=victim)
    cause = await kill_and_wait(cluster, victim)
    real = [line for line in lines_of(cluster) if line["cause"] == cause]
    assert written_and_sent(real) == written_and_sent(plan)
    assert any(line["kind"] == "write" for line in plan)


async def test_a_plan_to_kill_the_controller_is_what_its_real_death_leads_to(
    cluster: LocalCluster,
) -> None:
    victim = await controller_of(cluster)
    plan = await planned(cluster, operation="kill-broker", broker=victim)
    cause = await kill_and_wait(cluster, victim)
    real = [line for line in lines_of(cluster) if line["cause"] == cause]
    planned_writes = [entry for entry in written_and_sent(plan) if len(entry) == 3][1:]
    assert [entry for entry in written_and_sent(real) if len(entry) == 3] == planned_writes
    assert [entry for entry in written_and_sent(real) if len(entry) == 4] == [
        entry for entry in written_and_sent(plan) if len(entry) == 4
    ]
