"""The broker configuration keys that no other test covers: their effects on whole brokers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.coordination import CONTROLLER
from minikafka.base.model import TopicPartition
from minikafka.broker.rpc.links import LINKS
from minikafka.broker.rpc.messages import UPDATE_METADATA
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record, build
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.control_plane import MemoryControlPlane
from minikafka.simulation.loop import run_seeded
from minikafka.storage.log.log import Log
from minikafka.tools.cli.foreground import broker_process

pytestmark = pytest.mark.usefixtures("each_mode")
T0 = TopicPartition("t", 0)
MINUTE = 60_000


def run(
    scenario: Callable[[MemoryCluster, Client], Awaitable[None]], brokers: int = 1, **config: object
) -> None:
    """Run a scenario on a cluster whose brokers have this configuration."""

    async def scene() -> None:
        async with MemoryCluster(brokers, **config) as cluster, cluster.client() as user:
            await scenario(cluster, user)

    run_seeded(1, scene())


@pytest.mark.key("broker.rack")
def test_broker_registers_its_rack() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        assert (await user.describe_cluster()).brokers[0].rack == "cellar"

    run(scenario, broker_rack="cellar")


@pytest.mark.key("minikafka.inter.broker.protocol.version")
@pytest.mark.parametrize(("highest", "is_called"), [("0.1", False), ("0.2", True)])
def test_protocol_version_limits_requests_and_features_between_brokers(
    highest: str, is_called: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report of broken links is a feature of version 0.2."""
    sent: list[tuple[str, str]] = []
    call = MemoryControlPlane.call

    async def noted(*arguments: Any, version: str = "0.1", **options: Any) -> Any:
        sent.append((arguments[2], version))
        return await call(*arguments, version=version, **options)

    monkeypatch.setattr(MemoryControlPlane, "call", noted)

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t", 3, 2))
        await cluster.clock.sleep(12_000)
        known = cluster.brokers[0].metadata.brokers.values()
        expected = ("0.1",) if highest == "0.1" else ("0.1", "0.2")
        assert {broker.versions for broker in known} == {expected}

    run(scenario, 2, minikafka_inter_broker_protocol_version=highest)
    assert any(method == LINKS for method, _ in sent) is is_called
    assert {version for _, version in sent[-5:]} <= {highest}


@pytest.mark.key("minikafka.metrics.enable")
@pytest.mark.parametrize("enabled", [True, False])
def test_metrics_page_is_served_unless_it_is_disabled(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[object] = []
    serve = MemoryControlPlane.serve

    async def watched(*arguments: Any) -> Any:
        pages.append(arguments[4])
        return await serve(*arguments)

    monkeypatch.setattr(MemoryControlPlane, "serve", watched)

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        assert [page is not None for page in pages] == [enabled]

    run(scenario, minikafka_metrics_enable=enabled)


@pytest.mark.key(
    "zookeeper.connect",
    "zookeeper.session.timeout.ms",
    "zookeeper.connection.timeout.ms",
    "minikafka.cluster.secret",
)
async def test_broker_process_uses_the_configured_addresses_and_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    def zookeeper(
        connect: str, timeout: int, *_: object, connect_timeout_ms: int, **__: object
    ) -> None:
        given.update(connect=connect, session=timeout, connection=connect_timeout_ms)

    async def create(config: object, ports: Any, mode: object) -> Any:
        ports.new_control_plane("cluster", None)
        return Started(ports.tasks)

    class Started:
        def __init__(self, tasks: TaskRegistry) -> None:
            self.tasks = tasks
            self.security = SimpleNamespace(encryption=[])

        async def start(self) -> None: ...

    def control_plane(secret: bytes, *_: object) -> None:
        given["secret"] = secret

    monkeypatch.setattr(broker_process, "ZooKeeperClient", zookeeper)
    monkeypatch.setattr(broker_process, "HttpControlPlane", control_plane)
    monkeypatch.setattr(broker_process, "create_broker", create)
    for name in ("controller.ControllerMode", "leaders.LeadersMode"):
        monkeypatch.setattr(f"minikafka.broker.modes.{name}", lambda *_: None)
    config = BrokerConfig.from_mapping(
        {
            "broker.id": 1,
            "log.dirs": "/d",
            "zookeeper.connect": "h:1/c",
            "zookeeper.session.timeout.ms": 7,
            "zookeeper.connection.timeout.ms": 8,
            "minikafka.cluster.secret": "s" * 16,
            "minikafka.coordination": MemoryCluster.default_coordination,
        }
    )
    started: Any = await broker_process.start(config, lambda name, error: None)
    await started.tasks.close()
    expected = {"connect": "h:1/c", "session": 7, "connection": 8, "secret": b"s" * 16}
    assert given == expected


@pytest.mark.key("controlled.shutdown.enable")
@pytest.mark.parametrize("enabled", [True, False])
def test_stopping_broker_requests_controlled_shutdown_unless_disabled(enabled: bool) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t", assignment={0: (1, 0)}))
        await cluster.stop(1)
        facts = [line.get("fact") for line in cluster.ledger(1)]
        assert ("controlled shutdown asked" in facts) is enabled

    run(scenario, 2, controlled_shutdown_enable=enabled)


@pytest.mark.key("connections.max.idle.ms")
def test_idle_connections_are_closed_after_the_configured_time() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.describe_cluster()
        connections = cluster.brokers[0].listener._connections
        assert connections
        await cluster.clock.sleep(25_000)
        assert connections
        await cluster.clock.sleep(11_000)
        assert not connections

    run(scenario, connections_max_idle_ms=30_000)


@pytest.mark.key("socket.request.max.bytes")
@pytest.mark.parametrize(("size", "is_accepted"), [(500, True), (5_000, False)])
def test_connection_is_closed_when_a_request_exceeds_the_configured_size(
    size: int, is_accepted: bool
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t"))
        connections = set(cluster.brokers[0].listener._connections)
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await user.produce("t", [Record(value=Random(1).randbytes(size))])
        partition = cluster.brokers[0].replicas.partitions[T0]
        assert (partition.log.log_end_offset == 1) is is_accepted
        assert (connections <= set(cluster.brokers[0].listener._connections)) is is_accepted

    run(scenario, socket_request_max_bytes=2_000)


@pytest.mark.key("log.flush.offset.checkpoint.interval.ms", "producer.id.expiration.ms")
def test_producer_expiry_and_checkpoints_run_at_the_configured_intervals() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t"))
        replicas, storage = cluster.brokers[0].replicas, cluster.storages[0]
        # In the leaders mode the elected leader is known before it opens; a client's request is repeated meanwhile.
        await until(lambda: T0 in replicas.partitions and replicas.partitions[T0].is_open)
        record = Record(timestamp=cluster.clock.wall_ms(), value=b"v")
        batch = build([record], producer_id=7, producer_epoch=0, base_sequence=0)
        await replicas.appends.append(T0, batch)
        producers = replicas.partitions[T0].log.producers
        path = "/data/recovery-point-offset-checkpoint"
        await cluster.clock.sleep(9_000)
        assert (len(producers), storage.exists(path)) == (1, False)
        await cluster.clock.sleep(2_000)
        assert (len(producers), storage.exists(path)) == (1, True)
        await cluster.clock.sleep(3 * MINUTE)
        assert len(producers) == 0

    keys = {
        "log_flush_offset_checkpoint_interval_ms": 10_000,
        "producer_id_expiration_ms": 2 * MINUTE,
    }
    run(scenario, **keys)


@pytest.mark.key("replica.fetch.max.bytes")
@pytest.mark.parametrize("limit", [30_000, 1 << 20])
def test_follower_copies_a_partition_in_parts_of_the_configured_size(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(parts_of_a_copy(monkeypatch, replica_fetch_max_bytes=limit))
    assert (largest <= 30_000) is (limit == 30_000)


@pytest.mark.key("replica.fetch.response.max.bytes")
def test_follower_limits_each_whole_fetch_response_to_the_configured_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert max(parts_of_a_copy(monkeypatch, replica_fetch_response_max_bytes=30_000)) <= 30_000


def parts_of_a_copy(monkeypatch: pytest.MonkeyPatch, **config: object) -> list[int]:
    """Replicate 20 batches of 20 KB to a new replica; return the number of bytes appended from each response."""
    parts: list[int] = []
    append = Log.append_replicated

    def counted(log: Log, buf: bytearray, view: memoryview, start: int, end: int) -> None:
        parts.append(end - start)
        append(log, buf, view, start, end)

    monkeypatch.setattr(Log, "append_replicated", counted)

    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t", assignment={0: (0,)}))
        for _ in range(20):
            await user.produce("t", [Record(value=bytes(20_000))])
        await user.admin.alter_reassignments({T0: (0, 1)})
        while await user.admin.list_reassignments():
            await cluster.clock.sleep(50)

    run(scenario, 2, **config)
    return parts


@pytest.mark.key("replica.fetch.min.bytes", "replica.fetch.wait.max.ms")
@pytest.mark.parametrize(
    ("least", "wait", "waits"), [(1, 400, False), (100_000, 400, True), (100, 400, False)]
)
def test_leader_holds_a_fetch_until_minimum_bytes_or_maximum_wait(
    least: int, wait: int, waits: bool
) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await user.produce("t", [Record(value=bytes(1000))])
        times = []
        for _ in range(5):
            begun = cluster.clock.now()
            await user.produce("t", [Record(value=bytes(1000))])
            times.append(cluster.clock.now() - begun)
        assert (max(times) > wait / 4) is waits
        assert max(times) < 3 * wait

    run(scenario, 2, replica_fetch_min_bytes=least, replica_fetch_wait_max_ms=wait)


def test_two_small_batches_together_reach_the_minimum_bytes_of_a_fetch() -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await user.produce("t", [Record(value=bytes(1000))])
        await cluster.clock.sleep(30_000)  # the follower has the record, and its next fetch waits
        begun = cluster.clock.now()
        await user.produce("t", [Record(value=bytes(1000))], acks=1)
        await user.produce("t", [Record(value=bytes(1000))])
        assert cluster.clock.now() - begun < 1000

    run(scenario, 2, replica_fetch_min_bytes=1500, replica_fetch_wait_max_ms=20_000)


@pytest.mark.key("replica.socket.timeout.ms")
@pytest.mark.parametrize("timeout", [6_000, 12_000])
def test_follower_connects_again_when_a_leader_is_silent_for_the_timeout(timeout: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await user.produce("t", [Record(value=b"v")])
        begun, attempts = cluster.clock.now(), []
        connect = cluster.transport.connect

        async def noted(*arguments: Any) -> Any:
            if arguments[2] == 9092:
                attempts.append(cluster.clock.now() - begun)
            return await connect(*arguments)

        cluster.transport.connect = noted  # type: ignore[method-assign]
        cluster.cut(0, 1)
        await cluster.clock.sleep(20_000)
        assert attempts[0] == pytest.approx(timeout, abs=1_000)

    run(scenario, 2, replica_socket_timeout_ms=timeout)


@pytest.mark.key("replica.fetch.backoff.ms")
@pytest.mark.parametrize("backoff", [500, 4_000])
def test_follower_tries_a_lost_leader_again_after_the_backoff(backoff: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        await user.create_topics(NewTopic("t", assignment={0: (0, 1)}))
        await user.produce("t", [Record(value=b"v")])
        attempts = []
        transport = cluster.transport
        connect = transport.connect

        async def counted(*arguments: Any) -> Any:
            if arguments[2] == 9092:
                attempts.append(cluster.clock.now())
            return await connect(*arguments)

        cluster.transport.connect = counted  # type: ignore[method-assign]
        cluster.kill(0)
        await cluster.clock.sleep(30_000)
        pauses = [later - earlier for earlier, later in pairwise(attempts)]
        assert max(pauses[-3:]) == pytest.approx(backoff, abs=20)

    # Otherwise the follower leads the partition, and does not try again.
    run(scenario, 2, replica_fetch_backoff_ms=backoff, minikafka_fast_failover_enable=False)


@pytest.mark.key("controller.socket.timeout.ms")
@pytest.mark.parametrize("timeout", [2_000, 6_000])
def test_controller_repeats_a_request_when_a_broker_is_silent_for_the_timeout(timeout: int) -> None:
    async def scenario(cluster: MemoryCluster, user: Client) -> None:
        attempts = []
        call = MemoryControlPlane.call

        async def noted(plane: MemoryControlPlane, *arguments: Any, **keys: Any) -> Any:
            if arguments[1] == UPDATE_METADATA and keys["target_id"] == 1:
                attempts.append(cluster.clock.now())
            return await call(plane, *arguments, **keys)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryControlPlane, "call", noted)
            cluster.cut(0, 1)
            await user.create_topics(NewTopic("t", assignment={0: (0,)}))
            await cluster.clock.sleep(20_000)
        pauses = [later - earlier for earlier, later in pairwise(attempts)]
        assert pauses[:2] == pytest.approx([timeout] * 2, abs=500)

    run(scenario, 2, coordination=CONTROLLER, controller_socket_timeout_ms=timeout)
