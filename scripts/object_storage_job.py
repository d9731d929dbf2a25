"""Test of outputs in a store: kills drivers while requests fail, then checks every record.

    object-storage [--server moto|gcs|azurite|hdfs] [--endpoint URL] [--kills N] [--records N] [--seed S] [--tests]

A server runs behind a proxy that fails one request in ten: the server is busy, or the connection ends before or after
the request was carried out. `minikafka pipeline archive` and a stream of `minikafka pipeline run` write a topic into
a bucket. Each is killed with SIGKILL, with its Java process, N times at random moments, and started again. The exit
code is 0 only if pyarrow's own client of the server reads every (partition, offset) exactly once from both outputs
after the last run, and no row twice before. `--tests` first runs the tests of stores with this server.

The servers are moto's of S3 (default), fake-gcs-server, Azurite, and a name node with a data node of Hadoop, whose
requests do not fail, because they are not HTTP. `--endpoint` names a server of this kind that runs.
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
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import endings
import pyarrow.dataset as ds
import store_processes
from threads import in_thread

from minikafka.base.errors import MinikafkaError
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster

if TYPE_CHECKING:
    from support.spark.store_servers import Server

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
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        endpoint = arguments.endpoint or stack.enter_context(
            store_processes.running(arguments.server, Path(directory))
        )
        os.environ["MINIKAFKA_STORE"] = f"{store_processes.KINDS[arguments.server]}={endpoint}"
        if arguments.tests and not _tests_pass():
            return False
        return run_cancellable(deaths(arguments, Path(directory)))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. Choose a random seed if no seed is given."""
    parser = argparse.ArgumentParser(prog="object-storage")
    parser.add_argument("--server", choices=store_processes.KINDS, default="moto")
    parser.add_argument("--endpoint", default="", help="URL of a server of this kind that runs")
    parser.add_argument("--kills", type=int, default=5, help="number of deaths of each command (5)")
    parser.add_argument("--records", type=int, default=60_000, help="number of records (60,000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--tests", action="store_true", help="also run the tests of stores")
    return parser.parse_args(arguments)


def _tests_pass() -> bool:
    tests = ("tests/unit/spark/storage", "tests/spark/pipeline/test_object_storage.py")
    return (
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False
        ).returncode
        == 0
    )


async def deaths(arguments: argparse.Namespace, directory: Path) -> bool:
    """Write the topic into the bucket with both commands, and kill them. Return True if every record is there once."""
    from support.spark.store_servers import FailingProxy, running

    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    place = f"object-storage-{arguments.seed}"
    with running() as server:
        server.file_system()
        proxy = FailingProxy(server, every=10, delay_s=0.02)
        storage = server.options(proxy.endpoint)
        try:
            async with LocalCluster(1) as cluster:
                await _fill(cluster.bootstrap, arguments.records)
                oks = []
                for name, command in (
                    ("archive", _archive(arguments, server.url(f"{place}/archive"), storage)),
                    (
                        "stream",
                        _stream(arguments, directory, server.url(f"{place}/stream"), storage),
                    ),
                ):
                    command += ["--bootstrap", cluster.bootstrap, "--master", "local[2]"]
                    output = Output(server, f"{place}/{name}")
                    oks.append(await _survives(output, command, arguments, rng))
        finally:
            proxy.close()
    print(f"{proxy.failed:,} of {proxy.requests:,} requests failed")
    return all(oks)


def _archive(arguments: argparse.Namespace, url: str, storage: dict[str, str]) -> list[str]:
    command = ["archive", TOPIC, "--to", url]
    command += ["--records-per-file", str(arguments.records // 60)]
    for name, value in storage.items():
        command += ["--storage", f"{name}={value}"]
    return command


def _stream(
    arguments: argparse.Namespace, directory: Path, url: str, storage: dict[str, str]
) -> list[str]:
    file = directory / "lines.toml"
    text = PIPELINE.format(trigger=arguments.records // 10, url=url)
    file.write_text(text + "".join(f'{name} = "{one}"\n' for name, one in storage.items()))
    return ["run", str(file), "--checkpoint", str(directory / "checkpoint")]


async def _fill(bootstrap: str, records: int) -> None:
    async with Client(bootstrap) as client:
        await client.create_topics(NewTopic(TOPIC, PARTITIONS, 1))
        for partition in range(PARTITIONS):
            for start in range(0, records // PARTITIONS, 1_000):
                end = min(start + 1_000, records // PARTITIONS)
                sent = [Record(value=b"%d" % number) for number in range(start, end)]
                await client.produce(TOPIC, sent, partition=partition)


async def _survives(
    output: Output, command: list[str], arguments: argparse.Namespace, rng: random.Random
) -> bool:
    """Run a command until it succeeds after its deaths. Return True if its output has every record once."""
    total = arguments.records // PARTITIONS * PARTITIONS
    killed = 0
    while True:
        lives_s = rng.uniform(*KILL_SECONDS) if killed < arguments.kills else None
        code, text = await _run(command, output, lives_s)
        found = await in_thread(output.places)
        twice = sum(count - 1 for count in found.values())
        state = "killed" if code == -signal.SIGKILL else f"ended with {code}"
        print(
            f"{output.name}: {state}, {len(found):,} of {total:,} records, {twice} twice",
            flush=True,
        )
        if twice:
            return False
        if code == 0:
            return len(found) == total
        if code == -signal.SIGKILL:
            killed += 1
        else:
            raise MinikafkaError(text)


async def _run(command: list[str], output: Output, lives_s: float | None) -> tuple[int, str]:
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
        before = await in_thread(output.names)
        while not ending.done() and len(await in_thread(output.names) - before) < 2:
            await asyncio.wait([ending], timeout=POLL_SECONDS)
        await asyncio.wait([ending], timeout=lives_s)
        if not ending.done():
            os.killpg(process.pid, signal.SIGKILL)
            await ending
            return -signal.SIGKILL, ""
    text, _ = await ending
    return process.returncode or 0, text.decode()


class Output:
    """An output in the bucket, as pyarrow's own client of the server reads it."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self.name = name

    def names(self) -> set[str]:
        """Return the names of the objects, without the lock."""
        return {key for key in self._server.keys(self.name) if not key.startswith("_lock")}

    def places(self) -> Counter[tuple[int, int]]:
        """Return how often a reader sees each (partition, offset)."""
        from support.spark.store_servers import BUCKET

        files = self._server.file_system()
        try:
            data = ds.dataset(f"{BUCKET}/{self.name}", filesystem=files, partitioning="hive")
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
