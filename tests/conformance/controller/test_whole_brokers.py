"""Behaviour of whole in-memory brokers, as clients and ZooKeeper see it."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.until import until

from minikafka.base.errors import ConfigError, ErrorCode
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.ports import Check, Create, Set
from minikafka.broker.broker import BrokerServer
from minikafka.client import Client, NewTopic
from minikafka.client.administration.admin import Resource, ResourceType
from minikafka.kafka.records.batch import Record
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.zookeeper.nodes import layout

T0 = TopicPartition("t", 0)


def values(count: int) -> list[Record]:
    return [Record(value=b"v%d" % i) for i in range(count)]


def active_controller(cluster: MemoryCluster) -> BrokerServer:
    (broker,) = [b for b in cluster.brokers.values() if b.capabilities.diagnostics.is_active]
    return broker


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await until(lambda: True)


async def metadata_of_each(cluster: MemoryCluster) -> list[Any]:
    """Return the content of each broker's Metadata response."""
    answers = []
    for number in cluster.brokers:
        alone = Client(f"127.0.0.1:{9092 + number}", transport=cluster.transport)
        async with alone:
            info, topics = await alone.admin.describe()
            answers.append((info.controller_id, sorted(info.brokers), topics))
    return answers


async def all_agree(cluster: MemoryCluster) -> bool:
    first, *others = await metadata_of_each(cluster)
    return all(other == first for other in others)


def fully_in_sync(cluster: MemoryCluster) -> Callable[[], bool]:
    """Return a function that is true if partitions have leaders, and these have all replicas in their ISRs."""

    def is_in_sync() -> bool:
        led = [
            partition
            for broker in cluster.brokers.values()
            for partition in broker.replicas.partitions.values()
            if partition.is_leader
        ]
        return bool(led) and all(len(each.isr) == len(each.replicas) for each in led)

    return is_in_sync


@pytest.mark.row("A1", "X22")
async def test_broker_registration_is_ephemeral_and_ends_with_the_session() -> None:
    async with MemoryCluster(2) as cluster:
        node = cluster.ensemble.nodes[layout.broker_path(1)]
        assert node.owner == cluster.sessions[1].session_id != 0
        said = json.loads(node.data)
        assert (said["host"], said["port"], said["version"]) == ("127.0.0.1", 9093, 5)
        cluster.ensemble.end_session(node.owner)
        assert layout.broker_path(1) not in cluster.ensemble.nodes


@pytest.mark.row("A2", "C20")
async def test_replicas_of_a_partition_are_on_different_brokers() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        bad = {"twice": NewTopic("twice", assignment={0: (1, 1)}), "none": NewTopic("t", 1, 9)}
        outcomes = await client.admin.create_topics(bad.values())
        assert outcomes["twice"].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert outcomes["t"].code is ErrorCode.INVALID_REPLICATION_FACTOR
        await client.create_topics(NewTopic("t", 6, 3))
        for partition in (await client.admin.describe_topics(["t"]))["t"].partitions.values():
            assert len(set(partition.replicas)) == 3
            assert partition.leader == partition.replicas[0], "the first is the preferred one"


@pytest.mark.row("X1", "R2", "A10")
async def test_only_controller_and_leaders_write_partition_states() -> None:
    async with MemoryCluster(replica_lag_time_max_ms=600) as cluster, cluster.client() as client:
        writes: list[tuple[int, str, str]] = []
        for number in cluster.brokers:
            note_writes(cluster, number, writes)
        await client.create_topics(NewTopic("t", 3, 3))
        await client.produce("t", values(20))
        follower = next(
            n for n, b in cluster.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        await cluster.stop(follower)
        await cluster.start(follower)
        note_writes(cluster, follower, writes)
        await until(fully_in_sync(cluster))
        await client.delete_topics("t")
        await until(lambda: layout.topic_path("t") not in cluster.ensemble.nodes)
        controller = active_controller(cluster).config.broker_id
        assert {how for _, how, path in writes if path.endswith("/state")} == {"fenced", "own isr"}
        assert {who for who, how, _ in writes if how == "fenced"} == {controller}
        assert "unfenced" not in {how for _, how, _ in writes}


def note_writes(cluster: MemoryCluster, number: int, writes: list[tuple[int, str, str]]) -> None:
    """Record every write below /brokers/topics as (broker, kind of write, path)."""
    zookeeper: Any = cluster.sessions[number]
    multi, plain = zookeeper.multi, zookeeper.set

    async def fenced(ops: Any, **session: Any) -> Any:
        checked = isinstance(ops[0], Check) and ops[0].path == layout.CONTROLLER_EPOCH
        how = "fenced" if checked else "unfenced"
        writes.extend(
            (number, how, op.path)
            for op in ops
            if isinstance(op, Create | Set) and op.path.startswith(layout.TOPICS)
        )
        return await multi(ops, **session)

    async def own(path: str, data: bytes, version: int, **session: Any) -> Any:
        node = cluster.ensemble.nodes[path]
        if path.endswith("/state") and node.version == version:
            before, after = layout.decode_state(node.data, 0), layout.decode_state(data, 0)
            assert before.leader == after.leader == number
            assert before.leader_epoch == after.leader_epoch
            writes.append((number, "own isr", path))
        return await plain(path, data, version, **session)

    zookeeper.multi, zookeeper.set = fenced, own


@pytest.mark.row("J3", "D15")
async def test_all_brokers_return_the_same_metadata_after_a_change() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 4, 3))
        await until(fully_in_sync(cluster))
        await eventually(lambda: all_agree(cluster))
        gone = next(
            n for n, b in cluster.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        await cluster.stop(gone, controlled=False)
        await until(lambda: all(gone not in b.metadata.brokers for b in cluster.brokers.values()))
        await eventually(lambda: all_agree(cluster))
        ((_, brokers, (topic,)), *_) = await metadata_of_each(cluster)
        assert gone not in brokers
        for partition in topic.partitions.values():
            assert partition.leader != gone
            assert gone in partition.offline
            assert gone not in partition.isr


@pytest.mark.row("D15", "I9", "E3")
async def test_partitions_are_added_while_clients_use_the_topic() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 3))
        await client.produce("t", values(10))
        (outcome,) = (await client.admin.create_partitions({"t": 3})).values()
        assert outcome.ok
        async with cluster.client() as other:
            await until(lambda: len(active_controller(cluster).metadata.topics["t"]) == 3)
            for number in range(3):
                await other.produce("t", values(1), partition=number)
        (outcome,) = (await client.admin.create_partitions({"t": 2})).values()
        assert outcome.code is ErrorCode.INVALID_PARTITIONS


@pytest.mark.row("D15", "K2", "I10")
async def test_reassign_partition_method_returns_true_only_when_the_replicas_moved() -> None:
    async with MemoryCluster(4) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await client.produce("t", values(50))
        assert await client.admin.reassign_partition("t", 0, [2, 3])
        assert layout.decode_topic(cluster.ensemble.nodes[layout.topic_path("t")].data)[1][
            0
        ].replicas == (2, 3)
        assert not await client.admin.reassign_partition("t", 0, [2, 9])
        assert not await client.admin.reassign_partition("t", 7, [2, 3])
        await eventually(lambda: all_agree(cluster))
        ((_, _, (topic,)), *_) = await metadata_of_each(cluster)
        assert topic.partitions[0].replicas == (2, 3)


@pytest.mark.row("D15", "I7", "C29")
async def test_elect_leaders_returns_leadership_to_the_preferred_replica() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        preferred = next(
            n for n, b in cluster.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        others = [n for n in cluster.brokers if n != preferred]
        await client.create_topics(NewTopic("t", assignment={0: (preferred, *others)}))
        await cluster.stop(preferred)
        await cluster.start(preferred)
        await until(fully_in_sync(cluster))
        await until(lambda: len(active_controller(cluster).metadata.topics["t"][0].isr) == 3)
        assert active_controller(cluster).metadata.topics["t"][0].leader != preferred
        async with cluster.client() as other:
            outcomes = await other.admin.elect_leaders([T0])
        assert outcomes[T0].ok
        assert cluster.brokers[preferred].replicas.partitions[T0].is_leader


@pytest.mark.row("D15", "L1", "C15")
async def test_deleted_topic_loses_its_directories() -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 2, 3))
        await client.produce("t", values(10))
        await client.delete_topics("t")
        await until(lambda: layout.topic_path("t") not in cluster.ensemble.nodes)
        for broker in cluster.brokers.values():
            assert [tp for tp in broker.replicas.logs.logs if tp.topic == "t"] == []
            assert "t" not in broker.metadata.topics


@pytest.mark.row("D15", "I4", "E1")
async def test_new_topic_uses_a_broker_that_joined() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 2))
        cluster.storages[2] = MemoryStorage()
        await cluster.start(2)
        async with cluster.client() as other:
            await other.create_topics(NewTopic("u", 1, 3))
            await other.produce("u", values(3))
        await until(lambda: "t" in cluster.brokers[2].metadata.topics)
        assert TopicPartition("u", 0) in cluster.brokers[2].replicas.partitions


@pytest.mark.row("B3", "X15")
async def test_waiting_produce_requests_are_counted_and_block_no_other_partition() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await client.produce("t", values(1))
        waiting: Callable[[], int] = lambda: cluster.brokers[0].describe()["replicas"][0][  # noqa: E731
            "waiting_produces"
        ]
        await until(lambda: waiting() == 0)
        fetchers = cluster.brokers[1].replicas.fetchers
        followed = cluster.brokers[1].replicas.partitions[T0]
        fetchers.remove(T0)
        sending = cluster.brokers[1].tasks.spawn(_produce(client), "produce")
        await until(lambda: waiting() == 1)
        async with cluster.client() as other:
            await other.create_topics(NewTopic("u", assignment={0: (0, 1)}))
            await other.produce("u", values(1))
        assert waiting() == 1
        fetchers.add(followed)
        await until(lambda: waiting() == 0)
        del sending


async def _produce(client: Client) -> None:
    await client.produce("t", values(1))


@pytest.mark.row("R10", "T20")
async def test_restarted_broker_replaces_its_registration_while_the_old_session_lives() -> None:
    async with MemoryCluster(2) as cluster:
        killed = cluster.brokers.pop(1)
        epoch = killed.info.epoch
        await killed.tasks.close()
        await killed.listener.close()
        await killed.control_plane.close()
        cluster.storages[1] = cluster.storages[1].clone()
        node = cluster.ensemble.nodes[layout.broker_path(1)]
        assert node.owner == cluster.sessions[1].session_id, "its session lives still"
        again = await cluster.start(1)
        assert again.info.epoch > epoch
        assert cluster.ensemble.nodes[layout.broker_path(1)].owner == cluster.sessions[1].session_id


@pytest.mark.row("R10")
def test_broker_refuses_to_start_while_another_has_its_id() -> None:
    async def scenario() -> None:
        async with MemoryCluster(1) as cluster:
            path, other = layout.broker_path(7), cluster.ensemble.open_session()
            cluster.storages[7] = MemoryStorage()
            cluster.ensemble.put(path, b"{}", owner=other)
            with pytest.raises(ConfigError, match=r"broker\.id = 7 is used"):
                await cluster.start(7)
            assert cluster.ensemble.nodes[path].owner == other

    run_seeded(1, scenario())


@pytest.mark.row("R23")
@pytest.mark.key("controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms")
async def test_broker_retries_controlled_shutdown_before_it_stops_anyway() -> None:
    keys = {"controlled_shutdown_max_retries": 2, "controlled_shutdown_retry_backoff_ms": 1}
    async with MemoryCluster(2, **keys) as cluster, cluster.client() as client:
        going = next(
            n for n, b in cluster.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        other = 1 - going
        await client.create_topics(NewTopic("t", assignment={0: (going, other)}))
        await until(fully_in_sync(cluster))
        lone = cluster.brokers[going].replicas.partitions[T0]
        await drop_from_isr(cluster, going, other)
        asked = 0
        ask = active_controller(cluster).capabilities.administration.controlled_shutdown

        async def counted(broker_id: int, broker_epoch: int) -> list[TopicPartition]:
            nonlocal asked
            asked += 1
            return await ask(broker_id, broker_epoch)

        active_controller(cluster).capabilities.administration.controlled_shutdown = counted  # type: ignore[method-assign]
        await cluster.stop(going)
        assert asked == 2, "as many attempts as Kafka makes"
        assert lone.leader == going, "nobody else could lead"
        assert going not in cluster.brokers


def test_broker_stops_although_the_controller_never_answers_its_controlled_shutdown() -> None:
    async def scenario() -> None:
        keys = {"controlled_shutdown_max_retries": 2, "controlled_shutdown_retry_backoff_ms": 1}
        async with MemoryCluster(2, **keys) as cluster:
            controller = active_controller(cluster)

            async def silence(*_: int) -> list[TopicPartition]:
                await asyncio.Event().wait()
                return []

            controller.capabilities.administration.controlled_shutdown = silence  # type: ignore[method-assign]
            began = cluster.clock.now()
            await cluster.stop(1 - controller.config.broker_id)
            assert 60_000 <= cluster.clock.now() - began < 70_000, "two calls of 30 s"

    run_seeded(1, scenario())


async def drop_from_isr(cluster: MemoryCluster, leader: int, follower: int) -> None:
    """Shrink the ISR to the leader, and wait until the controller has seen the change."""
    cluster.brokers[follower].replicas.fetchers.remove(T0)
    partition = cluster.brokers[leader].replicas.partitions[T0]
    node = cluster.ensemble.nodes[layout.state_path(T0)]
    state = layout.decode_state(node.data, node.version)
    partition.isr_state = type(partition.isr_state)((leader,))
    partition.followers.clear()
    alone = LeaderAndIsr(leader, state.leader_epoch, (leader,), state.controller_epoch, 0)
    cluster.ensemble.put(layout.state_path(T0), layout.encode_state(alone))
    cluster.ensemble.put(layout.ISR_CHANGE_PREFIX + "9", layout.encode_isr_change([T0]))
    await until(lambda: active_controller(cluster).metadata.topics["t"][0].isr == (leader,))


@pytest.mark.row("R67", "R16", "X10")
async def test_leaders_on_a_failed_directory_move_to_other_brokers() -> None:
    async with MemoryCluster(2, log_dirs="/a,/b") as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", assignment={0: (1, 0), 1: (1, 0)}))
        for number in (0, 1):
            await client.produce("t", values(5), partition=number)
        await until(fully_in_sync(cluster))
        replicas = cluster.brokers[1].replicas.partitions
        lost, kept = replicas[T0], replicas[TopicPartition("t", 1)]
        directory = lost.log.directory.rpartition("/")[0]
        assert kept.log.directory.rpartition("/")[0] != directory
        cluster.storages[1].fail(directory, errno.EIO)
        await client.produce("t", values(5), partition=0)
        assert cluster.brokers[0].replicas.partitions[T0].is_leader
        assert kept.is_leader
        assert cluster.brokers[1].describe()["metrics"]["OfflineReplicaCount"] == 1
        await until(lambda: active_controller(cluster).metadata.topics["t"][0].offline == (1,))
        await until(lambda: not cluster.ensemble.children(layout.LOG_DIR_EVENTS))


@pytest.mark.row("M5", "B4", "R35")
@pytest.mark.key("replica.high.watermark.checkpoint.interval.ms")
async def test_high_watermarks_are_checkpointed_at_the_configured_interval() -> None:
    interval = {"replica_high_watermark_checkpoint_interval_ms": 20}
    async with MemoryCluster(2, **interval) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 2))
        await client.produce("t", values(3))
        path = "/data/replication-offset-checkpoint"
        for storage in cluster.storages.values():
            await until(
                lambda s=storage: s.exists(path) and b"t 0 3" in s.read(path)  # type: ignore[misc]
            )


class HeldCluster(MemoryCluster):
    """A cluster; if `hold` is set before the brokers start, they hold LeaderAndIsr requests without handling them."""

    hold = False

    def created(self, broker: BrokerServer) -> None:
        if self.hold:
            broker.gate.hold("broker.leader_and_isr")


@pytest.mark.row("R35")
async def test_high_watermark_checkpoint_is_not_written_before_first_leader_and_isr() -> None:
    """An earlier write would lose the high watermarks of replicas that the broker does not know yet."""
    keys = {"replica_high_watermark_checkpoint_interval_ms": 20}
    async with HeldCluster(2, **keys) as cluster, cluster.client() as client:
        going = next(
            n for n, b in cluster.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        await client.create_topics(NewTopic("t", assignment={0: (1 - going, going)}))
        await client.produce("t", values(3))
        path = "/data/replication-offset-checkpoint"
        storage = cluster.storages[going]
        await until(lambda: storage.exists(path) and b"t 0 3" in storage.read(path))
        await cluster.stop(going, controlled=False)
        marks = b"0\n1\nt 0 2\n"
        storage.write_atomically(path, marks)
        cluster.hold = True
        held = await cluster.start(going)
        await until(lambda: held.gate.waiting)
        await cluster.clock.sleep(100)
        assert storage.read(path) == marks
        held.gate.release("broker.leader_and_isr")
        await until(lambda: b"t 0 3" in storage.read(path))


@pytest.mark.row("R71")
async def test_topic_settings_apply_at_once_from_requests_and_from_znode_changes() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("t", 1, 2))
        replicas = [broker.replicas.partitions[T0] for broker in cluster.brokers.values()]
        assert {partition.min_isr for partition in replicas} == {1}
        topic = Resource(ResourceType.TOPIC, "t")
        (outcome,) = (
            await client.admin.alter_configs({topic: {"min.insync.replicas": "2"}})
        ).values()
        assert outcome.ok
        await until(lambda: {partition.min_isr for partition in replicas} == {2})
        written = layout.encode_config({"min.insync.replicas": "1"})
        cluster.ensemble.put(layout.topic_config_path("t"), written)
        notification = b'{"version":2,"entity_path":"topics/t"}'
        cluster.ensemble.put(layout.CONFIG_CHANGES + "/config_change_0000009999", notification)
        await until(lambda: {partition.min_isr for partition in replicas} == {1})


@pytest.mark.row("H2", "H3", "H4", "M1", "R63")
@pytest.mark.parametrize("whose", ["topic", "cluster"])
async def test_partition_without_live_isr_has_no_leader_until_unclean_election_is_enabled(
    whose: str,
) -> None:
    async with MemoryCluster() as cluster, cluster.client() as client:
        last, other = [
            n for n, b in cluster.brokers.items() if not b.capabilities.diagnostics.is_active
        ]
        await client.create_topics(NewTopic("t", assignment={0: (last, other)}))
        await until(fully_in_sync(cluster))
        await drop_from_isr(cluster, last, other)
        await cluster.stop(last, controlled=False)
        await until(lambda: active_controller(cluster).metadata.topics["t"][0].leader == -1)
        async with cluster.client() as onlooker:
            shown = (await onlooker.admin.describe_topics(["t"]))["t"].partitions[0]
            assert (shown.leader, shown.error) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
            kind, name = (
                (ResourceType.TOPIC, "t") if whose == "topic" else (ResourceType.BROKER, "")
            )
            change = {Resource(kind, name): {"unclean.leader.election.enable": "true"}}
            (outcome,) = (await onlooker.admin.alter_configs(change)).values()
            assert outcome.ok
            await until(lambda: cluster.brokers[other].replicas.partitions[T0].is_leader)
            assert (
                active_controller(cluster).capabilities.diagnostics.summary()["unclean_elections"]
                == 1
            )
            await onlooker.produce("t", values(1))
