"""One broker of Apache Kafka 3.9 with its own ZooKeeper, and Java programs with Kafka's jars, for comparisons.

MINIKAFKA_KAFKA_JARS names a directory with Kafka's jars (kafka_2.13, kafka-tools and their dependencies).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.spawning import die_with
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
HOST: Final = "127.0.0.1"
START_SECONDS: Final = 60
QUICK: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

needs_kafka = pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka_2*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka",
)


class ApacheKafka(NamedTuple):
    """A running broker of Apache Kafka."""

    bootstrap: str
    log_dir: Path
    pid: int
    secured: Mapping[str, str]
    """The address of each listener of `apache_kafka`'s argument `secured`."""


@asynccontextmanager
async def apache_kafka(
    directory: Path,
    secured: Sequence[str] = (),
    settings_of_security: Mapping[str, object] = {},
    **keys: object,
) -> AsyncIterator[ApacheKafka]:
    """Run a broker with these settings until the block ends. In the names of `keys`, `_` stands for `.`.

    `secured`: the names of further listeners, which are security protocols.
    """
    port, own, *others = free_ports(2 + len(secured), SystemRng())
    addresses = {name: f"localhost:{found}" for name, found in zip(secured, others, strict=True)}
    listeners = [f"{name}://{address}" for name, address in addresses.items()]
    zookeeper = ApacheZooKeeper(directory / "zookeeper", port, clock=SystemClock())
    await zookeeper.start()
    try:
        settings = {
            "broker.id": 1,
            "listeners": ",".join([f"PLAINTEXT://{HOST}:{own}", *listeners]),
            "log.dirs": directory / "logs",
            "zookeeper.connect": zookeeper.connect,
            **settings_of_security,
            **{key.replace("_", "."): value for key, value in keys.items()},
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ("java", *QUICK, "-cp", f"{JARS}/*", "kafka.Kafka", str(properties))
        with (directory / "server.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, preexec_fn=partial(die_with, os.getpid())
            )
        try:
            await _wait_until_registered(f"{HOST}:{own}", process)
            yield ApacheKafka(f"{HOST}:{own}", directory / "logs", process.pid, addresses)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    finally:
        await zookeeper.kill()


async def _wait_until_registered(bootstrap: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START_SECONDS):
        while not await asyncio.to_thread(_lists_a_broker, bootstrap):
            assert process.returncode is None, "the broker ended"
            await asyncio.sleep(0.05)


def _lists_a_broker(bootstrap: str) -> bool:
    """True if a new client gets a list of brokers. A client that gets an empty list waits long before it asks again."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


async def run_java(program: Path | str, *arguments: str) -> str:
    """Run a Java source file or a class of Kafka's jars; return its standard output. A failure fails the test."""
    process = await asyncio.create_subprocess_exec(
        "java",
        *QUICK,
        "-cp",
        f"{JARS}/*",
        str(program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return printed.decode()
