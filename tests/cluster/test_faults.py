"""No acknowledged record is lost when brokers, the controller, sessions or ZooKeeper fail under load."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from support.clusters.load import PARTITIONS, load
from support.clusters.running_cluster import (
    BROKERS,
    KEYS,
    busiest,
    create_topic,
    eventually,
    wait_for_leaders,
)

from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.base.errors import ConfigError
from minikafka.broker.ledger.reader import read_all
from minikafka.broker.ledger.record import EVENT
from minikafka.client import Client
from minikafka.kafka.records.batch import Record
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.processes import identify, is_paused, wait_until_gone

SESSION_SECONDS = KEYS["zookeeper.session.timeout.ms"] / 1000


@pytest.mark.row("N2")
async def test_each_broker_is_a_process_with_logs_fetchers_and_controller_candidate(
    cluster: LocalCluster,
) -> None:
    await create_topic(cluster, "processes")
    async with Client(cluster.bootstrap) as client:
        for partition in range(3):
            await client.produce("processes", [Record(value=b"v")], partition=partition)

    async def is_everywhere() -> bool:
        answers = (await cluster.state()).answers
        rows = [row for answer in answers.values() for row in answer["replicas"]]
        mine = [row for row in rows if row["topic"] == "processes"]
        ends = {(row["log_end_offset"], row["high_watermark"]) for row in mine}
        return len(mine) == 9 and ends == {(1, 1)}

    await eventually(is_everywhere)
    processes = {cluster.process(broker) for broker in BROKERS}
    assert len({process.pid for process in processes if process}) == 3
    state = await cluster.state()
    claims = [broker for broker, answer in state.answers.items() if answer["is_controller"]]
    assert claims == ([] if cluster.record.coordination == LEADERS else [state.controller])
    rows = [row for answer in state.answers.values() for row in answer["replicas"]]
    roles = [row["role"] for row in rows if row["topic"] == "processes"]
    assert (roles.count("leader"), roles.count("follower")) == (3, 6)


@pytest.mark.row("D15", "I3")
@pytest.mark.parametrize("fault", ["kill", "pause", "stop"])
async def test_no_record_is_lost_when_a_leader_fails(cluster: LocalCluster, fault: str) -> None:
    topic = f"leader-{fault}"
    async with load(cluster, topic):
        victim = await busiest(cluster)
        began = SystemClock().wall_ms()
        await getattr(cluster, fault)(victim)
        await wait_for_leaders(cluster, [topic], PARTITIONS, victim)
        # The kernel of a killed broker refuses connections at once. A stop or a pause is no evidence of a death.
        # Only a controller writes into a ledger whom it suspects.
        suspects = cluster.record.coordination == CONTROLLER
        assert is_suspected(cluster, victim, began) == (suspects and fault == "kill")


def is_suspected(cluster: LocalCluster, broker: int, since_ms: int) -> bool:
    """True if a controller has suspected the broker since this time (Unix ms), according to the ledgers."""
    ledgers = [cluster.directory.broker_ledger(id_) for id_ in BROKERS]
    lines = [line for line in read_all(ledgers) if line["time"] >= since_ms]
    events = [line for line in lines if line["kind"] == EVENT]
    return any(
        (line["event"] == "BrokerSuspected" and line["of"] == broker)
        or str(broker) in line.get("suspects", {})
        for line in events
    )


@pytest.mark.usefixtures("with_controller")
@pytest.mark.row("D15", "A8")
async def test_killed_controller_is_replaced_with_a_higher_epoch(
    cluster: LocalCluster,
) -> None:
    async with load(cluster, "controller-kill"):
        before = await cluster.state()
        assert before.controller is not None
        assert before.controller_epoch is not None
        await cluster.kill(before.controller)
        await wait_for_leaders(cluster, ["controller-kill"], PARTITIONS, before.controller)

        async def is_replaced() -> bool:
            after = await cluster.state()
            replaced = after.controller not in (None, before.controller)
            return replaced and (after.controller_epoch or 0) > before.controller_epoch

        await eventually(is_replaced)


@pytest.mark.parametrize("sessions", [0.25, 1.5], ids=["shorter than a session", "longer"])
async def test_cluster_survives_an_outage_of_zookeeper(
    cluster: LocalCluster, sessions: float
) -> None:
    async with load(cluster, f"zookeeper-away-{sessions}"):
        await cluster.kill_zookeeper()
        await asyncio.sleep(sessions * SESSION_SECONDS)
        await cluster.start_zookeeper()
        await cluster.kill(await busiest(cluster))


@pytest.mark.usefixtures("with_controller")
async def test_brokers_register_again_when_all_their_sessions_expired(
    cluster: LocalCluster,
) -> None:
    async with load(cluster, "sessions-expired"):
        before = await epochs(cluster)
        for broker in BROKERS:
            await cluster.pause(broker)
        await eventually(lambda: nobody_is_registered(cluster))
        for broker in BROKERS:
            await cluster.resume(broker)

        async def all_are_new() -> bool:
            after = await epochs(cluster)
            return after.keys() == before.keys() and all(after[b] > before[b] for b in before)

        await eventually(all_are_new)


@pytest.mark.row("E9")
async def test_leader_registers_again_when_its_session_expired(
    cluster: LocalCluster,
) -> None:
    async with load(cluster, "session-expired"):
        victim = await busiest(cluster)
        before = (await epochs(cluster))[victim]
        await cluster.pause(victim)
        await wait_for_leaders(cluster, ["session-expired"], PARTITIONS, victim)
        await cluster.resume(victim)

        async def is_new() -> bool:
            return (await epochs(cluster)).get(victim, before) > before

        await eventually(is_new)


async def nobody_is_registered(cluster: LocalCluster) -> bool:
    """True if ZooKeeper holds no broker registration. ZooKeeper is read because paused brokers cannot answer."""

    def ask() -> bool:
        kazoo = KazooClient(cluster.zookeeper)
        kazoo.start(timeout=15)
        try:
            return kazoo.get_children("/brokers/ids") == []
        finally:
            kazoo.stop()
            kazoo.close()

    return await asyncio.to_thread(ask)


async def epochs(cluster: LocalCluster) -> dict[int, int]:
    """Return the broker epoch of each broker that answers, by broker id."""
    answers = (await cluster.state()).answers
    return {broker: answer["broker_epoch"] for broker, answer in answers.items()}


@pytest.mark.row("A1", "R10")
async def test_restarted_broker_keeps_its_ports(
    cluster: LocalCluster,
) -> None:
    before = cluster.record.broker(2)
    process = cluster.process(2)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    assert await wait_until_gone(process, SystemClock(), 10_000)
    await cluster.start(2)
    after = cluster.record.broker(2)
    assert (after.port, after.control_port) == (before.port, before.control_port)
    assert after.process != before.process
    with pytest.raises(ClusterError, match="already running"):
        await cluster.start(2)


async def test_no_record_is_lost_when_all_brokers_are_killed_at_once(
    cluster: LocalCluster,
) -> None:
    async with load(cluster, "all-killed"):
        for broker in BROKERS:
            await cluster.kill(broker)
        await asyncio.gather(*(cluster.start(broker) for broker in BROKERS))


@pytest.mark.row("D15", "I8")
async def test_brokers_are_restarted_one_by_one_under_load(cluster: LocalCluster) -> None:
    async with load(cluster, "restart"):
        for broker in BROKERS:
            await cluster.restart(broker)
            await cluster.wait_for_isr("restart")


async def test_broker_is_stopped_when_pause_returns_and_running_after_resume(
    cluster: LocalCluster,
) -> None:
    process = cluster.process(1)
    assert process is not None
    for _ in range(20):
        await cluster.pause(1)
        assert is_paused(process)
        await cluster.resume(1)
        assert not is_paused(process)


async def test_pause_of_a_broker_that_is_not_running_is_refused(cluster: LocalCluster) -> None:
    await cluster.kill(1)
    assert cluster.process(1) is None
    with pytest.raises(ClusterError, match="broker 1 is not running"):
        await cluster.pause(1)
    with pytest.raises(ClusterError, match="no broker 9"):
        await cluster.kill(9)
    assert identify(os.getpid()) is not None


async def test_second_cluster_shares_an_existing_zookeeper_under_another_chroot(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    connect = f"{cluster.zookeeper}/second"
    async with LocalCluster(1, data=tmp_path, zookeeper=connect, config=KEYS) as second:
        assert second.zookeeper == connect
        assert second.zookeeper_process() is None
        assert set((await second.state()).answers) == {1}
    assert set((await cluster.state()).answers) == set(BROKERS)


async def test_start_refuses_a_directory_that_another_process_uses(cluster: LocalCluster) -> None:
    other = LocalCluster(data=cluster.directory.path, attached=False)
    with pytest.raises(ClusterError, match=f"in use by process {os.getpid()}"):
        await other.start()
    assert set((await cluster.state()).answers) == set(BROKERS)


async def test_start_names_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = LocalCluster(1, data=tmp_path, port=port)
        with pytest.raises(ClusterError, match=f"port {port} of broker 1 is in use"):
            await wanted.start()
        assert not wanted.is_running()
        assert wanted.zookeeper_process() is None


async def test_zookeeper_starts_when_its_port_becomes_free(
    cluster: LocalCluster,
) -> None:
    port = int(cluster.zookeeper.rpartition(":")[2])
    await cluster.kill_zookeeper()
    with await listen_on(port):
        starting = asyncio.create_task(cluster.start_zookeeper())
        await asyncio.sleep(0.2)
        assert not starting.done()
    await starting
    assert cluster.zookeeper_process() is not None


async def listen_on(port: int) -> socket.socket:
    """Listen on the port as soon as the kernel has closed the sockets of the process that used it before."""
    while True:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError as error:
            assert error.errno == errno.EADDRINUSE  # noqa: PT017 - another one is a failure
        await asyncio.sleep(0)


async def test_cluster_start_rejects_an_unknown_setting_before_it_writes_any_file(
    tmp_path: Path,
) -> None:
    wanted = LocalCluster(1, data=tmp_path, config={"log.segment.byts": 1})
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        await wanted.start()
    assert os.listdir(tmp_path) == []
