"""A cluster on hosts whose network may be broken: three brokers and ZooKeeper, each on a host of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from support.hosts.routed import RoutedHosts, routed_hosts

BROKERS: Final = (1, 2, 3)
ZOOKEEPER: Final = 4
MACHINE: Final = 0
"""This machine, on which the clients run."""
PORT: Final = 9092
SESSION_MS: Final = 6_000
LAG_MS: Final = 6_000
_SECRET: Final = "one secret of all hosts"


class BrokenCluster:
    """The processes of the cluster. A broker has the number of its host as its id."""

    def __init__(self, hosts: RoutedHosts, directory: Path, mode: str, lag_ms: int) -> None:
        self.hosts = hosts
        self.lag_ms = lag_ms
        self.directory = directory
        self._mode = mode
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(map(self.address, BROKERS))

    def address(self, broker: int) -> str:
        """Return the address of one broker for clients."""
        return f"{self.hosts.address(broker)}:{PORT}"

    def start_zookeeper(self) -> None:
        """Start ZooKeeper on its host."""
        data, address = self.directory / "zookeeper", self.hosts.address(ZOOKEEPER)
        options = ["--data", str(data), "--host", address, "--port", "2181", "--tick-time", "500"]
        self._run(ZOOKEEPER, "zookeeper", *options)

    def start(self, broker: int) -> None:
        """Start a broker, or start it again, without waiting until it serves."""
        file = self.directory / f"broker-{broker}.toml"
        file.write_text("[broker]\n" + "".join(map(_line, self._keys(broker).items())))
        self._run(broker, "broker", "--config", str(file))

    def _keys(self, broker: int) -> dict[str, Any]:
        return {
            "broker.id": broker,
            "listeners": f"PLAINTEXT://{self.address(broker)}",
            "log.dirs": str(self.directory / f"data-{broker}"),
            "zookeeper.connect": f"{self.hosts.address(ZOOKEEPER)}:2181",
            "zookeeper.session.timeout.ms": SESSION_MS,
            "replica.lag.time.max.ms": self.lag_ms,
            "replica.socket.timeout.ms": self.lag_ms,
            "controller.socket.timeout.ms": self.lag_ms,
            "min.insync.replicas": 2,
            "minikafka.coordination": self._mode,
            "minikafka.cluster.secret": _SECRET,
        }

    def _run(self, host: int, *command: str) -> None:
        with (self.directory / f"log-{host}").open("ab") as log:
            self._processes[host] = subprocess.Popen(
                self.hosts.command(host, sys.executable, "-m", "minikafka", *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def lose_power(self, host: int) -> None:
        """End everything on a host at once. Its last packets are lost, so nobody is told."""
        self.hosts.plug(host, plugged=False)
        process = self._processes.pop(host)
        process.kill()
        process.wait()

    def cut(self, source: int, target: int, *, both: bool = False) -> None:
        """Lose all packets of one direction, or of both."""
        self.hosts.change(source, target, cut=True)
        if both:
            self.hosts.change(target, source, cut=True)

    def heal(self) -> None:
        """Let the network be fast and without loss again."""
        everyone = (MACHINE, *BROKERS, ZOOKEEPER)
        for source in everyone:
            for target in everyone:
                if source != target:
                    self.hosts.change(source, target)

    def view(self, topic: str) -> tuple[int, tuple[int, ...], int]:
        """Return leader and ISR of the topic's only partition, and the controller; -1 and () if nobody knows."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            seen = admin.list_topics(topic, timeout=5)
        except KafkaException:
            return -1, (), -1
        partition = seen.topics[topic].partitions.get(0)
        if partition is None:
            return -1, (), seen.controller_id
        return partition.leader, tuple(partition.isrs), seen.controller_id

    def create_topic(self, topic: str) -> None:
        """Create a topic with one partition on all brokers."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        created = admin.create_topics([NewTopic(topic, 1, len(BROKERS))])[topic]
        created.result(30)

    def has_all_brokers(self) -> bool:
        """True if a broker lists all brokers as alive."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return len(admin.list_topics(timeout=5).brokers) == len(BROKERS)
        except KafkaException:
            return False

    def close(self) -> None:
        """Kill all processes."""
        for process in self._processes.values():
            process.kill()
            process.wait()


def _line(row: tuple[str, Any]) -> str:
    name, value = row
    return f'"{name}" = {value if isinstance(value, int) else repr(value)}\n'


@contextmanager
def broken_cluster(directory: Path, mode: str, lag_ms: int = LAG_MS) -> Iterator[BrokenCluster]:
    """Start a cluster on hosts; at the end, kill it and remove the hosts."""
    with routed_hosts(len(BROKERS) + 1) as hosts:
        cluster = BrokenCluster(hosts, directory, mode, lag_ms)
        try:
            cluster.start_zookeeper()
            for broker in BROKERS:
                cluster.start(broker)
            yield cluster
        finally:
            cluster.close()


__all__ = ["BROKERS", "BrokenCluster", "broken_cluster"]
