"""Apache Kafka 3.9 and minikafka take turns on the same log directories and ZooKeeper, while records are copied.

    MINIKAFKA_KAFKA_JARS=DIR kafka-takeover [--rounds N] [--seconds S] [--keep DIR] [--json]

Three brokers. In each round minikafka takes over from Kafka, from Kafka's own `server.properties`, and Kafka takes
over again. Every third round ends with SIGKILL in the place of SIGTERM. Meanwhile an idempotent producer writes, and
a transactional job copies its records with a consumer group. The exit code is 0 only if every acknowledged record
is there once and in order, has exactly one copy, and every promise of `kafka_takeover_promises.py` is kept: settings,
users, ACLs, tokens, groups, transactions, producer ids, compacted and shortened logs, moves, deletions and epochs.
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import endings
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from copy_check import Records, Topics, differences
from copy_processes import CopyProcess, running
from display import Display
from kafka_on_zookeeper_job import HOST, JARS, LOGGING, QUICK
from kafka_takeover_cluster import Cluster
from kafka_takeover_promises import Promises
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from threads import in_thread

from minikafka.base.errors import MinikafkaError
from minikafka.checks.histories import Recorder
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.spawning import die_with, start_child
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper, find_java

KAFKA, MINIKAFKA = "Kafka", "minikafka"
BROKERS = (1, 2, 3)
INPUT, OUTPUT, GROUP = "input", "output", "copy"
PARTITIONS = 6
STEP_SECONDS = 120.0
POLL_SECONDS = 0.1
RECORD_SECONDS = 0.01
KILL_EVERY = 3
"""The brokers of every third round are killed."""
SETTINGS = {"compression.type": "lz4", "retention.ms": "864000000"}
KEYS = """\
zookeeper.session.timeout.ms=6000
default.replication.factor=3
min.insync.replicas=2
offsets.topic.num.partitions=5
log.cleaner.dedupe.buffer.size=8388608
transaction.state.log.num.partitions=5
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
controlled.shutdown.retry.backoff.ms=500
num.io.threads=4
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:ANONYMOUS
delegation.token.secret.key=a secret of all brokers
"""


class Brokers:
    """Three brokers as child processes, all of Kafka or all of minikafka, with the same files and directories."""

    def __init__(self, directory: Path, connect: str) -> None:
        self._directory = directory
        ports = free_ports(2 * len(BROKERS), SystemRng())
        plain, secured = ports[: len(BROKERS)], ports[len(BROKERS) :]
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in plain)
        self.secured = ",".join(f"{HOST}:{port}" for port in secured)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        (directory / "log4j.properties").write_text(LOGGING)
        for broker, *own in zip(BROKERS, plain, secured, strict=True):
            listeners = "PLAINTEXT://{0}:{1},SASL://{0}:{2}".format(HOST, *own)
            log_dirs = ",".join(f"{directory}/{broker}/logs-{one}" for one in "ab")
            self._file(broker).parent.mkdir()
            self._file(broker).write_text(
                f"broker.id={broker}\nlisteners={listeners}\nzookeeper.connect={connect}\n"
                f"log.dirs={log_dirs}\n{KEYS}"
            )
        self._init_secret()

    def _file(self, broker: int) -> Path:
        return self._directory / str(broker) / "server.properties"

    def _init_secret(self) -> None:
        """Make the secret beside the first broker's file, and copy it to the others."""
        first, *others = map(self._file, BROKERS)
        subprocess.run([*_minikafka(), "init-secret", str(first)], check=True, capture_output=True)
        made = first.with_name("minikafka-secret.properties")
        for other in others:
            other.with_name(made.name).write_bytes(made.read_bytes())

    def start(self, kind: str) -> None:
        """Start all brokers; they register later."""
        log4j = f"-Dlog4j.configuration=file:{self._directory}/log4j.properties"
        java = [str(find_java()), *QUICK, log4j, "-cp", f"{JARS}/*", "kafka.Kafka"]
        command = java if kind == KAFKA else [*_minikafka(), "broker", "--config"]
        end_with_us = partial(die_with, os.getpid())
        for broker in BROKERS:
            file = self._file(broker)
            with file.with_name(f"{kind}.log").open("ab") as log:
                self._processes[broker] = start_child(
                    [*command, str(file)], stdout=log, stderr=log, preexec_fn=end_with_us
                )

    def end(self, number: signal.Signals) -> None:
        """Send the signal to all brokers, and wait until they have ended."""
        for process in self._processes.values():
            process.send_signal(number)
        for process in self._processes.values():
            process.wait(STEP_SECONDS)
        self._processes.clear()

    def check(self) -> None:
        """Raise RuntimeError if a broker has ended by itself."""
        for broker, process in self._processes.items():
            if process.poll() is not None:
                logs = self._file(broker).parent.glob("*.log")
                last = max(logs, key=lambda log: log.stat().st_mtime).read_text()[-2_000:]
                raise RuntimeError(f"broker {broker} has ended: {last}")


def _minikafka() -> list[str]:
    return [sys.executable, "-m", "minikafka"]


class Feed(threading.Thread):
    """An idempotent producer with acks=all. `acked`: the values of acknowledged records of each partition, in order.

    While Kafka's brokers shut down, librdkafka can get the fatal error OUT_OF_ORDER_SEQUENCE_NUMBER: Kafka has appended
    a batch without enough replicas, and gets a part of it again. Then a new producer continues.
    """

    def __init__(self, bootstrap: str, log: Path) -> None:
        super().__init__(daemon=True)
        self._log = logging.getLogger("feed")
        lines = logging.FileHandler(log)
        lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._log.addHandler(lines)
        self._log.setLevel(logging.DEBUG)
        self._log.propagate = False
        self.acked: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.failures: Counter[str] = Counter()
        self._done = threading.Event()
        self._next = 0
        self._settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "delivery.timeout.ms": 300_000,
            "reconnect.backoff.max.ms": 500,
            # A broker that has just started does not know the topics yet.
            "topic.metadata.propagation.max.ms": 3_600_000,
            "debug": "eos",
            # Without it, a fatal error becomes an exception in the middle of the next callback.
            "error_cb": lambda _: None,
        }

    def run(self) -> None:
        """Send records until `end`, and wait for all answers."""
        while not self._done.is_set():
            producer = Producer(self._settings, logger=self._log)
            # A fatal error becomes a SystemError in the middle of a callback.
            with suppress(KafkaException, SystemError):
                self._send(producer)
            with suppress(KafkaException, SystemError):
                producer.flush(STEP_SECONDS)

    def _send(self, producer: Producer) -> None:
        while not self._done.is_set():
            value, place = b"%d" % self._next, self._next % PARTITIONS
            note = partial(self._delivered, place, value)
            with suppress(BufferError):
                producer.produce(INPUT, value, partition=place, on_delivery=note)
                self._next += 1
            producer.poll(RECORD_SECONDS)

    def _delivered(self, place: int, value: bytes, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.acked[place].append(value)
        else:
            self.failures[error.name()] += 1

    def end(self) -> None:
        """Send no further record, and wait for all answers."""
        self._done.set()
        self.join()


class View:
    """What ZooKeeper says about the cluster."""

    def __init__(self, connect: str) -> None:
        self._client = KazooClient(connect, timeout=30, connection_retry={"max_tries": -1})
        self._client.start()
        self._former: set[int] = set()

    def is_whole(self) -> bool:
        """True if all brokers are registered and all replicas are in sync."""
        with suppress(NoNodeError):
            states = [
                self._state(topic, one) for topic in (INPUT, OUTPUT) for one in range(PARTITIONS)
            ]
            return self.is_registered() and all(len(state["isr"]) == 3 for state in states)
        return False

    def topics(self) -> set[str]:
        """Return the names of all topics that nobody wants to delete."""
        doomed = self._client.get_children("/admin/delete_topics")
        return set(self._client.get_children("/brokers/topics")) - set(doomed)

    def is_registered(self) -> bool:
        """True if all brokers have registered since `forget`."""
        with suppress(NoNodeError):
            return len(self._sessions() - self._former) == len(BROKERS)
        return False

    def is_empty(self) -> bool:
        """True if no broker is registered."""
        return not self._sessions()

    def forget(self) -> None:
        """Do not count the present registrations: those of killed brokers last until their sessions expire."""
        self._former = self._sessions()

    def _sessions(self) -> set[int]:
        brokers = self._client.get_children("/brokers/ids")
        return {self._client.get(f"/brokers/ids/{one}")[1].owner_session_id for one in brokers}

    def _state(self, topic: str, partition: int) -> dict[str, Any]:
        return self._json(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def _json(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._client.get(path)[0])
        return found

    def kept(self) -> dict[str, Any]:
        """Return what each takeover must keep: topic ids and settings."""
        topics = (INPUT, OUTPUT)
        ids = {topic: self._json(f"/brokers/topics/{topic}")["topic_id"] for topic in topics}
        return {"ids": ids, "settings": self._json(f"/config/topics/{INPUT}")["config"]}

    def epochs(self) -> dict[str, int]:
        """Return the leader epoch of each partition, and the controller's."""
        found = {
            f"{topic}-{one}": int(self._state(topic, one)["leader_epoch"])
            for topic in (INPUT, OUTPUT)
            for one in range(PARTITIONS)
        }
        return found | {"controller": int(self._client.get("/controller_epoch")[0])}

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


class Run:
    """One run. `facts`: the figures."""

    def __init__(self, display: Display, directory: Path, arguments: argparse.Namespace) -> None:
        self._display = display
        self._directory = directory
        self._arguments = arguments
        [port] = free_ports(1, SystemRng())
        self._zookeeper = ApacheZooKeeper(directory / "zookeeper", port, clock=SystemClock())
        self._brokers = Brokers(directory, self._zookeeper.connect)
        self._view: View
        names = self._brokers.bootstrap, self._brokers.secured
        self._promises = Promises(Cluster(directory, *names, self._zookeeper.connect))
        self.facts: dict[str, object] = {}
        self._broken: list[str] = []
        """What did not survive one of the takeovers."""

    async def run(self) -> bool:
        """Start Kafka, let both take turns, and check the records. Return True if nothing is missing."""
        await self._zookeeper.start()
        self._view = await in_thread(View, self._zookeeper.connect)
        try:
            self._brokers.start(KAFKA)
            await self._until("Kafka has started", self._knows_all_brokers)
            await in_thread(self._create_topics)
            await self._until("topics with all replicas in sync", self._view.is_whole)
            await in_thread(self._promises.prepare)
            feed = Feed(self._brokers.bootstrap, self._directory / "feed.log")
            job = CopyProcess(self._brokers.bootstrap, "job", (INPUT, OUTPUT), self._directory)
            feed.start()
            async with running([job]):
                await self._rounds()
                await in_thread(feed.end)
                problems = await in_thread(self._check, feed)
            self._brokers.end(signal.SIGTERM)
            problems += self._broken + await in_thread(self._promises.end)
            self.facts |= {"starts of the job": sum(job.ends.values()) + 1, "problems": problems}
            return not problems
        finally:
            self._brokers.end(signal.SIGKILL)
            await self._zookeeper.kill()
            await in_thread(self._view.close)

    def _knows_all_brokers(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self._brokers.bootstrap, "log_level": 0})
        with suppress(KafkaException):
            return len(admin.list_topics(timeout=STEP_SECONDS).brokers) == len(BROKERS)
        return False

    def _know_all_topics(self) -> bool:
        """True if each broker, asked alone, names a leader for all partitions. Clients may ask any of them."""
        return all(map(self._knows_all_topics, self._brokers.bootstrap.split(",")))

    def _knows_all_topics(self, address: str) -> bool:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        with suppress(KafkaException):
            told = admin.list_topics(timeout=STEP_SECONDS).topics
            led = {
                name
                for name, topic in told.items()
                if topic.partitions and all(one.leader >= 0 for one in topic.partitions.values())
            }
            return self._view.topics() <= led
        return False

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._brokers.bootstrap, "log_level": 0})
        new = [NewTopic(topic, PARTITIONS, len(BROKERS)) for topic in (INPUT, OUTPUT)]
        for future in admin.create_topics(new).values():
            future.result()
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in SETTINGS.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, INPUT, incremental_configs=entries)
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()

    async def _rounds(self) -> None:
        before = await in_thread(self._view.kept)
        await asyncio.sleep(self._arguments.seconds)
        for number in range(1, self._arguments.rounds + 1):
            how = signal.SIGKILL if number % KILL_EVERY == 0 else signal.SIGTERM
            for turn, kind in enumerate((MINIKAFKA, KAFKA), start=2 * number):
                name = f"round {number} of {self._arguments.rounds}: {kind} after {how.name}"
                await in_thread(self._promises.before, turn)
                epochs = await in_thread(self._view.epochs)
                await in_thread(self._view.forget)
                await in_thread(self._brokers.end, how)
                if how is signal.SIGKILL:  # Kafka does not start while its former session lasts
                    await self._until(f"{name}: former sessions have ended", self._view.is_empty)
                await in_thread(self._promises.between, turn)
                self._brokers.start(kind)
                await self._until(name, self._view.is_whole)
                await self._until(f"{name}: each broker knows all topics", self._know_all_topics)
                self._compare(name, before, epochs)
                await self._check_promises(name, turn, was_killed=how is signal.SIGKILL)
                await asyncio.sleep(self._arguments.seconds)

    async def _check_promises(self, name: str, turn: int, *, was_killed: bool) -> None:
        check = partial(self._promises.problems, turn, was_killed=was_killed)
        for problem in await in_thread(check):
            self._display.say(f"{name}: {problem}")
            self._broken.append(f"{name}: {problem}")

    def _compare(self, name: str, before: object, epochs: dict[str, int]) -> None:
        """Raise RuntimeError if a takeover has lost ids or settings, or has gone back in an epoch."""
        if (after := self._view.kept()) != before:
            raise RuntimeError(f"{name}: {after}, before it {before}")
        now = self._view.epochs()
        if fallen := {key: (epochs[key], now[key]) for key in epochs if now[key] < epochs[key]}:
            raise RuntimeError(f"{name}: epochs have fallen: {fallen}")

    def _check(self, feed: Feed) -> list[str]:
        topics = Topics(self._brokers.bootstrap)
        with (self._directory / "reader.jsonl").open("w", encoding="utf-8") as history:
            recorder = Recorder("reader", "reader", history.write, time.monotonic)
            source = topics.read(INPUT, topics.settled(INPUT, PARTITIONS), recorder)
            topics.wait_until_copied(GROUP, INPUT, source, lambda done, total: None)
            target = topics.read(OUTPUT, topics.settled(OUTPUT, PARTITIONS), recorder)
        acked = sum(map(len, feed.acked.values()))
        read = sum(map(len, source.values()))
        self.facts |= {"acknowledged": acked, "failures": feed.failures, "read": read}
        self._display.say(f"{acked:,} records acknowledged, {read:,} read")
        for error, count in feed.failures.items():
            self._display.say(f"{count:,} records failed: {error}")
        return [*_lost(feed.acked, source), *differences(source, target)]

    async def _until(self, name: str, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds, and note the time. Raises RuntimeError after STEP_SECONDS."""
        begin = time.monotonic()
        while not await in_thread(_quietly, holds):
            self._brokers.check()
            if time.monotonic() - begin > STEP_SECONDS:
                raise RuntimeError(f"not within {STEP_SECONDS:g} s: {name}")
            await asyncio.sleep(POLL_SECONDS)
        self.facts[name] = round(time.monotonic() - begin, 2)
        self._display.say(f"{name}: {self.facts[name]} s")


def _quietly(holds: Callable[[], bool]) -> bool:
    with suppress(KazooException):
        return holds()
    return False


def _lost(acked: dict[int, list[bytes]], source: Records) -> list[str]:
    """Return a text for each partition without the acknowledged records, in their order and once each."""
    problems = []
    for partition, wanted in acked.items():
        found = [value for _, value in source[partition]]
        known = set(wanted)
        if [value for value in found if value in known] != wanted:
            missing, repeated = len(known - set(found)), len(found) - len(set(found))
            problems.append(
                f"partition {partition}: {missing} acknowledged records missing, {repeated} repeated"
            )
    return problems


@contextmanager
def _files(kept: Path | None) -> Iterator[Path]:
    """Yield the directory for all files: a new one that is kept, or a temporary one."""
    if kept is not None:
        kept.mkdir()
        yield kept.resolve()
        return
    with TemporaryDirectory(prefix="minikafka-takeover-") as name:
        yield Path(name)


def main(arguments: Sequence[str] = sys.argv[1:]) -> bool:
    """Parse the command line and run. Return True if no record is missing."""
    parser = argparse.ArgumentParser(
        prog="kafka-takeover", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=20, help="rounds there and back (20)")
    parser.add_argument("--seconds", type=float, default=3, help="load between takeovers (3)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep all files, in a new DIR")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    options = parser.parse_args(arguments)
    if not JARS or not any(Path(JARS).glob("kafka_2*.jar")):
        raise MinikafkaError(
            "MINIKAFKA_KAFKA_JARS must name a directory with the jars of Apache Kafka 3.9"
        )
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    with Display() as display, _files(options.keep) as directory:
        run = Run(display, directory, options)
        is_good = run_cancellable(run.run())
        problems = run.facts.get("problems", [])
        for problem in problems if isinstance(problems, list) else []:
            display.say(problem)
        display.say("nothing was lost" if is_good else "FAILED")
    if options.json:
        print(json.dumps(run.facts))
    return is_good


if __name__ == "__main__":
    endings.run("kafka-takeover", main)
