"""Quickstart: streams files through real clients, kills a broker midway, reads all records back twice.

The readers are a client and Spark, which the job installs if it is missing. With --no-spark the client is the only
reader. The exit code is 0 only if no acknowledged record was lost, the order within partitions was kept, and both
readers got the same records. Invariant: all started processes end with this program, even after SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import zlib
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from importlib import metadata
from pathlib import Path

import endings
import source_lines
from display import Display, Step
from load import Stream, create_topic, read_back
from source_lines import Lines
from threads import in_thread
from verdict import IsrWatch, in_background, show_verdict

from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.zookeeper import shown_kind
from minikafka.checks.delivery import Reading, verdict
from minikafka.runtime.locks import try_lock
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.ports import is_free

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "quickstart-data"
TOPIC = "stdlib"
PARTITIONS = 6
TOPIC_CONFIG = {"min.insync.replicas": "2"}
RATE = 60_000.0
"""Maximum records per second. At this rate, the stream takes longer than a failover."""
KILL_AT = 0.2
"""The broker is killed when this fraction of the stream is acked."""
SPARK_SECONDS = 120.0
STALLED_SECONDS = 60.0
"""Maximum time without an ack. A failover takes about a tenth of this time."""
TABLE_COUNTS = ("lost", "duplicated", "reordered", "differing")
SHOW_SECONDS = 0.1


def main() -> bool:
    """Run quickstart with a display. Return True if the verdict is good."""
    parser = argparse.ArgumentParser(prog="quickstart", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--no-spark", action="store_true", help="neither install Spark nor read with it"
    )
    no_spark = parser.parse_args().no_spark
    with Display() as display, run_directory() as directory:
        return run_cancellable(quickstart(display, directory, with_spark=not no_spark))


@contextmanager
def run_directory() -> Iterator[Path]:
    """Remove the directories of finished runs, and yield a new directory for this run."""
    DATA.mkdir(exist_ok=True)
    for former in DATA.iterdir():
        with former.joinpath("run.lock").open("ab") as lock:
            if try_lock(lock.fileno()):
                run_cancellable(LocalCluster(data=former).stop())
                shutil.rmtree(former)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=DATA))
    with directory.joinpath("run.lock").open("ab") as lock:
        try_lock(lock.fileno())
        yield directory


async def quickstart(display: Display, directory: Path, *, with_spark: bool) -> bool:
    """Run all steps of quickstart. Return True if no record was lost and the readings of the topic are equal."""
    config = ClusterConfig.parse((ROOT / "cluster.toml").read_text())
    if with_spark:
        await install_spark(display)
    with display.step("source") as step:
        lines = await asyncio.to_thread(source_lines.read)
        total = sum(map(len, lines.values()))
        step.done(f"{total:,} lines of {len(lines):,} files of the standard library")
    async with running_cluster(display, config, directory) as cluster:
        await in_thread(create_topic, cluster.bootstrap, TOPIC, PARTITIONS, TOPIC_CONFIG)
        watch = IsrWatch(cluster, TOPIC)
        stream = Stream(cluster.bootstrap, TOPIC, source_lines.interleaved(lines), RATE)
        async with (
            spark_job(lines, directory, cluster.bootstrap)
            if with_spark
            else nullcontext() as spark,
            in_background(watch.run()),
        ):
            try:
                await stream_with_failure(display, cluster, stream, total)
            finally:
                await asyncio.to_thread(stream.abandon)
            if spark:
                await start_spark_reading(spark)
            reading = await read_by_client(display, cluster, lines)
            agree = await read_by_spark(display, spark, reading) if spark else True
        watch.show(display)
    result = verdict([stream.history], reading)
    show_verdict(display, result)
    return result.ok and agree


async def install_spark(display: Display) -> None:
    """Install the packages of Spark that .venv lacks. Raises RuntimeError if pip fails."""
    with display.step("install Spark") as step:
        command = [str(ROOT / "scripts" / "environment"), "--needs", "spark"]
        process = await asyncio.create_subprocess_exec(
            *command, stderr=PIPE, start_new_session=True
        )
        assert process.stderr is not None
        last = ""
        try:
            async for line in process.stderr:
                last = line.decode(errors="replace").strip()
                step.advance(0, None, last)
            if await process.wait() != 0:
                raise RuntimeError(last)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
        importlib.invalidate_caches()
        step.done(f"PySpark {metadata.version('pyspark')} and a Java runtime are in .venv")


@asynccontextmanager
async def running_cluster(
    display: Display, config: ClusterConfig, directory: Path
) -> AsyncIterator[LocalCluster]:
    """Step 1: run the cluster that cluster.toml defines. If one of its ports is in use, use free ports."""
    ports = range(config.port, config.port + config.brokers)
    port = config.port if all(map(is_free, ports)) else 0
    cluster = LocalCluster(data=directory, config=config, port=port)
    try:
        with display.step("cluster") as step:
            await cluster.start()
            kind = shown_kind(cluster.record.zookeeper_kind)
            step.done(f"{kind}, at {cluster.zookeeper}; brokers {cluster.bootstrap}")
        yield cluster
    finally:
        await cluster.stop()


async def stream_with_failure(
    display: Display, cluster: LocalCluster, stream: Stream, total: int
) -> None:
    """Steps 3 and 4: stream, kill the broker that leads the most partitions, restart it, wait for full ISRs."""
    stream.start()
    with display.step("stream") as step:
        await show_progress(step, stream, total, lambda: stream.acked >= KILL_AT * total)
        victim = await busiest(cluster)
        moment = time.monotonic()
        await cluster.kill(victim)
        stream.mark(moment)
        display.say(f"kill: SIGKILL to broker {victim}, which leads the most partitions")
        await show_progress(step, stream, total, lambda: len(stream.first_ack_after) == PARTITIONS)
        show_recovery(display, stream)
        async with in_background(restart_broker(display, cluster, victim)) as back:
            await show_progress(step, stream, total, back.done)
            await back
        await show_progress(step, stream, total, lambda: False)
        if stream.error is not None:
            raise RuntimeError(f"the producer failed: {stream.error}")
        step.done(f"{stream.acked:,} of {total:,} records acked")


async def show_progress(step: Step, stream: Stream, total: int, until: Callable[[], bool]) -> None:
    """Show the progress of the stream until `until` returns True or the stream has ended.

    Raises RuntimeError if no record is acked for `STALLED_SECONDS`, for example because too few brokers run.
    """
    acked, since = stream.acked, time.monotonic()
    while stream.is_alive() and not until():
        step.advance(stream.acked, total, f"{stream.acked:,} acked")
        if stream.acked != acked:
            acked, since = stream.acked, time.monotonic()
        elif time.monotonic() - since > STALLED_SECONDS:
            silent = f"no ack for {STALLED_SECONDS:g} s, after {acked:,} of {total:,}"
            raise RuntimeError(f"{silent} records: see {DATA}/run-*/logs")
        await asyncio.sleep(SHOW_SECONDS)


async def busiest(cluster: LocalCluster) -> int:
    """Return the id of the broker that leads the largest number of the topic's partitions."""
    views = (await cluster.state()).partitions.items()
    leaders = Counter(v.leader for tp, v in views if tp.topic == TOPIC and v.leader is not None)
    return leaders.most_common(1)[0][0]


def show_recovery(display: Display, stream: Stream) -> None:
    """Show, for each partition, the time from the kill to the first ack of a record sent after the kill."""
    waits = {p: f"{seconds:.2f} s" for p, seconds in stream.first_ack_after.items()}
    rows = [[waits.get(partition, "none") for partition in range(PARTITIONS)]]
    header = [f"{TOPIC}-{partition}" for partition in range(PARTITIONS)]
    display.table("Time to the first successful write after the kill", header, rows)


async def restart_broker(display: Display, cluster: LocalCluster, victim: int) -> None:
    """Start the killed broker, and wait until the broker is in every ISR again."""
    started = time.monotonic()
    await cluster.start(victim)
    await cluster.wait_for_isr(TOPIC)
    seconds = time.monotonic() - started
    display.say(f"back: broker {victim} is in every ISR again, {seconds:.1f} s after its start")


async def read_by_client(display: Display, cluster: LocalCluster, lines: Lines) -> Reading:
    """Step 5, first reader: read with an unmodified consumer, and compare every file with the source."""
    with display.step("client") as step:
        reading = await in_thread(read_back, cluster.bootstrap, TOPIC, PARTITIONS, step.advance)
        count = sum(map(len, reading.values()))
        same = len(lines) - len(different_files(reading, lines))
        step.done(f"{count:,} records read, {same:,} of {len(lines):,} files equal in order")
    return reading


def different_files(reading: Reading, lines: Lines) -> set[bytes]:
    """Return the names of the files whose records (in log order) differ from the lines of the file."""
    found: dict[bytes, list[bytes]] = {}
    for deliveries in reading.values():
        for _, (name, line) in deliveries:
            found.setdefault(name, []).append(line)
    return {name for name in lines.keys() | found.keys() if lines.get(name) != found.get(name)}


async def start_spark_reading(spark: Process) -> None:
    """Step 5, second reader: wait until Spark is ready, and tell Spark that the topic is complete."""
    await spark_answer(spark)
    assert spark.stdin is not None
    spark.stdin.write(b"\n")


async def read_by_spark(display: Display, spark: Process, reading: Reading) -> bool:
    """Show Spark's results. Return True if stream and table have exactly the records that the client read."""
    with display.step("spark") as step:
        table = await spark_answer(spark)
        count, checksum = await asyncio.to_thread(checksum_of, reading)
        agree = (
            (table["records"], table["checksum"])
            == (table["streamed"], table["stream_checksum"])
            == (count, checksum)
        )
        named = ", ".join(f"{table[name]:,} {name}" for name in TABLE_COUNTS)
        same = "are equal" if agree else "DIFFER"
        step.done(f"{table['records']:,} records joined with {table['lines']:,} lines: {named}")
        batches = f"{table['streamed']:,} records in {table['micro_batches']} micro-batches"
        display.say(f"Spark's stream read {batches}")
        display.say(f"the records of the client, of Spark's table and of its stream {same}")
    return agree


async def spark_answer(spark: Process) -> dict[str, int]:
    """Return the next line of JSON from the Spark job. Raises RuntimeError if the job ends or is too slow."""
    assert spark.stdout is not None
    try:
        async with asyncio.timeout(SPARK_SECONDS):
            line = await spark.stdout.readline()
    except TimeoutError:
        silent = f"no output of the Spark job for {SPARK_SECONDS:g} s"
        raise RuntimeError(f"{silent}: is the machine busy? See {DATA}/run-*/spark.log") from None
    if not line:
        raise RuntimeError(f"the Spark job failed, see {DATA}/run-*/spark.log")
    found: dict[str, int] = json.loads(line)
    return found


def checksum_of(reading: Reading) -> tuple[int, int]:
    """Return the number and the checksum of the records. `quickstart_spark.checksum` computes the same checksum."""
    count = total = 0
    for partition, deliveries in reading.items():
        for offset, (name, line) in deliveries:
            total += zlib.crc32(line + f"{name.decode()} {partition} {offset}".encode())
        count += len(deliveries)
    return count, total


@asynccontextmanager
async def spark_job(lines: Lines, directory: Path, bootstrap: str) -> AsyncIterator[Process]:
    """Run the PySpark job in a separate process. The job reads the topic as a stream while records arrive."""
    source = directory / "source.parquet"
    await asyncio.to_thread(source_lines.write_parquet, lines, source)
    script = Path(__file__).with_name("quickstart_spark.py")
    with (directory / "spark.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(script),
            str(source),
            str(directory / "result.parquet"),
            bootstrap,
            TOPIC,
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


if __name__ == "__main__":
    endings.run("quickstart", main)
