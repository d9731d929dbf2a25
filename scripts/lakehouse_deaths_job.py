"""Test of tables: kills drivers, a broker and the catalog while tables are written, then counts every record.

    lakehouse-deaths [--kills N] [--seed S] [--catalog sqlite|rest] [--jars DIR] [--extensions PYTHON]

A producer fills a topic, from which a driver writes a table of Delta Lake and a table of Iceberg. The driver is killed
with SIGKILL at random moments, and continues from its checkpoints; a broker is killed in between. Meanwhile
the tables are compacted, old states of them expire, and a process reads them again and again. Then
`minikafka pipeline archive` archives the topic to two more tables, and is killed once for each. The exit code is 0 only
if each read was complete, and if delta-rs, pyiceberg and DuckDB each find every (topic, partition, offset) of the topic
exactly once, before and after the last compaction.

With `--catalog rest`, the tables of Iceberg are in the REST catalog of Iceberg's own tests, which runs from the jars in
DIR, and which is killed and started again once. With `--extensions`, DuckDB reads the tables with its own extensions
`delta` and `iceberg`; PYTHON is the interpreter of an environment that has them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import endings
from display import Display
from lakehouse_engines import COLUMNS, engines, settings_of
from lakehouse_processes import Program, RestCatalog
from load import Stream, create_topic, read_back
from spark_deaths_driver import SOURCE
from spark_deaths_job import BROKERS, CONFIG, PARTITIONS, RATE, TOPIC_CONFIG, records, run_directory
from threads import in_thread

from minikafka.spark.lakehouse.tables import FORMATS, ICEBERG, LakeSettings
from minikafka.spark.pipelines.compact import CompactSettings, run
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.faults.script.actions import begin

KILL_SECONDS = (0.0, 3.0)
"""Range of the time between a committed micro-batch, or the first file of an archive, and the kill of the driver."""
POLL_SECONDS = 0.1
AWAY_SECONDS = 3.0
"""Time between the kill of a broker or of the catalog and its start."""
UPKEEP_SECONDS = 5.0
"""Pause between two compactions."""
EXPIRE_SECONDS = 60
"""Age of the states that are removed while others read. For Delta Lake, it is rounded up to an hour."""
ARCHIVE = f"archive {SOURCE} --partition-by hour --records-per-file 5000 --master local[2]"
OUTPUTS = ("stream", "archive")
Place = tuple[str, int, int]


def main() -> bool:
    """Run the streams and the kills. Return True if all engines find every record once."""
    given = parse(sys.argv[1:])
    with Display() as display, run_directory() as directory, ExitStack() as stack:
        display.say(f"seed {given.seed}")
        catalog = None
        if given.catalog == "rest":
            catalog = RestCatalog(given.jars, directory)
            stack.callback(catalog.kill)
            catalog.start()
        chance = random.Random(given.seed)
        job = Job(display, directory, chance, catalog, given.extensions)
        return run_cancellable(job.deaths(given.kills))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. Choose a random seed if no seed is given."""
    parser = argparse.ArgumentParser(
        prog="lakehouse-deaths", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--kills", type=int, default=5, help="number of kills of the driver (5)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--catalog", choices=("sqlite", "rest"), default="sqlite")
    parser.add_argument("--jars", default="", help="directory of the jars of the REST catalog")
    parser.add_argument("--extensions", default="", help="Python interpreter that has DuckDB's")
    given = parser.parse_args(arguments)
    if (given.catalog == "rest") != bool(given.jars):
        parser.error("--catalog rest and --jars need each other")
    return given


@dataclass
class Job:
    """One run. `catalog`: the server of the REST catalog; None for a SQLite file."""

    display: Display
    directory: Path
    chance: random.Random
    catalog: RestCatalog | None
    extensions: str

    def __post_init__(self) -> None:
        self.uri = self.catalog.uri if self.catalog else ""
        self.upkeep = asyncio.Lock()
        """Held during each compaction, and while the catalog is away."""
        place = str(self.directory)
        log = self.directory / "reader.log"
        self.reader = Program("lakehouse_deaths_reader.py", log, place, self.uri, self.extensions)

    def settings(self, output: str, format: str) -> LakeSettings:
        """Return the settings of a table."""
        return settings_of(self.directory, output, format, self.uri)

    async def deaths(self, kills: int) -> bool:
        """Run everything, then count the rows. Return True if all reads and counts are right."""
        async with LocalCluster(BROKERS, config=CONFIG) as cluster:
            await in_thread(create_topic, cluster.bootstrap, SOURCE, PARTITIONS, TOPIC_CONFIG)
            await self.stream(cluster, kills)
            with self.display.step("read") as step:
                reading = await in_thread(
                    read_back, cluster.bootstrap, SOURCE, PARTITIONS, step.advance
                )
                step.done(f"{sum(map(len, reading.values())):,} records")
            for name in FORMATS:
                await self.archive(cluster.bootstrap, name)
        wanted = {
            (SOURCE, partition, offset) for partition in reading for offset, _ in reading[partition]
        }
        is_right = self.reads_are_right()
        is_right &= self.check(wanted, "")
        for output in OUTPUTS:
            for name in FORMATS:
                self.compact(output, name, expire_s=0)
        return self.check(wanted, " after the compaction") and is_right

    async def stream(self, cluster: LocalCluster, kills: int) -> None:
        """Run producer, streams, reader, upkeep and kills together, and let the streams write all records."""
        producer = Stream(cluster.bootstrap, SOURCE, records(), RATE)
        arguments = (cluster.bootstrap, str(self.directory), self.uri)
        driver = Program("lakehouse_deaths_driver.py", self.directory / "driver.log", *arguments)
        try:
            producer.start()
            with self.display.step("kills") as step:
                await self.harm(cluster, driver, kills)
                step.done(f"{kills} × driver, 1 × broker{', 1 × catalog' if self.catalog else ''}")
            producer.stop()
            await asyncio.to_thread(producer.join)
            if producer.error is not None:
                raise RuntimeError(f"the producer failed: {producer.error}")
            with self.display.step("finish") as step:
                await driver.finish()
                step.done("all records are written")
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await asyncio.to_thread(producer.abandon)
            await driver.kill()
            await self.reader.kill()

    async def harm(self, cluster: LocalCluster, driver: Program, kills: int) -> None:
        """Kill the driver after micro-batches, and in between a broker and the catalog."""
        await start(driver)
        await self.reader.start()
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self.keep_compacting())
            for number in range(kills):
                if number == kills // 2:
                    await self.kill_broker(cluster)
                if number == kills - 1 and self.catalog is not None:
                    await self.kill_catalog(self.catalog)
                    await driver.wait_for(table=ICEBERG)
                await asyncio.sleep(self.chance.uniform(*KILL_SECONDS))
                self.display.say("  kill the driver")
                await driver.kill()
                await start(driver)
            await cluster.wait_for_isr(SOURCE)
            async with self.upkeep:
                keeping.cancel()
        await self.reader.finish()

    async def kill_broker(self, cluster: LocalCluster) -> None:
        """Kill a broker, and start it again."""
        self.display.say("  kill a broker")
        victim = self.chance.randint(1, BROKERS)
        begun = await begin(cluster, "kill", {"broker": victim}, None)
        await asyncio.sleep(AWAY_SECONDS)
        await begun.end()

    async def kill_catalog(self, catalog: RestCatalog) -> None:
        """Kill the catalog during the streams, and start it again. Nobody reads or compacts meanwhile."""
        async with self.upkeep:
            await self.reader.finish()
            self.display.say("  kill the catalog")
            catalog.kill()
            await asyncio.sleep(AWAY_SECONDS)
            await asyncio.to_thread(catalog.start)
            await self.reader.start()

    async def keep_compacting(self) -> None:
        """Compact the tables of the streams in turn."""
        while True:
            for name in FORMATS:
                async with self.upkeep:
                    await asyncio.to_thread(self.compact, "stream", name, EXPIRE_SECONDS)
            await asyncio.sleep(UPKEEP_SECONDS)

    def compact(self, output: str, name: str, expire_s: int) -> None:
        """Merge the small files of a table, and remove its old states."""
        settings = CompactSettings(self.settings(output, name), expire_s=expire_s)
        facts = run(settings).facts
        self.display.say(
            f"  compact {output} {name}: {facts['files_merged']} files to {facts['files_written']},"
            f" {facts['files_removed']} removed"
        )

    async def archive(self, bootstrap: str, name: str) -> None:
        """Archive the topic to a table. The first run is killed."""
        settings = self.settings("archive", name)
        command = [*ARCHIVE.split(), "--to", settings.place, "--format", name]
        command += ["--bootstrap", bootstrap]
        if name == ICEBERG:
            command += ["--table", settings.name]
        for key, value in settings.catalog.items():
            command += ["--catalog", f"{key}={value}"]
        with self.display.step(f"archive {name}") as step:
            data = Path(settings.place, "data")
            is_killed = await pipeline(command, data, self.chance.uniform(*KILL_SECONDS))
            await pipeline(command)
            step.done("killed once" if is_killed else "ended before its kill")

    def reads_are_right(self) -> bool:
        """Show how often each engine has read the tables. Return True if each read was good."""
        reads = defaultdict(list)
        for facts in self.reader.facts:
            if "engine" in facts:
                reads[facts["engine"]].append(facts)
        for engine, found in reads.items():
            faults = [one["fault"] for one in found if one["fault"]]
            longest = max(one["seconds"] for one in found)
            text = f"FAILED: {len(faults)} reads: {faults[0]}" if faults else "each complete"
            rows = f"{found[0]['rows']:,} to {found[-1]['rows']:,} rows"
            self.display.say(
                f"{engine}: {len(found)} reads of {rows} in at most {longest:.1f} s, {text}"
            )
        is_good = not any(one["fault"] for found in reads.values() for one in found)
        return is_good and len(reads) == 2 * len(FORMATS)

    def check(self, wanted: set[Place], when: str) -> bool:
        """Count the rows that each engine finds, and show the result. Return True if all are right."""
        is_right = True
        for output in OUTPUTS:
            for name in FORMATS:
                for engine, read in engines(self.settings(output, name), self.extensions).items():
                    table = read()
                    places = zip(*(table.column(one).to_pylist() for one in COLUMNS), strict=True)
                    fault = difference(Counter(places), wanted)
                    good = f"every one of {len(wanted):,} records exactly once"
                    text = f"{engine}, {output}{when}: {fault or good}"
                    self.display.say(f"FAILED: {text}" if fault else text)
                    is_right &= not fault
        return is_right


async def start(driver: Program) -> None:
    """Start the driver, and wait until each table has got a micro-batch from it."""
    await driver.start()
    await asyncio.gather(*(driver.wait_for(table=name) for name in FORMATS))


def difference(found: Counter[Place], wanted: set[Place]) -> str:
    """Return how the rows differ from the records; "" if each record is found once."""
    lost, strange = len(wanted - found.keys()), len(found.keys() - wanted)
    repeated = sum(number - 1 for number in found.values())
    if not (lost or strange or repeated):
        return ""
    return f"{lost} lost, {repeated} repeated, {strange} unknown"


async def pipeline(arguments: list[str], first: Path | None = None, lives_s: float = 0) -> bool:
    """Run a command of `minikafka pipeline`. With `first`, kill it `lives_s` seconds after this directory exists.

    Its Java process is killed with it. Returns True if it was killed. Raises RuntimeError if it fails.
    """
    command = [sys.executable, "-m", "minikafka", "pipeline", *arguments, "-q"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    ending = asyncio.create_task(process.communicate())
    try:
        while first is not None and not ending.done() and not first.exists():  # noqa: ASYNC240
            await asyncio.wait([ending], timeout=POLL_SECONDS)
        await asyncio.wait([ending], timeout=None if first is None else lives_s)
        is_killed = not ending.done()
    finally:
        if not ending.done():
            os.killpg(process.pid, signal.SIGKILL)
    text, _ = await ending
    if process.returncode and not is_killed:
        raise RuntimeError(text.decode())
    return is_killed


if __name__ == "__main__":
    endings.run("lakehouse-deaths", main)
