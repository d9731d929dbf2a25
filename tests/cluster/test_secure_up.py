"""`up --secure`: the printed client blocks work as they are, and a cluster keeps its authority and users."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaError, Producer
from support.clusters.apache_kafka import JARS, needs_kafka
from support.commands.commands import Ended, run
from support.rows import proof
from support.zookeeper import bytes as wire
from support.zookeeper.bytes import Wire

from minikafka.tools.cluster import ClusterError, LocalCluster

CONFIG = """
[cluster]
brokers = 2
port = 0
[broker]
group.initial.rebalance.delay.ms = 0
offsets.topic.num.partitions = 1
"""
LOGIN_NEEDED = -124
"""ZooKeeper's answer to a client that has not authenticated."""


class SecureCluster:
    """A data directory with a secure cluster that `up` has started, and what `up` has printed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "cluster.toml").write_text(CONFIG)
        self.printed = self.up("--secure")

    def minikafka(self, *words: str) -> Ended:
        """Run a command in the directory."""
        return run(*words, cwd=self.directory)

    def up(self, *words: str) -> str:
        """Start the cluster, and return what is printed."""
        ended = self.minikafka("up", *words)
        assert ended.code == 0, ended.err
        return ended.out

    @property
    def blocks(self) -> dict[str, str]:
        """The printed blocks by the first word of their headings."""
        parts = re.split(r"^# ([a-z-]+): .*\n", self.printed, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def python(self, kind: str) -> dict[str, Any]:
        """Return the value that the Python code of a block assigns."""
        names: dict[str, Any] = {}
        exec(self.blocks[kind], names)
        config: dict[str, Any] = names["config"]
        return config

    @property
    def cluster(self) -> LocalCluster:
        """The cluster, as a program sees it."""
        return LocalCluster(data=self.directory / "data", attached=False)

    def files(self) -> dict[str, str]:
        """The files of its security, by name."""
        return {
            file.name: file.read_text() for file in (self.directory / "data/security").iterdir()
        }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    started = SecureCluster(tmp_path_factory.mktemp("secure"))
    yield started
    started.minikafka("down")


def librdkafka(text: str) -> dict[str, Any]:
    return dict(line.split("=", 1) for line in text.strip().splitlines())


def refused(config: dict[str, Any]) -> list[int]:
    """Return the codes of the errors with which librdkafka fails to connect."""
    errors: list[int] = []
    producer = Producer({**config, "error_cb": lambda error: errors.append(error.code())})
    while not errors:
        producer.poll(0.1)
    return errors


async def test_printed_blocks_work_with_each_python_client(secure: SecureCluster) -> None:
    producer = Producer(librdkafka(secure.blocks["librdkafka"]))
    producer.produce("orders", b"confluent-kafka")
    assert await asyncio.to_thread(producer.flush, 30) == 0
    other = kafka.KafkaProducer(**secure.python("kafka-python"))
    await asyncio.to_thread(other.send("orders", b"kafka-python").get, 30)
    other.close()
    config = secure.python("aiokafka")
    reader = aiokafka.AIOKafkaConsumer("orders", auto_offset_reset="earliest", **config)
    async with aiokafka.AIOKafkaProducer(**config) as third, reader:
        await third.send_and_wait("orders", b"aiokafka")
        found = [(await reader.getone()).value for _ in range(3)]
    assert found == [b"confluent-kafka", b"kafka-python", b"aiokafka"]


def test_a_program_gets_the_same_configurations(secure: SecureCluster) -> None:
    cluster = secure.cluster
    assert cluster.client_config("librdkafka") == librdkafka(secure.blocks["librdkafka"])
    for kind in ("kafka-python", "spark"):
        assert cluster.client_config(kind) == secure.python(kind)
    for kind in ("properties", "kafkajs"):
        assert cluster.client_config(kind).strip() == secure.blocks[kind].strip()
    admin = cluster.client_config("librdkafka", user="admin")
    assert admin["sasl.username"] == "admin"


@needs_kafka
def test_printed_properties_work_with_kafkas_tools(secure: SecureCluster) -> None:
    file = secure.directory / "client.properties"
    file.write_text(secure.blocks["properties"])
    tool = ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.TopicCommand", "--list"]
    where = ["--bootstrap-server", secure.printed.split()[0], "--command-config", str(file)]
    done = subprocess.run([*tool, *where], capture_output=True, text=True, timeout=60)
    assert "orders" in done.stdout.split(), done


def test_nobody_else_gets_in(secure: SecureCluster) -> None:
    config = librdkafka(secure.blocks["librdkafka"])
    assert KafkaError._AUTHENTICATION in refused({**config, "sasl.password": "guessed"})
    plain = {"bootstrap.servers": config["bootstrap.servers"]}
    assert {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN} & {*refused(plain)}
    client = Wire(int(secure.cluster.zookeeper.rpartition(":")[2]))
    client.connect(10_000)
    assert client.request(1, wire.CHILDREN, wire.text("/") + b"\0").error == LOGIN_NEEDED
    client.socket.close()


def test_secrets_are_in_private_files_and_nowhere_else(secure: SecureCluster) -> None:
    data = secure.directory / "data"
    assert (data / "security").stat().st_mode & 0o777 == 0o700
    for file in [
        *(data / "security").iterdir(),
        *data.glob("broker-*.toml"),
        data / "cluster.json",
    ]:
        assert file.stat().st_mode & 0o777 == 0o600, file
    passwords = {
        password
        for text in secure.files().values()
        for password in re.findall('="([0-9a-f]{32})"', text)
    }
    assert len(passwords) == 3
    told = secure.up("--json") + (data / "cluster.json").read_text() + repr(secure.cluster.record)
    told += "".join(log.read_text() for log in (data / "logs").iterdir())
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told += process.read_text(errors="replace")
        except OSError:
            continue
    assert not [password for password in passwords if password in told]
    assert json.loads(secure.up("--json"))["bootstrap"] == secure.cluster.bootstrap


def test_a_later_start_keeps_authority_users_and_passwords(secure: SecureCluster) -> None:
    before, printed = secure.files(), secure.printed
    assert secure.minikafka("down").code == 0
    assert secure.up() == secure.cluster.bootstrap + "\n"  # it stays secure without --secure
    assert secure.up("--secure") == printed
    assert secure.files() == before
    producer = Producer(librdkafka(secure.blocks["librdkafka"]))
    producer.produce("orders", b"again")
    assert producer.flush(30) == 0


def test_commands_on_the_data_directory_log_in_as_the_administrator(secure: SecureCluster) -> None:
    for words, expected in (
        (("topics", "list"), "orders"),
        (("consume", "orders", "--group", "tools", "-e", "-q"), "kafka-python"),
        (("status",), secure.cluster.bootstrap),
        (("cluster", "health"), "healthy"),
        (("users", "list"), "alice  SCRAM-SHA-512"),
        (("why", "--group", "tools"), "group tools has no problem"),
        (("why", "--principal", "User:bob", "--topic", "orders"), "User:bob may not Read"),
    ):
        ended = secure.minikafka(*words)
        assert expected in ended.out, (words, ended)


def test_keys_that_a_secure_cluster_sets_cannot_be_set(secure: SecureCluster) -> None:
    file = secure.directory / "other.toml"
    file.write_text('[broker]\n"super.users" = "User:bob"\n')
    refused = secure.minikafka("up", "--config", "other.toml")
    assert (refused.code, refused.out) == (1, "")
    assert "super.users is set by the secure cluster itself: leave it out" in refused.err


async def test_secure_cluster_works_without_a_controller() -> None:
    proof.note(proof.Level.REAL, "leaders")
    config = {"default.replication.factor": 2, "min.insync.replicas": 2}
    async with LocalCluster(2, secure=True, coordination="leaders", config=config) as cluster:
        producer = Producer({**cluster.client_config("librdkafka"), "acks": "all"})
        producer.produce("orders", b"v")
        assert await asyncio.to_thread(producer.flush, 30) == 0
        await cluster.wait_for_isr("orders", [1, 2])


def test_wrong_requests_name_the_fix(secure: SecureCluster) -> None:
    cluster = secure.cluster
    with pytest.raises(ClusterError, match=r"no bob\.properties in .*: the users there are admin"):
        cluster.client_config("librdkafka", user="bob")
    with pytest.raises(ClusterError, match=r"no client 'sarama': choose one of properties, lib"):
        cluster.client_config("sarama")
