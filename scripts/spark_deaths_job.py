"""Test of Spark streams: kills brokers, the driver and executors, then checks every record.

    spark-deaths [--faults N] [--seed S] [--standalone] [--foreach-batch]

A producer fills a topic. One driver copies the topic with three streams, to Parquet and to two other topics, of which
one is written with `exactlyOnce`. Meanwhile brokers, also coordinators, are killed, paused and stopped. The driver is
killed with SIGKILL, at any time or at a named moment of a commit, and continues from its checkpoints. A task is killed
while it encodes rows. With `--standalone`, the tasks run on a standalone Spark cluster with two workers, and executors
are killed too, but there are no named moments. With `--foreach-batch`, a `foreachBatch` writes to two topics with
`exactlyOnce`: the driver is killed during and between both commits, and each driver writes to the topics in a random
order. The exit code is 0 only if

- `minikafka pipeline check` finds no anomaly when it compares the histories of the producer and of a consumer with
  the logs of all replicas,
- the Parquet table has every record exactly once,
- a `read_committed` consumer finds every record exactly once and in order in each topic that is written with
  `exactlyOnce`, and
- the other topic has every record at least once, the first copies of the records are in order, and only
  micro-batches that were interrupted by a kill have duplicates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import broker_faults
import endings
import pyarrow.parquet as pq
import replays
from confluent_kafka import Message
from display import Display, Step
from load import Stream, create_topic, read_back, write_history
from spark_deaths_driver import COPY, COPY_CHECKPOINT, ONCE, ONCE_TOO, ORIGIN, SOURCE
from spark_deaths_sink import DIRECTORY, DRIVER_MOMENTS, IN_A_TASK, of_topic
from standalone_spark import StandaloneSpark
from threads import in_thread

from minikafka.checks.delivery import Reading, reads
from minikafka.checks.replicas.anomalies import KINDS
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.faults.script.actions import begin

PARTITIONS = 4
COPY_PARTITIONS = 3
BROKERS = 3
CONFIG = {"zookeeper.session.timeout.ms": 6_000}
TOPIC_CONFIG = {"min.insync.replicas": "2"}
RATE = 300.0
VALUE_BYTES = 100
QUIET_SECONDS = (0.5, 4.0)
"""Range of the time between the end of a fault and the start of the next fault."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""Java option that turns off full optimization, because a driver does not run long before it is killed."""
POLL_SECONDS = 0.05
PROGRESS_SECONDS = 300.0
"""Maximum time without a micro-batch. The start of a driver or a failover takes a fraction of this time."""
CHECK_SECONDS = 1_800.0
"""Maximum time for `minikafka pipeline check`."""


class Driver:
    """The process of the driver, which can be killed and restarted. `copied`: the number of copied rows."""

    def __init__(self, bootstrap: str, master: str, directory: Path, topics: Sequence[str]) -> None:
        script = Path(__file__).with_name("spark_deaths_driver.py")
        self._command = [sys.executable, str(script), bootstrap, master, str(directory)]
        self.topics = list(topics)
        """The topics that are written exactly once, in order."""
        self._directory = directory
        self._log = directory / "driver.log"
        self._process: Process | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self.copied = 0

    async def start(self) -> None:
        """Start the driver's process."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                *self.topics,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=os.environ | self._environment(),
                start_new_session=True,
            )
        self._lines = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(self._process, self._lines))

    def _environment(self) -> dict[str, str]:
        """Return the variables by which Spark's workers find their sink, and the moments of their deaths."""
        path = (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
        return {
            "JAVA_TOOL_OPTIONS": SHORT_LIVED,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            DIRECTORY: str(self._directory),
        }

    async def reach(self, moment: str) -> None:
        """Wait until a worker dies at a named moment. Raises RuntimeError if none does in time."""
        file = self._directory / "moment"
        file.with_suffix(".draft").write_text(moment)
        file.with_suffix(".draft").rename(file)
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                while file.exists():  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise RuntimeError(f"no worker was {moment}, see {self._log}") from None

    async def _read(self, process: Process, lines: asyncio.Queue[bytes]) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.copied += json.loads(line).get("copied", 0)
            lines.put_nowait(line)
        lines.put_nowait(b"")

    async def kill(self) -> None:
        """Kill the driver's process and its Java process with SIGKILL."""
        if self._process is None or self._reading is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def wait_for_batch(self) -> None:
        """Wait until the next micro-batch ends. Raises RuntimeError if no micro-batch ends in time."""
        while not self._lines.empty():
            if not self._lines.get_nowait():
                self._lines.put_nowait(b"")
                break
        await self._answer("copied")

    async def finish(self) -> int:
        """Let the streams process all existing records. Return the number of rows in the Parquet table."""
        self._send("")
        return int((await self._answer("rows"))["rows"])

    async def check(self, settings: Mapping[str, list[str]]) -> dict[str, Any]:
        """Run `minikafka pipeline check` in the driver, wait until the driver ends, and return the JSON result."""
        assert self._process is not None
        self._send(json.dumps(settings))
        document = await self._answer("title", CHECK_SECONDS)
        await self._process.wait()
        return document

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def _answer(self, name: str, seconds: float = PROGRESS_SECONDS) -> dict[str, Any]:
        """Return the driver's next JSON line with the key `name`. Raises RuntimeError on failure or timeout."""
        try:
            async with asyncio.timeout(seconds):
                while line := await self._lines.get():
                    facts: dict[str, Any] = json.loads(line)
                    if name in facts:
                        return facts
        except TimeoutError:
            silent = f"the driver printed no {name} for {seconds:g} s"
            raise RuntimeError(f"{silent}, see {self._log}") from None
        raise RuntimeError(f"the driver failed, see {self._log}")


def main() -> bool:
    """Run the streams and the faults. Return True if all checks passed."""
    arguments = parse(sys.argv[1:])
    with Display() as display, run_directory() as directory:
        if not arguments.standalone:
            return run_cancellable(deaths(display, directory, arguments))
        with StandaloneSpark(directory / "standalone") as standalone:
            return run_cancellable(deaths(display, directory, arguments, standalone))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. Choose a random seed if no seed is given."""
    parser = argparse.ArgumentParser(
        prog="spark-deaths", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--faults", type=_positive, default=20, help="number of faults (20)")
    parser.add_argument("--seed", type=int, help="seed of an earlier run, to draw the same faults")
    parser.add_argument(
        "--standalone", action="store_true", help="run the tasks on a standalone Spark cluster"
    )
    parser.add_argument(
        "--foreach-batch",
        action="store_true",
        help="write exactly once to two topics, in one foreachBatch",
    )
    parsed = parser.parse_args(arguments)
    if parsed.seed is None:
        parsed.seed = random.SystemRandom().randrange(2**32)
    return parsed


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return number


@contextmanager
def run_directory() -> Iterator[Path]:
    """Yield a directory for this run. The directory is kept if the run ends with a RuntimeError."""
    directory = Path(tempfile.mkdtemp(prefix="spark-deaths-"))
    try:
        yield directory
    except RuntimeError:
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory)


async def deaths(
    display: Display,
    directory: Path,
    arguments: argparse.Namespace,
    standalone: StandaloneSpark | None = None,
) -> bool:
    """Run producer, streams and faults together, then check the outputs. Return True if all checks passed."""
    display.say(f"seed {arguments.seed}")
    master = "local[2,4]" if standalone is None else standalone.master
    topics = [ONCE, ONCE_TOO] if arguments.foreach_batch else [ONCE]
    async with LocalCluster(BROKERS, config=CONFIG) as cluster:
        counts = {SOURCE: PARTITIONS, **dict.fromkeys((COPY, *topics), COPY_PARTITIONS)}
        for topic, count in counts.items():
            await in_thread(create_topic, cluster.bootstrap, topic, count, TOPIC_CONFIG)
        stream = Stream(cluster.bootstrap, SOURCE, records(), RATE)
        async with running_driver(cluster.bootstrap, master, directory, topics) as driver:
            try:
                faults = Faults(display, cluster, driver, standalone, arguments.seed, directory)
                await under_load(display, cluster, stream, driver, faults, arguments.faults)
            finally:
                await asyncio.to_thread(stream.abandon)
            with display.step("finish") as step:
                step.done(f"{await driver.finish():,} rows in the Parquet table")
            with display.step("read") as step:
                reading, copies, once = await in_thread(read, step, cluster.bootstrap, topics)
            with display.step("check") as step:
                wanted = await asyncio.to_thread(
                    settings, cluster, directory, stream, reading, topics
                )
                document = await driver.check(wanted)
                step.done(document["title"])
    is_log_right = show_check(display, document)
    are_outputs_right = check_outputs(display, directory, reading, copies, once, faults)
    return is_log_right and are_outputs_right


@asynccontextmanager
async def running_driver(
    bootstrap: str, master: str, directory: Path, topics: Sequence[str]
) -> AsyncIterator[Driver]:
    """Run the driver during the `with` body, and kill the driver afterwards if it still runs."""
    driver = Driver(bootstrap, master, directory, topics)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.kill()


def records() -> Iterator[tuple[bytes, bytes]]:
    """Yield an endless sequence of distinct records."""
    number = 0
    while True:
        number += 1
        yield b"%d" % (number % 1000), b"%d" % number + bytes(VALUE_BYTES)


class Faults:
    """The faults of a run. Each round has every kind of fault once, in an order that the seed determines."""

    def __init__(
        self,
        display: Display,
        cluster: LocalCluster,
        driver: Driver,
        standalone: StandaloneSpark | None,
        seed: int,
        directory: Path,
    ) -> None:
        self._display = display
        self._cluster = cluster
        self._driver = driver
        self._standalone = standalone
        more = ["executor"] if standalone else ["task"]
        self._kinds = ["driver", *broker_faults.KINDS, *more]
        self._round: list[str] = []
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.interrupted: set[int] = set()
        """Ids of the micro-batches that were in progress when the driver or an executor was killed."""
        self._checkpoint = directory / COPY_CHECKPOINT

    async def inject(self) -> None:
        """Inject the next fault, end the fault, and wait until a micro-batch ends."""
        if not self._round:
            self._round = self.chance.sample(self._kinds, len(self._kinds))
        kind = self._round.pop()
        self.counts[kind] += 1
        if kind in broker_faults.KINDS:
            await self._broker(kind)
        elif kind == "driver":
            await self._kill_driver()
        elif kind == "task":
            self._display.say(f"  kill a worker {IN_A_TASK}")
            await self._driver.reach(IN_A_TASK)
        else:
            self._display.say("  kill an executor")
            await self._kill_executor()
        await self._driver.wait_for_batch()

    async def _broker(self, kind: str) -> None:
        broker_id = self.chance.randint(1, BROKERS)
        length = self.chance.uniform(*broker_faults.SECONDS)
        self._display.say(f"  {kind} broker {broker_id} for {length:.1f} s")
        begun = await begin(self._cluster, kind, {"broker": broker_id}, None)
        await asyncio.sleep(length)
        await begun.end()

    async def _kill_driver(self) -> None:
        moments: Sequence[str] = () if self._standalone else DRIVER_MOMENTS
        topics = self._driver.topics
        if len(topics) > 1:
            moments = [of_topic(moment, topic) for moment in moments for topic in sorted(topics)]
        moment = self.chance.choice((None, *moments))
        self._display.say(f"  kill the driver {moment or 'at any time'}")
        if moment:
            await self._driver.reach(moment)
        await self._driver.kill()
        self._note_batch_in_progress()
        self.chance.shuffle(topics)
        await self._driver.start()

    async def _kill_executor(self) -> None:
        assert self._standalone is not None
        if running := self._standalone.executors():
            # Record the batch twice: the next micro-batch may begin between the first record and the kill.
            self._note_batch_in_progress()
            os.kill(self.chance.choice(sorted(running)), signal.SIGKILL)
            self._note_batch_in_progress()

    def _note_batch_in_progress(self) -> None:
        planned, done = (numbers_in(self._checkpoint / name) for name in ("offsets", "commits"))
        self.interrupted |= {number for number in planned if number > max(done, default=-1)}


async def under_load(
    display: Display,
    cluster: LocalCluster,
    stream: Stream,
    driver: Driver,
    faults: Faults,
    number: int,
) -> None:
    """Inject `number` faults, wait until every ISR is full, then stop the load."""
    stream.start()
    with display.step("start") as step:
        await driver.wait_for_batch()
        step.done("the first micro-batch is written")
    with display.step("faults") as step:
        for done in range(number):
            step.advance(done, number, f"{driver.copied:,} rows copied")
            await asyncio.sleep(faults.chance.uniform(*QUIET_SECONDS))
            await faults.inject()
        step.done(", ".join(f"{count} × {kind}" for kind, count in sorted(faults.counts.items())))
    with display.step("heal") as step:
        await cluster.wait_for_isr(SOURCE)
        stream.stop()
        await asyncio.to_thread(stream.join)
        if stream.error is not None:
            raise RuntimeError(f"the producer failed: {stream.error}")
        step.done(f"{stream.acked:,} of {len(stream.history):,} records acked")


def numbers_in(directory: Path) -> set[int]:
    """Return the ids of the micro-batches that have a file in this subdirectory of a checkpoint."""
    return {int(file.name) for file in directory.glob("[0-9]*")}


Once = list[tuple[int, tuple[replays.Place, bytes]]]
"""The partition of each record in the topic that is written exactly once, with its source and its value."""


def read(
    step: Step, bootstrap: str, topics: Sequence[str]
) -> tuple[Reading, list[replays.Copy], dict[str, Once]]:
    """Return the records of the source topic, those of the copied topic, and those of each topic of `topics`.

    The records of the copies are in offset order within each partition.
    """
    reading = read_back(bootstrap, SOURCE, PARTITIONS, step.advance)
    copied = read_back(bootstrap, COPY, COPY_PARTITIONS, step.advance, content=copy_of)
    copies = [copy for deliveries in copied.values() for _, copy in deliveries]
    once: dict[str, Once] = {}
    for topic in topics:
        found = read_back(bootstrap, topic, COPY_PARTITIONS, step.advance, content=original)
        once[topic] = [(number, one) for number, items in found.items() for _, one in items]
    count = sum(map(len, reading.values()))
    counts = ", ".join(f"{len(found):,}" for found in once.values())
    step.done(f"{count:,} records, {len(copies):,} copies, {counts} written exactly once")
    return reading, copies, once


def settings(
    cluster: LocalCluster,
    directory: Path,
    stream: Stream,
    reading: Reading,
    topics: Sequence[str],
) -> dict[str, list[str]]:
    """Write the sent and the read records to two history files; return the settings of `minikafka pipeline check`.

    With these settings, the check compares the history files with the logs of all replicas.
    """
    sent, received = directory / "sent.jsonl", directory / "read.jsonl"
    write_history(sent, stream.history.events("producer", SOURCE))
    write_history(received, reads("reader", SOURCE, reading))
    return {
        "replicas": [str(cluster.directory.path)],
        "histories": [str(sent)],
        "reads": [str(received)],
        "topics": [SOURCE, COPY, *topics],
    }


def show_check(display: Display, document: Mapping[str, Any]) -> bool:
    """Show the result of `minikafka pipeline check`. Return True if there is no anomaly."""
    names = ("replicas", "sends_ok", "sends_unknown", "acknowledged_and_there", "records", "reads")
    names += tuple(kind for kind in KINDS if document[kind])
    rows = [[f"{document[name]:,}" for name in names]]
    display.table("check", [name.replace("_", " ") for name in names], rows)
    for anomaly in document.get("first_anomalies", ()):
        display.say(f"FAILED: {anomaly}")
    return bool(document["ok"])


def check_outputs(
    display: Display,
    directory: Path,
    reading: Reading,
    copies: list[replays.Copy],
    once: Mapping[str, Once],
    faults: Faults,
) -> bool:
    """Compare the Parquet table and the copied topics with the source topic, and show the problems.

    Return True if there are no problems.
    """
    source = {
        (partition, offset): value
        for partition, deliveries in reading.items()
        for offset, (_, value) in deliveries
    }
    problems = replays.exactly_once(source, rows_of(directory / "rows.parquet"))
    show(display, "the Parquet table holds every record exactly once", problems)
    strays: list[str] = []
    for topic, found in once.items():
        wrong = replays.exactly_once(source, (one for _, one in found), topic)
        wrong += replays.in_order((number, place) for number, (place, _) in found)
        show(display, f"{topic} holds every record exactly once and in order", wrong)
        strays += wrong
    repeats, duplicates = replays.at_least_once(source, copies, faults.interrupted)
    batches = f"{len(faults.interrupted)} interrupted micro-batches"
    text = f"the copied topic holds every record, and {duplicates:,} duplicates from {batches}"
    show(display, text, repeats)
    return not (problems or strays or repeats)


def copy_of(message: Message) -> replays.Copy:
    """Convert a message of the copied topic to a `Copy`.

    The message's value is `partition:offset:value` of the source record. The header `ORIGIN` contains the origin.
    """
    place, value = original(message)
    origin = replays.Origin(**json.loads(dict(message.headers())[ORIGIN]))
    return replays.Copy(message.partition(), place, value, origin)


def original(message: Message) -> tuple[replays.Place, bytes]:
    """Return the place in the source topic and the value that the value of a copied message names."""
    partition, offset, value = message.value().split(b":", 2)
    return (int(partition), int(offset)), value


def rows_of(file: Path) -> Iterator[tuple[replays.Place, bytes]]:
    """Yield a pair for each row of the table: the record's place in the source topic, and the record's value."""
    columns = pq.read_table(file).to_pydict()
    places = zip(columns["partition"], columns["offset"], strict=True)
    yield from zip(places, columns["value"], strict=True)


def show(display: Display, good: str, problems: list[str]) -> None:
    """Print the problems, or the text `good` if there are no problems."""
    display.say("\n".join(f"FAILED: {problem}" for problem in problems) or good)


if __name__ == "__main__":
    endings.run("spark-deaths", main)
