"""Streams of Spark under deaths: brokers, the driver and executors are killed, then every record is checked.

    spark-deaths [--faults N] [--seed S] [--standalone]

A producer fills a topic, and one driver copies it with two streams to Parquet and to another topic.
Meanwhile brokers are killed, paused and stopped, and the driver is killed with SIGKILL and continues
from its checkpoints. With `--standalone` the tasks run on a standalone Spark cluster with two workers,
whose executors are killed as well. The exit code is 0 only if

- `minikafka pipeline check` finds no anomaly when it compares what the producer was promised, and what a
  consumer read, with the logs of all replicas,
- the Parquet table holds every record exactly once, and
- the other topic holds it at least once, first copies in order, with duplicates only from micro-batches
  that a death interrupted.
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
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import broker_faults
import endings
import pyarrow.parquet as pq
import replays
from confluent_kafka import Message
from display import Display, Step
from load import Stream, create_topic, read_back
from spark_deaths_driver import COPY, COPY_CHECKPOINT, ORIGIN, SOURCE
from standalone_spark import StandaloneSpark

from minikafka.cli.execution import run_cancellable
from minikafka.cluster import LocalCluster
from minikafka.history import Reading
from minikafka.pipeline.check.anomalies import KINDS

PARTITIONS = 4
COPY_PARTITIONS = 3
BROKERS = 3
TOPIC_CONFIG = {"min.insync.replicas": "2"}
RATE = 300.0
VALUE_BYTES = 100
QUIET_SECONDS = (0.5, 4.0)
"""Range of the time between the end of a fault and the next one."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""Java option of a driver: it is killed before full optimization would pay off."""
PROGRESS_SECONDS = 300.0
"""Maximum time without a micro-batch: the start of a driver and a failover take a fraction of it."""
CHECK_SECONDS = 1_800.0
"""Maximum time for the check."""


class Driver:
    """The driver's process, which may be killed and started again; `copied` counts the rows copied so far."""

    def __init__(self, bootstrap: str, master: str, directory: Path) -> None:
        script = Path(__file__).with_name("spark_deaths_driver.py")
        self._command = [sys.executable, str(script), bootstrap, master, str(directory)]
        self._log = directory / "driver.log"
        self._process: Process | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self.copied = 0

    async def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=os.environ | {"JAVA_TOOL_OPTIONS": SHORT_LIVED},
                start_new_session=True,
            )
        self._lines = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(self._process, self._lines))

    async def _read(self, process: Process, lines: asyncio.Queue[bytes]) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.copied += json.loads(line).get("copied", 0)
            lines.put_nowait(line)
        lines.put_nowait(b"")

    async def kill(self) -> None:
        """End the process and its Java with SIGKILL."""
        if self._process is None or self._reading is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def wait_for_batch(self) -> None:
        """Wait for a micro-batch that ends from now on. Raises RuntimeError if none does."""
        while not self._lines.empty():
            if not self._lines.get_nowait():
                self._lines.put_nowait(b"")
                break
        await self._answer("copied")

    async def finish(self) -> int:
        """Let the streams process what is there; return the number of rows of the table."""
        self._send("")
        return int((await self._answer("rows"))["rows"])

    async def check(self, settings: Mapping[str, list[str]]) -> dict[str, Any]:
        """Return the JSON document of `minikafka pipeline check`, and wait for the end of the process."""
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
        """Return the next line with this name. Raises RuntimeError if the process ends or is silent."""
        try:
            async with asyncio.timeout(seconds):
                while line := await self._lines.get():
                    facts: dict[str, Any] = json.loads(line)
                    if name in facts:
                        return facts
        except TimeoutError:
            silent = f"the driver told no {name} for {seconds:g} s"
            raise RuntimeError(f"{silent}, see {self._log}") from None
        raise RuntimeError(f"the driver failed, see {self._log}")


def main() -> bool:
    """Run the streams under deaths; True if every record is where it must be."""
    arguments = parse(sys.argv[1:])
    with Display() as display, run_directory() as directory:
        if not arguments.standalone:
            return run_cancellable(deaths(display, directory, arguments))
        with StandaloneSpark(directory / "standalone") as standalone:
            return run_cancellable(deaths(display, directory, arguments, standalone))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; draw a seed if none is given."""
    parser = argparse.ArgumentParser(
        prog="spark-deaths", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--faults", type=_positive, default=20, help="number of faults (20)")
    parser.add_argument("--seed", type=int, help="draw the same faults as an earlier run")
    parser.add_argument(
        "--standalone", action="store_true", help="run the tasks on a standalone Spark cluster"
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
    """Yield a directory for this run, which is kept if the run ends with an error."""
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
    """Run producer, streams and faults together, then check both outputs; True if they are right."""
    display.say(f"seed {arguments.seed}")
    master = "local[2]" if standalone is None else standalone.master
    async with LocalCluster(BROKERS) as cluster:
        for topic, count in ((SOURCE, PARTITIONS), (COPY, COPY_PARTITIONS)):
            await asyncio.to_thread(create_topic, cluster.bootstrap, topic, count, TOPIC_CONFIG)
        stream = Stream(cluster.bootstrap, SOURCE, records(), RATE)
        async with running_driver(cluster.bootstrap, master, directory) as driver:
            try:
                faults = Faults(display, cluster, driver, standalone, arguments.seed, directory)
                await under_load(display, cluster, stream, driver, faults, arguments.faults)
            finally:
                await asyncio.to_thread(stream.abandon)
            with display.step("finish") as step:
                step.done(f"{await driver.finish():,} rows in the Parquet table")
            with display.step("read") as step:
                reading, copies = await asyncio.to_thread(read, step, cluster.bootstrap)
            with display.step("check") as step:
                wanted = await asyncio.to_thread(settings, cluster, directory, stream, reading)
                document = await driver.check(wanted)
                step.done(document["title"])
    is_log_right = show_check(display, document)
    are_outputs_right = check_outputs(display, directory, reading, copies, faults)
    return is_log_right and are_outputs_right


@asynccontextmanager
async def running_driver(bootstrap: str, master: str, directory: Path) -> AsyncIterator[Driver]:
    """Run the driver, and kill it at the end if it still runs."""
    driver = Driver(bootstrap, master, directory)
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
    """The faults of a run, in rounds: each round has every kind once, in an order drawn from the seed."""

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
        self._kinds = ["driver", *broker_faults.KINDS, *(["executor"] if standalone else [])]
        self._round: list[str] = []
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.interrupted: set[int] = set()
        """The micro-batches to the topic that were being written when a driver or executor died."""
        self._checkpoint = directory / COPY_CHECKPOINT

    async def inject(self) -> None:
        """Inject the next fault; return when the streams have made progress after its end."""
        if not self._round:
            self._round = self.chance.sample(self._kinds, len(self._kinds))
        kind = self._round.pop()
        self.counts[kind] += 1
        if kind in broker_faults.KINDS:
            await self._broker(kind)
        else:
            self._display.say(f"  kill the {kind}")
            await (self._kill_driver() if kind == "driver" else self._kill_executor())
        await self._driver.wait_for_batch()

    async def _broker(self, kind: str) -> None:
        broker_id = self.chance.randint(1, BROKERS)
        length = self.chance.uniform(*broker_faults.SECONDS)
        self._display.say(f"  {kind} broker {broker_id} for {length:.1f} s")
        await broker_faults.begin(self._cluster, kind, broker_id)
        await asyncio.sleep(length)
        await broker_faults.end(self._cluster, kind, broker_id)

    async def _kill_driver(self) -> None:
        await self._driver.kill()
        self._note_batch_in_progress()
        await self._driver.start()

    async def _kill_executor(self) -> None:
        assert self._standalone is not None
        if running := self._standalone.executors():
            # Note the batch twice: the next micro-batch may begin between the first note and the kill.
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
    """Inject this number of faults, wait until every ISR is full, then finish the load."""
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
    """Return the numbers of the micro-batches that have a file in this directory of a checkpoint."""
    return {int(file.name) for file in directory.glob("[0-9]*")}


def read(step: Step, bootstrap: str) -> tuple[Reading, list[replays.Copy]]:
    """Return the records of the source topic, and of the copy in offset order by partition."""
    reading = read_back(bootstrap, SOURCE, PARTITIONS, step.advance)
    copied = read_back(bootstrap, COPY, COPY_PARTITIONS, step.advance, content=copy_of)
    copies = [copy for deliveries in copied.values() for _, copy in deliveries]
    step.done(f"{sum(map(len, reading.values())):,} records and {len(copies):,} copies")
    return reading, copies


def settings(
    cluster: LocalCluster, directory: Path, stream: Stream, reading: Reading
) -> dict[str, list[str]]:
    """Write the histories of the producer and of a consumer; return the settings for their check."""
    sent, received = directory / "sent.jsonl", directory / "read.jsonl"
    write_rows(sent, stream.history.rows("producer", SOURCE))
    write_rows(received, reads(reading))
    return {
        "replicas": [str(cluster.directory.path)],
        "histories": [str(sent)],
        "reads": [str(received)],
        "topics": [SOURCE, COPY],
    }


def reads(reading: Reading) -> Iterator[dict[str, object]]:
    """Yield a reading as rows of a consumer's history."""
    position = 0
    for partition, deliveries in reading.items():
        for offset, (_, value) in deliveries:
            position += 1
            place = {"topic": SOURCE, "partition": partition, "offset": offset}
            digest = sha256(value).hexdigest()
            yield {"consumer": "reader", "position": position, **place, "value_sha256": digest}


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def show_check(display: Display, document: Mapping[str, Any]) -> bool:
    """Show the result of `minikafka pipeline check`; True if there is no anomaly."""
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
    faults: Faults,
) -> bool:
    """Compare table and copy with the source topic, and show what is wrong; True if nothing is."""
    source = {
        (partition, offset): value
        for partition, deliveries in reading.items()
        for offset, (_, value) in deliveries
    }
    problems = replays.exactly_once(source, rows_of(directory / "rows.parquet"))
    show(display, "the Parquet table holds every record exactly once", problems)
    repeats, duplicates = replays.at_least_once(source, copies, faults.interrupted)
    batches = f"{len(faults.interrupted)} interrupted micro-batches"
    text = f"the copied topic holds every record, and {duplicates:,} duplicates from {batches}"
    show(display, text, repeats)
    return not problems and not repeats


def copy_of(message: Message) -> replays.Copy:
    """Return a record of the copied topic, as the driver wrote it."""
    partition, offset, value = message.value().split(b":", 2)
    origin = replays.Origin(**json.loads(dict(message.headers())[ORIGIN]))
    return replays.Copy(message.partition(), (int(partition), int(offset)), value, origin)


def rows_of(file: Path) -> Iterator[tuple[replays.Place, bytes]]:
    """Yield place and value of each row of the table."""
    columns = pq.read_table(file).to_pydict()
    places = zip(columns["partition"], columns["offset"], strict=True)
    yield from zip(places, columns["value"], strict=True)


def show(display: Display, good: str, problems: list[str]) -> None:
    """Show the good result, or the problems."""
    display.say("\n".join(f"FAILED: {problem}" for problem in problems) or good)


if __name__ == "__main__":
    endings.run("spark-deaths", main)
