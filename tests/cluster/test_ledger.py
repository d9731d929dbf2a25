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

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic
from minikafka.cluster import LocalCluster
from minikafka.explain.past import Past
from minikafka.ledger.lifecycle import lifecycle
from minikafka.ledger.reader import Line, read_all
from minikafka.rpc.messages import PLAN
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zk import layout
from minikafka.zk.coordination import ZooKeeperCoordination

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


async def state_nodes(cluster: LocalCluster) -> dict[TopicPartition, tuple[bytes, int, int]]:
    """(data, mzxid, version) of every state node of the topic, as ZooKeeper has them."""
    tasks = TaskRegistry()
    coordination = ZooKeeperCoordination(
        cluster.zookeeper, 6_000, SystemClock(), SystemRng(), tasks
    )
    await coordination.start()
    tps = [TopicPartition("t", number) for number in range(PARTITIONS)]
    nodes = await coordination.get_many([layout.state_path(tp) for tp in tps])
    await coordination.close()
    await tasks.close()
    return {
        tp: (node[0], node[1].mzxid, node[1].version)
        for tp, node in zip(tps, nodes, strict=True)
        if node is not None
    }


def last_write(lines: list[Line], tp: TopicPartition) -> tuple[int, int]:
    """(zxid, version) of the last accepted write of the partition's state, whoever wrote it."""
    line = Past(lines, tp).states[-1].line
    if line["kind"] == "isr":
        return line["zxid"], line["actual"]
    path = layout.state_path(tp)
    (actual,) = [o["actual"] for o in line["operations"] if o["path"] == path]
    return line["zxid"], actual


async def test_the_ledger_is_what_zookeeper_shows_through_a_death_and_a_return(
    cluster: LocalCluster,
) -> None:
    victim = 1 + await controller_of(cluster) % 3
    await kill_and_wait(cluster, victim)
    await cluster.start(victim)
    await cluster.wait_for_isr("t")
    lines, nodes = lines_of(cluster), await state_nodes(cluster)
    for tp, (data, mzxid, version) in nodes.items():
        assert last_write(lines, tp) == (mzxid, version)
        known = Past(lines, tp).states[-1]
        state = layout.decode_state(data, version)
        assert (known.leader, known.leader_epoch, set(known.isr)) == (
            state.leader,
            state.leader_epoch,
            set(state.isr),
        )


async def test_the_ledger_is_what_the_brokers_show(cluster: LocalCluster) -> None:
    victim = 1 + await controller_of(cluster) % 3
    await kill_and_wait(cluster, victim)
    lines = lines_of(cluster)
    for tp, view in (await cluster.state()).partitions.items():
        stages = [s for s in lifecycle(lines, *tp) if s.stage == "completed" and s.role == "leader"]
        assert (stages[-1].broker, stages[-1].epoch) == (view.leader, view.leader_epoch)


async def test_every_controller_line_of_a_death_carries_the_id_of_its_event(
    cluster: LocalCluster,
) -> None:
    cause = await kill_and_wait(cluster, 1 + await controller_of(cluster) % 3)

    async def is_answered() -> bool:
        chain = [line for line in lines_of(cluster) if line["cause"] == cause]
        kinds = [line["kind"] for line in chain]
        return kinds.count("response") == len(
            {(line["to"], line["request"]) for line in chain if line["kind"] == "request"}
        ) or kinds.count("response") >= kinds.count("request")

    await eventually(is_answered)
    chain = [line for line in lines_of(cluster) if line["cause"] == cause]
    kinds = [line["kind"] for line in chain]
    first = [kinds.index(kind) for kind in ("event", "decision", "write", "request", "effect")]
    assert first == sorted(first)
    assert kinds[0] == "event"


def minikafka(cluster: LocalCluster, *arguments: str) -> Any:
    """The JSON that a command prints."""
    command = [sys.executable, "-m", "minikafka", *arguments, "--json"]
    done = subprocess.run(
        [*command, "--data", str(cluster.directory.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


async def test_why_and_trace_answer_on_a_live_cluster_and_on_a_dead_one(
    cluster: LocalCluster,
) -> None:
    assert minikafka(cluster, "why", "t-0")["healthy"]
    victim = 1 + await controller_of(cluster) % 3
    cause = await kill_and_wait(cluster, victim)
    alive = minikafka(cluster, "why", "t-0")
    assert (alive["healthy"], alive["blocking_brokers"]) == (False, [victim])
    assert cause in json.dumps(alive)
    chains = minikafka(cluster, "trace", "-t", "t", "-p", "0")["chains"]
    assert cause in [chain["cause"] for chain in chains]

    for broker in {1, 2, 3} - {victim}:
        await cluster.kill(broker)
    await cluster.kill_zookeeper()
    dead = minikafka(cluster, "why", "t-0", "--offset", "0")
    assert dead["source"] == "the ledger"
    assert (dead["leader"], dead["leader_epoch"]) == (alive["leader"], alive["leader_epoch"])
    assert dead["findings"][0]["name"] == "offline"
    assert minikafka(cluster, "trace", "-t", "t", "-p", "0")["chains"] == chains


async def test_a_reassignment_to_a_dead_broker_says_which_one_it_waits_for(
    cluster: LocalCluster,
) -> None:
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("pair", 3, 2))
    await cluster.wait_for_isr("pair")
    state = await cluster.state()
    controller = await controller_of(cluster)
    other = 1 + controller % 3
    tp, replicas = next(
        (tp, view.replicas)
        for tp, view in state.partitions.items()
        if tp.topic == "pair" and other not in view.replicas
    )
    name = str(tp)
    step = "reassignment.A1"  # the target hears nothing before it: it cannot be in sync already
    async with Client(cluster.bootstrap) as client, asyncio.TaskGroup() as tasks:
        await cluster.hold(step, [controller])
        tasks.create_task(client.admin.alter_reassignments({tp: (replicas[0], other)}))
        await cluster.held(step)
        await cluster.pause(other)
        await cluster.release(step, [controller])

    async def is_stuck() -> bool:
        told = minikafka(cluster, "why", name)
        names = [finding["name"] for finding in told["findings"]]
        return "reassigning" in names and told["blocking_brokers"] == [other]

    await eventually(is_stuck)
    await cluster.resume(other)

    async def is_moved() -> bool:
        found = (await cluster.state()).partitions[tp]
        moved = set(found.isr) == {replicas[0], other}
        return moved and bool(minikafka(cluster, "why", name)["healthy"])

    await eventually(is_moved)


async def test_a_deletion_that_is_held_at_a_step_is_explained_by_it(cluster: LocalCluster) -> None:
    step = "deletion.deletion-started"
    async with Client(cluster.bootstrap) as client, asyncio.TaskGroup() as tasks:
        await client.create_topics(NewTopic("going", 1, 3))
        await cluster.hold(step)
        tasks.create_task(client.delete_topics("going"))
        holding = await cluster.held(step)
        told = minikafka(cluster, "why", "going-0")
        assert [finding["name"] for finding in told["findings"]] == ["not-deleted"]
        assert f"held at step {step}" in json.dumps(told)
        assert told["findings"][0]["events"]
        assert told["blocking_brokers"] == [holding]
        await cluster.release(step)


async def test_a_step_that_was_reached_outlives_the_controller_that_reached_it(
    cluster: LocalCluster,
) -> None:
    """The line of a step is in the file before the step is done: SIGKILL leaves it."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("late", 1, 3))
    controller = await controller_of(cluster)
    await cluster.kill(controller)
    steps = [
        line["step"]
        for line in read_all([cluster.directory.broker_ledger(controller)])
        if line["kind"] == "step" and "late" in line["partitions"]
    ]
    assert steps == ["partitions-new", "replicas-new", "partitions-online", "replicas-online"]
