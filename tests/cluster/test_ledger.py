"""The ledgers of a real cluster agree with ZooKeeper and the brokers; `trace`, `why` and `plan` read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from support.clusters.running_cluster import eventually, heal, kill
from support.commands.commands import run
from support.ledger.invariants import check_ledgers

from minikafka.base.model import TopicPartition
from minikafka.broker.ledger.lifecycle import lifecycle
from minikafka.broker.ledger.reader import Line, read_all
from minikafka.broker.rpc.messages import PLAN
from minikafka.client import Client, NewTopic
from minikafka.deciders.controller.steps import CREATION, STEPS
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.explain.past import Past
from minikafka.zookeeper.client.client import ZooKeeperClient
from minikafka.zookeeper.nodes import layout

KEYS = {
    "zookeeper.session.timeout.ms": 4_000,
    "minikafka.fast.failover.enable": False,  # a plan is about the end of a broker's session
    "replica.lag.time.max.ms": 30_000,
    "auto.leader.rebalance.enable": False,
    "replica.fetch.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
}
PARTITIONS = 6


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    running = LocalCluster(3, data=tmp_path_factory.mktemp("ledgers"), config=KEYS)
    asyncio.run(running.start())
    try:
        yield running
    finally:
        asyncio.run(running.stop())
    check_ledgers(running.directory.path)


@pytest.fixture
async def cluster(shared_cluster: LocalCluster) -> AsyncIterator[LocalCluster]:
    """The shared cluster, with a topic `t` that is created again for each test."""
    async with Client(shared_cluster.bootstrap) as client:

        async def is_created() -> bool:
            """Create topic `t`; return False while the deletion by the previous test is in progress."""
            topics = [NewTopic("t", PARTITIONS, 3)]
            return (await client.admin.create_topics(topics))["t"].ok

        await eventually(is_created)
        await shared_cluster.wait_for_isr("t")
        try:
            yield shared_cluster
        finally:
            await heal(shared_cluster)
            await client.admin.delete_topics(["t"])


def lines_of(cluster: LocalCluster) -> list[Line]:
    return read_all([cluster.directory.broker_ledger(i) for i in (1, 2, 3)])


async def controller_of(cluster: LocalCluster) -> int:
    controller = (await cluster.state()).controller
    assert controller is not None
    return controller


def written_and_sent(lines: list[Any]) -> list[Any]:
    """Return the writes and requests in the ledger lines, in order.

    The tests compare a plan with the real event by these writes and requests.
    """
    found = []
    for line in lines:
        if line["kind"] == "write":
            found.append((line["check"], line["outcome"], line["operations"]))
        elif line["kind"] == "request":
            found.append((line["to"], line["request"], line["broker_epoch"], line["states"]))
    return found


async def planned(cluster: LocalCluster, **question: Any) -> list[Any]:
    answers = await cluster.ask(PLAN, question, 30_000)
    (lines,) = [answer["lines"] for answer in answers.values() if isinstance(answer, dict)]
    return list(lines)


async def kill_and_wait(cluster: LocalCluster, broker: int) -> str:
    """Kill the broker, wait for the failover, and return the failover's cause id in the ledger."""
    before = {line["cause"] for line in lines_of(cluster)}
    await kill(cluster, broker)
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
async def test_planned_writes_and_requests_of_a_broker_death_match_the_real_ones(
    cluster: LocalCluster,
) -> None:
    victim = 1 + await controller_of(cluster) % 3
    plan = await planned(cluster, operation="kill-broker", broker=victim)
    cause = await kill_and_wait(cluster, victim)
    real = [line for line in lines_of(cluster) if line["cause"] == cause]
    assert written_and_sent(real) == written_and_sent(plan)
    assert any(line["kind"] == "write" for line in plan)


async def test_planned_writes_and_requests_of_a_controller_death_match_the_real_ones(
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
    """Return (data, mzxid, version) of the topic's state nodes in ZooKeeper."""
    tasks = TaskRegistry()
    zookeeper = ZooKeeperClient(
        cluster.zookeeper, 6_000, SystemClock(), SystemRng(), tasks, SocketTransport()
    )
    await zookeeper.start()
    tps = [TopicPartition("t", number) for number in range(PARTITIONS)]
    nodes = await zookeeper.get_many([layout.state_path(tp) for tp in tps])
    await zookeeper.close()
    await tasks.close()
    return {
        tp: (node.data, node.stat.mzxid, node.stat.version)
        for tp, node in zip(tps, nodes, strict=True)
        if node is not None
    }


def last_write(lines: list[Line], tp: TopicPartition) -> tuple[int, int]:
    """Return (zxid, version) of the last accepted write of the partition's state, made by leader or controller."""
    line = Past(lines, tp).states[-1].line
    if line["kind"] == "isr":
        return line["zxid"], line["actual"]
    path = layout.state_path(tp)
    (actual,) = [o["actual"] for o in line["operations"] if o["path"] == path]
    return line["zxid"], actual


async def test_ledger_agrees_with_zookeeper_after_a_broker_died_and_returned(
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


async def test_ledger_agrees_with_the_brokers_after_a_failover(cluster: LocalCluster) -> None:
    victim = 1 + await controller_of(cluster) % 3
    await kill_and_wait(cluster, victim)
    lines = lines_of(cluster)
    for tp, view in (await cluster.state()).partitions.items():
        stages = [s for s in lifecycle(lines, *tp) if s.stage == "completed" and s.role == "leader"]
        assert (stages[-1].broker, stages[-1].epoch) == (view.leader, view.leader_epoch)


async def test_ledger_lines_with_the_cause_of_a_broker_death_run_from_event_to_effect(
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
    """Return the JSON that a command prints."""
    where = cluster.directory.path
    done = run(*arguments, "--json", "--data", str(where), cwd=where)
    assert done.code == 0, done.err
    return json.loads(done.out)


async def test_why_and_trace_answer_while_the_cluster_runs_and_after_it_died(
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
    assert dead["findings"][0]["name"] == "cluster-down"
    assert minikafka(cluster, "trace", "-t", "t", "-p", "0")["chains"] == chains


async def test_why_names_the_paused_broker_that_a_reassignment_waits_for(
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
    # Before this step, the controller sends no request to `other`, so `other` is not in sync when it is paused.
    step = "reassignment.A1"
    async with Client(cluster.bootstrap) as client, asyncio.TaskGroup() as tasks:
        await cluster.hold(step, [controller])
        tasks.create_task(client.admin.alter_reassignments({tp: (replicas[0], other)}))
        await cluster.held(step)
        await cluster.pause(other)
        await cluster.release(step, [controller])

    async def is_stuck() -> bool:
        shown = minikafka(cluster, "why", name)
        names = [finding["name"] for finding in shown["findings"]]
        return "reassigning" in names and shown["blocking_brokers"] == [other]

    await eventually(is_stuck)
    await cluster.resume(other)

    async def is_moved() -> bool:
        found = (await cluster.state()).partitions[tp]
        moved = set(found.isr) == {replicas[0], other}
        return moved and bool(minikafka(cluster, "why", name)["healthy"])

    await eventually(is_moved)


async def test_why_command_names_the_step_and_the_broker_that_hold_up_a_topic_deletion(
    cluster: LocalCluster,
) -> None:
    step = "deletion.deletion-started"
    async with Client(cluster.bootstrap) as client, asyncio.TaskGroup() as tasks:
        await client.create_topics(NewTopic("going", 1, 3))
        await cluster.hold(step)
        tasks.create_task(client.delete_topics("going"))
        holding = await cluster.held(step)
        shown = minikafka(cluster, "why", "going-0")
        assert [finding["name"] for finding in shown["findings"]] == ["not-deleted"]
        assert f"held at step {step}" in json.dumps(shown)
        assert shown["findings"][0]["events"]
        assert shown["blocking_brokers"] == [holding]
        await cluster.release(step)


async def test_ledger_of_a_killed_controller_has_every_step_of_a_topic_creation(
    cluster: LocalCluster,
) -> None:
    """A step's line is in the ledger file before the controller carries out the step."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("late", 1, 3))
    controller = await controller_of(cluster)
    await cluster.kill(controller)
    steps = [
        line["step"]
        for line in read_all([cluster.directory.broker_ledger(controller)])
        if line["kind"] == "step" and "late" in line["partitions"]
    ]
    assert steps == list(STEPS[CREATION])


def come_and_go(bootstrap: str) -> None:
    """Run a group with one steady member, while a second client joins and leaves the group three times."""

    def join(client: str) -> tuple[Consumer, list[int]]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "shop", "client.id": client}
        consumer = Consumer({**settings, "heartbeat.interval.ms": 100})
        sizes: list[int] = []
        consumer.subscribe(["t"], on_assign=lambda _, partitions: sizes.append(len(partitions)))
        return consumer, sizes

    def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
        while not condition():
            for consumer in consumers:
                consumer.poll(0.05)

    steady, shares = join("steady")
    poll_until(lambda: shares == [PARTITIONS], steady)
    for number in range(1, 4):
        till, mine = join("till")
        poll_until(lambda mine=mine: bool(mine) and shares[-1] < PARTITIONS, till, steady)
        till.close()
        poll_until(lambda number=number: shares.count(PARTITIONS) == number + 1, steady)
    steady.close()


async def test_trace_and_why_show_a_group_member_that_repeatedly_joins_and_leaves(
    cluster: LocalCluster,
) -> None:
    await asyncio.to_thread(come_and_go, cluster.bootstrap)
    entries = minikafka(cluster, "trace", "--group", "shop")["entries"]
    triggers = [entry["trigger"] for entry in entries if entry["rebalance"]]
    assert triggers == ["member joined", *["member joined", "member left"] * 3, "member left"]
    joined = [entry for entry in entries if entry["trigger"] == "member joined"]
    assert all(entry["finished"] and entry["rebalance_ms"] >= 0 for entry in joined)
    alive = minikafka(cluster, "why", "--group", "shop")
    assert (alive["state"], alive["healthy"]) == ("Empty", False)
    loops = [finding for finding in alive["findings"] if finding["problem"]]
    assert [finding["name"] for finding in loops] == ["rebalance-loop"]
    assert "till at 127.0.0.1 was removed 3 times (3 times member left" in json.dumps(
        loops, ensure_ascii=False
    )

    for broker in (1, 2, 3):
        await cluster.kill(broker)
    assert minikafka(cluster, "trace", "--group", "shop")["entries"] == entries
    dead = minikafka(cluster, "why", "--group", "shop")
    assert [finding["name"] for finding in dead["findings"]] == ["no-broker", "rebalance-loop"]
    assert dead["blocking_brokers"] == [1, 2, 3]
