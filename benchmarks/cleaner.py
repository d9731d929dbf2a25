"""`python -m benchmarks.cleaner`: how fast minikafka's cleaner and Apache Kafka's cleaner clean the same logs.

The two cleaners run in turn, each in one process. Each cleaner opens the log, maps the keys and copies the records.
Only the cleaning is timed, not the start of the process. Kafka's cleaner runs only if MINIKAFKA_KAFKA_JARS names a
directory with Kafka's jars. At the end, the benchmark measures the latency of produce requests, with one request in
flight, in turn without and with a cleaning in progress on the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, time
from typing import Any, NamedTuple

from benchmarks import lifetime, report
from minikafka.client import Client, NewTopic
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.kafka.records.batch import Record, build
from minikafka.runtime.cleaner_processes import CleanerProcesses
from minikafka.storage.log.cleaner.task import CleaningTask
from minikafka.tools.cluster import LocalCluster

PROGRAM = Path(__file__).parent.parent / "tests" / "support" / "java" / "LogCleaning.java"
KEY = b"key-%012d"
VALUE_BYTES = 76
"""Size of a record's value. A record takes 100 bytes, including the key."""
SEGMENT_BYTES = 1 << 30
MAP_BYTES = 128 << 20
FILL_BATCH = 1_000
RATIO = "min.cleanable.dirty.ratio"
NEVER, ALWAYS = "1.0", "0.0001"


class Load(NamedTuple):
    """A log of `records` records in batches of `batch` records. The keys are random, from `keys` different keys."""

    name: str
    records: int
    batch: int
    keys: int
    codec: int = 0


def loads(records: int) -> list[Load]:
    """Return the logs to clean, which differ in codec, batch size and number of updates per key."""
    return [
        Load("100 updates of each key", records, 160, records // 100),
        Load("2 updates of each key", records, 160, records // 2),
        Load("every key once", records, 160, 1 << 40),
        Load("lz4, 10 updates of each key", records, 160, records // 10, codec=3),
        Load("one record in a batch", records // 4, 1, records // 100),
    ]


def write(load: Load, directory: Path) -> int:
    """Write the log's first segment, and return the size of the segment in bytes."""
    rng = Random(1)
    directory.mkdir(parents=True)
    now = int(time() * 1_000)
    with (directory / f"{0:020d}.log").open("wb") as file:
        for base in range(0, load.records, load.batch):
            made = [
                Record(
                    timestamp=now + base,
                    key=KEY % rng.randrange(load.keys),
                    value=rng.randbytes(VALUE_BYTES // 4) * 4,
                )
                for _ in range(load.batch)
            ]
            file.write(build(made, base_offset=base, leader_epoch=0, codec=load.codec))
    return (directory / f"{0:020d}.log").stat().st_size


def task_of(load: Load, directory: Path) -> CleaningTask:
    """Return the task that cleans the whole log."""
    return CleaningTask(
        directory=str(directory),
        segments=[0],
        later_segments=[],
        segment_bytes=SEGMENT_BYTES,
        index_bytes=10 << 20,
        first_dirty_offset=0,
        uncleanable_offset=load.records,
        now_ms=int(time() * 1_000),
        delete_retention_ms=86_400_000,
        index_interval_bytes=4_096,
        producers=[],
        kept_end=-1,
        dedupe_bytes=MAP_BYTES,
        load_factor=0.9,
        io_bytes=256 << 10,
        bytes_per_second=1e18,
    )


async def own_seconds(load: Load, directory: Path) -> float:
    """Return the seconds in which minikafka's cleaner cleans the log, after a warm-up with a small log."""
    small = load._replace(records=load.batch)
    first = directory.with_name("first-0")
    write(small, first)
    cleaners = CleanerProcesses()
    try:
        await cleaners.clean(task_of(small, first).encode(), _ignore)
        began = perf_counter()
        await cleaners.clean(task_of(load, directory).encode(), _ignore)
        return perf_counter() - began
    finally:
        await cleaners.close()


async def _ignore(group: Any) -> None:
    """Do nothing with a group of cleaned segments, so that the log keeps its original segments."""


async def kafka_seconds(load: Load, directory: Path, jars: str) -> float:
    """Return the seconds in which Kafka's cleaner cleans the log."""
    lines = directory.parent / "lines"
    line = (
        f"{directory} 0 {load.records} {int(time() * 1_000)} 86400000 {SEGMENT_BYTES} {MAP_BYTES}"
    )
    # Kafka does not clean the last (active) segment, so add an empty segment after it.
    (directory / f"{load.records:020d}.log").touch()
    lines.write_text(line + "\n")
    command = ["java", "-cp", f"{jars}/*", str(PROGRAM), str(lines)]
    java = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        _, errors = await java.communicate()
    finally:
        if java.returncode is None:
            java.kill()
            await java.wait()
    found = re.search(rb"nanoseconds (\d+)", errors)
    assert found is not None, errors.decode()
    return int(found[1]) / 1e9


async def measure(load: Load, rounds: int, jars: str) -> None:
    """Print the median MB/s of both cleaners for one load."""
    own, kafka, size = [], [], 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="cleaner-") as root:
            size = await asyncio.to_thread(write, load, Path(root) / "t-0")
            if jars:
                shutil.copytree(Path(root) / "t-0", Path(root) / "kafka" / "t-0")
                kafka.append(await kafka_seconds(load, Path(root) / "kafka" / "t-0", jars))
            own.append(await own_seconds(load, Path(root) / "t-0"))
    line = f"{load.name:30} {size / median(own) / 1e6:8.1f} MB/s"
    if kafka:
        line += (
            f"   Kafka {size / median(kafka) / 1e6:8.1f} MB/s   {median(kafka) / median(own):.2f}x"
        )
    print(line, flush=True)


async def fill(client: Client, records: int, rng: Random) -> None:
    """Write records of about 100 bytes to the compacted topic, on average ten records per key."""
    for _ in range(0, records, FILL_BATCH):
        made = [
            Record(key=KEY % rng.randrange(records // 10), value=rng.randbytes(VALUE_BYTES))
            for _ in range(FILL_BATCH)
        ]
        await client.produce("compacted", made, partition=0)


async def latencies(client: Client, seconds: float) -> list[float]:
    """Return the sorted latencies in ms of single produce requests, sent at 500 per second."""
    found = []
    begun = due = perf_counter()
    while due < begun + seconds:
        due += 0.002
        await asyncio.sleep(max(due - perf_counter(), 0))
        sent = perf_counter()
        await client.produce("other", [Record(value=bytes(100))], partition=0)
        found.append((perf_counter() - sent) * 1_000)
    return sorted(found)


async def measure_produce(records: int, rounds: int, seconds: float) -> None:
    """Print the p99 latency of produce requests without and during cleaning (medians of the rounds)."""
    settings = {"cleanup.policy": "compact", "segment.bytes": str(32 << 20)}
    resource = Resource(ResourceType.TOPIC, "compacted")
    found: dict[str, list[float]] = {NEVER: [], ALWAYS: []}
    config = {"log.cleaner.backoff.ms": 100, "zookeeper.session.timeout.ms": 6_000}
    async with (
        LocalCluster(1, config=config) as cluster,
        Client(cluster.bootstrap) as client,
    ):
        await client.create_topics(NewTopic("compacted", 1, 1, configs=settings))
        await client.create_topics(NewTopic("other", 1, 1))
        for number in range(rounds):
            await client.admin.alter_configs({resource: {RATIO: NEVER}})
            await fill(client, records, Random(number))
            await latencies(client, seconds / 5)
            for ratio, results in found.items():
                await client.admin.alter_configs({resource: {RATIO: ratio}})
                await asyncio.sleep(0.3)
                took = await latencies(client, seconds)
                results.append(took[len(took) * 99 // 100])
    without, during = (median(results) for results in found.values())
    print(
        f"produce p99 {without:.2f} ms, during a cleaning {during:.2f} ms: {during / without:.2f}x"
    )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cleaner", description=__doc__)
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="records per log (default: 2000000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each load (default: 3)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="seconds of each load on a broker (default: 5)"
    )
    lifetime.live(run(parser.parse_args()), asyncio.run)


async def run(options: argparse.Namespace) -> None:
    """Measure every load, then the latency of producers."""
    jars = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
    print(report.machine(), flush=True)
    for load in loads(options.records):
        await measure(load, options.rounds, jars)
    await measure_produce(options.records, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
