"""A real cluster on which brokers are killed at named steps, and what can be seen of it from outside.

`Stage` kills so that what follows need not wait for a session to expire: it ends the session of the dead
as the expiry would. It reads ZooKeeper by an independent client, the brokers' disks, and what a stream
of records came to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from minikafka.base.errors import KafkaError
from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.broker.broker import SESSION_FILE
from minikafka.client import Client, NewTopic
from minikafka.cluster import LocalCluster
from minikafka.cluster.processes import is_paused
from minikafka.history import History, verdict
from minikafka.record.batch import Record
from minikafka.rpc.messages import RELEASE_STEP, STEPS, encode_step, encode_steps
from minikafka.runtime.clock import SystemClock
from minikafka.zk import layout
from minikafka.zk.coordination import close_session

BROKERS = (1, 2, 3, 4)
KEYS = {
    "zookeeper.session.timeout.ms": 4_000,
    "replica.lag.time.max.ms": 10_000,
    "controlled.shutdown.max.retries": 40,
    "controlled.shutdown.retry.backoff.ms": 100,
    "auto.leader.rebalance.enable": False,
    "log.segment.delete.delay.ms": 100,
}
WAIT_SECONDS = 60
POLL_SECONDS = 0.02


class Stage:
    """The cluster, an independent ZooKeeper client, and what is asked of both."""

    def __init__(
        self, cluster: LocalCluster, zookeeper: KazooClient, request_timeout_ms: int
    ) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.request_timeout_ms = request_timeout_ms

    def client(self) -> Client:
        return Client(self.cluster.bootstrap, request_timeout_ms=self.request_timeout_ms)

    # What is done.

    async def kill(self, broker: int) -> None:
        """SIGKILL; its session ends at once, not only when it expires."""
        await self.cluster.kill(broker)
        await self.end_session(broker)

    def is_running(self, broker: int) -> bool:
        """Started, and not stopped by a signal."""
        process = self.cluster.process(broker)
        return process is not None and not is_paused(process)

    async def end_session(self, broker: int) -> None:
        """What ZooKeeper does when it expires: the broker's ephemeral nodes go."""
        file = self.cluster.directory.broker_data(broker) / SESSION_FILE
        session = json.loads(file.read_bytes())
        password = bytes.fromhex(session["password"])
        await close_session(self.cluster.zookeeper, int(session["id"]), password, SystemClock())

    async def create(self, topic: str, assignment: dict[int, Sequence[int]]) -> None:
        """A topic that every replica of it is in sync with."""
        async with self.client() as client:
            await client.create_topics(NewTopic(topic, assignment=assignment))
        await self.cluster.wait_for_isr(topic)

    async def heal(self) -> None:
        """Everything runs, nothing is held, no topic is left."""
        for broker in BROKERS:
            process = self.cluster.process(broker)
            if process is not None and is_paused(process):
                await self.cluster.resume(broker)
        await self.open_gates()
        await self.cluster.start()
        topics = self.children(layout.TOPICS)
        if topics:
            async with self.client() as client:
                await client.admin.delete_topics(topics)
        await eventually(lambda: not self.children(layout.TOPICS), self.tree)

    async def open_gates(self) -> None:
        """Release whatever is held anywhere."""
        asked = encode_steps("reassignment.A1", 0)
        for broker, answer in (await self.cluster.ask(STEPS, asked)).items():
            for step in () if isinstance(answer, Exception) else answer["held"]:
                await self.cluster.ask(RELEASE_STEP, encode_step(step), brokers=[broker])

    # What ZooKeeper says.

    def read(self, path: str) -> bytes | None:
        """The data of a node, None when it is not there."""
        try:
            return bytes(self.zookeeper.get(path)[0])
        except NoNodeError:
            return None

    def children(self, path: str) -> list[str]:
        return sorted(self.zookeeper.get_children(path))

    def controller(self) -> int | None:
        data = self.read(layout.CONTROLLER)
        return None if data is None else layout.decode_controller(data)

    def controller_epoch(self) -> int:
        return int(self.read(layout.CONTROLLER_EPOCH) or b"0")

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment | None:
        data = self.read(layout.topic_path(tp.topic))
        return None if data is None else layout.decode_topic(data)[1].get(tp.partition)

    def leadership(self, tp: TopicPartition) -> LeaderAndIsr | None:
        path = layout.state_path(tp)
        try:
            data, stat = self.zookeeper.get(path)
        except NoNodeError:
            return None
        return layout.decode_state(data, stat.version)

    def tree(self) -> dict[str, tuple[bytes, int]]:
        """Every node that a controller may write, with data and version."""
        found: dict[str, tuple[bytes, int]] = {}
        for root in ("/controller", "/controller_epoch", "/brokers/topics", "/admin", "/config"):
            self._walk(root, found)
        return found

    def _walk(self, path: str, found: dict[str, tuple[bytes, int]]) -> None:
        with suppress(NoNodeError):
            data, stat = self.zookeeper.get(path)
            found[path] = (bytes(data), stat.version)
            for child in self.zookeeper.get_children(path):
                self._walk(f"{path}/{child}", found)

    # What the disks say.

    def directories(self, broker: int, topic: str = "") -> list[str]:
        """The broker's replica directories of the topic ("": of all), those being deleted included."""
        data = self.cluster.directory.broker_data(broker)
        return sorted(path.name for path in data.glob(f"{topic}*-*") if path.is_dir())

    # What the kernel says.

    def unread(self, broker: int) -> int:
        """Bytes and connections that wait for the broker at its control port."""
        local = f"0100007F:{self.cluster.record.broker(broker).control_port:04X}"
        rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
        return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1] == local)

    # What clients say.

    @asynccontextmanager
    async def stream(self, topic: str, partitions: int) -> AsyncIterator[Stream]:
        """Records are written to every partition meanwhile."""
        async with self.client() as client:
            stream = Stream(client, topic, partitions)
            await stream.write_everywhere()
            stream.start()
            try:
                yield stream
            finally:
                await stream.stop()


class Stream:
    """One producer; a record that could not be delivered has an unknown outcome, and the next one follows."""

    def __init__(self, client: Client, topic: str, partitions: int) -> None:
        self.client = client
        self.topic = topic
        self.partitions = partitions
        self.history = History()
        self.is_over = False
        self.writers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Write to every partition, one record after the other."""
        self.writers = [asyncio.create_task(self.write(n)) for n in range(self.partitions)]

    async def stop(self) -> None:
        """Until what is under way has its outcome."""
        self.is_over = True
        await asyncio.gather(*self.writers)

    async def write(self, partition: int) -> None:
        while not self.is_over:
            await self._send(partition)
            await asyncio.sleep(POLL_SECONDS)

    async def _send(self, partition: int) -> bool:
        value = b"%d" % len(self.history)
        ticket = self.history.sent(value)
        try:
            (placed,) = await self.client.produce(
                self.topic, [Record(-1, -1, None, value)], partition=partition
            )
        except (KafkaError, OSError):
            return False
        self.history.acked(ticket, placed.partition, placed.offset)
        return True

    async def write_everywhere(self) -> None:
        """Every partition takes a record now."""
        for partition in range(self.partitions):
            while not await self._send(partition):
                pass

    async def check(self) -> None:
        """Every partition can be written to, and everything acknowledged is there, in order; ends the stream."""
        await self.stop()
        await self.write_everywhere()
        reading: dict[int, list[tuple[int, Any]]] = {n: [] for n in range(self.partitions)}
        async for row in self.client.consume(self.topic, until_end=True):
            reading[row.partition].append((row.offset, row.value))
        result = verdict([self.history], reading)
        assert result.ok, result
        assert result.acked >= 2 * self.partitions


async def eventually(condition: Callable[[], object], what: Callable[[], object] = str) -> None:
    """Until it holds; what is asked is other processes, which announce nothing."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"it never came to that: {what()}") from None


def running_stage(data: Path, request_timeout_ms: int = 30_000) -> Iterator[Stage]:
    """For a fixture: a cluster of four with a ZooKeeper client, ended afterwards.

    Clients wait `request_timeout_ms` for an answer of a broker that is stopped by a signal.
    """
    cluster = LocalCluster(len(BROKERS), data=data, config=KEYS)
    asyncio.run(cluster.start())
    zookeeper = KazooClient(cluster.zookeeper)
    try:
        zookeeper.start()
        yield Stage(cluster, zookeeper, request_timeout_ms)
    finally:
        zookeeper.stop()
        zookeeper.close()
        asyncio.run(cluster.stop())
