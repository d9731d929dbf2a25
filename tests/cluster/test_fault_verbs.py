"""Faults of disks, sessions, coordinators and steps, on real brokers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.clusters.running_cluster import eventually
from support.commands.commands import Ended, run

from minikafka import ClusterError, LocalCluster
from minikafka.tools.cluster.faults.script.run import FaultMissed
from minikafka.tools.cluster.local import BlockingCluster
from minikafka.tools.cluster.processes import ProcessId, is_paused

KEYS = {
    "zookeeper.session.timeout.ms": 3_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "min.insync.replicas": 2,
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    data = tmp_path_factory.mktemp("faults")
    with LocalCluster(3, data=data, config=KEYS, faults=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: BlockingCluster) -> Iterator[BlockingCluster]:
    yield shared
    for process, broker in zip(processes(shared), (1, 2, 3), strict=True):
        if process is not None and is_paused(process):
            shared.resume(broker)
    shared.heal()
    asyncio.run(shared._cluster.start())
    shared.wait_until_in_sync()


def processes(cluster: BlockingCluster) -> list[ProcessId | None]:
    return [cluster._cluster.process(broker) for broker in (1, 2, 3)]


def create(cluster: BlockingCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    cluster.wait_for_isr(topic)


def produce(cluster: BlockingCluster, topic: str, *values: bytes, timeout_ms: int = 30_000) -> int:
    """Return how many records were acknowledged by all replicas."""
    acked: list[bytes] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": timeout_ms}
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    for value in values:
        producer.produce(
            topic,
            value,
            on_delivery=lambda error, message: None if error else acked.append(message.value()),
        )
        producer.flush(60)
    return len(acked)


def read(cluster: BlockingCluster, topic: str, count: int) -> list[bytes]:
    settings = {"group.id": f"read-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None
        if not message.error():
            found.append(message.value())
    consumer.close()
    return found


def test_leader_with_a_full_disk_is_replaced_and_loses_no_record(cluster: BlockingCluster):
    create(cluster, "full")
    leader = cluster.leader_of("full", 0)
    values = [b"%d" % number * 500 for number in range(10)]

    with cluster.fill_disk(leader, free_bytes=2_000) as fault:
        assert produce(cluster, "full", *values) == 10
        assert cluster.leader_of("full", 0) != leader
    assert fault.hits == {"operations": 1}

    # The next restart meets no fault any more, and the one after a second fault neither.
    cluster.restart(leader)
    cluster.wait_for_isr("full")
    assert read(cluster, "full", 10) == values


def test_fault_of_a_disk_outlives_the_broker_until_it_is_healed(cluster: BlockingCluster):
    with cluster.fail_sync(2) as fault:
        before = fault.count()["operations"]
        cluster.kill(2)
        cluster.start(2)
        assert fault.count()["operations"] > before
    assert fault.heal() == fault.hits

    cluster.restart(2)
    cluster.wait_until_in_sync()


def test_broker_that_is_down_gets_a_fault_and_loses_it(cluster: BlockingCluster):
    cluster.stop(2)
    with (
        cluster.fail_sync(2) as fault,
        pytest.raises(ClusterError, match="Input/output error"),
    ):
        cluster.start(2)
    assert fault.hits["operations"] > 0
    cluster.start(2)


def test_slow_sync_delays_a_clean_stop(cluster: BlockingCluster):
    with cluster.slow_sync(3, 20) as fault:
        cluster.stop(3)
        assert fault.count()["operations"] > 0


def test_paused_broker_keeps_its_disk(cluster: BlockingCluster):
    cluster.pause(1)

    with pytest.raises(
        ClusterError, match=r"broker 1 is paused \(SIGSTOP\): its disk is unchanged"
    ):
        cluster.fill_disk(1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((9,), "there is no broker 9, the cluster has 1, 2, 3"),
        ((1, "/nowhere"), "broker 1 has no log directory /nowhere, but "),
        ((1, None, -1), "free_bytes must be a whole number from 0 to"),
        ((1, None, "1k"), "free_bytes must be a whole number from 0 to .*, got '1k'"),
    ],
)
def test_invalid_fault_of_a_disk_is_refused(
    shared: BlockingCluster, arguments: tuple[int], error: str
):
    with pytest.raises(ClusterError, match=error):
        shared.fill_disk(*arguments)


def test_cluster_without_faults_refuses_them(shared: BlockingCluster):
    record = shared.record
    shared.directory.write(replace(record, has_faults=False))
    try:
        with pytest.raises(ClusterError, match=r"without faults: use LocalCluster\(faults=True\)"):
            shared.fill_disk(1)
    finally:
        shared.directory.write(record)


def test_broker_registers_again_each_time_its_session_is_expired(cluster: BlockingCluster):
    for _ in range(2):
        before = registration(cluster, 2)
        cluster.expire_session(2)
        asyncio.run(eventually(lambda before=before: is_newer(cluster, 2, before)))
    cluster.wait_until_in_sync()


def registration(cluster: BlockingCluster, broker: int) -> int:
    return int(cluster.state().answers[broker]["broker_epoch"])


async def is_newer(cluster: BlockingCluster, broker: int, before: int) -> bool:
    answers = (await cluster.state()).answers  # type: ignore[misc]
    return broker in answers and answers[broker]["broker_epoch"] > before


def test_dead_broker_has_one_session_to_expire(cluster: BlockingCluster):
    cluster.kill(3)
    cluster.expire_session(3)

    with pytest.raises(ClusterError, match="broker 3 has no session with ZooKeeper to end"):
        cluster.expire_session(3)


def test_lost_coordinator_of_a_group_is_replaced(cluster: BlockingCluster):
    create(cluster, "grouped")
    assert produce(cluster, "grouped", b"1") == 1
    assert read(cluster, "grouped", 1) == [b"1"]

    lost = cluster.lose_coordinator("read-grouped", pause=True)

    cluster.expire_session(lost)
    assert cluster.coordinator_of("read-grouped") != lost


def test_lost_coordinator_of_a_transaction_is_replaced(cluster: BlockingCluster):
    create(cluster, "transacted")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "payer", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("transacted", b"paid")

    lost = cluster.lose_coordinator(transactional_id="payer")
    producer.commit_transaction(60)

    assert cluster._cluster.process(lost) is None
    assert cluster.coordinator_of(transactional_id="payer") != lost
    assert read(cluster, "transacted", 1) == [b"paid"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"group": "nobody"}, "there is no group nobody"),
        ({"transactional_id": "nobody"}, "there is no transactional id nobody"),
        ({}, "name either a group or a transactional id"),
    ],
)
def test_unknown_coordinator_is_refused(
    shared: BlockingCluster, arguments: dict[str, str], error: str
):
    with pytest.raises(ClusterError, match=error):
        shared.lose_coordinator(**arguments)


def test_step_is_held_until_the_end_of_the_block(cluster: BlockingCluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for topic in ("held", "held-again"):
        with pytest.raises(ZeroDivisionError), cluster.at_step("creation.partitions-new") as step:  # noqa: PT012
            created = admin.create_topics([NewTopic(topic, 1, 3)])[topic]
            assert step.wait() in (1, 2, 3)
            assert not created.done()
            raise ZeroDivisionError
        assert created.result(30) is None


def test_unknown_step_is_refused_with_the_nearest_names(shared: BlockingCluster):
    with pytest.raises(
        ClusterError,
        match=r"there is no step 'creation\.partitions-nwe'; .* creation\.partitions-new,",
    ):
        shared.at_step("creation.partitions-nwe")


def test_step_at_a_paused_broker_names_it_at_the_end(cluster: BlockingCluster):
    with (
        pytest.raises(ClusterError, match="broker 2 is paused, and may stay blocked at step"),
        cluster.at_step("creation.partitions-new"),
    ):
        cluster.pause(2)
    cluster.resume(2)
    cluster.release("creation.partitions-new")  # as the error says


PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def test_script_of_the_page_harms_while_the_block_runs(cluster: BlockingCluster, tmp_path: Path):
    create(cluster, "events")
    script = tmp_path / "faults.toml"
    script.write_text(re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
    values = [b"%d" % number for number in range(30)]

    with cluster.run_faults(script) as run:
        assert produce(cluster, "events", *values) == 30
        run.wait()

    kill, slow, restart = run.results
    assert str(kill) == "kill leader of events-0: began once, hit 1 process"
    assert slow.hits["operations"] > 0
    assert restart.hits == {"processes": 1}
    assert read(cluster, "events", 30) == values
    assert cluster.active_faults() == []


def test_broker_that_is_paused_at_a_step_goes_on_when_the_fault_ends(cluster: BlockingCluster):
    pause = {"do": "pause", "broker": "held", "at_step": "creation.partitions-new", "for": 0.1}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for topic in ("paused", "paused-again"):
        with cluster.run_faults([pause]) as run:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
            run.wait()
        assert str(run.results[0]) == "pause held: began once, hit 1 process"
        assert cluster.leader_of(topic, 0) in (1, 2, 3)


async def test_script_in_a_coroutine_repeats_an_entry(shared: BlockingCluster):
    again = {"do": "pause", "broker": 2, "for": 0, "times": 3, "gap": 0.01}
    await shared.pause(1)
    async with shared.run_faults([again, {"do": "resume", "broker": 1}]) as run:
        await run.wait()

    assert [(result.begun, dict(result.hits)) for result in run.results] == [
        (3, {"processes": 3}),
        (1, {"processes": 1}),
    ]


def test_entry_that_hits_nothing_fails_the_test(cluster: BlockingCluster):
    late = {"do": "kill", "broker": 1, "at": 600}
    unused = {"do": "fail_sync", "broker": 2}
    with (
        pytest.raises(FaultMissed, match=r"entry 1 \(kill 1\) hit nothing: .* 600 s") as missed,
        cluster.run_faults([late, unused]),
    ):
        cluster.expire_session(3)
    assert "entry 2 (fail-sync 2) hit nothing" in str(missed.value)

    with pytest.raises(ZeroDivisionError) as error, cluster.run_faults([late]):
        raise ZeroDivisionError
    assert "entry 1 (kill 1) hit nothing" in error.value.__notes__[0]


def test_entry_whose_broker_is_down_says_so(cluster: BlockingCluster):
    cluster.kill(2)
    down = {"do": "pause", "broker": 2}
    with (
        pytest.raises(FaultMissed, match="broker 2 is not running"),
        cluster.run_faults([down]) as run,
    ):
        run.wait()


def test_entry_that_changes_nothing_about_a_pause_says_so(cluster: BlockingCluster):
    with (
        pytest.raises(FaultMissed, match="broker 2 is not paused"),
        cluster.run_faults([{"do": "resume", "broker": 2}]) as run,
    ):
        run.wait()

    twice = [{"do": "pause", "broker": 2}, {"do": "pause", "broker": 2, "after_previous": 0}]
    with (
        pytest.raises(FaultMissed, match="broker 2 is already paused") as missed,
        cluster.run_faults(twice) as run,
    ):
        run.wait()
    assert "entry 1" not in str(missed.value)


def test_invalid_script_harms_nothing(shared: BlockingCluster):
    before = processes(shared)
    with pytest.raises(
        ClusterError, match="entry 2: there is no broker 4, the cluster has 1, 2, 3"
    ):
        shared.run_faults([{"do": "kill", "broker": 1}, {"do": "kill", "broker": 4}])
    assert processes(shared) == before


def test_commands_harm_list_and_heal(cluster: BlockingCluster, tmp_path: Path):
    data = ["--data", str(cluster.directory.path)]

    assert called("faults", "slow-sync", "1", "--ms", "1", *data) == "slow_sync 1 is in effect"
    assert called("faults", "cut", "2", "zookeeper", *data) == "cut 2 zookeeper is in effect"
    shown = json.loads(call("faults", "list", "--json", *data).out)
    assert {row["fault"] for row in shown} == {"slow_sync 1", "cut 2 zookeeper"}
    assert called("faults", "heal", *data) == "all faults have ended"
    assert called("faults", "expire-session", "2", *data) == "the session of broker 2 has ended"

    refused = call("faults", "fill-disk", "9", *data)
    assert refused.code == 1
    assert refused.err == "minikafka: there is no broker 9, the cluster has 1, 2, 3\n"


def test_command_runs_a_script_and_fails_if_an_entry_hits_nothing(
    cluster: BlockingCluster, tmp_path: Path
):
    script = tmp_path / "faults.toml"
    command = ["faults", "run", str(script), "--json", "--data", str(cluster.directory.path)]
    script.write_text('[[fault]]\ndo = "pause"\nbroker = 1\nfor = 0\n')
    assert json.loads(call(*command).out) == [
        {"fault": "pause 1", "begun": 1, "hits": {"processes": 1}, "problem": ""}
    ]

    script.write_text('[[fault]]\ndo = "fail-sync"\nbroker = 1\nfor = 0\n')
    missed = call(*command)
    assert missed.code == 3
    assert "entry 1 (fail-sync 1) hit nothing: nothing came its way" in missed.err

    script.write_text('[[fault]]\ndo = "fail-sync"\nbroker = 1\n')
    endless = call(*command)
    assert endless.code == 1
    assert "entry 1: fail_sync needs for, a number of seconds" in endless.err


def test_commands_wait_for_a_step_and_for_requests(cluster: BlockingCluster):
    data = ["--data", str(cluster.directory.path)]
    step = "creation.partitions-new"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    assert called("faults", "hold", step, *data) == f"brokers block at {step}"
    created = admin.create_topics([NewTopic("by-command", 1, 1)])["by-command"]
    assert call("faults", "held", step, *data).out in ("1\n", "2\n", "3\n")
    assert called("faults", "release", step, *data) == f"brokers no longer block at {step}"
    created.result(30)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(called, "faults", "after", "Metadata", "1", *data)
        while not waiting.done():
            admin.list_topics(timeout=30)
    assert waiting.result() == "1 requests of Metadata were sent"


def call(*arguments: str) -> Ended:
    return run(*arguments, cwd=Path.cwd())


def called(*arguments: str) -> str:
    """Run a command, and return the first clause of its message."""
    ended = call(*arguments)
    assert ended.code == 0, ended.err
    return ended.err.strip().partition(";")[0]
