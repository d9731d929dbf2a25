"""PLAINTEXT, SSL and SASL_SSL on minikafka and on Apache Kafka 3.9, in turn: `python -m benchmarks.secured_peer`.

Each protocol has two new clusters of three brokers, which use it for clients and between brokers. Both run at the same
time, and each load runs on one while the other is idle: batches of 16 KiB to one partition with acks=all, and one
consumer that reads them from the page cache. The client needs processor time too, so the table also has the processor
time of the brokers alone. A ratio above 1 favours minikafka. MINIKAFKA_KAFKA_JARS names Kafka's jars, as for
`benchmarks.peer`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from benchmarks import closed_loop, kafka, lifetime, load_catch_up, peer, report
from benchmarks.group_idle import cpu_seconds
from benchmarks.peer import ApacheKafka, Minikafka, in_thread
from benchmarks.secured import PLAINTEXT, PROTOCOLS, Access, SecuredConnection, make_material

SIZE: Final = 16_384
IN_FLIGHT: Final = 32
REQUESTS: Final = 10_000
"""Produce requests of one round, and records that its consumer reads."""
WARM_UP_ROUNDS: Final = 6
LOADS: Final = ("produce", "fetch")
Cluster = Minikafka | ApacheKafka


class Figure(NamedTuple):
    """One round of one load: batches per second, and the processor time of the brokers per batch in µs."""

    rate: float
    cpu_us: float


Figures = dict[str, list[Figure]]
"""All counted rounds on one cluster, by load."""


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secured_peer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every load (default: 5)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of batches (default: 1)"
    )
    parser.add_argument(
        "--only", choices=PROTOCOLS, action="append", help="measure this protocol (default: all)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    parser.add_argument(
        "--urgent",
        action="store_true",
        help="run the measured loads with real-time priority, against other programs (as root)",
    )
    options = parser.parse_args()
    total = max(int(REQUESTS * options.scale), IN_FLIGHT)
    work = compare(peer.kafka_jars(), options, total)
    lifetime.live(work, uvloop.run)


async def compare(jars: str, options: argparse.Namespace, total: int) -> None:
    """Measure each protocol, print its rows at once, and append all figures to the file of `--json`."""
    print(report.machine(), flush=True)
    print(head(), flush=True)
    facts: dict[str, Any] = {}
    for protocol in options.only or PROTOCOLS:
        with tempfile.TemporaryDirectory(prefix="secured-") as directory:
            figures = await measure(jars, Path(directory), protocol, options, total)
        for load in LOADS:
            print(line(protocol, load, figures), flush=True)
        facts[protocol] = {name: facts_of(found) for name, found in figures.items()}
    if options.json is not None:
        report.append(options.json, {"machine": report.machine(), "secured_peer": facts})


async def measure(
    jars: str, directory: Path, protocol: str, options: argparse.Namespace, total: int
) -> dict[str, Figures]:
    """Run all rounds with one protocol, in turn on both systems, and return the figures of each system."""
    material = make_material(directory)
    keys = {**peer.KEYS, **material.keys(protocol)} if protocol != PLAINTEXT else peer.KEYS
    listener = None if protocol == PLAINTEXT else protocol
    access = None if listener is None else material.access(protocol)
    clusters: Sequence[Cluster] = (
        Minikafka(keys, listener),
        ApacheKafka(jars, directory, keys, listener),
    )
    found: dict[str, Figures] = {cluster.name: {load: [] for load in LOADS} for cluster in clusters}
    starts: dict[str, peer.Figures] = {cluster.name: {} for cluster in clusters}
    async with peer.started(clusters, starts):
        for number in range(-WARM_UP_ROUNDS, options.rounds):
            for cluster in clusters if number % 2 else reversed(clusters):
                measured = await one_round(cluster, protocol, access, total, options.urgent)
                for load, figure in zip(LOADS, measured, strict=True):
                    found[cluster.name][load] += [figure] if number >= 0 else []
    return found


async def one_round(
    cluster: Cluster, protocol: str, access: Access | None, total: int, urgently: bool
) -> tuple[Figure, Figure]:
    """Produce to a new topic and read it; return the figures of both."""
    async with new_topic(cluster) as (topic, leader):
        ports, other = cluster.ports, cluster.ports_of(protocol)
        at = next(other[broker] for broker, port in ports.items() if port == leader.port)
        secured = leader._replace(port=at)
        urgent = partial(with_priority, cluster.pids()) if urgently else nullcontext
        with urgent():
            before, started = cpu(cluster), time.perf_counter()
            await produce(secured, topic, access, total)
            produced = figure_since(cluster, before, started, total)
        await in_thread(os.sync)
        secure = None if access is None else access.secure
        read = partial(load_catch_up.run, topic, [secured], secure)
        await in_thread(read)  # the first read is not counted
        with urgent():
            before, started = cpu(cluster), time.perf_counter()
            await in_thread(read)
            return produced, figure_since(cluster, before, started, total)


@contextmanager
def with_priority(brokers: Sequence[int]) -> Iterator[None]:
    """Give all threads of the brokers and of this process real-time priority. Raises PermissionError."""
    pids = (os.getpid(), *brokers)
    set_policy(pids, os.SCHED_RR, 1)
    try:
        yield
    finally:
        set_policy(pids, os.SCHED_OTHER, 0)


def set_policy(pids: Sequence[int], policy: int, priority: int) -> None:
    """Set the scheduling policy of all threads of these processes."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


async def produce(leader: kafka.Leader, topic: str, access: Access | None, total: int) -> None:
    """Send `total` batches, with `IN_FLIGHT` requests in flight."""
    loads = kafka.produce_loads([leader], topic, SIZE, version=7, in_flight=IN_FLIGHT, total=total)
    if access is None:
        await closed_loop.run(loads)
    else:
        await closed_loop.run(loads, new_connection=partial(SecuredConnection, access=access))


@asynccontextmanager
async def new_topic(cluster: Cluster) -> AsyncIterator[tuple[str, kafka.Leader]]:
    """Create a topic of one partition, yield its name and its leader's address, and delete it."""
    topic = f"secured-{time.monotonic_ns()}"
    (leader,) = await peer.create_topic(cluster, topic)
    try:
        yield topic, leader
    finally:
        await in_thread(partial(kafka.delete_topic, leader[1:], topic))


def cpu(cluster: Cluster) -> float:
    """Return the processor time in seconds of all brokers since their start."""
    return sum(map(cpu_seconds, cluster.pids()))


def figure_since(cluster: Cluster, cpu_before: float, started: float, total: int) -> Figure:
    """Return the figure of `total` batches since these points in time."""
    seconds = time.perf_counter() - started
    return Figure(total / seconds, (cpu(cluster) - cpu_before) / total * 1e6)


def head() -> str:
    """Return the header of the table."""
    name = "16 KiB batches, medians"
    columns = f"{'minikafka':>12} {'Kafka':>9} {'ratio':>6} {'rounds':>14}"
    return f"{name:24} {columns} {'CPU µs':>9} {'Kafka':>7} {'ratio':>6} {'rounds':>14}"


def line(protocol: str, load: str, figures: Mapping[str, Figures]) -> str:
    """Return the row of one load: rates and processor times, their ratios, and the ratios of single rounds."""
    mine, theirs = (found[load] for found in figures.values())
    rates = [median_of(each, "rate") for each in (mine, theirs)]
    cpus = [median_of(each, "cpu_us") for each in (mine, theirs)]
    of_rates = sorted(a.rate / b.rate for a, b in zip(mine, theirs, strict=True))
    of_cpus = sorted(b.cpu_us / max(a.cpu_us, 1) for a, b in zip(mine, theirs, strict=True))
    return (
        f"{protocol + ' ' + load:24} {rates[0]:10,.0f}/s {rates[1]:7,.0f}/s {rates[0] / rates[1]:6.2f} "
        f"{of_rates[0]:6.2f}..{of_rates[-1]:6.2f} {cpus[0]:9.1f} {cpus[1]:7.1f} {cpus[1] / max(cpus[0], 1):6.2f} "
        f"{of_cpus[0]:6.2f}..{of_cpus[-1]:6.2f}"
    )


def median_of(figures: Sequence[Figure], name: str) -> float:
    """Return the median of one field."""
    return statistics.median(float(getattr(figure, name)) for figure in figures)


def facts_of(figures: Figures) -> dict[str, Any]:
    """Return the figures of one system as values for JSON."""
    return {
        load: {
            "batches_per_second": [round(figure.rate) for figure in rounds],
            "broker_cpu_us": [round(figure.cpu_us, 1) for figure in rounds],
        }
        for load, rounds in figures.items()
    }


if __name__ == "__main__":
    main()
