"""Failover of brokers on several hosts, each with an address of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.hosts.namespaces import Hosts, hosts, needs_hosts

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper, ServerProcess

KAFKA_PORT = 9092
SECRET = "one secret of all hosts"


class SpreadCluster:
    """One broker on each host, and Apache ZooKeeper on this machine. Broker ids are the numbers of the hosts."""

    def __init__(self, on: Hosts, directory: Path, zookeeper: str, **config: object) -> None:
        self.hosts = on
        self.directory = directory
        self._zookeeper = zookeeper
        self._config = {key.replace("_", "."): value for key, value in config.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(
            f"{self.hosts.address(number)}:{KAFKA_PORT}" for number in self.hosts.numbers
        )

    def start(self, number: int) -> None:
        """Start a broker, without waiting until it serves."""
        folder = self.directory / f"host-{number}"
        folder.mkdir(exist_ok=True)
        keys = {
            "broker.id": number,
            "listeners": f"PLAINTEXT://{self.hosts.address(number)}:{KAFKA_PORT}",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": self._zookeeper,
            "minikafka.cluster.secret": SECRET,
            **self._config,
        }
        lines = (f'"{key}" = {_toml(value)}\n' for key, value in keys.items())
        (folder / "broker.toml").write_text("[broker]\n" + "".join(lines))
        command = [
            sys.executable,
            "-m",
            "minikafka",
            "broker",
            "--config",
            str(folder / "broker.toml"),
        ]
        with (folder / "log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                self.hosts.command(number, *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, number: int) -> None:
        """Send SIGKILL to a broker, and wait until the process has ended."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill all brokers."""
        for number in list(self._processes):
            self.kill(number)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'


@asynccontextmanager
async def spread_cluster(
    on: Hosts, directory: Path, zookeeper: ServerProcess, **config: object
) -> AsyncIterator[SpreadCluster]:
    """Start one broker on each host. The brokers reach ZooKeeper, which serves on 127.0.0.1, through this machine."""
    port = int(zookeeper.connect.rpartition(":")[2])

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, there), _copy(back, writer))

    server = await asyncio.start_server(forward, on.gateway, 0)
    connect = f"{on.gateway}:{server.sockets[0].getsockname()[1]}"
    cluster = SpreadCluster(on, directory, connect, **config)
    try:
        for number in on.numbers:
            cluster.start(number)
        yield cluster
    finally:
        cluster.close()
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


pytestmark = [needs_hosts, pytest.mark.cluster]
SESSION_MS = 6_000
PARTITIONS = 6


@pytest.fixture
def three_hosts() -> Iterator[Hosts]:
    with hosts(3) as found:
        yield found


@pytest.fixture
async def spread(three_hosts: Hosts, tmp_path: Path) -> AsyncIterator[SpreadCluster]:
    (port,) = free_ports(1, SystemRng())
    zookeeper = EmbeddedZooKeeper(tmp_path / "zookeeper", port, clock=SystemClock())
    await zookeeper.start()
    config = {
        "zookeeper_session_timeout_ms": SESSION_MS,
        "min_insync_replicas": 2,
        "default_replication_factor": 3,
    }
    try:
        async with spread_cluster(three_hosts, tmp_path, zookeeper, **config) as cluster:
            yield cluster
    finally:
        await zookeeper.stop()


def lines(cluster: SpreadCluster, *kinds: str) -> list[dict[str, Any]]:
    """Return the ledger lines of these kinds of all brokers."""
    found = []
    for file in cluster.directory.glob("host-*/data-ledger/*"):
        for line in file.read_text(errors="replace").splitlines():
            fact = json.loads(line)
            if fact["kind"] in kinds:
                found.append(fact)
    return found


def events(cluster: SpreadCluster, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(cluster, "event") if line["event"] == name]


def view(cluster: SpreadCluster) -> Any:
    """Return the metadata that a client sees, None if no broker answers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    try:
        return admin.list_topics(timeout=2)
    except KafkaException:
        return None


def leaders(cluster: SpreadCluster) -> list[int]:
    seen = view(cluster)
    return [row.leader for row in seen.topics["t"].partitions.values()] if seen else []


def has_brokers(cluster: SpreadCluster, *brokers: int) -> bool:
    seen = view(cluster)
    return seen is not None and sorted(seen.brokers) == list(brokers)


def has_whole_isrs(cluster: SpreadCluster) -> bool:
    seen = view(cluster)
    topic = seen.topics.get("t") if seen else None
    return topic is not None and all(len(row.isrs) == 3 for row in topic.partitions.values())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition, which blocks, is true."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(condition):
            pass


def write_to_all(cluster: SpreadCluster) -> None:
    """Write one record to each partition with acks=all, and require that each is acknowledged."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    refused: list[Any] = []
    for partition in range(PARTITIONS):
        producer.produce(
            "t", b"x", partition=partition, on_delivery=lambda e, _: e and refused.append(e)
        )
    assert producer.flush(30) == 0
    assert refused == []


def leader_beside_the_controller(cluster: SpreadCluster) -> int:
    seen = view(cluster)
    return next(broker for broker in leaders(cluster) if broker != seen.controller_id)


async def create_topic(cluster: SpreadCluster) -> None:
    await until(lambda: has_brokers(cluster, 1, 2, 3))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    created = admin.create_topics([NewTopic("t", PARTITIONS)])["t"]
    await asyncio.to_thread(created.result, 30)
    await until(lambda: has_whole_isrs(cluster))


async def test_killed_broker_on_another_host_is_replaced_before_its_session_ends(
    spread: SpreadCluster,
) -> None:
    await create_topic(spread)
    victim = await asyncio.to_thread(leader_beside_the_controller, spread)
    spread.kill(victim)
    await asyncio.to_thread(write_to_all, spread)
    assert victim not in await asyncio.to_thread(leaders, spread)
    (suspected,) = events(spread, "BrokerSuspected")
    assert suspected["of"] == victim
    others = [number for number in (1, 2, 3) if number != victim]
    await until(lambda: has_brokers(spread, *others))
    ended = [e for e in events(spread, "BrokersChanged") if str(victim) not in e["brokers"]]
    assert suspected["time"] < ended[-1]["time"]


async def test_session_decides_about_a_host_that_lost_its_network(spread: SpreadCluster) -> None:
    await create_topic(spread)
    victim = await asyncio.to_thread(leader_beside_the_controller, spread)
    spread.hosts.plug(victim, plugged=False)
    others = [number for number in (1, 2, 3) if number != victim]
    await until(lambda: has_brokers(spread, *others))
    await asyncio.to_thread(write_to_all, spread)
    assert events(spread, "BrokerSuspected") == []
    spread.hosts.plug(victim, plugged=True)
    await until(lambda: has_whole_isrs(spread))
