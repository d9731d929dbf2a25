"""The cluster of a takeover, as Kafka's own tools and librdkafka reach it, and what a promise about it is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import KafkaError as PythonKafkaError
from kafka_on_zookeeper_job import JARS, QUICK
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from minikafka.zookeeper.processes.apache import find_java

STEP_SECONDS: Final = 120.0
STEP_MS: Final = int(STEP_SECONDS * 1_000)


class Cluster:
    """How to reach the cluster: its addresses without and with a login, its ZooKeeper and its directories."""

    def __init__(self, directory: Path, plain: str, secured: str, connect: str) -> None:
        self.directory = directory
        self.plain = plain
        self.secured = secured
        self.connect = connect
        self.client = {"bootstrap.servers": plain, "log_level": 0, "reconnect.backoff.max.ms": 500}
        # A broker that has just started does not know the topics yet.
        self.producer = self.client | {"topic.metadata.propagation.max.ms": 3_600_000}

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """Return a context manager with a new administrator of kafka-python.

        That of librdkafka can end the process, if a coordinator answers a request that has timed out.
        """
        admin = KafkaAdminClient(bootstrap_servers=self.plain, request_timeout_ms=STEP_MS)
        try:
            yield admin
        finally:
            admin.close()

    def create(self, name: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        """Create a topic. In the names of settings, `_` stands for `.`."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        options = {
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": settings,
        }
        with self.admin() as admin:
            admin.create_topics({name: options})
        for address in self.plain.split(","):  # a producer may ask any of them
            until_known(AdminClient({"bootstrap.servers": address, "log_level": 0}), name)

    def write(self, topic: str, records: Mapping[bytes, bytes | None], **config: str) -> None:
        """Write records with acks=all, and require that each is acknowledged. `records`: key -> value."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        refused: list[KafkaError] = []
        producer = Producer(self.producer | settings)
        until_known(producer, topic)
        for key, value in records.items():
            producer.produce(topic, value, key, 0, on_delivery=partial(note_refusal, refused))
        left = producer.flush(STEP_SECONDS)
        if left or refused:
            raise RuntimeError(f"{topic}: {left} records without an answer, refused: {refused[:3]}")

    def read(self, topic: str, partition: int = 0, **config: object) -> list[Any]:
        """Return all messages of a partition, as read_committed."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        consumer = Consumer(
            self.client
            | {"group.id": "promises", "enable.auto.commit": False, "enable.partition.eof": True}
            | {"auto.offset.reset": "earliest"}
            | settings
        )
        place = TopicPartition(topic, partition, 0)
        found = []
        deadline = time.monotonic() + STEP_SECONDS
        try:
            consumer.assign([place])
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                error = message.error() if message is not None else None
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                if error is not None and not error.retriable() and error.code() > 0:
                    raise KafkaException(error)
                if message is not None and error is None:
                    found.append(message)
        finally:
            consumer.close()
        raise RuntimeError(f"{topic}-{partition}: its end was not reached")

    def java(self, tool: str, *arguments: str, succeeds: bool = True) -> str:
        """Run a class of Kafka's, and return its output. Raises RuntimeError if it fails."""
        command = [str(find_java()), *QUICK, "-cp", f"{JARS}/*", tool, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if succeeds and done.returncode:
            raise RuntimeError(f"{tool} {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def zookeeper(self) -> Iterator[KazooClient]:
        """Return a context manager with a session of its own."""
        client = KazooClient(self.connect, timeout=30, connection_retry={"max_tries": -1})
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


def until_known(client: Producer | AdminClient, topic: str) -> None:
    """Let a client ask for the topic until the answer names the leaders of its partitions.

    librdkafka fails records of a topic that a broker did not know when it had just started; Kafka's own clients
    send them again.
    """

    def ask() -> None:
        told = client.list_topics(topic, STEP_SECONDS).topics[topic]
        if not told.partitions or any(one.leader < 0 for one in told.partitions.values()):
            raise RuntimeError(f"{topic} has no leaders: {told.error}")

    patiently(ask)


def patiently(call: Callable[[], Any]) -> Any:
    """Repeat a call that fails while a coordinator loads or a change spreads. Raises its last error."""
    deadline = time.monotonic() + STEP_SECONDS
    while True:
        try:
            return call()
        except (KafkaException, PythonKafkaError, RuntimeError, TimeoutError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def in_time(check: Callable[[], list[str]], *, was_killed: bool) -> list[str]:
    """Return the problems that `check` finds; after a kill, repeat it until it finds none or STEP_SECONDS are over.

    The high watermark that a killed leader has stored is older than that of its last answer. Consumers see the last
    records when the followers have fetched again.
    """
    deadline = time.monotonic() + STEP_SECONDS
    while (found := check()) and was_killed and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def nodes_below(zookeeper: KazooClient, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the data of a node and of all nodes below it; of a node that does not exist, nothing."""
    with suppress(NoNodeError):
        yield path, zookeeper.get(path)[0]
        for name in zookeeper.get_children(path):
            yield from nodes_below(zookeeper, f"{path}/{name}")


def note_refusal(into: list[KafkaError], error: KafkaError | None, _: object) -> None:
    if error is not None:
        into.append(error)


class Promise:
    """One promise. Its methods run in a thread, while all brokers serve or, for `between`, while none runs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def prepare(self) -> None:
        """Make what must survive, on Kafka."""

    def before(self, turn: int) -> None:
        """Begin what the stop of the brokers interrupts."""

    def between(self, turn: int) -> None:
        """Change what a broker that died would have left in ZooKeeper."""

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        """Return what has not survived, as texts."""
        raise NotImplementedError

    def end(self) -> list[str]:
        """Return what is wrong at the end, after the brokers have stopped."""
        return []
