"""Brokers of two versions of minikafka take turns in one cluster, broker by broker, while records are copied.

    rolling-upgrade [--from CODE] [--to CODE] [--coordination MODE] [--minutes M] [--keep DIR] [--json]

CODE is a wheel or a directory with the package, such as a checkout. Three brokers begin with the code of --from. Each
is stopped by SIGTERM and started with the code of --to, then each with that of --from again. With --minutes, brokers of
both follow for this time: one after the other is stopped or killed and starts with either code, leaders are elected,
partitions are reassigned, and topics are created and deleted. With --move-leaders, a broker with the code of --from
leads no partition when it gets SIGTERM. Meanwhile an idempotent producer writes, a group reads, and two transactional
jobs of another group copy. The exit code is 0 only if every acknowledged record is there once and in order, has exactly
one copy, and was read by the group. The figures have the longest pause of the producer at each restart, and which code
the controller ran.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import endings
from confluent_kafka import Consumer, KafkaError, Producer
from copy_check import Records, Topics, differences
from copy_processes import CopyProcess, running
from display import Display
from threads import in_thread

from minikafka.base.coordination import MODES
from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.checks.histories import Recorder
from minikafka.client import Client, NewTopic, Record
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.spawning import die_with, start_child
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper

REPOSITORY = Path(__file__).resolve().parents[1]
FROZEN = REPOSITORY / "tests/support/upgrade/minikafka-0.1.0-py3-none-any.whl"
"""Release 0.1.0, the first version whose brokers a cluster can be upgraded from."""
MOVE_LEADERS = REPOSITORY / "examples/upgrade/move_leaders.py"
HOST = "127.0.0.1"
BROKERS = (1, 2, 3)
INPUT, OUTPUT = "input", "output"
TOPICS = (INPUT, OUTPUT, "__consumer_offsets", "__transaction_state")
PARTITIONS = 6
STEP_SECONDS = 120.0
POLL_SECONDS = 0.1
RECORD_SECONDS = 0.003
READ_SECONDS = 60.0
SESSION_MS = 6_000
KEYS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "auto.create.topics.enable": False,
    "group.initial.rebalance.delay.ms": 0,
    "controlled.shutdown.retry.backoff.ms": 500,
    "minikafka.cluster.secret": "the secret of an upgrade",
}
CLIENT = {"reconnect.backoff.max.ms": 500, "log_level": 0}


class Code:
    """One version of minikafka: a wheel, which is unpacked below `directory`, or a directory with the package."""

    def __init__(self, name: str, given: Path, directory: Path) -> None:
        self.name = name
        self.path = given.resolve()
        if given.suffix == ".whl":
            self.path = directory / name
            with ZipFile(given) as wheel:
                wheel.extractall(self.path)
        if not (self.path / "minikafka/__main__.py").is_file():
            raise MinikafkaError(f"{given} is neither a wheel of minikafka nor a directory with it")


class Brokers:
    """Three brokers as child processes. `codes`: the code with which each runs."""

    def __init__(self, directory: Path, connect: str, coordination: str) -> None:
        self._directory = directory
        ports = free_ports(len(BROKERS), SystemRng())
        self.addresses = {
            broker: f"{HOST}:{port}" for broker, port in zip(BROKERS, ports, strict=True)
        }
        self.bootstrap = ",".join(self.addresses.values())
        self.codes: dict[int, Code] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for broker, address in self.addresses.items():
            (directory / f"broker-{broker}").mkdir()
            keys = {
                "broker.id": broker,
                "listeners": [f"PLAINTEXT://{address}"],
                "zookeeper.connect": connect,
                "log.dirs": [f"{directory}/broker-{broker}/logs"],
                "minikafka.coordination": coordination,
                **KEYS,
            }
            lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in keys.items()]
            self._file(broker).write_text("\n".join(["[broker]", *lines, ""]))

    def _file(self, broker: int) -> Path:
        return self._directory / f"broker-{broker}/broker.toml"

    def start(self, broker: int, code: Code) -> None:
        """Start a broker, which registers later."""
        with self._file(broker).with_name("output.log").open("ab") as log:
            self._processes[broker] = start_child(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "minikafka",
                    "broker",
                    "--config",
                    str(self._file(broker)),
                ],
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, "PYTHONPATH": str(code.path)},
                preexec_fn=partial(die_with, os.getpid()),
            )
        self.codes[broker] = code

    def end(self, broker: int, number: signal.Signals) -> None:
        """Send a signal to a broker, and wait until it has ended."""
        process = self._processes.pop(broker)
        process.send_signal(number)
        process.wait(STEP_SECONDS)

    def kill_all(self) -> None:
        """End all brokers with SIGKILL."""
        for broker in list(self._processes):
            self.end(broker, signal.SIGKILL)

    def check(self) -> None:
        """Raise RuntimeError if a broker has ended by itself."""
        for broker, process in self._processes.items():
            if process.poll() is not None:
                last = self._file(broker).with_name("output.log").read_text()[-2_000:]
                raise RuntimeError(f"broker {broker} has ended: {last}")

    def errors(self) -> list[str]:
        """Return the lines with errors in the outputs of all brokers."""
        outputs = [self._file(broker).with_name("output.log") for broker in BROKERS]
        return [
            line
            for output in outputs
            for line in output.read_text(errors="replace").splitlines()
            if " ERROR " in line or line.startswith("Traceback")
        ]


class Feed(threading.Thread):
    """An idempotent producer with acks=all. `acked`: the values of acknowledged records of each partition, in order."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acked: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.failures: Counter[str] = Counter()
        self._longest = dict.fromkeys(range(PARTITIONS), 0.0)
        self._latest = dict.fromkeys(range(PARTITIONS), time.monotonic())
        self._done = threading.Event()
        self._producer = Producer(
            CLIENT
            | {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 300_000,
                "retry.backoff.max.ms": 200,
            }
        )

    def run(self) -> None:
        """Send records until `end`, and wait for all answers."""
        number = 0
        while not self._done.is_set():
            value, place = b"%d" % number, number % PARTITIONS
            with suppress(BufferError):
                note = partial(self._delivered, place, value)
                self._producer.produce(INPUT, value, partition=place, on_delivery=note)
                number += 1
            self._producer.poll(RECORD_SECONDS)
        self._producer.flush(STEP_SECONDS)

    def _delivered(self, place: int, value: bytes, error: KafkaError | None, _: object) -> None:
        now = time.monotonic()
        self._longest[place] = max(self._longest[place], now - self._latest[place])
        self._latest[place] = now
        if error is None:
            self.acked[place].append(value)
        else:
            self.failures[error.name()] += 1

    def has_answers_since(self, moment: float) -> bool:
        """True if each partition has had an answer since this moment, so that no pause from before it lasts."""
        return min(self._latest.values()) > moment

    def longest_pause(self) -> float:
        """Return the longest time without an answer for a partition since the last call, in seconds."""
        found = max(self._longest.values())
        self._longest = dict.fromkeys(self._longest, 0.0)
        return found

    def end(self) -> None:
        """Send no further record, and wait for all answers."""
        self._done.set()
        self.join()


class Readers(threading.Thread):
    """A member of a consumer group. `values`: what it has read."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.values: set[bytes] = set()
        self.done = threading.Event()
        self._consumer = Consumer(
            CLIENT
            | {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )

    def run(self) -> None:
        """Read until `done` is set."""
        self._consumer.subscribe([INPUT])
        while not self.done.is_set():
            for message in self._consumer.consume(1_000, 0.2):
                if message.error() is None:
                    self.values.add(message.value())
        self._consumer.close()

    def missing(self, acked: Mapping[int, Sequence[bytes]]) -> int:
        """Wait until the group has read all of these records, at most READ_SECONDS; return how many it has not read."""
        wanted = {value for values in acked.values() for value in values}
        deadline = time.monotonic() + READ_SECONDS
        while not wanted <= self.values and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.done.set()
        self.join()
        return len(wanted - self.values)


class Run:
    """One run. `facts`: the figures."""

    def __init__(self, display: Display, directory: Path, options: argparse.Namespace) -> None:
        self._display = display
        self._directory = directory
        self._minutes = options.minutes
        self._moves_leaders = options.move_leaders
        self._seed = options.seed
        self._old = Code("from", options.source, directory)
        self._new = Code("to", options.target, directory)
        [port] = free_ports(1, SystemRng())
        self._zookeeper = EmbeddedZooKeeper(directory / "zookeeper", port, clock=SystemClock())
        self._brokers = Brokers(directory, self._zookeeper.connect, options.coordination)
        self._feed: Feed
        self._pauses: list[dict[str, object]] = []
        self.facts: dict[str, object] = {"pauses": self._pauses}

    async def run(self) -> bool:
        """Start the cluster, let both versions take turns, and check the records. Return True if nothing is missing."""
        await self._zookeeper.start()
        try:
            for broker in BROKERS:
                self._brokers.start(broker, self._old)
            await self._until("the cluster has started", self._has_brokers)
            await self._create(INPUT, OUTPUT)
            await self._until("all replicas are in sync", self._is_whole)
            return await self._with_load()
        finally:
            self._brokers.kill_all()
            await self._zookeeper.kill()

    async def _with_load(self) -> bool:
        bootstrap, topics = self._brokers.bootstrap, (INPUT, OUTPUT)
        self._feed, readers = Feed(bootstrap), Readers(bootstrap)
        jobs = [CopyProcess(bootstrap, f"job-{n}", topics, self._directory) for n in (1, 2)]
        self._feed.start()
        readers.start()
        async with running(jobs):
            await self._until("records are copied", self._has_copies)
            for code in (self._new, self._old):
                for broker in BROKERS:
                    await self._restart(broker, code, signal.SIGTERM)
            await self._mix()
            await in_thread(self._feed.end)
            problems = await in_thread(self._check, readers)
        ends = Counter[str]()
        for job in jobs:
            ends += job.ends
        self.facts |= {"the jobs ended": ends, "problems": problems}
        self.facts["errors of brokers"] = self._brokers.errors()
        return not problems

    async def _restart(self, broker: int, code: Code, number: signal.Signals) -> None:
        """Replace a broker, wait until all replicas are in sync, and note the longest pause of the producer."""
        former = self._brokers.codes[broker]
        controller = await self._controller()
        self._feed.longest_pause()
        if self._moves_leaders and former is self._old and number is signal.SIGTERM:
            await self._move_leaders(broker)
        await in_thread(self._brokers.end, broker, number)
        self._brokers.start(broker, code)
        name = f"broker {broker}, {former.name} → {code.name}, {number.name}"
        await self._until(name, partial(self._is_whole, broker))
        # The producer may look for the new leaders later than the brokers need, and a pause ends with an answer.
        await self._until("answers to the producer", partial(self._has_answers, time.monotonic()))
        pause = round(self._feed.longest_pause(), 2)
        self._pauses.append({"restart": name, "controller": controller, "seconds": pause})
        self._display.say(f"  longest pause of the producer: {pause} s, {controller}")

    async def _controller(self) -> str:
        """Return the controller and its code, for a person."""
        async with Client(self._brokers.bootstrap) as client:
            broker = (await client.describe_cluster()).controller_id
        code = self._brokers.codes.get(broker)
        return f"controller {broker}, {code.name}" if code else "no controller"

    async def _move_leaders(self, broker: int) -> None:
        """Let other brokers lead the broker's partitions, and wait until the producer has found them."""
        program = [sys.executable, str(MOVE_LEADERS), self._brokers.bootstrap, str(broker)]
        process = await asyncio.create_subprocess_exec(*program)
        if await process.wait() != 0:
            raise RuntimeError(f"{MOVE_LEADERS.name} has failed")
        await self._until("answers to the producer", partial(self._has_answers, time.monotonic()))

    async def _mix(self) -> None:
        """Let brokers of both versions run through faults and changes until the time is over."""
        deadline, chance = time.monotonic() + 60 * self._minutes, random.Random(self._seed)
        actions: list[Callable[[random.Random], Awaitable[None]]]
        actions = [
            self._replace,
            self._replace,
            self._kill,
            self._elect,
            self._move,
            self._short_topic,
        ]
        done = Counter[str]()
        while time.monotonic() < deadline:
            action = chance.choice(actions)
            await action(chance)
            done[action.__name__.strip("_")] += 1
        self.facts["actions"] = done

    async def _replace(self, chance: random.Random) -> None:
        code = chance.choice((self._old, self._new))
        await self._restart(chance.choice(BROKERS), code, signal.SIGTERM)

    async def _kill(self, chance: random.Random) -> None:
        code = chance.choice((self._old, self._new))
        await self._restart(chance.choice(BROKERS), code, signal.SIGKILL)

    async def _elect(self, _: random.Random) -> None:
        async with Client(self._brokers.bootstrap) as client:
            await client.admin.elect_leaders()

    async def _move(self, chance: random.Random) -> None:
        """Give a partition its replicas in another order, by way of two replicas."""
        tp = TopicPartition(chance.choice((INPUT, OUTPUT)), chance.randrange(PARTITIONS))
        order = chance.sample(BROKERS, len(BROKERS))
        async with Client(self._brokers.bootstrap) as client:
            for replicas in (order[:2], order):
                await client.admin.alter_reassignments({tp: replicas})
                async for _ in client.admin.follow_reassignments({tp: replicas}):
                    self._brokers.check()
        await self._until(f"{tp} has the replicas {order}", self._is_whole)

    async def _short_topic(self, chance: random.Random) -> None:
        name = f"short-{chance.randrange(10**9)}"
        await self._create(name)
        async with Client(self._brokers.bootstrap) as client:
            await client.produce(name, [Record(value=b"a value")])
            await client.delete_topics(name)

    async def _create(self, *names: str) -> None:
        async with Client(self._brokers.bootstrap) as client:
            await client.create_topics(*(NewTopic(name, PARTITIONS, 3) for name in names))

    async def _has_brokers(self) -> bool:
        async with Client(self._brokers.bootstrap) as client:
            return len((await client.describe_cluster()).brokers) == len(BROKERS)

    async def _is_whole(self, broker: int = BROKERS[0]) -> bool:
        """True if all replicas are in sync, according to this broker."""
        async with Client(self._brokers.addresses[broker], api_timeout_ms=1_000) as client:
            topics = (await client.admin.describe_topics(TOPICS)).values()
            partitions = [one for topic in topics for one in topic.partitions.values()]
            return len(partitions) >= 2 * PARTITIONS and all(
                len(one.isr) == len(BROKERS) for one in partitions
            )

    async def _has_answers(self, since: float) -> bool:
        return self._feed.has_answers_since(since)

    async def _has_copies(self) -> bool:
        async with Client(self._brokers.bootstrap, read_committed=True) as client:
            ends = await client.list_offsets(OUTPUT, "latest")
            return all(ends.values()) and len(ends) == PARTITIONS

    def _check(self, readers: Readers) -> list[str]:
        topics = Topics(self._brokers.bootstrap)
        with (self._directory / "reader.jsonl").open("w", encoding="utf-8") as history:
            recorder = Recorder("reader", "reader", history.write, time.monotonic)
            source = topics.read(INPUT, topics.settled(INPUT, PARTITIONS), recorder)
            topics.wait_until_copied("copy", INPUT, source, lambda done, total: None)
            target = topics.read(OUTPUT, topics.settled(OUTPUT, PARTITIONS), recorder)
        acked = sum(map(len, self._feed.acked.values()))
        read = sum(map(len, source.values()))
        self.facts |= {"acknowledged": acked, "failures": self._feed.failures, "read": read}
        self._display.say(f"{acked:,} records acknowledged, {read:,} read")
        problems = [
            f"{count} records failed: {error}" for error, count in self._feed.failures.items()
        ]
        if missing := readers.missing(self._feed.acked):
            problems.append(f"{missing} acknowledged records not read by the group")
        return [*problems, *_lost(self._feed.acked, source), *differences(source, target)]

    async def _until(self, name: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until the condition holds. Raises RuntimeError after STEP_SECONDS."""
        begin = time.monotonic()
        while not await _quietly(holds):
            self._brokers.check()
            if time.monotonic() - begin > STEP_SECONDS:
                raise RuntimeError(f"not within {STEP_SECONDS:g} s: {name}")
            await asyncio.sleep(POLL_SECONDS)
        self._display.say(f"{name}: {time.monotonic() - begin:.2f} s")


async def _quietly(holds: Callable[[], Awaitable[bool]]) -> bool:
    with suppress(MinikafkaError, OSError):
        return await holds()
    return False


def _lost(acked: Mapping[int, Sequence[bytes]], source: Records) -> list[str]:
    """Return a text for each partition without the acknowledged records, in their order and once each."""
    problems = []
    for partition, wanted in acked.items():
        found = [value for _, value in source[partition]]
        if found != list(wanted):
            missing, repeated = len(set(wanted) - set(found)), len(found) - len(set(found))
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
    with TemporaryDirectory(prefix="minikafka-upgrade-") as name:
        yield Path(name)


def main(arguments: Sequence[str] = sys.argv[1:]) -> bool:
    """Parse the command line and run. Return True if no record is missing."""
    parser = argparse.ArgumentParser(
        prog="rolling-upgrade", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        default=FROZEN,
        metavar="CODE",
        help="first code (0.1.0)",
    )
    parser.add_argument(
        "--to",
        dest="target",
        type=Path,
        default=REPOSITORY,
        metavar="CODE",
        help="second code (this one)",
    )
    parser.add_argument("--coordination", choices=MODES, default=MODES[0], help="coordination mode")
    parser.add_argument("--minutes", type=float, default=0, help="time for brokers of both (0)")
    parser.add_argument("--seed", type=int, default=1, help="of the choices in this time (1)")
    parser.add_argument(
        "--move-leaders",
        action="store_true",
        help="move leaders off a broker of --from before SIGTERM",
    )
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep all files, in a new DIR")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    options = parser.parse_args(arguments)
    logging.getLogger("minikafka").setLevel(logging.CRITICAL)
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
    endings.run("rolling-upgrade", main)
