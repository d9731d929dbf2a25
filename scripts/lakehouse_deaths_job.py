"""Test of tables: kills the driver and a broker while streams write tables, then counts every record.

    lakehouse-deaths [--kills N] [--seed S]

A producer fills a topic, from which a driver writes a table of Delta Lake and a table of Iceberg. The driver is killed
with SIGKILL at random moments, and continues from its checkpoints; a broker is killed in between. Meanwhile
the tables are compacted. The exit code is 0 only if delta-rs, pyiceberg and DuckDB each find every (topic, partition,
offset) of the topic exactly once, before and after the last compaction.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import suppress
from pathlib import Path

import duckdb
import endings
import pyarrow as pa
from deltalake import DeltaTable
from display import Display
from load import Stream, create_topic, read_back
from pyiceberg.catalog import load_catalog
from spark_deaths_driver import SOURCE
from spark_deaths_job import (
    BROKERS,
    CONFIG,
    PARTITIONS,
    PROGRESS_SECONDS,
    RATE,
    SHORT_LIVED,
    TOPIC_CONFIG,
    records,
    run_directory,
)
from threads import in_thread

from minikafka.spark.lakehouse.programs import table_settings
from minikafka.spark.lakehouse.tables import DELTA, FORMATS, ICEBERG, RECORDS
from minikafka.spark.pipelines.compact import CompactSettings, run
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.faults.script.actions import begin

KILL_SECONDS = (0.0, 3.0)
"""Range of the time between a committed micro-batch and the kill of the driver."""
BROKER_SECONDS = 3.0
COLUMNS = ("topic", "partition", "offset")
Place = tuple[str, int, int]


def main() -> bool:
    """Run the streams and the kills. Return True if all engines find every record once."""
    parser = argparse.ArgumentParser(
        prog="lakehouse-deaths", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--kills", type=int, default=5, help="number of kills of the driver (5)")
    parser.add_argument("--seed", type=int, help="seed of an earlier run, to draw the same moments")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    with Display() as display, run_directory() as directory:
        display.say(f"seed {seed}")
        return run_cancellable(deaths(display, directory, given.kills, random.Random(seed)))


class Driver:
    """The process of the driver, which can be killed and started again."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        script = Path(__file__).with_name("lakehouse_deaths_driver.py")
        self._command = [sys.executable, str(script), bootstrap, str(directory)]
        self._log = directory / "driver.log"
        self._process: Process | None = None

    async def start(self) -> None:
        """Start the process."""
        path = os.pathsep.join(
            filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
        )
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=os.environ | {"JAVA_TOOL_OPTIONS": SHORT_LIVED, "PYTHONPATH": path},
                start_new_session=True,
            )

    async def wait_for(self, fact: str) -> dict[str, object]:
        """Wait for the next line with this fact. Raises RuntimeError if the driver ends or is silent for too long."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                async for line in self._process.stdout:
                    facts: dict[str, object] = json.loads(line)
                    if fact in facts:
                        return facts
        except TimeoutError:
            raise RuntimeError(f"the driver printed no {fact}, see {self._log}") from None
        raise RuntimeError(f"the driver failed, see {self._log}")

    async def kill(self) -> None:
        """Kill the process and its Java process with SIGKILL."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def finish(self) -> None:
        """Let the streams write all existing records, and wait until the process ends."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self.wait_for("finished")
        await self._process.wait()


async def deaths(display: Display, directory: Path, kills: int, chance: random.Random) -> bool:
    """Run producer, streams and kills together, then count the rows. Return True if all counts are right."""
    async with LocalCluster(BROKERS, config=CONFIG) as cluster:
        await in_thread(create_topic, cluster.bootstrap, SOURCE, PARTITIONS, TOPIC_CONFIG)
        stream = Stream(cluster.bootstrap, SOURCE, records(), RATE)
        driver = Driver(cluster.bootstrap, directory)
        try:
            stream.start()
            with display.step("kills") as step:
                await harm(display, directory, cluster, driver, kills, chance)
                step.done(f"{kills} × driver, 1 × broker")
            stream.stop()
            await asyncio.to_thread(stream.join)
            if stream.error is not None:
                raise RuntimeError(f"the producer failed: {stream.error}")
            with display.step("finish") as step:
                await driver.finish()
                step.done("all records are written")
            with display.step("read") as step:
                reading = await in_thread(
                    read_back, cluster.bootstrap, SOURCE, PARTITIONS, step.advance
                )
                step.done(f"{sum(map(len, reading.values())):,} records")
        finally:
            await asyncio.to_thread(stream.abandon)
            await driver.kill()
    wanted = {
        (SOURCE, partition, offset) for partition in reading for offset, _ in reading[partition]
    }
    is_right = check(display, directory, wanted, "")
    for name in FORMATS:
        compact(display, directory, name, expire_s=0)
    return check(display, directory, wanted, " after the compaction") and is_right


async def harm(
    display: Display,
    directory: Path,
    cluster: LocalCluster,
    driver: Driver,
    kills: int,
    chance: random.Random,
) -> None:
    """Kill the driver after micro-batches, and in between a broker. Compact the tables meanwhile."""
    for number in range(kills):
        await driver.start()
        await driver.wait_for("batch")
        if number == kills // 2:
            display.say("  kill a broker")
            begun = await begin(cluster, "kill", {"broker": chance.randint(1, BROKERS)}, None)
            await asyncio.sleep(BROKER_SECONDS)
            await begun.end()
            await driver.wait_for("batch")
        if number:
            await asyncio.to_thread(compact, display, directory, FORMATS[number % 2])
        await asyncio.sleep(chance.uniform(*KILL_SECONDS))
        display.say("  kill the driver")
        await driver.kill()
    await cluster.wait_for_isr(SOURCE)
    await driver.start()
    await driver.wait_for("batch")


def compact(display: Display, directory: Path, name: str, expire_s: int = 3600) -> None:
    """Merge the small files of a table, which the streams may be writing."""
    settings = CompactSettings(table_settings(name, str(directory / name)), expire_s=expire_s)
    facts = run(settings).facts
    display.say(f"  compact {name}: {facts['files_merged']} files to {facts['files_written']}")


def check(display: Display, directory: Path, wanted: set[Place], when: str) -> bool:
    """Count the rows that each engine finds, and show the result. Return True if all are right."""
    is_right = True
    for engine, table in read(directory):
        found = Counter(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))
        lost, strange = len(wanted - found.keys()), len(found.keys() - wanted)
        repeated = sum(number - 1 for number in found.values())
        is_whole = not (lost or strange or repeated)
        text = f"{lost} lost, {repeated} repeated, {strange} unknown"
        good = f"every one of {len(wanted):,} records exactly once"
        display.say(
            f"{engine} finds {good}{when}" if is_whole else f"FAILED: {engine}{when}: {text}"
        )
        is_right &= is_whole
    return is_right


def read(directory: Path) -> list[tuple[str, pa.Table]]:
    """Return the names of the records in each table, as each engine reads them."""
    delta = DeltaTable(str(directory / DELTA))
    place = directory / ICEBERG
    iceberg = load_catalog("default", type="sql", uri=f"sqlite:///{place}/catalog.db").load_table(
        RECORDS
    )
    files = [task.file.file_path.removeprefix("file://") for task in iceberg.scan().plan_files()]
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    uris = delta.file_uris()
    return [
        ("delta-rs", delta.to_pyarrow_table(columns=list(COLUMNS))),
        ("pyiceberg", iceberg.scan(selected_fields=COLUMNS).to_arrow()),
        ("DuckDB (Delta Lake)", duckdb.read_parquet(uris).project(columns).to_arrow_table()),
        ("DuckDB (Iceberg)", duckdb.read_parquet(files).project(columns).to_arrow_table()),
    ]


if __name__ == "__main__":
    endings.run("lakehouse-deaths", main)
