"""The main job: real input through real clients, a broker killed mid-stream, everything read back twice.

Exit 0 only if nothing acknowledged was lost, order per partition held, and the two readings agree.
Invariant: whatever ends this program, no process that it started outlives it.
"""

from __future__ import annotations

import argparse
import asyncio
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
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import endings
import source_lines
from display import Display, Step
from load import Stream, create_topic, read_back
from source_lines import Lines
from verdict import IsrWatch, in_background, show_verdict

from minikafka.base.config import ClusterConfig
from minikafka.cluster import LocalCluster
from minikafka.cluster.directory import is_free, try_lock
from minikafka.history import Reading, verdict

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "quickstart-data"
TOPIC = "stdlib"
PARTITIONS = 6
TOPIC_CONFIG = {"min.insync.replicas": "2"}
RATE = 60_000.0
"""Records a second at most: the stream is to last longer than a fail-over takes."""
KILL_AT = 0.2
"""Part of the stream that is acked when the broker is killed."""
SPARK_SECONDS = 120.0
STALLED_SECONDS = 60.0
"""How long a stream may stand still: a fail-over takes a tenth of it."""
TABLE_COUNTS = ("lost", "duplicated", "reordered", "differing")
SHOW_SECONDS = 0.1


def main() -> bool:
    """Run it, shown; whether the verdict is good."""
    argparse.ArgumentParser(
        prog="quickstart", description=(__doc__ or "").split("\n")[0]
    ).parse_args()
    with Display() as display, run_directory() as directory:
        return asyncio.run(quickstart(display, directory))


@contextmanager
def run_directory() -> Iterator[Path]:
    """A directory of this run's own, after the leftovers of runs that are over were removed."""
    DATA.mkdir(exist_ok=True)
    for former in DATA.iterdir():
        with former.joinpath("run.lock").open("ab") as lock:
            if try_lock(lock):
                asyncio.run(LocalCluster(data=former).stop())
                shutil.rmtree(former)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=DATA))
    with directory.joinpath("run.lock").open("ab") as lock:
        try_lock(lock)
        yield directory


async def quickstart(display: Display, directory: Path) -> bool:
    """Steps 1 to 6; whether the verdict is good."""
    config = ClusterConfig.parse((ROOT / "cluster.toml").read_text())
    with display.step("source") as step:
        lines = await asyncio.to_thread(source_lines.read)
        total = sum(map(len, lines.values()))
        step.done(f"{total:,} lines of {len(lines):,} files of the standard library")
    async with running_cluster(display, config, directory) as cluster:
        await asyncio.to_thread(create_topic, cluster.bootstrap, TOPIC, PARTITIONS, TOPIC_CONFIG)
        watch = IsrWatch(cluster, TOPIC)
        stream = Stream(cluster.bootstrap, TOPIC, source_lines.interleaved(lines), RATE)
        async with spark_job(lines, directory) as spark, in_background(watch.run()):
            try:
                await break_it(display, cluster, stream, total)
            finally:
                await asyncio.to_thread(stream.abandon)
            await ask(spark, cluster.bootstrap)
            reading = await read_by_client(display, cluster, lines)
            agree = await read_by_spark(display, spark, reading)
        watch.show(display)
    result = verdict([stream.history], reading)
    show_verdict(display, result)
    return result.ok and agree


@asynccontextmanager
async def running_cluster(
    display: Display, config: ClusterConfig, directory: Path
) -> AsyncIterator[LocalCluster]:
    """Step 1: the cluster of cluster.toml; on free ports where its own are taken."""
    ports = range(config.port, config.port + config.brokers)
    port = config.port if all(map(is_free, ports)) else 0
    cluster = LocalCluster(data=directory, config=config, port=port)
    try:
        with display.step("cluster") as step:
            await cluster.start()
            step.done(f"ZooKeeper {cluster.zookeeper}, brokers {cluster.bootstrap}")
        yield cluster
    finally:
        await cluster.stop()


async def break_it(display: Display, cluster: LocalCluster, stream: Stream, total: int) -> None:
    """Steps 3 and 4: stream, kill the broker that leads most, start it again, wait for every ISR."""
    stream.start()
    with display.step("stream") as step:
        await follow(step, stream, total, lambda: stream.acked >= KILL_AT * total)
        victim = await busiest(cluster)
        moment = time.monotonic()
        await cluster.kill(victim)
        stream.mark(moment)
        display.say(f"kill: SIGKILL to broker {victim}, which leads most partitions")
        await follow(step, stream, total, lambda: len(stream.first_ack_after) == PARTITIONS)
        show_recovery(display, stream)
        async with in_background(come_back(display, cluster, victim)) as back:
            await follow(step, stream, total, back.done)
            await back
        await follow(step, stream, total, lambda: False)
        if stream.error is not None:
            raise RuntimeError(f"the producer failed: {stream.error}")
        step.done(f"{stream.acked:,} of {total:,} records acked")


async def follow(step: Step, stream: Stream, total: int, until: Callable[[], bool]) -> None:
    """Show how far the stream is, until something is so or the stream has ended.

    Raises RuntimeError when it stands still for long: too few brokers are left, say.
    """
    acked, since = stream.acked, time.monotonic()
    while stream.is_alive() and not until():
        step.advance(stream.acked, total, f"{stream.acked:,} acked")
        if stream.acked != acked:
            acked, since = stream.acked, time.monotonic()
        elif time.monotonic() - since > STALLED_SECONDS:
            silent = f"nothing was acked for {STALLED_SECONDS:g} s, after {acked:,} of {total:,}"
            raise RuntimeError(f"{silent} records: see {DATA}/run-*/logs")
        await asyncio.sleep(SHOW_SECONDS)


async def busiest(cluster: LocalCluster) -> int:
    """The broker that leads most partitions of the topic."""
    views = (await cluster.state()).partitions.items()
    leaders = Counter(v.leader for tp, v in views if tp.topic == TOPIC and v.leader is not None)
    return leaders.most_common(1)[0][0]


def show_recovery(display: Display, stream: Stream) -> None:
    """How long each partition took no write: from the kill to the ack of a record sent after it."""
    waits = {p: f"{seconds:.2f} s" for p, seconds in stream.first_ack_after.items()}
    rows = [[waits.get(partition, "none") for partition in range(PARTITIONS)]]
    header = [f"{TOPIC}-{partition}" for partition in range(PARTITIONS)]
    display.table("Time to the first successful write after the kill", header, rows)


async def come_back(display: Display, cluster: LocalCluster, victim: int) -> None:
    """Start the killed broker and wait until it is in every ISR again."""
    started = time.monotonic()
    await cluster.start(victim)
    await cluster.wait_for_isr(TOPIC)
    seconds = time.monotonic() - started
    display.say(f"back: broker {victim} is in every ISR again, {seconds:.1f} s after its start")


async def read_by_client(display: Display, cluster: LocalCluster, lines: Lines) -> Reading:
    """Step 5, first reading: by an unmodified consumer, compared with the source file by file."""
    with display.step("client") as step:
        reading = await asyncio.to_thread(
            read_back, cluster.bootstrap, TOPIC, PARTITIONS, step.advance
        )
        count = sum(map(len, reading.values()))
        same = len(lines) - len(different_files(reading, lines))
        step.done(f"{count:,} records read, {same:,} of {len(lines):,} files equal in order")
    return reading


def different_files(reading: Reading, lines: Lines) -> set[bytes]:
    """Files whose records, in the order of the log, are not their lines in order."""
    found: dict[bytes, list[bytes]] = {}
    for deliveries in reading.values():
        for _, (name, line) in deliveries:
            found.setdefault(name, []).append(line)
    return {name for name in lines.keys() | found.keys() if lines.get(name) != found.get(name)}


async def ask(spark: Process, bootstrap: str) -> None:
    """Step 5, second reading: begin it as soon as Spark is there, beside the first."""
    await answer(spark)
    assert spark.stdin is not None
    spark.stdin.write(json.dumps({"bootstrap": bootstrap, "topic": TOPIC}).encode() + b"\n")


async def read_by_spark(display: Display, spark: Process, reading: Reading) -> bool:
    """What Spark found. Whether its table holds the very records that the client read."""
    with display.step("spark") as step:
        table = await answer(spark)
        count, checksum = await asyncio.to_thread(checksum_of, reading)
        agree = (table["records"], table["checksum"]) == (count, checksum)
        named = ", ".join(f"{table[name]:,} {name}" for name in TABLE_COUNTS)
        same = "agree" if agree else "DO NOT AGREE"
        step.done(f"{table['records']:,} records joined with {table['lines']:,} lines: {named}")
        display.say(f"the reading of the client and the table of Spark {same}")
    return agree


async def answer(spark: Process) -> dict[str, int]:
    """The next line of the job. Raises RuntimeError when it ended instead, or says nothing for long."""
    assert spark.stdout is not None
    try:
        async with asyncio.timeout(SPARK_SECONDS):
            line = await spark.stdout.readline()
    except TimeoutError:
        silent = f"the Spark job said nothing for {SPARK_SECONDS:g} s"
        raise RuntimeError(f"{silent}: is the machine busy? See {DATA}/run-*/spark.log") from None
    if not line:
        raise RuntimeError(f"the Spark job failed, see {DATA}/run-*/spark.log")
    found: dict[str, int] = json.loads(line)
    return found


def checksum_of(reading: Reading) -> tuple[int, int]:
    """Records, and what `quickstart_spark.checksum` makes of the same ones."""
    count = total = 0
    for partition, deliveries in reading.items():
        for offset, (name, line) in deliveries:
            total += zlib.crc32(line + f"{name.decode()} {partition} {offset}".encode())
        count += len(deliveries)
    return count, total


@asynccontextmanager
async def spark_job(lines: Lines, directory: Path) -> AsyncIterator[Process]:
    """The PySpark job as a process of its own, starting its session while the stream runs."""
    source = directory / "source.parquet"
    await asyncio.to_thread(source_lines.write_parquet, lines, source)
    script = Path(__file__).with_name("quickstart_spark.py")
    with (directory / "spark.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(script),
            str(source),
            str(directory / "result.parquet"),
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
