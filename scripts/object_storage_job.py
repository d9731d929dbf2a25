"""Test of outputs in a store: kills drivers while requests fail, then checks every record.

    object-storage [--server moto|gcs|azurite|hdfs] [--endpoint URL] [--outputs NAME,…] [--kills N] [--records N]
        [--seed S] [--checkpoints] [--tests]

A server runs behind a proxy that fails one request in ten: the server is busy, or the connection ends before or after
the request was carried out. `minikafka pipeline archive` and a stream of `minikafka pipeline run` write a topic into
a bucket, as Parquet files and as tables of Delta Lake and Iceberg. Each is killed with SIGKILL, with its Java process,
N times at random moments, and started again. The exit code is 0 only if other programs read every (partition, offset)
exactly once from each output after the last run, and no row twice before: pyarrow's own client of the server, and for
tables delta-rs or pyiceberg, and DuckDB. `--checkpoints` keeps the checkpoints of the streams in the bucket, at s3a://
by Hadoop's connector. `--tests` first runs the tests of stores with this server.

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
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import endings
import store_processes
from object_storage_outputs import FORMATS, NAMES, TOPIC, Bucket, Output
from support.spark.store_servers import FailingProxy, running
from threads import in_thread

from minikafka.base.errors import MinikafkaError
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 3
KILL_SECONDS = (0.0, 6.0)
"""Range of the time between the first new object of a driver and its death."""
POLL_SECONDS = 0.3


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
    parser.add_argument(
        "--outputs", type=_outputs, help=f"some of {','.join(NAMES)} (default: all)"
    )
    parser.add_argument("--kills", type=int, default=5, help="number of deaths of each command (5)")
    parser.add_argument("--records", type=int, default=60_000, help="number of records (60,000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--checkpoints", action="store_true", help="keep checkpoints in the bucket")
    parser.add_argument("--tests", action="store_true", help="also run the tests of stores")
    given = parser.parse_args(arguments)
    if given.checkpoints and given.server != "moto":
        parser.error("--checkpoints needs --server moto")
    is_hdfs = given.server == "hdfs"
    possible = [name for name in NAMES if not is_hdfs or name.endswith(FORMATS[0])]
    given.outputs = given.outputs or possible
    if unknown := sorted(set(given.outputs) - set(possible)):
        parser.error(f"--outputs must be of {','.join(possible)}, not {unknown[0]}")
    return given


def _outputs(text: str) -> list[str]:
    return text.split(",")


def _tests_pass() -> bool:
    tests = [f"tests/unit/spark/{one}" for one in ("storage", "lakehouse/test_stores.py")]
    tests.append("tests/spark/pipeline/test_object_storage.py")
    return (
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False
        ).returncode
        == 0
    )


async def deaths(arguments: argparse.Namespace, directory: Path) -> bool:
    """Write the topic into the bucket with each command, and kill it. Return True if every record is there once."""
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    with running() as server:
        server.file_system()
        proxy = FailingProxy(server, every=10, delay_s=0.02)
        bucket = Bucket(server, proxy.endpoint, f"object-storage-{arguments.seed}", directory)
        try:
            async with LocalCluster(1) as cluster:
                await _fill(cluster.bootstrap, arguments.records)
                of_cluster = ["--bootstrap", cluster.bootstrap, "--master", "local[2]"]
                oks = [
                    await _survives(Output(bucket, name), of_cluster, arguments, rng)
                    for name in arguments.outputs
                ]
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
    output: Output, of_cluster: list[str], arguments: argparse.Namespace, rng: random.Random
) -> bool:
    """Run a command until it succeeds after its deaths. Return True if its output has every record once."""
    total = arguments.records // PARTITIONS * PARTITIONS
    command = output.command(arguments.records, checkpoint_in_bucket=arguments.checkpoints)
    killed = 0
    while True:
        lives_s = rng.uniform(*KILL_SECONDS) if killed < arguments.kills else None
        code, text = await _run([*command, *of_cluster], output, lives_s)
        found = await in_thread(output.readings)
        twice = sum(one.total() - len(one) for one in found.values())
        state = "killed" if code == -signal.SIGKILL else f"ended with {code}"
        counts = ", ".join(f"{name} reads {len(one):,}" for name, one in found.items())
        print(f"{output.name}: {state}; of {total:,} records {counts}, {twice} twice", flush=True)
        if twice:
            return False
        if code == 0:
            return all(len(one) == total for one in found.values())
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


if __name__ == "__main__":
    endings.run("object-storage", main)
