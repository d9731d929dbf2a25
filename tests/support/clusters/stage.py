"""A cluster for scenarios in which brokers are killed at named steps, with functions that inspect the cluster.

A scenario acts on a `Stage`: `RealStage` has real processes, `MemoryStage` in `memory_stage.py` has in-memory brokers.
Both can end the session of a killed broker at once, so that scenarios do not wait for a session timeout. Scenarios can
read ZooKeeper, the brokers' disks and a stream of records.
"""

from __future__ import annotations

import abc
import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from minikafka.base.errors import KafkaError
from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.zookeeper import SESSION_FILE
from minikafka.broker.rpc.messages import RELEASE_STEP, STEPS, encode_step, encode_steps
from minikafka.checks.delivery import History, verdict
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.processes import is_paused
from minikafka.zookeeper.client.client import close_session
from minikafka.zookeeper.nodes import layout

BROKERS = (1, 2, 3, 4)
KEYS = {
    "zookeeper.session.timeout.ms": 20_000,
    "replica.lag.time.max.ms": 10_000,
    "controlled.shutdown.max.retries": 40,
    "controlled.shutdown.retry.backoff.ms": 100,
    "auto.leader.rebalance.enable": False,
    "log.segment.delete.delay.ms": 100,
}
NO_KEYS: Mapping[str, object] = MappingProxyType({})
WAIT_SECONDS = 60
CALL_MS = 30_000
POLL_SECONDS = 0.02


class Stage(abc.ABC):
    """A cluster of the brokers `BROKERS`: actions for scenarios, and functions that inspect the cluster."""

    poll_seconds = POLL_SECONDS
    """Pause in seconds between two checks of a condition, and between two records of a stream."""

    @abc.abstractmethod
    def client(self) -> Client:
        """Return a client of the cluster."""

    @abc.abstractmethod
    async def hold(self, step: str, brokers: Sequence[int] | None = None) -> None:
        """Make brokers block when they reach the named step: all running brokers, or only `brokers`."""

    @abc.abstractmethod
    async def held(self, step: str) -> int:
        """Wait until a broker blocks at the named step; return the id of this broker."""

    @abc.abstractmethod
    async def release(self, step: str, brokers: Sequence[int] | None = None) -> None:
        """Let brokers that block at the step continue, and no longer hold brokers there."""

    @abc.abstractmethod
    async def kill(self, broker: int) -> None:
        """Kill the broker as by SIGKILL; unless the stage leaves sessions alone, end its ZooKeeper session at once."""

    @abc.abstractmethod
    async def stop(self, broker: int) -> None:
        """Shut the broker down in a controlled way; return when it has ended, even if it is killed meanwhile."""

    @abc.abstractmethod
    async def start(self, broker: int | None = None) -> None:
        """Start the broker; without an id, start all brokers that do not run."""

    @abc.abstractmethod
    def is_running(self, broker: int) -> bool:
        """True if the broker's process runs and is not paused."""

    @abc.abstractmethod
    async def write(self, path: str, data: bytes) -> None:
        """Create a znode, as an administrator's tool does."""

    @abc.abstractmethod
    def node(self, path: str) -> tuple[bytes, int] | None:
        """Return data and version of a znode, None if there is none."""

    @abc.abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the sorted names of a znode's children, none if there is no such znode."""

    @abc.abstractmethod
    def directories(self, broker: int, topic: str = "") -> list[str]:
        """Return the broker's replica directories of the topic ("": all topics), including deletions in progress."""

    async def create(self, topic: str, assignment: dict[int, Sequence[int]]) -> None:
        """Create a topic and wait until every replica is in sync."""
        async with self.client() as client:
            await client.create_topics(NewTopic(topic, assignment=assignment))
        await self.eventually(lambda: self._all_in_sync(topic, assignment))

    def _all_in_sync(self, topic: str, assignment: dict[int, Sequence[int]]) -> bool:
        states = {n: self.leadership(TopicPartition(topic, n)) for n in assignment}
        return all(
            state is not None and set(state.isr) == set(assignment[n])
            for n, state in states.items()
        )

    async def eventually(
        self, condition: Callable[[], object], missing: Callable[[], object] = str
    ) -> None:
        """Poll until the condition is true. Raises AssertionError with the text that `missing` returns."""
        await eventually(condition, missing, self.poll_seconds)

    # State in ZooKeeper.

    def read(self, path: str) -> bytes | None:
        """Return the data of a znode, None if there is none."""
        found = self.node(path)
        return None if found is None else found[0]

    def controller(self) -> int | None:
        """Return the id of the controller, None if there is none."""
        data = self.read(layout.CONTROLLER)
        return None if data is None else layout.decode_controller(data)

    def controller_epoch(self) -> int:
        """Return the epoch of the last elected controller."""
        return int(self.read(layout.CONTROLLER_EPOCH) or b"0")

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment | None:
        """Return the partition's replica assignment, None if the partition does not exist."""
        data = self.read(layout.topic_path(tp.topic))
        return None if data is None else layout.decode_topic(data)[1].get(tp.partition)

    def leadership(self, tp: TopicPartition) -> LeaderAndIsr | None:
        """Return leader, leader epoch and ISR of the partition, None if no leader was ever elected."""
        found = self.node(layout.state_path(tp))
        return None if found is None else layout.decode_state(*found)

    def tree(self) -> dict[str, tuple[bytes, int]]:
        """Return (data, version) of each znode that controllers can write, by the path of the znode."""
        found: dict[str, tuple[bytes, int]] = {}
        for root in ("/controller", "/controller_epoch", "/brokers/topics", "/admin", "/config"):
            self._walk(root, found)
        return found

    def _walk(self, path: str, found: dict[str, tuple[bytes, int]]) -> None:
        node = self.node(path)
        if node is not None:
            found[path] = node
            for child in self.children(path):
                self._walk(f"{path}/{child}", found)

    # Clients.

    @asynccontextmanager
    async def stream(self, topic: str, partitions: int) -> AsyncIterator[Stream]:
        """Write records to every partition of the topic during the block."""
        async with self.client() as client:
            stream = Stream(client, topic, partitions, self.poll_seconds)
            await stream.write_everywhere()
            stream.start()
            try:
                yield stream
            finally:
                await stream.stop()


class RealStage(Stage):
    """A stage whose brokers are real processes. ZooKeeper is read by an independent client (kazoo)."""

    def __init__(
        self,
        cluster: LocalCluster,
        zookeeper: KazooClient,
        request_timeout_ms: int,
        *,
        ends_sessions: bool,
    ) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.request_timeout_ms = request_timeout_ms
        self.ends_sessions = ends_sessions

    def client(self) -> Client:
        return Client(self.cluster.bootstrap, request_timeout_ms=self.request_timeout_ms)

    async def hold(self, step: str, brokers: Sequence[int] | None = None) -> None:
        await self.cluster.hold(step, brokers)

    async def held(self, step: str) -> int:
        return await self.cluster.held(step)

    async def release(self, step: str, brokers: Sequence[int] | None = None) -> None:
        await self.cluster.release(step, brokers)

    async def kill(self, broker: int) -> None:
        await self.cluster.kill(broker)
        if self.ends_sessions:
            await self.end_session(broker)

    async def stop(self, broker: int) -> None:
        await self.cluster.stop(broker)

    async def start(self, broker: int | None = None) -> None:
        await self.cluster.start(broker)

    def is_running(self, broker: int) -> bool:
        process = self.cluster.process(broker)
        return process is not None and not is_paused(process)

    async def end_session(self, broker: int) -> None:
        """End the session of a broker, with the same effect as an expiry: its ephemeral nodes are deleted."""
        file = self.cluster.directory.broker_data(broker) / SESSION_FILE
        session = json.loads(file.read_bytes())
        password = bytes.fromhex(session["password"])
        await close_session(
            self.cluster.zookeeper, int(session["id"]), password, SystemClock(), SocketTransport()
        )

    async def create(self, topic: str, assignment: dict[int, Sequence[int]]) -> None:
        await super().create(topic, assignment)
        await self.cluster.wait_for_isr(topic)

    async def heal(self) -> None:
        """Resume and start every broker, release every step, delete every topic."""
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
        """Stop holding brokers at any step, and let the held brokers continue."""
        asked = encode_steps("reassignment.A1", 0)
        for broker, answer in (await self.cluster.ask(STEPS, asked, CALL_MS)).items():
            for step in () if isinstance(answer, Exception) else answer["held"]:
                await self.cluster.ask(RELEASE_STEP, encode_step(step), CALL_MS, [broker])

    async def write(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(self.zookeeper.create, path, data)

    def node(self, path: str) -> tuple[bytes, int] | None:
        try:
            data, stat = self.zookeeper.get(path)
        except NoNodeError:
            return None
        return bytes(data), stat.version

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.zookeeper.get_children(path))
        except NoNodeError:
            return []

    def directories(self, broker: int, topic: str = "") -> list[str]:
        data = self.cluster.directory.broker_data(broker)
        return sorted(path.name for path in data.glob(f"{topic}*-*") if path.is_dir())

    def unread(self, broker: int) -> int:
        """Return the sum of unread bytes and unaccepted connections at the broker's control port."""
        local = f"0100007F:{self.cluster.record.broker(broker).control_port:04X}"
        rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
        return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1] == local)


class Stream:
    """One producer. If sending a record fails, its outcome is recorded as unknown, and the next record is sent."""

    def __init__(
        self, client: Client, topic: str, partitions: int, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.poll_seconds = poll_seconds
        self.client = client
        self.topic = topic
        self.partitions = partitions
        self.history = History()
        self.is_over = False
        self.writers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start one writer per partition, which sends its records one after the other."""
        self.writers = [asyncio.create_task(self.write(n)) for n in range(self.partitions)]

    async def stop(self) -> None:
        """Stop writing, and wait for the outcome of the records in flight."""
        self.is_over = True
        await asyncio.gather(*self.writers)

    async def write(self, partition: int) -> None:
        while not self.is_over:
            await self._send(partition)
            await asyncio.sleep(self.poll_seconds)

    async def _send(self, partition: int) -> bool:
        value = b"%d" % len(self.history)
        ticket = self.history.sent(value)
        try:
            (placed,) = await self.client.produce(
                self.topic, [Record(value=value)], partition=partition
            )
        except (KafkaError, OSError):
            return False
        self.history.acked(ticket, placed.partition, placed.offset)
        return True

    async def write_everywhere(self) -> None:
        """Write one record to every partition, retrying until it is acknowledged."""
        for partition in range(self.partitions):
            while not await self._send(partition):
                pass

    async def check(self) -> None:
        """Stop writing, add a last record to every partition, and check that all acknowledged records can be read."""
        await self.stop()
        await self.write_everywhere()
        reading: dict[int, list[tuple[int, Any]]] = {n: [] for n in range(self.partitions)}
        async for row in self.client.consume(self.topic, until_end=True):
            reading[row.partition].append((row.offset, row.value))
        result = verdict([self.history], reading)
        assert result.ok, result
        assert result.acked >= 2 * self.partitions


async def eventually(
    condition: Callable[[], object],
    missing: Callable[[], object] = str,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Poll until the condition is true. Raises AssertionError with the text that `missing` returns."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(poll_seconds)
    except TimeoutError:
        raise AssertionError(f"timed out; still missing: {missing()}") from None


def running_stage(
    data: Path,
    request_timeout_ms: int = 30_000,
    *,
    ends_sessions: bool = True,
    config: Mapping[str, object] = NO_KEYS,
) -> Iterator[RealStage]:
    """Yield a stage on a cluster of four brokers, for use in a fixture; stop the cluster afterwards.

    Clients wait at most `request_timeout_ms` for a response of a paused broker. `ends_sessions`: end the session of a
    killed broker at once. Otherwise its death has no effect but those of SIGKILL. `config`: keys in addition to `KEYS`.
    """
    cluster = LocalCluster(len(BROKERS), data=data, config={**KEYS, **config})
    asyncio.run(cluster.start())
    zookeeper = KazooClient(cluster.zookeeper)
    try:
        zookeeper.start()
        yield RealStage(cluster, zookeeper, request_timeout_ms, ends_sessions=ends_sessions)
    finally:
        zookeeper.stop()
        zookeeper.close()
        asyncio.run(cluster.stop())
