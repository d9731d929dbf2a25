"""The order in which role changes are reported to a listener, and a listener that keeps values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from support.brokers.hosted import T0, T1, Hosted
from support.brokers.hosted import state as hosted_state

from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.base.model import PartitionState, TopicPartition
from minikafka.broker.broker import BrokerServer
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import CorruptBatch, Record, build, records
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

REGISTRY = TopicPartition("registry", 0)
VALUES = {b"%d" % number: b"x" * number for number in range(50)}


class Recorder:
    """A role listener that records the reports that it receives."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, TopicPartition, int]] = []

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("leader", tp, leader_epoch))

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("follower", tp, leader_epoch))

    def stopped(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("stopped", tp, leader_epoch))


class Failing(Recorder):
    """A role listener that raises an exception when a partition becomes leader."""

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        raise KeyError("a defect")


class Listening(Hosted):
    """A broker with a recorder among its role listeners."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.recorder = Recorder()
        self.replicas.roles.add(self.recorder)

    @property
    def heard(self) -> list[tuple[str, TopicPartition, int]]:
        """Return the reports since `heard` was last read."""
        heard, self.recorder.heard = self.recorder.heard, []
        return heard


@pytest.fixture
async def hosted() -> AsyncIterator[Listening]:
    async with MemoryCluster(1) as cluster:
        yield Listening(cluster)


def state(tp: TopicPartition, leader: int, epoch: int) -> PartitionState:
    return hosted_state(tp, leader, epoch, (0, 9))


async def test_role_changes_are_reported_in_order_with_their_leader_epochs(
    hosted: Listening,
) -> None:
    await hosted.tell(state(T0, 0, 1), state(T1, 9, 4))
    await hosted.tell(state(T0, 0, 2))
    await hosted.tell(state(T1, 0, 5), state(T0, 9, 3))
    await hosted.tell(state(T0, -1, 4))
    assert hosted.heard == [
        ("leader", T0, 1),
        ("follower", T1, 4),
        ("leader", T0, 2),
        ("leader", T1, 5),
        ("follower", T0, 3),
        ("follower", T0, 4),
    ]


async def test_refused_role_changes_are_not_reported(hosted: Listening) -> None:
    await hosted.tell(state(T0, 0, 2))
    await hosted.tell(state(T0, 9, 2))
    await hosted.tell(state(T0, 9, 1))
    await hosted.stop(T0, 1, delete=True)
    assert hosted.heard == [("leader", T0, 2)]


async def test_replica_that_is_stopped_and_then_deleted_is_reported_as_stopped_once(
    hosted: Listening,
) -> None:
    await hosted.tell(state(T0, 0, 1))
    await hosted.stop(T0, 1, delete=False)
    await hosted.stop(T0, 1, delete=True)
    await hosted.tell(state(T0, 0, 1))
    assert hosted.heard == [("leader", T0, 1), ("stopped", T0, 1), ("leader", T0, 1)]


async def test_replica_of_a_recreated_topic_is_stopped_before_the_new_replica_leads(
    hosted: Listening,
) -> None:
    await hosted.tell(state(T0, 0, 7), topic_id=b"0123456789abcdef")
    await hosted.tell(state(T0, 0, 0), topic_id=b"another-topic-id")
    assert hosted.heard == [("leader", T0, 7), ("stopped", T0, 7), ("leader", T0, 0)]


async def test_offline_directory_stops_every_partition_in_it(hosted: Listening) -> None:
    await hosted.tell(state(T0, 0, 1), state(T1, 9, 2))
    log = hosted.replicas.partitions[T0].log
    failure = StorageFailed(log.directory, OSError("no space"))
    partition = hosted.replicas.partitions[T0]
    for _ in range(2):
        hosted.replicas.purgatory.storage_failed(partition, failure)
    assert hosted.heard[2:] == [("stopped", T0, 1), ("stopped", T1, 2)]


async def test_shutdown_stops_every_partition(hosted: Listening) -> None:
    await hosted.tell(state(T0, 0, 1), state(T1, 9, 2))
    await hosted.cluster.stop(0, controlled=False)
    assert hosted.heard[2:] == [("stopped", T0, 1), ("stopped", T1, 2)]


async def test_leader_accepts_appends_when_its_role_is_reported(hosted: Listening) -> None:
    leads: list[bool] = []

    class Looking(Recorder):
        def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
            leads.append(hosted.replicas.error_for(tp) == 0)

    hosted.replicas.roles.add(Looking())
    await hosted.tell(state(T0, 0, 1))
    assert leads == [True]


async def test_exception_in_a_role_listener_stops_neither_request_nor_other_listeners(
    hosted: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    async with MemoryCluster(1) as cluster:
        cluster.brokers[0].replicas.roles.add(Failing())
        second = Listening(cluster)
        await second.tell(state(T0, 0, 1), state(T1, 0, 1))
        assert second.heard == [("leader", T0, 1), ("leader", T1, 1)]
    assert "Failing failed" in caplog.text


async def test_role_listener_cannot_be_added_after_the_first_reported_role_change(
    hosted: Listening,
) -> None:
    await hosted.tell(state(T0, 0, 1))
    with pytest.raises(AssertionError):
        hosted.replicas.roles.add(Recorder())


class Registry:
    """A RoleListener that keeps the last value of every key of one partition in memory."""

    def __init__(self, broker: BrokerServer, tp: TopicPartition) -> None:
        self.broker, self.tp = broker, tp
        self.values: dict[bytes, bytes] | None = None  # None: not leader, or still loading
        broker.replicas.roles.add(self)

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        if tp == self.tp and self.values is None:
            self.broker.tasks.spawn(self.load(), "registry-load")

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        if tp == self.tp:
            self.values = None

    stopped = became_follower

    async def load(self) -> None:
        values = {}
        # KafkaError: the epoch is over, a later one loads again. CorruptBatch: this registry stays unavailable.
        with suppress(KafkaError, CorruptBatch):
            reader = self.broker.replicas.reader(self.tp)
            while not reader.at_end():
                chunk = reader.read(1 << 20)
                values.update((record.key, record.value) for record in records(chunk))
                await self.broker.clock.sleep(0 if chunk else 10)
            self.values = values  # nothing is awaited after at_end(): this is still the same epoch

    async def put(self, key: bytes, value: bytes) -> int:
        if self.values is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        record = Record(timestamp=self.broker.clock.wall_ms(), key=key, value=value)
        offset = await self.broker.replicas.appends.append(self.tp, build([record]))
        if self.values is not None:
            self.values[key] = value
        return offset


class Registries(MemoryCluster):
    """A cluster in which each broker has a `Registry`."""

    def created(self, broker: BrokerServer) -> None:
        self.registries = getattr(self, "registries", {})
        self.registries[broker.info.id] = Registry(broker, REGISTRY)

    async def loaded(self) -> int:
        """Wait until a registry has loaded; return the id of its broker."""
        while True:
            for number in self.brokers:
                if self.registries[number].values is not None:
                    return number
            await self.clock.sleep(20)


@pytest.mark.parametrize("seed", range(3))
def test_registry_keeps_its_values_when_its_leader_dies(seed: int) -> None:
    async def scenario() -> None:
        async with Registries(3) as cluster:
            async with cluster.client() as client:
                await client.create_topics(NewTopic(REGISTRY.topic, 1, 3))
            first = await cluster.loaded()
            for key, value in VALUES.items():
                await cluster.registries[first].put(key, value)
            cluster.kill_with_session(first)
            second = await cluster.loaded()
            assert second != first
            assert cluster.registries[second].values == VALUES
            await cluster.stop(second)
            last = await cluster.loaded()
            assert cluster.registries[last].values == VALUES
            with pytest.raises(KafkaError) as refused:
                await cluster.registries[second].put(b"late", b"")
            assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run_seeded(seed, scenario())
