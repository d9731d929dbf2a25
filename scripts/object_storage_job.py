"""Test of outputs in a bucket: kills drivers while requests fail, then checks every record.

    object-storage [--endpoint URL] [--kills N] [--records N] [--seed S] [--tests]

A server of S3 runs behind a proxy that fails one request in ten: the server is busy, or the connection ends before or
after the request was carried out. `minikafka pipeline archive` and a stream of `minikafka pipeline run` write a topic
into a bucket. Each is killed with SIGKILL, with its Java process, N times at random moments, and started again. The
exit code is 0 only if pyarrow's own client of S3 reads every (partition, offset) exactly once from both outputs after
the last run, and no row twice before. `--tests` first runs the tests that need a server of S3.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import endings
import pyarrow.dataset as ds
from threads import in_thread

from minikafka.base.errors import MinikafkaError
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[1]
TOPIC = "lines"
PARTITIONS = 3
KILL_SECONDS = (0.0, 6.0)
"""Range of the time between the first new object of a driver and its death."""
POLL_SECONDS = 0.3
PIPELINE = """
[pipeline]
name = "lines"

[source.lines]
topic = "lines"
maxOffsetsPerTrigger = {trigger}

[[step]]
name = "places"
sql = "select partition part, offset at, partition from lines"

[sink]
kind = "parquet"
path = "{url}"
partition_by = "partition"

[sink.storage]
"""


def main() -> bool:
    """Run the job. Return True if all checks passed."""
    arguments = parse(sys.argv[1:])
    with tempfile.TemporaryDirectory() as directory, server(arguments.endpoint) as endpoint:
        os.environ["MINIKAFKA_S3_ENDPOINT"] = endpoint
        if arguments.tests and not _tests_pass():
            return False
        return run_cancellable(deaths(arguments, Path(directory)))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. Choose a random seed if no seed is given."""
    parser = argparse.ArgumentParser(prog="object-storage")
    parser.add_argument("--endpoint", default="", help="URL of a server of S3 that runs")
    parser.add_argument("--kills", type=int, default=5, help="number of deaths of each command (5)")
    parser.add_argument("--records", type=int, default=60_000, help="number of records (60,000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--tests", action="store_true", help="also run the tests that need S3")
    return parser.parse_args(arguments)


def _tests_pass() -> bool:
    tests = ("tests/unit/spark/storage", "tests/spark/pipeline/test_object_storage.py")
    return (
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False
        ).returncode
        == 0
    )


@contextmanager
def server(endpoint: str) -> Iterator[str]:
    """Yield the URL of a server of S3: the given one, or one that runs during the `with` body."""
    if endpoint:
        yield endpoint
        return
    command = [str(ROOT / ".venv-s3/bin/python"), "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            url = next(word for line in lines for word in line.split() if word.startswith("http:"))
            subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
            yield url
        finally:
            process.kill()


async def deaths(arguments: argparse.Namespace, directory: Path) -> bool:
    """Write the topic into the bucket with both commands, and kill them. Return True if every record is there once."""
    from support.spark.s3_server import BUCKET, FailingProxy, file_system, options

    file_system()
    place = f"object-storage-{arguments.seed}"
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    proxy = FailingProxy(every=10, delay_s=0.02)
    storage = options(proxy.endpoint)
    try:
        async with LocalCluster(1) as cluster:
            await _fill(cluster.bootstrap, arguments.records)
            archive = [
                "archive",
                TOPIC,
                "--to",
                f"s3://{BUCKET}/{place}/archive",
                "--records-per-file",
            ]
            archive += [str(arguments.records // 60)]
            for name, value in storage.items():
                archive += ["--storage", f"{name}={value}"]
            file = directory / "lines.toml"
            text = PIPELINE.format(
                trigger=arguments.records // 10, url=f"s3://{BUCKET}/{place}/stream"
            )
            file.write_text(text + "".join(f'{name} = "{one}"\n' for name, one in storage.items()))
            stream = ["run", str(file), "--checkpoint", str(directory / "checkpoint")]
            oks = []
            for name, command in (("archive", archive), ("stream", stream)):
                command += ["--bootstrap", cluster.bootstrap, "--master", "local[2]"]
                oks.append(await _survives(f"{place}/{name}", command, arguments, rng))
    finally:
        proxy.close()
    print(f"{proxy.failed:,} of {proxy.requests:,} requests failed")
    return all(oks)


async def _fill(bootstrap: str, records: int) -> None:
    async with Client(bootstrap) as client:
        await client.create_topics(NewTopic(TOPIC, PARTITIONS, 1))
        for partition in range(PARTITIONS):
            for start in range(0, records // PARTITIONS, 1_000):
                end = min(start + 1_000, records // PARTITIONS)
                sent = [Record(value=b"%d" % number) for number in range(start, end)]
                await client.produce(TOPIC, sent, partition=partition)


async def _survives(
    name: str, command: list[str], arguments: argparse.Namespace, rng: random.Random
) -> bool:
    """Run a command until it succeeds after its deaths. Return True if its output has every record once."""
    total = arguments.records // PARTITIONS * PARTITIONS
    killed = 0
    while True:
        lives_s = rng.uniform(*KILL_SECONDS) if killed < arguments.kills else None
        code, text = await _run(command, name, lives_s)
        found = await in_thread(_places, name)
        twice = sum(count - 1 for count in found.values())
        state = "killed" if code == -signal.SIGKILL else f"ended with {code}"
        print(f"{name}: {state}, {len(found):,} of {total:,} records, {twice} twice", flush=True)
        if twice:
            return False
        if code == 0:
            return len(found) == total
        if code == -signal.SIGKILL:
            killed += 1
        else:
            raise MinikafkaError(text)


async def _run(command: list[str], name: str, lives_s: float | None) -> tuple[int, str]:
    """Run a command of `minikafka pipeline`. Return its exit code and output.

    With `lives_s`, kill it with its Java process this time after it has written its second object.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minikafka", "pipeline", *command, "-q"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    ending = asyncio.create_task(process.communicate())
    if lives_s is not None:
        before = await in_thread(_staged, name)
        while not ending.done() and len(await in_thread(_staged, name) - before) < 2:
            await asyncio.wait([ending], timeout=POLL_SECONDS)
        await asyncio.wait([ending], timeout=lives_s)
        if not ending.done():
            os.killpg(process.pid, signal.SIGKILL)
            await ending
            return -signal.SIGKILL, ""
    output, _ = await ending
    return process.returncode or 0, output.decode()


def _staged(name: str) -> set[str]:
    """Return the names of the objects of an output, without the lock."""
    from support.spark.s3_server import keys

    try:
        return {key for key in keys(name) if not key.startswith("_lock")}
    except FileNotFoundError:
        return set()


def _places(name: str) -> Counter[tuple[int, int]]:
    """Return how often a reader of the bucket sees each (partition, offset)."""
    from support.spark.s3_server import BUCKET, file_system

    try:
        data = ds.dataset(f"{BUCKET}/{name}", filesystem=file_system(), partitioning="hive")
    except FileNotFoundError:
        return Counter()
    names = data.schema.names
    if not names:
        return Counter()
    columns = ("partition", "offset") if "offset" in names else ("part", "at")
    table = data.to_table(columns=list(columns))
    return Counter(zip(*(table.column(one).to_pylist() for one in columns), strict=True))


if __name__ == "__main__":
    endings.run("object-storage", main)
