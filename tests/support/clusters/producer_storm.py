"""An idempotent producer that writes while in-memory brokers are killed, stopped and paused and leaders are elected.

    run_storm(seed, Librdkafka)

The seed decides the faults and the schedule. For two seeds of three, controller requests are slow, as on a busy
machine, so that replaced leaders continue to serve for a while. At the end, every record must be in the log once and
in order, and all brokers must agree on leader and ISR.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from support.clients.idempotent_producers import TOPIC, IdempotentProducer
from support.ledger.invariants import violations
from support.storage.logs import read_all

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import records
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import SeededLoop, run_seeded
from minikafka.storage.replication.partition import Partition

TP = TopicPartition(TOPIC, 0)
BROKERS = (1, 2, 3)
KEYS = {
    "zookeeper.session.timeout.ms": 4_000,
    "replica.lag.time.max.ms": 400,
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 50,
    "min.insync.replicas": 2,
    "auto.leader.rebalance.enable": False,
    "controlled.shutdown.max.retries": 3,
    "controlled.shutdown.retry.backoff.ms": 100,
}
FAULTS = ("kill", "kill", "stop", "stop", "pause", "expire", "replace", "elect", "heal", "heal")
RECORDS = 600
ROUNDS = 14
GAPS_SECONDS = (0.01, 0.05, 0.1, 0.3, 0.6)
WAIT_SECONDS = 120
"""Maximum virtual time in seconds from the last fault to the end of the producer."""
AGREE_SECONDS = 5
Producing = Callable[[MemoryCluster, int, int], IdempotentProducer]


class Storm:
    """A cluster, and the random faults that a seed injects into its brokers."""

    faults: tuple[str, ...] = FAULTS
    agree_seconds: int = AGREE_SECONDS
    """Virtual seconds from the last record until all brokers agree."""

    def __init__(self, cluster: MemoryCluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.paused: set[int] = set()
        self.down: set[int] = set()

    @property
    def loop(self) -> SeededLoop:
        """The running event loop."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        return loop

    def leaders(self) -> list[int]:
        """Return the partition's leader in the metadata of each running broker that knows a leader."""
        views = [broker.metadata.topics[TOPIC] for broker in self.running() if self._knows(broker)]
        return [view[0].leader for view in views if view[0].leader in BROKERS]

    def running(self) -> list[Any]:
        """Return the brokers that are neither paused nor down."""
        return [broker for id_, broker in self.cluster.brokers.items() if id_ not in self.paused]

    @staticmethod
    def _knows(broker: Any) -> bool:
        return TOPIC in broker.metadata.topics

    async def blow(self) -> None:
        """Inject one random fault into one broker, usually the leader, or heal all brokers.

        A fault is skipped while another broker is paused or down. A controlled shutdown ("stop") is
        skipped only while another broker is down.
        """
        what = self.chance.choice(self.faults)
        leaders = self.leaders() or list(BROKERS)
        broker = leaders[0] if self.chance.random() < 0.6 else self.chance.choice(BROKERS)
        if what == "heal" or broker in self.paused | self.down:
            await self.heal()
        elif not self.paused | self.down or (what == "stop" and not self.down):
            await getattr(self, what)(broker)

    async def heal(self) -> None:
        """Resume and start every broker."""
        for broker in sorted(self.paused):
            self.resume(broker)
        for broker in sorted(self.down):
            await self.cluster.start(broker)
        self.down.clear()

    def freeze(self, broker: int) -> None:
        """Pause the broker's process, as SIGSTOP does."""
        self.paused.add(broker)
        self.cluster.pause(broker)

    def resume(self, broker: int) -> None:
        """Resume the broker's process, as SIGCONT does."""
        self.paused.discard(broker)
        self.cluster.resume(broker)

    async def kill(self, broker: int) -> None:
        """Kill the broker, as SIGKILL does, and end its session a moment later."""
        session = self.cluster.sessions[broker].session_id
        self.cluster.kill(broker)
        self.down.add(broker)
        await asyncio.sleep(self.chance.choice((0, 0.05, 0.3)))
        self.cluster.ensemble.end_session(session)

    async def stop(self, broker: int) -> None:
        """Resume all brokers, and shut this broker down in a controlled way."""
        for other in sorted(self.paused):
            self.resume(other)
        self.down.add(broker)
        await self.cluster.stop(broker)

    async def pause(self, broker: int) -> None:
        """Pause the broker's process until `resume`. In 70 % of all cases, end the broker's session a moment later."""
        self.freeze(broker)
        await asyncio.sleep(self.chance.choice((0.01, 0.1, 0.5)))
        if self.chance.random() < 0.7:
            await self.expire(broker)

    async def expire(self, broker: int) -> None:
        """End the ZooKeeper session of the broker, without ending the broker."""
        self.cluster.end_session(broker)

    async def replace(self, broker: int) -> None:
        """Pause the broker until another broker leads; then resume the paused broker and kill the new leader."""
        await self.pause(broker)
        await self.expire(broker)
        for _ in range(60):
            await asyncio.sleep(0.02)
            others = [leader for leader in self.leaders() if leader != broker]
            if others:
                await asyncio.sleep(self.chance.choice((0.05, 0.2)))
                self.resume(broker)
                await self.kill(others[0])
                return

    async def elect(self, broker: int) -> None:
        """Request a preferred leader election."""
        with suppress(OSError, KafkaError):
            async with self.cluster.client() as client, asyncio.timeout(5):
                await client.admin.elect_leaders([TP])

    def partitions(self) -> dict[int, Partition | None]:
        """Return every broker's replica of the partition, by broker id."""
        brokers = self.cluster.brokers.items()
        return {id_: broker.replicas.partitions.get(TP) for id_, broker in brokers}

    def disagreement(self) -> str:
        """Return how a broker's view differs from the leader's, "" if all agree and all replicas are in the ISR."""
        replicas = self.partitions()
        for broker in self.cluster.brokers.values():
            view = broker.metadata.topics[TOPIC][0]
            leader = replicas.get(view.leader)
            if sorted(broker.metadata.brokers) != list(BROKERS) or len(view.isr) < len(BROKERS):
                return f"broker {broker.config.broker_id}: {view} {sorted(broker.metadata.brokers)}"
            if leader is None or not leader.is_leader or leader.leader_epoch != view.leader_epoch:
                return f"broker {broker.config.broker_id}: {view}, but {replicas}"
            if leader.high_watermark != leader.log.log_end_offset:
                return f"the high watermark stays behind: {leader}"
        return ""

    async def settled(self) -> Partition:
        """Wait until all brokers agree on the leader and all replicas are in the ISR; return the leader's replica."""
        for _ in range(self.agree_seconds * 10):
            if not self.disagreement():
                break
            await asyncio.sleep(0.1)
        assert self.disagreement() == ""
        (leader,) = (
            replica for replica in self.partitions().values() if replica and replica.is_leader
        )
        return leader


def run_storm(seed: int, producing: Producing, kind: type[Storm] = Storm) -> None:
    """Run a producer while faults are injected, and check that the log has every record once and in order.

    `kind`: the storm, which decides the faults. The ledgers must show no violation of the invariants.
    """

    async def run() -> None:
        cluster = MemoryCluster(ids=range(BROKERS[0], BROKERS[-1] + 1), **KEYS)
        for broker in BROKERS:
            await cluster.start(broker)
        async with cluster.client() as client:
            await client.create_topics(NewTopic(TOPIC, 1, len(BROKERS)))
        storm = kind(cluster, seed)
        if seed % 3:
            cluster.control_delay = lambda: storm.chance.choice((0, 0, 0.005, 0.05, 0.3))
        producer = producing(cluster, seed, RECORDS)
        writing = asyncio.get_running_loop().create_task(producer.run())
        for _ in range(ROUNDS):
            await asyncio.sleep(storm.chance.choice(GAPS_SECONDS))
            await storm.blow()
        await storm.heal()
        async with asyncio.timeout(WAIT_SECONDS):
            await writing
        leader = await storm.settled()
        values = [int(record.value or b"") for record in records(read_all(leader.log))]
        assert values == list(range(RECORDS))
        for broker in tuple(cluster.brokers):
            await cluster.stop(broker, controlled=False)
        assert cluster.crashes == []
        assert violations(cluster.history()) == []

    run_seeded(seed, run())
