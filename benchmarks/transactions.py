"""`python -m benchmarks.transactions`: transactions on minikafka, compared with Apache Kafka 3.9.

Apache Kafka runs only if MINIKAFKA_KAFKA_JARS names a directory with its jars. Each scenario runs on both clusters in
turn, round by round, with the same client. Both clusters have the settings in `peer.KEYS`; all other settings are the
defaults, except that minikafka does not check produced records. At the end, the medians are printed as the table of
docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from benchmarks import group_idle, kafka, lifetime, peer, report
from benchmarks.groups import plain
from benchmarks.groups import show as show_row
from benchmarks.peer import ApacheKafka, Cluster, Figures, Minikafka, Row, in_thread
from benchmarks.transaction_loads import Consumer, Producer, commits, stream, visible

SECONDS: Final = 5.0
VALUE_BYTES: Final = 100
MANY: Final = 50
STEADY_RATE: Final = 100
STEADY_PRODUCERS: Final = 10
BATCHES: Final = 4_000
BATCH_BYTES: Final = 16_384
PER_TRANSACTION: Final = 100
IN_FLIGHT: Final = 5
"""The most that an idempotent producer may have in flight."""
WARM_UP_ROUNDS: Final = 2

ONE = Row("one producer, 1 partition", "commits/s", 1)
ONE_P99 = Row("one producer, 1 partition: p99 of a transaction", "ms", -1)
TEN = Row("one producer, 10 partitions", "commits/s", 1)
TEN_P99 = Row("one producer, 10 partitions: p99 of a transaction", "ms", -1)
FIFTY = Row("50 producers, 1 partition each", "commits/s", 1)
FIFTY_P50 = Row("50 producers: p50 of a transaction", "ms", -1)
FIFTY_P99 = Row("50 producers: p99 of a transaction", "ms", -1)
FIFTY_CPU = Row("50 producers: processor time of all brokers per transaction", "ms", -1)
SEEN_P50 = Row("100 transactions/s, begin to read_committed consumer: p50", "ms", -1)
SEEN_P99 = Row("100 transactions/s, begin to read_committed consumer: p99", "ms", -1)
INSIDE = Row("16 KiB batches, transactions of 100, 5 in flight", "req/s", 1)
PLAIN = Row("the same without transactions", "req/s", 1)
ROWS: Final = (
    ONE,
    ONE_P99,
    TEN,
    TEN_P99,
    FIFTY,
    FIFTY_P50,
    FIFTY_P99,
    FIFTY_CPU,
    SEEN_P50,
    SEEN_P99,
    INSIDE,
    PLAIN,
)


class Scenario(NamedTuple):
    """A load. Each round gives one figure for every `Row` of the load. `scale`: a factor for the length of a round."""

    name: str
    run: Callable[[Cluster, float], Awaitable[Mapping[Row, float]]]


async def one(cluster: Cluster, scale: float) -> Mapping[Row, float]:
    """Measure one producer that writes to one partition."""
    async with producing(cluster, 1, 1) as (producers, _, _):
        found = await commits(producers, SECONDS * scale)
    return {ONE: found.rate, ONE_P99: found.percentile_ms(0.99)}


async def ten(cluster: Cluster, scale: float) -> Mapping[Row, float]:
    """Measure one producer that writes to ten partitions in each transaction."""
    async with producing(cluster, 1, 10) as (producers, _, _):
        found = await commits(producers, SECONDS * scale)
    return {TEN: found.rate, TEN_P99: found.percentile_ms(0.99)}


async def fifty(cluster: Cluster, scale: float) -> Mapping[Row, float]:
    """Measure 50 producers at once, each with its own partition."""
    async with producing(cluster, MANY, MANY, shares=True) as (producers, _, _):
        before = sum(map(group_idle.cpu_seconds, cluster.pids()))
        found = await commits(producers, SECONDS * scale)
        spent = sum(map(group_idle.cpu_seconds, cluster.pids())) - before
    return {
        FIFTY: found.rate,
        FIFTY_P50: found.percentile_ms(0.5),
        FIFTY_P99: found.percentile_ms(0.99),
        FIFTY_CPU: spent * 1_000 / len(found.durations_ms),
    }


async def seen(cluster: Cluster, scale: float) -> Mapping[Row, float]:
    """Measure how long after its begin a committed transaction arrives at a consumer, at a steady rate."""
    async with producing(cluster, STEADY_PRODUCERS, 1) as (producers, topic, leaders):
        consumer = Consumer(topic, leaders[0])
        await consumer.start()
        try:
            found = await visible(producers, consumer, STEADY_RATE, SECONDS * scale)
        finally:
            consumer.close()
    return {
        SEEN_P50: found[len(found) // 2],
        SEEN_P99: found[min(int(0.99 * len(found)), len(found) - 1)],
    }


async def throughput(cluster: Cluster, scale: float) -> Mapping[Row, float]:
    """Measure batches inside transactions, and batches of an idempotent producer without transactions."""
    count = max(int(BATCHES * scale), 2 * PER_TRANSACTION)
    figures = {}
    for row, is_transactional in ((INSIDE, True), (PLAIN, False)):
        made = producing(cluster, 1, 1, BATCH_BYTES, is_transactional=is_transactional)
        async with made as ([producer], _, _):
            per_transaction = PER_TRANSACTION if is_transactional else 0
            figures[row] = await stream(producer, count, per_transaction, IN_FLIGHT)
        await in_thread(os.sync)
    return figures


SCENARIOS: Final = (
    Scenario("one", one),
    Scenario("ten", ten),
    Scenario("fifty", fifty),
    Scenario("seen", seen),
    Scenario("throughput", throughput),
)


@asynccontextmanager
async def producing(
    cluster: Cluster,
    count: int,
    partitions: int,
    size: int = VALUE_BYTES,
    *,
    shares: bool = False,
    is_transactional: bool = True,
) -> AsyncIterator[tuple[list[Producer], str, list[kafka.Leader]]]:
    """Start producers of a new topic; yield them, the topic and its leaders.

    `shares`: each producer writes to one partition, not to all of them.
    """
    topic = f"transactions-{time.monotonic_ns()}"
    leaders = await peer.create_topic(cluster, topic, partitions)
    producers = []
    broker = (peer.HOST, next(iter(cluster.ports.values())))
    try:
        for number in range(count):
            mine = [leaders[number % partitions]] if shares else leaders
            name = f"{topic}-{number}" if is_transactional else None
            producer = Producer(name, topic, mine)
            producers.append(producer)
            await producer.start(broker, size)
        yield producers, topic, leaders
    finally:
        for producer in producers:
            producer.close()
    await in_thread(lambda: kafka.delete_topic(broker, topic))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", choices=names, action="append", help="run only this scenario")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of every scenario (default: 3)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the length of a round (default: 1)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    options = parser.parse_args()
    jars = peer.kafka_jars() if os.environ.get(peer.JARS) else ""
    lifetime.live(run(jars, options), uvloop.run)


async def run(jars: str, options: argparse.Namespace) -> None:
    """Run the scenarios, print each round's rows, and at the end the table of all medians."""
    print(report.machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="transactions-") as directory:
        clusters: list[Cluster] = [Minikafka()]
        if jars:
            clusters.append(ApacheKafka(jars, Path(directory)))
        figures: dict[str, Figures] = {cluster.name: {} for cluster in clusters}
        async with peer.started(clusters, {cluster.name: {} for cluster in clusters}):
            for scenario in SCENARIOS:
                if not options.only or scenario.name in options.only:
                    await measure(scenario, clusters, figures, options)
    print("\n".join(table(figures)))
    if options.json is not None:
        report.append(options.json, {"machine": report.machine(), "transactions": plain(figures)})


async def measure(
    scenario: Scenario,
    clusters: Sequence[Cluster],
    figures: Mapping[str, Figures],
    options: argparse.Namespace,
) -> None:
    """Run all rounds of one scenario, and print its medians."""
    # With two clusters, one is Apache Kafka, which is slow until its JVM has compiled the code that runs often.
    rows: dict[Row, None] = {}
    for number in range(-WARM_UP_ROUNDS if len(clusters) > 1 else 0, options.rounds):
        for cluster in clusters:
            found = await scenario.run(cluster, options.scale)
            await in_thread(os.sync)  # otherwise the write-back of dirty pages slows the next load
            for row, value in found.items() if number >= 0 else ():
                peer.add_figure(figures[cluster.name], row, value)
                rows[row] = None
    for row in rows:
        show_row(row, figures)


def table(figures: Mapping[str, Figures]) -> list[str]:
    """Return the medians as lines of a Markdown table. A ratio above 1 favours minikafka."""
    names = list(figures)
    lines = [f"| | {' | '.join(names)} |{' ratio |' if len(names) > 1 else ''}"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for row in ROWS:
        medians = [statistics.median(figures[name][row]) for name in names if row in figures[name]]
        if not medians:
            continue
        cells = [f"{peer.rounded(median)} {row.unit}" for median in medians]
        if len(medians) > 1:
            mine, theirs = medians
            cells.append(f"{mine / theirs if row.better > 0 else theirs / mine:.2f}")
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
