"""The time of a snapshot and of a restore, next to that of a start after a crash.

`python -m benchmarks.snapshots` fills a cluster of three brokers with `--mib` MiB of records in three replicas each. In
each round it takes a snapshot, restores it, kills all processes and starts them again. The ratio of a restore to a
start is that of the medians of one run, so that the load of the machine matters little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable
from statistics import median
from typing import Final

from benchmarks import lifetime, report
from minikafka import LocalCluster
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster.time_and_state.snapshot import ClusterSnapshot

BROKERS: Final = 3
TOPIC: Final = "filled"
PARTITIONS: Final = 6
_MIB: Final = 1 << 20
_RECORD_BYTES: Final = _MIB // 2


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshots", description=__doc__)
    parser.add_argument("--mib", type=int, default=200, help="MiB of all replicas (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="restores and starts (default: 3)")
    options = parser.parse_args()
    lifetime.live_blocking(lambda: asyncio.run(measure(options.mib, options.rounds)))


async def measure(mib: int, rounds: int) -> None:
    """Fill a cluster, and print the medians of all rounds."""
    print(report.machine(), flush=True)
    taken, restores, starts = list[ClusterSnapshot](), list[float](), list[float]()
    snapshots = list[float]()
    async with LocalCluster(BROKERS) as cluster:
        await _fill(cluster, mib * _MIB // BROKERS)
        for number in range(rounds):
            began = time.monotonic()
            taken.append(await cluster.snapshot(f"round-{number}"))
            snapshots.append(time.monotonic() - began)
            restores.append(await _seconds(cluster.restore(f"round-{number}")))
            for broker in range(1, BROKERS + 1):
                await cluster.kill(broker)
            await cluster.kill_zookeeper()
            starts.append(await _seconds(cluster.start()))
    stopped = median(one.stopped_ms for one in taken)
    print(f"{mib} MiB  snapshot {median(snapshots):5.2f} s, processes stood for {stopped:.0f} ms")
    ratio, more = median(restores) / median(starts), median(restores) - median(starts)
    print(
        f"{mib} MiB  restore  {median(restores):5.2f} s, {ratio:.2f} times a start after a crash "
        f"({median(starts):.2f} s), {more:+.2f} s"
    )


async def _seconds(work: Awaitable[None]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def _fill(cluster: LocalCluster, size: int) -> None:
    """Write `size` bytes of records, with acks=all."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(TOPIC, PARTITIONS, BROKERS))
        for number in range(size // _RECORD_BYTES):
            record = Record(value=os.urandom(_RECORD_BYTES))
            await client.produce(TOPIC, [record], partition=number % PARTITIONS, acks=-1)


if __name__ == "__main__":
    main()
