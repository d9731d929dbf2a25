"""`python -m benchmarks.cleaner`: how fast logs are cleaned, next to Apache Kafka's cleaner on the same bytes.

Kafka's jars are those in the directory that MINIKAFKA_KAFKA_JARS names; without them only this cleaner runs. Both
open the log, map its keys and copy it, in turn, in one process each; the time is that of the cleaning alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, time
from typing import Any, NamedTuple

from benchmarks import report
from minikafka.log.cleaner.task import CleaningTask
from minikafka.record.batch import Record, build
from minikafka.runtime.cleaner_processes import CleanerProcesses

PROGRAM = Path(__file__).parent.parent / "tests" / "support" / "LogCleaning.java"
KEY = b"key-%012d"
VALUE_BYTES = 76
"""With its key, such a record takes 100 bytes."""
SEGMENT_BYTES = 1 << 30
MAP_BYTES = 128 << 20


class Load(NamedTuple):
    """A log of `records` records in batches of `batch`, with values of `keys` keys in random order."""

    name: str
    records: int
    batch: int
    keys: int
    codec: int = 0


def loads(records: int) -> list[Load]:
    """Return the logs to clean: many updates of few keys, few updates of many, and other batches."""
    return [
        Load("100 updates of each key", records, 160, records // 100),
        Load("2 updates of each key", records, 160, records // 2),
        Load("every key once", records, 160, 1 << 40),
        Load("lz4, 10 updates of each key", records, 160, records // 10, codec=3),
        Load("one record in a batch", records // 4, 1, records // 100),
    ]


def write(load: Load, directory: Path) -> int:
    """Write the log's first segment; return its size in bytes."""
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
    """Return the cleaning of the whole log."""
    return CleaningTask(
        directory=str(directory),
        segments=[0],
        later_segments=[],
        last_stable_offset=load.records,
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
    """Clean the log in a process that has cleaned another one before; return the time that took."""
    small = load._replace(records=load.batch)
    first = directory.with_name("first-0")
    write(small, first)
    cleaners = CleanerProcesses()
    await cleaners.clean(task_of(small, first).encode(), _ignore)
    began = perf_counter()
    await cleaners.clean(task_of(load, directory).encode(), _ignore)
    took = perf_counter() - began
    await cleaners.close()
    return took


def _ignore(group: Any) -> None:
    """Leave the copy where it is."""


def kafka_seconds(load: Load, directory: Path, jars: str) -> float:
    """Clean the log with Kafka's Cleaner; return the time that took."""
    lines = directory.parent / "lines"
    line = (
        f"{directory} 0 {load.records} {int(time() * 1_000)} 86400000 {SEGMENT_BYTES} {MAP_BYTES}"
    )
    # The last segment is active and never cleaned, so another one follows.
    (directory / f"{load.records:020d}.log").touch()
    lines.write_text(line + "\n")
    command = ["java", "-cp", f"{jars}/*", str(PROGRAM), str(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"nanoseconds (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1]) / 1e9


def measure(load: Load, rounds: int, jars: str) -> None:
    """Print MB/s of both cleaners for one load, the median of the rounds."""
    own, kafka, size = [], [], 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="cleaner-") as root:
            size = write(load, Path(root) / "t-0")
            if jars:
                shutil.copytree(Path(root) / "t-0", Path(root) / "kafka" / "t-0")
                kafka.append(kafka_seconds(load, Path(root) / "kafka" / "t-0", jars))
            own.append(asyncio.run(own_seconds(load, Path(root) / "t-0")))
    line = f"{load.name:30} {size / median(own) / 1e6:8.1f} MB/s"
    if kafka:
        line += (
            f"   Kafka {size / median(kafka) / 1e6:8.1f} MB/s   {median(kafka) / median(own):.2f}x"
        )
    print(line, flush=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cleaner", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="records of a log (2000000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each load (3)")
    options = parser.parse_args()
    jars = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
    print(report.machine(), flush=True)
    for load in loads(options.records):
        measure(load, options.rounds, jars)


if __name__ == "__main__":
    main()
