"""The time from `minikafka up` to the first acknowledged record, and the memory of an idle cluster.

`python -m benchmarks.cluster_start` starts a new cluster of three brokers in an empty directory, on this project's
ZooKeeper server and on Apache ZooKeeper in turn. It measures the seconds until `up` has ended, and until a topic with
three replicas exists and a record with acks=all is acknowledged. The client that writes the record runs in the
process of the benchmark. Then nothing happens for `--idle` seconds, and the memory of the processes is read. "Resident"
counts the pages of shared libraries once for each process, as `ps` and `top` do; "own and shared" divides them among
the processes that use them. One start of each kind is not counted, so that files are in the page cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks import lifetime, report
from minikafka.base.zookeeper import OWN
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record

BROKERS: Final = 3
TOPIC: Final = "first"
_MINIKAFKA: Final = (sys.executable, "-m", "minikafka")


class Started(NamedTuple):
    """The figures of one start: seconds, and MiB of ZooKeeper and of all processes together."""

    up: float
    first_ack: float
    zookeeper_resident: float
    resident: float
    proportional: float


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each kind (default: 5)")
    parser.add_argument(
        "--idle", type=float, default=10.0, help="seconds before memory is read (default: 10)"
    )
    options = parser.parse_args()
    lifetime.live_blocking(lambda: compare(options.rounds, options.idle))


def compare(rounds: int, idle: float) -> None:
    """Start clusters of both kinds in turn, and print the medians."""
    print(report.machine(), flush=True)
    found: dict[str, list[Started]] = {kind: [] for kind in OWN}
    for number in range(rounds + 1):
        for kind in OWN:
            figures = start(kind, idle if number else 0.0)
            if number:
                found[kind].append(figures)
    print("ZooKeeper  up ended  first ack  resident: ZooKeeper  all processes  own and shared")
    for kind, rows in found.items():
        print(_row(kind, rows), flush=True)


def _row(kind: str, rows: Sequence[Started]) -> str:
    middle = Started(*(median(values) for values in zip(*rows, strict=True)))
    return (
        f"{kind:9}  {middle.up:6.2f} s  {middle.first_ack:7.2f} s  {middle.zookeeper_resident:15.0f} MiB"
        f"  {middle.resident:9.0f} MiB  {middle.proportional:10.0f} MiB"
    )


def start(kind: str, idle: float) -> Started:
    """Start a new cluster, write one record, wait `idle` seconds, read the memory, and end the cluster."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        try:
            shown = _up(directory, kind)
            ended = time.monotonic()
            asyncio.run(_write(shown["bootstrap"]))
            acked = time.monotonic()
            time.sleep(idle)
            pids = [shown["zookeeper_pid"], *(broker["pid"] for broker in shown["brokers"])]
            resident = [_memory_mib(pid, "status", "VmRSS") for pid in pids]
            shares = [_memory_mib(pid, "smaps_rollup", "Pss") for pid in pids]
        finally:
            subprocess.run([*_MINIKAFKA, "down"], cwd=directory, check=False, capture_output=True)
    return Started(ended - began, acked - began, resident[0], sum(resident), sum(shares))


def _up(directory: str, kind: str) -> dict[str, Any]:
    """Start the cluster with `minikafka up`; return the object that the command prints."""
    options = ("--brokers", f"{BROKERS}", "--port", "0", "--zookeeper", kind, "--json")
    done = subprocess.run(
        [*_MINIKAFKA, "up", *options],
        cwd=directory,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


async def _write(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await client.create_topics(NewTopic(TOPIC, 1, BROKERS))
        await client.produce(TOPIC, [Record(value=b"first")], acks=-1)


def _memory_mib(pid: int, file: str, name: str) -> float:
    text = Path(f"/proc/{pid}/{file}").read_text()
    return int(text.partition(f"\n{name}:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
