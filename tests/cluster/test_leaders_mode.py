"""A real cluster without a controller: clients, kills, deletions, commands, and znodes as another client reads them."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic
from support.clusters.running_cluster import eventually
from support.commands.commands import Ended, call
from support.rows import proof

from minikafka.base.ports import Znode, ZooKeeper
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.storage.log import checkpoints
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.zookeeper.session import zookeeper_session

ROOT = "/leaders/brokers"
KEYS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "zookeeper.session.timeout.ms": 2_000,
    "minikafka.leaders.election.wait.ms": 300,
    "auto.leader.rebalance.enable": False,  # leaders move only when a test moves them
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "replica.fetch.backoff.ms": 100,
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(
        3, data=tmp_path_factory.mktemp("leaders"), config=KEYS, coordination="leaders"
    )
    asyncio.run(made.start())
    try:
        yield made
    finally:
        asyncio.run(made.stop())


@pytest.fixture
async def cluster(shared: LocalCluster) -> AsyncIterator[LocalCluster]:
    """The module's cluster; brokers that a test has stopped are started again after it."""
    proof.note(proof.Level.REAL, "leaders")
    yield shared
    for broker in (1, 2, 3):
        if shared.process(broker) is None:
            await shared.start(broker)


async def run(cluster: LocalCluster, *arguments: str) -> Ended:
    return await call(*arguments, "--data", str(cluster.directory.path))


async def shown(cluster: LocalCluster, *arguments: str) -> Any:
    return json.loads((await run(cluster, *arguments, "--json")).out)


async def nodes(cluster: LocalCluster, *paths: str) -> list[Znode | None]:
    """Read nodes below the root of the mode, in a session of their own."""
    async with zookeeper_session(cluster.zookeeper, SystemClock(), SystemRng()) as zookeeper:
        return await zookeeper.get_many([f"{ROOT}/{path}" for path in paths])


async def text(cluster: LocalCluster, path: str) -> str | None:
    [node] = await nodes(cluster, path)
    return None if node is None else node.data.decode()


async def create(cluster: LocalCluster, topic: str, *replicas: int) -> None:
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(topic, assignment={0: replicas}))
    await cluster.wait_for_isr(topic)


async def produce(cluster: LocalCluster, topic: str, *values: bytes) -> None:
    async with Client(cluster.bootstrap) as client:
        await client.produce(topic, [Record(value=value) for value in values])


async def consumed(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    async with Client(cluster.bootstrap) as client:
        return [row.value async for row in client.consume(topic, until_end=True)]


def write_and_read(bootstrap: str, topic: str, count: int) -> set[bytes]:
    """Create a topic, write to it and read it in a consumer group, with a client that is not minikafka's."""
    settings = {"bootstrap.servers": bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([ConfluentTopic(topic, 2, 3)])[topic].result(30)
    producer = Producer({**settings, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: set[bytes] = set()
    while len(found) < count and (message := consumer.poll(30)) is not None:
        found.add(message.value())
    consumer.close()
    return found


@pytest.mark.row("A3", "A4", "A6")
async def test_another_client_writes_and_reads_and_the_nodes_have_the_pages_texts(
    cluster: LocalCluster,
) -> None:
    found = await asyncio.to_thread(write_and_read, cluster.bootstrap, "confluent", 50)
    assert found == {b"%d" % number for number in range(50)}
    await cluster.wait_for_isr("confluent")
    partition = "topics/confluent/0"
    paths = [f"{partition}/{name}" for name in ("replicas", "leader", "ISR")]
    replicas, leader, isr, *rest = await nodes(cluster, *paths, "ids/1", "state/1")
    assert replicas is not None
    assert leader is not None
    assert isr is not None
    preferred = replicas.data.decode().split(",")[0]
    assert leader.data.decode() == f"{preferred};1"
    assert leader.stat.ephemeral_owner != 0
    ids, epoch = isr.data.decode().split(";")
    assert ({*ids.split(",")}, epoch, isr.stat.ephemeral_owner) == ({"1", "2", "3"}, "1", 0)
    assert [node is not None and node.stat.ephemeral_owner != 0 for node in rest] == [True, False]


@pytest.mark.row("C2", "C19", "E1")
async def test_no_acknowledged_record_is_lost_when_the_leader_is_killed(
    cluster: LocalCluster,
) -> None:
    await create(cluster, "killed", 1, 2, 3)
    assert await cluster.leader_of("killed", 0) == 1
    await produce(cluster, "killed", b"before")
    await cluster.kill(1)
    await produce(cluster, "killed", b"after")
    assert await consumed(cluster, "killed") == [b"before", b"after"]
    leader = await cluster.leader_of("killed", 0)
    assert leader in (2, 3)
    assert await text(cluster, "topics/killed/0/leader") == f"{leader};2"

    status, printed, health, why, trace = await asyncio.gather(
        shown(cluster, "status", "killed"),
        run(cluster, "status"),
        run(cluster, "cluster", "health"),
        run(cluster, "why", "killed-0"),
        run(cluster, "trace", "killed-0"),
    )
    assert (status["coordination"], status["controller"]) == ("leaders", None)
    assert [broker["backlog"] for broker in status["brokers"]] == [0, 0, 0]
    assert "controller  none: the leaders" in printed.out
    assert health.code == 1
    assert "broker 1 is down: it has no process" in health.out
    assert "controller answers" not in health.out
    assert "replica 1 is not in the ISR" in why.out
    assert f"broker {leader} elected itself the leader" in trace.out
    assert f"leader {leader} opened in epoch 2; clients could write again after" in trace.out

    await cluster.start(1)
    await cluster.wait_for_isr("killed")
    elected = await run(cluster, "elect", "--preferred", "killed-0")
    assert elected.code == 0, elected
    assert await cluster.leader_of("killed", 0) == 1
    assert await consumed(cluster, "killed") == [b"before", b"after"]
    assert (await run(cluster, "cluster", "health")).code == 0


@pytest.mark.row("A5", "C9", "C38")
async def test_node_that_another_client_writes_moves_a_partition(cluster: LocalCluster) -> None:
    await create(cluster, "moved", 1, 2)
    await produce(cluster, "moved", b"a")
    node = f"{ROOT}/partitions_reassigned/moved"
    async with zookeeper_session(cluster.zookeeper, SystemClock(), SystemRng()) as zookeeper:
        await zookeeper.ensure(node)
        await zookeeper.create(f"{node}/0", b"3,2")
        await until_absent(zookeeper, f"{node}/0")
    assert await text(cluster, "topics/moved/0/replicas") == "3,2"
    await cluster.wait_for_isr("moved", [2, 3])
    lines = (await run(cluster, "trace", "moved-0", "--lifecycle")).out
    sent = "start-replica for topic moved partition 0"
    assert f"leader, broker id 1, requested {sent}, to broker id 3, at epoch " in lines
    assert f"follower, broker id 3, received {sent}, from leader 1, at epoch " in lines
    assert f"follower, broker id 3, completed {sent}, request from leader 1, at epoch " in lines

    back = await run(
        cluster, "reassign", "moved-0", "--replicas", "1,2", "--via-zookeeper", "--timeout", "30"
    )
    assert back.code == 0, back
    assert await text(cluster, "topics/moved/0/replicas") == "1,2"
    assert await consumed(cluster, "moved") == [b"a"]


async def until_absent(zookeeper: ZooKeeper, path: str) -> None:
    async def is_absent() -> bool:
        return await zookeeper.exists(path) is None

    await eventually(is_absent)


@pytest.mark.row("C26")
async def test_brokers_are_added_and_removed_by_commands(cluster: LocalCluster) -> None:
    assert await shown(cluster, "brokers", "add", "7") == {"broker": 7, "result": "added"}
    assert await text(cluster, "state/7") == ""
    assert (await run(cluster, "brokers", "remove", "7")).code == 0
    assert await text(cluster, "state/7") is None
    refused = await run(cluster, "brokers", "remove", "1")
    assert (refused.code, "broker 1 is running" in refused.err) == (1, True)
    plan = await run(cluster, "plan", "kill-broker", "1")
    assert (plan.code, plan.err.count("\n")) == (1, 1)
    assert "minikafka.coordination=leaders has no plan" in plan.err


@pytest.mark.key("minikafka.coordination")
async def test_broker_and_directory_of_the_other_mode_are_refused_with_both_names(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    up = await run(cluster, "up", "--coordination", "controller")
    assert (up.code, up.err.count("\n")) == (1, 1)
    assert "has the coordination mode leaders, not controller" in up.err
    old = tmp_path / "old"
    old.mkdir()
    (old / checkpoints.META_PROPERTIES).write_text("version=0\nbroker.id=9\n")
    other = f"{cluster.zookeeper}/other"
    async with zookeeper_session(cluster.zookeeper, SystemClock(), SystemRng()) as zookeeper:
        await zookeeper.ensure("/other/minikafka")
        await zookeeper.create("/other/minikafka/coordination", b"controller")
    meta = cluster.directory.broker_data(1) / checkpoints.META_PROPERTIES
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    shutil.copy(meta, theirs)
    broker, directory = (
        "this broker has the mode",
        "belongs to a cluster with the coordination mode",
    )
    assert await asyncio.gather(
        refusal(tmp_path, "controller", 9, cluster.zookeeper, tmp_path / "new1"),
        refusal(tmp_path, "leaders", 9, other, tmp_path / "new2"),
        refusal(tmp_path, "controller", 1, other, theirs),
        refusal(tmp_path, "leaders", 9, cluster.zookeeper, old),
    ) == [
        f"{broker} controller, but its cluster in ZooKeeper has the mode leaders",
        f"{broker} leaders, but its cluster in ZooKeeper has the mode controller",
        f"{directory} leaders, but {broker} controller",
        f"{directory} controller, but {broker} leaders",
    ]


async def refusal(files: Path, mode: str, id_: int, zookeeper: str, log_dir: Path) -> str:
    """Run a broker that is refused; return the part of its error that names both modes."""
    file = files / f"{log_dir.name}.toml"
    lines = {
        "broker.id": id_,
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "log.dirs": str(log_dir),
        "zookeeper.connect": zookeeper,
        "minikafka.cluster.secret": "0123456789abcdef",
        "minikafka.coordination": mode,
    }
    text = "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in lines.items())
    file.write_text(f"[broker]\n{text}\n")
    ended = await call("broker", "--config", str(file))
    assert ended.code == 2, ended
    error = ended.err.splitlines()[-1]
    start = "belongs to" if "belongs to" in error else "this broker"
    return f"{start}{error.partition(start)[2]}".partition(";")[0].partition(":")[0]
