"""`python -m benchmarks controller`: how fast a controller loads, creates and moves many partitions.

There are two setups. The first setup has a real controller and a real ZooKeeper with simulated brokers; its targets
are Kafka's published figures. The second setup has three real brokers; its targets are a third of the times of
Apache Kafka 3.9.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import controller_cluster, controller_simulated, lifetime, report
from benchmarks.controller_simulated import Cluster

SIMULATED_BROKERS = 5
SIMULATED_REPLICAS = 3
LOADED = 100_000
RELIEVED = 50_000
"""Number of partitions. One of five brokers is shut down, and leads 10,000 of these partitions."""
REAL = (1_000, 3_000)
SETTLE_SECONDS = 3.0
"""Pause between the creation of the partitions and the stop of a broker. Scaled like the partitions."""


class Target(NamedTuple):
    """The target of a measurement. `source`: the Kafka figures from which the maximum `seconds` is derived."""

    seconds: float
    source: str


LOAD = Target(14.0, "Kafka 1.1, published: 14 s")
RELIEVE = Target(3.0, "Kafka 1.1, published: 3 s")
CREATE = {
    1_000: Target(1.77, "Kafka 3.9: 5.3-8.1 s"),
    3_000: Target(4.26, "Kafka 3.9: 12.8-13.6 s"),
}
MOVE = {1_000: Target(0.63, "Kafka 3.9: 1.9-2.6 s"), 3_000: Target(3.26, "Kafka 3.9: 9.8 s")}
NO_TARGET = Target(float("inf"), "")


class Row(NamedTuple):
    """One line of the result table."""

    what: str
    facts: dict[str, Any]
    target: Target


def main(arguments: list[str]) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks controller", description=__doc__)
    parser.add_argument(
        "--only",
        choices=("simulated", "real"),
        help="run only the simulated benchmarks, or only those with real brokers",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds with real brokers (default: 3)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of partitions (default: 1)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    lifetime.live(run(parser.parse_args(arguments)), asyncio.run)


async def run(options: argparse.Namespace) -> None:
    """Run the measurements that the options select, and print each row of the result table immediately."""
    print(report.machine() + "\n\n" + _head(), flush=True)
    facts: dict[str, Any] = {"machine": report.machine(), "controller": []}
    if options.only != "real":
        async for row in _simulated(options.scale):
            _print_row(row, facts)
    if options.only != "simulated":
        for number in range(options.rounds):
            async for row in _real(options.scale, number):
                _print_row(row, facts)
    if options.json is not None:
        report.append(options.json, facts)


def _print_row(row: Row, facts: dict[str, Any]) -> None:
    print(_line(row), flush=True)
    facts["controller"].append({"what": row.what, **row.facts})


async def _simulated(scale: float) -> AsyncIterator[Row]:
    loaded = Cluster(max(int(LOADED * scale), 50), SIMULATED_REPLICAS, SIMULATED_BROKERS)
    found = await controller_simulated.measure(loaded, shut_down=False)
    yield Row(f"failover: load {loaded.partitions:,} partitions", found, LOAD)
    relieved = loaded._replace(partitions=max(int(RELIEVED * scale), 50))
    found = await controller_simulated.measure(relieved, shut_down=True)
    leaders = relieved.partitions // SIMULATED_BROKERS
    yield Row(f"controlled shutdown: move {leaders:,} leaders", found, RELIEVE)


async def _real(scale: float, number: int) -> AsyncIterator[Row]:
    """Measure with real brokers. Odd rounds stop the controller, even rounds stop another broker."""
    for whole in REAL:
        partitions = max(int(whole * scale), 3)
        created, moved = await controller_cluster.measure(
            partitions, stop_the_controller=number % 2 == 1, settle_seconds=SETTLE_SECONDS * scale
        )
        what = f"real brokers: create {partitions:,} x 3"
        yield Row(what, {"seconds": round(created.seconds, 3)}, CREATE[whole])
        # The target is for a broker that led at most a third of the partitions.
        is_a_third = moved.leaders <= partitions // 3 + 1
        whose = "the controller" if moved.is_controller else "a broker"
        yield Row(
            f"real brokers: stop {whose}, {moved.leaders:,} of {partitions:,} move",
            {"seconds": round(moved.seconds, 3), "leaders": moved.leaders},
            MOVE[whole] if is_a_third else NO_TARGET,
        )


def _head() -> str:
    counts = f"{'zk reqs':>8} {'multis':>7} {'RPCs':>5} {'MB':>5}"
    return f"{'':52} {'s':>7} {'target':>7}       {counts}   compared with"


def _line(row: Row) -> str:
    seconds, target = row.facts["seconds"], row.target.seconds
    names = ("zookeeper_requests", "zookeeper_multis", "rpcs", "peak_memory_mb")
    requests, multis, rpcs, memory = (
        f"{row.facts[name]:,}" if name in row.facts else "" for name in names
    )
    counts = f"{requests:>8} {multis:>7} {rpcs:>5} {memory:>5}"
    verdict = "ok" if seconds < target else "SLOW"
    return f"{row.what:52} {seconds:7.2f} {target:7.2f} {verdict:4}  {counts}   {row.target.source}"
