"""Broker processes in the leader-coordinated mode, with Apache ZooKeeper, SIGKILL, and kazoo as another client.

Nothing closes the session of a killed process: ZooKeeper deletes its nodes when the session has expired.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat
from support.clusters.running_cluster import eventually
from support.commands.commands import call
from support.rows import proof

from minikafka.base.coordination import LEADERS
from minikafka.broker.ledger.reader import Line, read_all
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

BROKERS = (1, 2, 3, 4)
ROOT = "/leaders/brokers"
QUEUE_MAX = 30
"""Requests at which the queue of a broker is full."""
KEYS = {
    "zookeeper.session.timeout.ms": 3_000,
    "replica.lag.time.max.ms": 10_000,
    "minikafka.leaders.election.wait.ms": 200,
    "minikafka.leaders.queue.max": QUEUE_MAX,
    "auto.leader.rebalance.enable": False,
    "log.segment.delete.delay.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 200,
}
WAIT_SECONDS = 60


class Stage:
    """The cluster, and what ZooKeeper, the disks and the ledgers show of it."""

    def __init__(self, cluster: LocalCluster, zookeeper: KazooClient) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper

    async def create(self, topic: str, *replicas: int) -> None:
        """Create a topic with partition 0 on these brokers, and wait until they are in sync."""
        async with Client(self.cluster.bootstrap) as client:
            await client.create_topics(NewTopic(topic, assignment={0: replicas}))
        await self.until(lambda: self.isr(topic)[0] == {*replicas})

    async def produce(self, topic: str, *values: bytes) -> None:
        async with Client(self.cluster.bootstrap) as client:
            await client.produce(topic, [Record(value=value) for value in values])

    async def consume(self, topic: str) -> list[bytes | None]:
        async with Client(self.cluster.bootstrap) as client:
            return [row.value async for row in client.consume(topic, until_end=True)]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - ZooKeeper and disks are polled
                await asyncio.sleep(0.02)

    def node(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        try:
            data, stat = self.zookeeper.get(f"{ROOT}/{path}")
        except NoNodeError:
            return None
        return bytes(data), stat

    def data(self, path: str) -> bytes | None:
        found = self.node(path)
        return None if found is None else found[0]

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.zookeeper.get_children(f"{ROOT}/{path}"))
        except NoNodeError:
            return []

    def leader(self, topic: str) -> tuple[int, int] | None:
        """Return the leader's id and epoch, None without a leader."""
        data = self.data(f"topics/{topic}/0/leader")
        if data is None:
            return None
        id_, epoch = data.split(b";")
        return int(id_), int(epoch)

    def isr(self, topic: str) -> tuple[set[int], int]:
        """Return the in-sync replicas and their epoch, an empty set without a node."""
        ids, _, epoch = (self.data(f"topics/{topic}/0/ISR") or b";-1").partition(b";")
        return {int(id_) for id_ in ids.split(b",") if id_}, int(epoch)

    def hosts(self, topic: str) -> set[int]:
        """Return the brokers with partition 0 of the topic on their disks."""
        directories = {id_: self.cluster.directory.broker_data(id_) for id_ in BROKERS}
        return {id_ for id_, data in directories.items() if (data / f"{topic}-0").is_dir()}

    def lines(self, topic: str) -> list[Line]:
        """Return the ledger lines about state changes of a topic, by all brokers."""
        ledgers = [self.cluster.directory.broker_ledger(id_) for id_ in BROKERS]
        found = read_all(ledgers)
        return [line for line in found if line.get("topic") == topic and "fact" in line]

    def texts(self, topic: str, fact: str) -> list[str]:
        return [line["text"] for line in self.lines(topic) if line["fact"] == fact]

    def send(self, broker: int, **fields: object) -> None:
        """Add a request to the queue of a broker."""
        text = json.dumps({"partition": 0, **fields}).encode()
        self.zookeeper.create(f"{ROOT}/state/{broker}/q-", text, sequence=True)

    def requests(self, broker: int) -> list[dict[str, Any]]:
        """Return the requests in the queue of a broker, in order."""
        names = self.children(f"state/{broker}")
        texts = [self.data(f"state/{broker}/{name}") for name in names]
        return [json.loads(text) for text in texts if text is not None]

    def watchers(self, topic: str) -> dict[str, int]:
        """Return the number of sessions that watch the data of each node of a topic, from ZooKeeper's `wchp`."""
        host, port = self.cluster.zookeeper.partition("/")[0].rsplit(":", 1)
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(b"wchp")
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
        found: dict[str, int] = {}
        path = ""
        for line in answer.splitlines():
            if not line.startswith("\t"):
                path = line
            elif f"/topics/{topic}/" in path:
                found[path] = found.get(path, 0) + 1
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("leaders")
    cluster = LocalCluster(len(BROKERS), data=data, config=KEYS, coordination=LEADERS)
    asyncio.run(cluster.start())
    zookeeper = KazooClient(cluster.zookeeper)
    try:
        zookeeper.start()
        yield Stage(cluster, zookeeper)
    finally:
        zookeeper.stop()
        zookeeper.close()
        asyncio.run(cluster.stop())


@pytest.fixture
async def stage(running: Stage) -> AsyncIterator[Stage]:
    proof.note(proof.Level.REAL, LEADERS)
    yield running
    await running.cluster.start()
    await running.until(lambda: len(running.children("ids")) == len(BROKERS))


@pytest.mark.row("A1", "A2", "A3", "A4", "B4", "C2", "C3", "C4", "C14", "C16", "C17", "C18", "C19")
@pytest.mark.row("C27", "C28", "C32", "C33", "C34", "M5", "N2", "N5", "T2", "X15", "X17", "X18")
async def test_killed_leader_is_replaced_when_its_session_expires_and_returns_as_a_follower(
    stage: Stage,
) -> None:
    await stage.create("deaths", 1, 2, 3)
    await stage.produce("deaths", b"a")
    assert stage.leader("deaths") == (1, 1)
    assert stage.data("topics/deaths/0/replicas") == b"1,2,3"
    for path in ("topics/deaths/0/leader", "ids/1"):
        found = stage.node(path)
        assert found is not None
        assert found[1].ephemeralOwner != 0
    file = stage.cluster.directory.broker_data(2) / "replication-offset-checkpoint"
    await stage.until(lambda: file.exists() and "deaths 0 1" in file.read_text().splitlines())
    await stage.cluster.kill(1)
    assert stage.leader("deaths") == (1, 1), "nothing has closed its session"
    await stage.produce("deaths", b"b")
    leader = stage.leader("deaths")
    assert leader is not None
    assert leader[0] in (2, 3)
    assert leader[1] == 2
    assert stage.data("ids/1") is None
    assert stage.isr("deaths") == ({2, 3}, 2)
    await stage.cluster.start(1)
    await stage.until(lambda: stage.isr("deaths")[0] == {1, 2, 3})
    assert stage.leader("deaths") == leader
    rows = [
        (id_, row["role"], row["log_end_offset"])
        for id_, answer in (await stage.cluster.state()).answers.items()
        for row in answer["replicas"]
        if row["topic"] == "deaths"
    ]
    assert sorted(rows) == [
        (id_, "leader" if id_ == leader[0] else "follower", 2) for id_ in (1, 2, 3)
    ]
    assert await stage.consume("deaths") == [b"a", b"b"]


@pytest.mark.row("A6", "A16", "C7", "C10", "C15", "C20", "C23", "C24", "C25", "C39")
async def test_topic_that_is_deleted_while_a_broker_is_down_can_be_created_again(
    stage: Stage,
) -> None:
    await stage.create("again", 1, 2, 4)
    await stage.produce("again", b"old")
    await stage.cluster.kill(4)
    await stage.until(lambda: stage.data("ids/4") is None)
    async with Client(stage.cluster.bootstrap) as client:
        await client.delete_topics("again")
    await stage.until(lambda: "again" not in stage.children("topics"))
    assert stage.hosts("again") == {4}
    kept = {(row["operation"], row["topic"]) for row in stage.requests(4)}
    assert kept == {("close-replica", "again")}

    async def only_the_queue_of_broker_4_has_requests() -> bool:
        status = await call("status", "--json", "--data", str(stage.cluster.directory.path))
        backlogs = [broker["backlog"] for broker in json.loads(status.out)["brokers"]]
        return backlogs == [0, 0, 0, len(stage.requests(4))]

    await eventually(only_the_queue_of_broker_4_has_requests)
    async with Client(stage.cluster.bootstrap) as client:
        await client.create_topics(NewTopic("again", assignment={0: (1, 2)}))
    await stage.produce("again", b"new")
    await stage.cluster.start(4)
    await stage.until(lambda: not stage.children("state/4"))
    await stage.until(lambda: stage.hosts("again") == {1, 2})
    assert await stage.consume("again") == [b"new"]


@pytest.mark.row("A5", "C9", "C11", "C15", "C30", "C31", "C38", "K14", "K15", "T6", "X11")
async def test_reassignment_through_its_node_moves_the_replicas_and_writes_the_six_lines(
    stage: Stage,
) -> None:
    await stage.create("moved", 1, 2)
    await stage.produce("moved", b"a")
    leader = stage.leader("moved")
    assert leader is not None
    stage.zookeeper.create(f"{ROOT}/partitions_reassigned/moved/0", b"3,4", makepath=True)
    await stage.until(lambda: stage.data("topics/moved/0/replicas") == b"3,4")
    assert stage.data("partitions_reassigned/moved/0") is None
    await stage.until(lambda: stage.hosts("moved") == {3, 4})
    await stage.until(lambda: stage.isr("moved")[0] == {3, 4})
    assert await stage.consume("moved") == [b"a"]
    began = leader[1] + 1  # the leader leads on with the new replicas in a higher epoch
    replica = "start-replica for topic moved partition 0"
    for id_ in (3, 4):
        assert (
            f"leader, broker id {leader[0]}, requested {replica}, to broker id {id_}, at epoch {began}"
            in stage.texts("moved", "requested")
        )
        assert (
            f"follower, broker id {id_}, received {replica}, from leader {leader[0]}, at epoch {began}"
            in stage.texts("moved", "received")
        )
        assert (
            f"follower, broker id {id_}, completed {replica}, request from leader {leader[0]}, "
            f"at epoch {began}" in stage.texts("moved", "completed")
        )


@pytest.mark.row("C5", "C6", "C8", "C41")
async def test_forged_and_stale_requests_are_refused_consumed_and_in_the_ledger(
    stage: Stage,
) -> None:
    await stage.create("forged", 1, 2)
    await stage.produce("forged", b"a")
    leader = stage.leader("forged")
    assert leader is not None
    follower = 3 - leader[0]
    id_ = (stage.data("topics/forged") or b"").decode()
    wrong = "A" * 22
    forged = [
        ("start-replica", id_, leader[1] - 1, leader[0]),
        ("start-replica", id_, leader[1], follower),
        ("start-replica", wrong, leader[1], leader[0]),
        ("close-replica", id_, 2**31 - 2, leader[0]),
        ("close-replica", wrong, leader[1], leader[0]),
    ]
    for operation, topic_id, epoch, sender in forged:
        stage.send(
            follower,
            operation=operation,
            topic="forged",
            topic_id=topic_id,
            epoch=epoch,
            sender=sender,
        )
    stage.send(
        3, operation="close-replica", topic="forged", topic_id=wrong, epoch=1, sender=leader[0]
    )
    stage.zookeeper.create(f"{ROOT}/state/{follower}/q-", b"no request", sequence=True)
    await stage.until(lambda: not stage.children(f"state/{follower}") + stage.children("state/3"))
    await stage.until(lambda: len(stage.texts("forged", "refused")) >= len(forged))
    assert stage.hosts("forged") == {1, 2}
    assert stage.leader("forged") == leader
    await stage.produce("forged", b"b")
    assert stage.isr("forged")[0] == {1, 2}
    assert await stage.consume("forged") == [b"a", b"b"]


@pytest.mark.row("C12", "C13", "C22")
async def test_full_queue_of_a_broker_that_is_down_keeps_the_closes_until_it_starts(
    stage: Stage,
) -> None:
    for topic in ("shrinks", "waits"):
        await stage.create(topic, 1, 4)
    await stage.cluster.kill(4)
    await stage.until(lambda: "4" not in stage.children("ids"))
    request = {"topic": "strange", "topic_id": "B" * 22, "sender": 1}
    for epoch in range(QUEUE_MAX):
        operation = "close-replica" if epoch % 2 else "start-replica"
        fields = {"operation": operation, "epoch": epoch, "partition": epoch // 10}
        stage.send(4, **request, **fields)
    async with Client(stage.cluster.bootstrap) as client:
        await client.delete_topics("shrinks")
        await stage.until(lambda: "shrinks" not in stage.children("topics"))
        kept = [(row["operation"], row["topic"], row["epoch"]) for row in stage.requests(4)]
        closes = [("close-replica", "strange", epoch) for epoch in (9, 19, 29)]
        assert kept[:4] == [*closes, ("rescan", "", -1)]
        assert {topic for _, topic, _ in kept[4:]} == {"shrinks"}
        for number in range(QUEUE_MAX):
            fields = {"operation": "close-replica", "epoch": 1, "partition": 100 + number}
            stage.send(4, **request, **fields)
    stage.zookeeper.create(f"{ROOT}/partitions_reassigned/waits/0", b"", makepath=True)
    logs = [stage.cluster.directory.logs / f"broker-{id_}.log" for id_ in (1, 2, 3)]
    full = "FollowerStateChangeQueueFull: the queue of broker 4"
    await stage.until(lambda: any(full in log.read_text() for log in logs))
    assert "waits" in stage.children("topics")
    await stage.cluster.start(4)
    await stage.until(lambda: "waits" not in stage.children("topics"))
    await stage.until(lambda: not stage.children("state/4"))
    await stage.until(lambda: not stage.hosts("waits") | stage.hosts("shrinks"))


@pytest.mark.row("C1", "C35", "C42")
async def test_leader_whose_session_expires_registers_again_and_follows(stage: Stage) -> None:
    """The leader is paused until its session has expired."""
    await stage.create("session", 1, 2, 3)
    await stage.create("lonely", 4)
    await stage.produce("session", b"a")
    leader, before = stage.leader("session"), stage.node("ids/1")
    other = stage.leader("lonely")
    assert leader is not None
    assert before is not None
    assert leader[0] == 1
    await stage.cluster.pause(1)
    await stage.until(lambda: stage.leader("session") not in (None, leader))
    await stage.produce("session", b"b")
    await stage.cluster.resume(1)
    await stage.until(lambda: stage.isr("session")[0] == {1, 2, 3})
    now, after = stage.leader("session"), stage.node("ids/1")
    assert now is not None
    assert now[1] > leader[1]
    assert after is not None
    assert after[1].ephemeralOwner not in (0, before[1].ephemeralOwner)
    assert stage.leader("lonely") == other, "no other partition has another epoch"
    assert await stage.consume("session") == [b"a", b"b"]


@pytest.mark.row("C36")
async def test_brokers_have_one_watch_on_data_per_partition_that_they_host(stage: Stage) -> None:
    """ZooKeeper does not count watches on children: one per queue, and those of leaders on reassignments."""
    numbers = range(20)
    async with Client(stage.cluster.bootstrap) as client:
        replicas = dict.fromkeys(numbers, (1, 2, 3))
        await client.create_topics(NewTopic("watched", assignment=replicas))
    expected = {f"{ROOT}/topics/watched/{number}/leader": 3 for number in numbers}
    await stage.until(lambda: stage.watchers("watched") == expected)
