"""`python -m benchmarks.groups`: consumer groups on minikafka, compared with Apache Kafka 3.9.

Apache Kafka runs only if MINIKAFKA_KAFKA_JARS names a directory with its jars. Each scenario runs on both clusters in
turn, round by round, with the same client. Both clusters have the settings in `KEYS`, which include `peer.KEYS`. All
other settings are the defaults, except that minikafka does not check produced records.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from benchmarks import (
    closed_loop,
    floor,
    group_consumers,
    group_idle,
    group_loads,
    kafka,
    lifetime,
    peer,
    report,
)
from benchmarks.closed_loop import Load
from benchmarks.peer import ApacheKafka, Cluster, Figures, Minikafka, Row, in_thread
from minikafka.kafka.records.batch import Record, build

KEYS: Final[Mapping[str, object]] = {
    **peer.KEYS,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.replication.factor": 3,
}
CONNECTIONS: Final = 64
COMMITS: Final = 40_000
REBALANCES: Final = 20
READ_RECORDS: Final = 1_200_000
READ_BATCH: Final = 100
RECORD_BYTES: Final = 100
FEW_RECORDS: Final = 600
IN_FLIGHT: Final = 4
PRODUCE_VERSION: Final = 7
IDLE_GROUPS: Final = 1_000
IDLE_SECONDS: Final = 12.0
COMMIT_BATCH_BYTES: Final = 150
"""Size of the batch that one commit appends. The floor replicates batches of the same size."""

COMMIT = Row("OffsetCommit, 64 connections", "req/s", 1)
FLOOR = Row("the floor, in the same round", "req/s", 0)
JOINED = Row("last JoinGroup until all answers", "ms", -1)
SYNCED = Row("last SyncGroup until all answers", "ms", -1)
THIRD = Row("third member until all three read", "s", -1)
FAILOVER = Row("coordinator killed until a commit", "s", -1)
READ = Row("group consumer, 100 B, 6 partitions", "records/s", 1)
QUIET = Row("CPU of all brokers without load", "%", -1)
IDLE = Row("CPU of all brokers, idle groups", "%", -1)
MEMORY = Row("memory of a broker, idle groups", "MB", -1)
ROWS: Final = (COMMIT, FLOOR, JOINED, SYNCED, THIRD, READ, FAILOVER, QUIET, IDLE, MEMORY)


class Options(NamedTuple):
    """The parameters of a round. `scale`: a factor for the number of requests.

    `floor_port`: the port of the minimal log in `floor.py`, with which the broker is compared.
    """

    scale: float
    floor_port: int


class Scenario(NamedTuple):
    """A load. Each round of the load gives one figure for every `Row` of the load.

    `warm_up`: the number of rounds to run before the counted rounds. Used only if Apache Kafka is measured too.
    """

    name: str
    run: Callable[[Cluster, Options], Awaitable[Mapping[Row, float]]]
    warm_up: int


async def commit(cluster: Cluster, options: Options) -> Mapping[Row, float]:
    """Measure commits over 64 connections, each with its own group and one request in flight."""
    topic = await new_topic(cluster)
    total = max(int(COMMITS * options.scale) // CONNECTIONS, 5)
    loads = []
    for number in range(CONNECTIONS):
        group = f"commit-{number}"
        coordinator = await in_thread(
            partial(group_loads.coordinator_of, addresses(cluster), group, topic)
        )
        loads.append(group_loads.commit_load(coordinator, group, topic, total))
    result = await closed_loop.run(loads)
    on_floor = Load(
        peer.HOST, options.floor_port, [floor.request(COMMIT_BATCH_BYTES)], floor.ANSWER, 1, total
    )
    floored = await closed_loop.run([on_floor] * CONNECTIONS)
    return {COMMIT: result.rate, FLOOR: floored.rate}


async def rebalance(cluster: Cluster, options: Options) -> Mapping[Row, float]:
    """Measure the median time of rebalances of a group with three members."""
    group = f"rebalance-{time.monotonic_ns()}"
    topic = await new_topic(cluster)
    coordinator = await in_thread(
        partial(group_loads.coordinator_of, addresses(cluster), group, topic)
    )
    members = await in_thread(partial(group_loads.three_members, coordinator, group))
    count = max(int(REBALANCES * options.scale), 2)
    try:
        taken = [await in_thread(partial(group_loads.rebalance, members)) for _ in range(count)]
    finally:
        for member in members:
            member.session.socket.close()
    joined, synced = zip(*taken, strict=True)
    return {JOINED: statistics.median(joined), SYNCED: statistics.median(synced)}


async def third_member(cluster: Cluster, options: Options) -> Mapping[Row, float]:
    """Measure how fast a third librdkafka consumer joins a group."""
    topic = await filled_topic(cluster, FEW_RECORDS)
    group = f"third-{time.monotonic_ns()}"
    joins = partial(group_consumers.third_joins, bootstrap(cluster), group, topic)
    return {THIRD: await in_thread(joins)}


async def failover(cluster: Cluster, options: Options) -> Mapping[Row, float]:
    """Kill a group's coordinator, measure the time to the next stored commit, and restart the broker."""
    topic = await new_topic(cluster)
    group = f"failover-{time.monotonic_ns()}"
    coordinator = partial(group_loads.coordinator_of, group=group, topic=topic)
    _, port = await in_thread(partial(coordinator, addresses(cluster)))
    victim = next(broker for broker, its in cluster.ports.items() if its == port)
    others = [address for address in addresses(cluster) if address[1] != port]
    began = time.monotonic()
    await cluster.kill(victim)
    await in_thread(partial(coordinator, others))
    seconds = time.monotonic() - began
    await cluster.start_again(victim)
    await peer.wait_until(
        partial(peer.serves, cluster), peer.START_SECONDS, f"broker {victim} did not restart"
    )
    return {FAILOVER: seconds}


async def read(cluster: Cluster, options: Options) -> Mapping[Row, float]:
    """Measure how fast a group of one librdkafka consumer reads a topic."""
    batches = max(int(READ_RECORDS * options.scale) // READ_BATCH, group_consumers.PARTITIONS)
    batches -= batches % group_consumers.PARTITIONS
    topic = await filled_topic(cluster, batches * READ_BATCH)
    group = f"read-{time.monotonic_ns()}"
    reads = partial(
        group_consumers.read_all, bootstrap(cluster), group, topic, batches * READ_BATCH
    )
    return {READ: await in_thread(reads)}


async def idle(cluster: Cluster, options: Options) -> Mapping[Row, float]:
    """Measure CPU and memory of the brokers with many groups of one member that only sends heartbeats."""
    topic = await new_topic(cluster)
    seconds = max(IDLE_SECONDS * options.scale, 0.5)
    quiet = await group_idle.cpu_percent(cluster.pids(), seconds)
    coordinators = []
    for number in range(max(int(IDLE_GROUPS * options.scale), 3)):
        find = partial(
            group_loads.coordinator_of, addresses(cluster), group_idle.group_name(number), topic
        )
        coordinators.append(await in_thread(find))
    async with group_idle.idle_groups(coordinators):
        busy = await group_idle.cpu_percent(cluster.pids(), seconds)
        memory = statistics.mean(map(peer.resident_megabytes, cluster.pids()))
    return {QUIET: quiet, IDLE: busy, MEMORY: memory}


SCENARIOS: Final = (
    Scenario("commit", commit, 2),
    Scenario("rebalance", rebalance, 2),
    Scenario("third member", third_member, 1),
    Scenario("read", read, 1),
    Scenario("failover", failover, 0),
    Scenario("idle", idle, 0),
)


async def filled_topic(cluster: Cluster, records: int) -> str:
    """Create a topic with records of 100 bytes in every partition, and return the topic's name."""
    topic = f"groups-{time.monotonic_ns()}"
    leaders = await peer.create_topic(cluster, topic, group_consumers.PARTITIONS)
    now = int(time.time() * 1_000)
    data = build([Record(timestamp=now, value=b"x" * RECORD_BYTES) for _ in range(READ_BATCH)])
    total = records // READ_BATCH // len(leaders)
    loads = [
        Load(
            leader.host,
            leader.port,
            [kafka.produce_request(PRODUCE_VERSION, topic, leader.partition, data, 1)],
            kafka.produce_answer(PRODUCE_VERSION, topic),
            IN_FLIGHT,
            total,
        )
        for leader in leaders
    ]
    await closed_loop.run(loads)
    return topic


async def new_topic(cluster: Cluster, partitions: int = 1) -> str:
    """Create a topic, wait until every broker knows the topic, and return the topic's name."""
    topic = f"groups-{time.monotonic_ns()}"
    await peer.create_topic(cluster, topic, partitions)
    return topic


def bootstrap(cluster: Cluster) -> str:
    """Return the bootstrap servers for librdkafka."""
    return ",".join(f"{host}:{port}" for host, port in addresses(cluster))


def addresses(cluster: Cluster) -> list[peer.Address]:
    """Return the addresses of all brokers."""
    return [(peer.HOST, port) for port in cluster.ports.values()]


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__)
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="run only scenarios with TEXT in their name"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of every scenario (default: 3)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of requests (default: 1)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    options = parser.parse_args()
    jars = peer.kafka_jars() if os.environ.get(peer.JARS) else ""
    lifetime.live(run(jars, options), uvloop.run)


async def run(jars: str, options: argparse.Namespace) -> None:
    """Run the scenarios, and print the rows of each scenario when its rounds are complete."""
    print(report.machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="groups-") as directory, floor.running_floor() as port:
        clusters: list[Cluster] = [Minikafka(KEYS)]
        if jars:
            clusters.append(ApacheKafka(jars, Path(directory), KEYS))
        figures: dict[str, Figures] = {cluster.name: {} for cluster in clusters}
        async with peer.started(clusters, {cluster.name: {} for cluster in clusters}):
            for scenario in SCENARIOS:
                if options.only in scenario.name:
                    parameters = Options(options.scale, port)
                    await measure(scenario, clusters, figures, options.rounds, parameters)
    if options.json is not None:
        report.append(options.json, {"machine": report.machine(), "groups": plain(figures)})


async def measure(
    scenario: Scenario,
    clusters: Sequence[Cluster],
    figures: Mapping[str, Figures],
    rounds: int,
    options: Options,
) -> None:
    """Run all rounds of one scenario, and print the scenario's rows of the result table."""
    rows: dict[Row, None] = {}
    # With two clusters, one is Apache Kafka, which is slow until its JVM has compiled the code that runs often.
    warm_up = scenario.warm_up if len(clusters) > 1 else 0
    for number in range(-warm_up, rounds):
        for cluster in clusters:
            found = await scenario.run(cluster, options)
            await in_thread(os.sync)  # otherwise the write-back of dirty pages slows the next load
            for row, value in found.items() if number >= 0 else ():
                peer.add_figure(figures[cluster.name], row, value)
                rows[row] = None
    for row in rows:
        show(row, figures)


def show(row: Row, figures: Mapping[str, Figures]) -> None:
    """Print one row: the median of each cluster and, if Apache Kafka ran too, a ratio.

    A ratio above 1 favours minikafka. The row of the floor (`floor.py`) has no ratio.
    """
    medians = [(name, statistics.median(mine[row])) for name, mine in figures.items()]
    line = "   ".join(f"{name} {peer.rounded(value):>9} {row.unit}" for name, value in medians)
    if len(medians) > 1 and row.better:
        (_, mine), (_, theirs) = medians
        line += f"   ratio {mine / theirs if row.better > 0 else theirs / mine:.2f}"
    print(f"{row.name:38} {line}", flush=True)


def plain(figures: Mapping[str, Figures]) -> dict[str, dict[str, list[float]]]:
    """Return the figures of every round as values for JSON."""
    return {
        name: {row.name: [round(value, 3) for value in values] for row, values in mine.items()}
        for name, mine in figures.items()
    }


if __name__ == "__main__":
    main()
