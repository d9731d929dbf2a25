"""Code for all processes of the simulated cluster: addresses, ZooKeeper sessions, and the initial state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Create, MultiOp, Stat
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.zookeeper.client.client import ZooKeeperClient, parse_connect
from minikafka.zookeeper.nodes import layout

HOST: Final = "127.0.0.1"
SESSION_TIMEOUT_MS: Final = 18_000
"""Kafka's default ZooKeeper session timeout."""
PARTITIONS_PER_TOPIC: Final = 50
_OPERATIONS: Final = 200


class CountingZooKeeper(ZooKeeperClient):
    """A ZooKeeperClient that counts its multi requests. `address`: the address of the ZooKeeper server."""

    multis = 0
    address = (HOST, 0)

    async def multi(
        self, ops: Sequence[MultiOp], *, generation: int | None = None
    ) -> list[Stat | None]:
        """Count and send a multi request."""
        self.multis += 1
        return await super().multi(ops, generation=generation)


async def zookeeper_of(connect: str) -> CountingZooKeeper:
    """Return a new ZooKeeper session."""
    zookeeper = CountingZooKeeper(
        connect,
        SESSION_TIMEOUT_MS,
        SystemClock(),
        SystemRng(),
        TaskRegistry(),
        SocketTransport(),
    )
    await zookeeper.start()
    (zookeeper.address,), _ = parse_connect(connect)
    return zookeeper


async def fill(connect: str, partitions: int, replicas: int, brokers: Sequence[int]) -> None:
    """Create topics of fifty partitions in ZooKeeper, with balanced leaders and all replicas in sync."""
    zookeeper = await zookeeper_of(connect)
    for path in layout.PERSISTENT:
        await zookeeper.ensure(path)
    await zookeeper.ensure("/cluster")
    await zookeeper.create("/cluster/id", layout.encode_cluster_id("x" * 22))
    await zookeeper.create("/controller_epoch", b"0")
    operations = _operations(partitions, replicas, brokers)
    while batch := list(islice(operations, _OPERATIONS)):
        await zookeeper.multi(batch)
    await zookeeper.close()


def _operations(partitions: int, replicas: int, brokers: Sequence[int]) -> Iterator[MultiOp]:
    for start in range(0, partitions, PARTITIONS_PER_TOPIC):
        topic = f"topic-{start // PARTITIONS_PER_TOPIC}"
        numbers = range(min(PARTITIONS_PER_TOPIC, partitions - start))
        assignment = {
            number: tuple(brokers[(start + number + i) % len(brokers)] for i in range(replicas))
            for number in numbers
        }
        yield from _topic(topic, start, assignment)


def _topic(topic: str, unique: int, assignment: dict[int, tuple[int, ...]]) -> Iterator[MultiOp]:
    whole = {number: ReplicaAssignment(brokers) for number, brokers in assignment.items()}
    yield Create(layout.topic_config_path(topic), layout.encode_config({}))
    yield Create(
        layout.topic_path(topic), layout.encode_topic((unique + 1).to_bytes(16, "big"), whole)
    )
    yield Create(layout.partitions_path(topic), b"")
    for number, brokers in assignment.items():
        tp = TopicPartition(topic, number)
        yield Create(layout.partition_path(tp), b"")
        state = LeaderAndIsr(brokers[0], 0, brokers, 0, 0)
        yield Create(layout.state_path(tp), layout.encode_state(state))
