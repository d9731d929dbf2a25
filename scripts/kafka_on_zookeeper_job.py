"""Three brokers of Apache Kafka 3.9 on minikafka's own ZooKeeper server, while faults happen and a producer runs.

    MINIKAFKA_KAFKA_JARS=DIR kafka-on-zookeeper [--zookeeper embedded|managed] [--json]

The faults, one after the other: the controller is killed, the ZooKeeper server is killed and started again, the
controller stops, a broker is paused for longer than its session timeout, `/controller` is deleted by hand, a topic is
deleted. `--zookeeper managed` runs the same on Apache ZooKeeper. The exit code is 0 only if each fault ends as it
does there, and no record that the producer sent with acks=all and that was acknowledged is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import endings
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from display import Display
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from threads import in_thread

from minikafka.base.errors import MinikafkaError
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.spawning import die_with, start_child
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper, find_java
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper, ServerProcess

JARS = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
HOST = "127.0.0.1"
BROKERS = (1, 2, 3)
QUICK = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SESSION_MS = 6_000
PAUSE_SECONDS = 9.0
DOWN_SECONDS = 1.0
TOPICS = [f"topic-{number}" for number in range(3)]
PARTITIONS = 10
DELETED = "deleted"
STEP_SECONDS = 90.0
POLL_SECONDS = 0.05
RECORD_SECONDS = 0.003
LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n
"""
SETTINGS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "true",
}
KINDS: Mapping[str, type[ServerProcess]] = {
    "embedded": EmbeddedZooKeeper,
    "managed": ApacheZooKeeper,
}


class Kafka:
    """Three brokers as child processes. A broker that starts again has the same port and logs."""

    def __init__(self, directory: Path, connect: str) -> None:
        self._directory = directory
        self._connect = connect
        self._ports = dict(zip(BROKERS, free_ports(len(BROKERS), SystemRng()), strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def start(self, broker: int) -> None:
        """Start a broker; it registers later."""
        settings = {
            **SETTINGS,
            "broker.id": broker,
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[broker]}",
            "log.dirs": self._directory / f"logs-{broker}",
            "zookeeper.connect": self._connect,
        }
        properties = self._directory / f"{broker}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        logging_file = self._directory / "log4j.properties"
        logging_file.write_text(LOGGING)
        log4j = f"-Dlog4j.configuration=file:{logging_file}"
        command = [
            str(find_java()),
            *QUICK,
            log4j,
            "-cp",
            f"{JARS}/*",
            "kafka.Kafka",
            str(properties),
        ]
        end_with_us = partial(die_with, os.getpid())
        with (self._directory / f"{broker}.log").open("ab") as log:
            self._processes[broker] = start_child(
                command, stdout=log, stderr=log, preexec_fn=end_with_us
            )

    def signal(self, broker: int, number: int) -> None:
        """Send a signal; wait for the end of a broker that is killed or stopped."""
        process = self._processes[broker]
        process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait(STEP_SECONDS)

    def check(self) -> None:
        """Raise RuntimeError if a broker has ended that was not killed or stopped."""
        for broker, process in self._processes.items():
            if process.returncode is None and process.poll() is not None:
                last = (self._directory / f"{broker}.log").read_text()[-2_000:]
                raise RuntimeError(f"broker {broker} has ended: {last}")

    def kill_all(self) -> None:
        """Kill all brokers."""
        for broker in self._processes:
            self.signal(broker, signal.SIGKILL)


class Load(threading.Thread):
    """A producer with acks=all. `acked`: number of each acknowledged record."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acked: set[int] = set()
        self.failed = 0
        self._done = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Send records until `end`."""
        number = 0
        while not self._done.is_set():
            with suppress(BufferError):
                topic = TOPICS[number % len(TOPICS)]
                self._producer.produce(topic, b"%d" % number, on_delivery=self._delivered)
                number += 1
            self._producer.poll(RECORD_SECONDS)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acked.add(int(message.value()))  # type: ignore[attr-defined]
        else:
            self.failed += 1

    def end(self) -> None:
        """Send no further record, and wait for all answers."""
        self._done.set()
        self.join()
        self._producer.flush(STEP_SECONDS)


class View:
    """What ZooKeeper says about the brokers."""

    def __init__(self, connect: str) -> None:
        self._client = KazooClient(connect, timeout=30, connection_retry={"max_tries": -1})
        self._client.start()

    def controller(self) -> int:
        """Return the id of the controller; 0 if there is none."""
        try:
            return int(json.loads(self._client.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return 0

    def epoch(self) -> int:
        """Return the epoch of the controller."""
        return int(self._client.get("/controller_epoch")[0])

    def sessions(self) -> dict[str, int]:
        """Return the session of each registered broker."""
        found = {}
        for broker in self._client.get_children("/brokers/ids"):
            with suppress(NoNodeError):
                found[broker] = self._client.get(f"/brokers/ids/{broker}")[1].owner_session_id
        return found

    def smallest_isr(self) -> int:
        """Return the size of the smallest ISR."""
        sizes = [0]
        with suppress(NoNodeError):
            sizes = [
                len(
                    json.loads(
                        self._client.get(f"/brokers/topics/{topic}/partitions/{one}/state")[0]
                    )["isr"]
                )
                for topic in TOPICS
                for one in range(PARTITIONS)
            ]
        return min(sizes)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._client.get_children("/brokers/topics"))

    def depose(self) -> None:
        """Delete the node of the controller, as operators do."""
        self._client.delete("/controller")

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


class Run:
    """One run. `facts`: step → seconds, and the counts."""

    def __init__(self, display: Display, zookeeper: ServerProcess, directory: Path) -> None:
        self._display = display
        self._zookeeper = zookeeper
        self._kafka = Kafka(directory, zookeeper.connect)
        self._view: View
        self.facts: dict[str, object] = {}

    async def run(self) -> bool:
        """Start everything, carry out the faults, and check the records. Return True if nothing is missing."""
        await self._zookeeper.start()
        self._view = await in_thread(View, self._zookeeper.connect)
        try:
            for broker in BROKERS:
                self._kafka.start(broker)
            await self._until("three brokers registered", lambda: len(self._view.sessions()) == 3)
            await in_thread(self._create_topics)
            await self._until("topics with all replicas in sync", self._is_whole)
            load = Load(self._kafka.bootstrap)
            load.start()
            await self._faults()
            await in_thread(load.end)
            return await in_thread(self._check, load)
        finally:
            self._kafka.kill_all()
            await self._zookeeper.kill()
            await in_thread(self._view.close)

    async def _faults(self) -> None:
        await self._kill_controller(signal.SIGKILL, "controller killed")
        await self._kill_zookeeper()
        await self._kill_controller(signal.SIGTERM, "controller stopped")
        await self._pause_broker()
        before = await in_thread(self._view.epoch)
        await in_thread(self._view.depose)
        await self._until(
            "/controller deleted: new term",
            lambda: self._view.controller() != 0 and self._view.epoch() > before,
        )
        await self._until("topic deleted", self._is_deleted)
        await self._until("all replicas in sync at the end", self._is_whole)

    async def _kill_controller(self, number: int, name: str) -> None:
        victim = await in_thread(self._view.controller)
        await in_thread(self._kafka.signal, victim, number)
        await self._until(
            f"{name}: new controller", lambda: self._view.controller() not in (0, victim)
        )
        await self._until(f"{name}: others in sync", lambda: self._view.smallest_isr() == 2)
        self._kafka.start(victim)
        await self._until(f"{name}: back in sync", self._is_whole)

    async def _kill_zookeeper(self) -> None:
        """Kill and start the ZooKeeper server: sessions, controller and epoch must stay. Raises RuntimeError."""
        before = await in_thread(self._state)
        await self._zookeeper.kill()
        await asyncio.sleep(DOWN_SECONDS)
        await self._zookeeper.start()
        await asyncio.sleep(SESSION_MS / 1_000)
        if (after := await in_thread(self._state)) != before:
            raise RuntimeError(f"after the restart of ZooKeeper {after}, before it {before}")
        self._say("ZooKeeper killed and started: sessions, controller and epoch unchanged", None)

    def _state(self) -> object:
        return self._view.sessions(), self._view.controller(), self._view.epoch()

    async def _pause_broker(self) -> None:
        controller = await in_thread(self._view.controller)
        paused = next(broker for broker in BROKERS if broker != controller)
        self._kafka.signal(paused, signal.SIGSTOP)
        await asyncio.sleep(PAUSE_SECONDS)
        if str(paused) in await in_thread(self._view.sessions):
            raise RuntimeError(f"the session of broker {paused} has not expired")
        self._kafka.signal(paused, signal.SIGCONT)
        await self._until("paused broker registered again", lambda: len(self._view.sessions()) == 3)
        await self._until("paused broker back in sync", self._is_whole)

    def _is_whole(self) -> bool:
        return self._view.smallest_isr() == len(BROKERS)

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap, "log_level": 0})
        new = [NewTopic(topic, PARTITIONS, len(BROKERS)) for topic in (*TOPICS, DELETED)]
        for future in admin.create_topics(new).values():
            future.result()

    def _is_deleted(self) -> bool:
        """Request the deletion of the topic until it is gone: a new controller may refuse the first requests."""
        if DELETED not in self._view.topics():
            return True
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap, "log_level": 0})
        with suppress(KafkaException):
            admin.delete_topics([DELETED])[DELETED].result()
        return False

    def _check(self, load: Load) -> bool:
        found = read_all(self._kafka.bootstrap)
        missing = load.acked - found
        self.facts |= {
            "acknowledged": len(load.acked),
            "failed": load.failed,
            "missing": len(missing),
        }
        self._say(
            f"{len(load.acked):,} records acknowledged, {load.failed} failed, {len(missing)} missing",
            None,
        )
        return bool(load.acked) and not missing

    async def _until(self, name: str, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds, and note the time. Raises RuntimeError after STEP_SECONDS."""
        begin = time.monotonic()
        while not await in_thread(_quietly, holds):
            self._kafka.check()
            if time.monotonic() - begin > STEP_SECONDS:
                raise RuntimeError(f"not within {STEP_SECONDS:g} s: {name}")
            await asyncio.sleep(POLL_SECONDS)
        self._say(name, time.monotonic() - begin)

    def _say(self, name: str, seconds: float | None) -> None:
        if seconds is not None:
            self.facts[name] = round(seconds, 2)
        self._display.say(name if seconds is None else f"{name}: {seconds:.1f} s")


def _quietly(holds: Callable[[], bool]) -> bool:
    with suppress(KazooException):
        return holds()
    return False


def read_all(bootstrap: str) -> set[int]:
    """Return the numbers of all records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "log_level": 0})
    parts = [TopicPartition(topic, one, 0) for topic in TOPICS for one in range(PARTITIONS)]
    left = {(part.topic, part.partition): consumer.get_watermark_offsets(part)[1] for part in parts}
    consumer.assign(parts)
    found: set[int] = set()
    while any(left.values()):
        message = consumer.poll(STEP_SECONDS)
        if message is None:
            break
        if message.error() is None:
            found.add(int(message.value()))
            left[message.topic(), message.partition()] = max(
                0, left[message.topic(), message.partition()] - 1
            )
    consumer.close()
    return found


def main() -> bool:
    """Parse the command line and run. Return True if no record is missing."""
    parser = argparse.ArgumentParser(
        prog="kafka-on-zookeeper", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--zookeeper", choices=KINDS, default="embedded", help="the server (embedded)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = parser.parse_args(sys.argv[1:])
    if not any(Path(JARS).glob("kafka_2*.jar")) or not JARS:
        raise MinikafkaError(
            "MINIKAFKA_KAFKA_JARS must name a directory with the jars of Apache Kafka 3.9"
        )
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    with Display() as display, TemporaryDirectory(prefix="minikafka-kafka-") as name:
        return run_cancellable(whole_run(display, Path(name), arguments))


async def whole_run(display: Display, directory: Path, arguments: argparse.Namespace) -> bool:
    """Run on the chosen server."""
    [port] = free_ports(1, SystemRng())
    server = KINDS[arguments.zookeeper](directory / "zookeeper", port, clock=SystemClock())
    run = Run(display, server, directory)
    is_good = await run.run()
    if arguments.json:
        print(json.dumps({"zookeeper": arguments.zookeeper, **run.facts}))
    return is_good


if __name__ == "__main__":
    endings.run("kafka-on-zookeeper", main)
