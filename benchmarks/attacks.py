"""`python -m benchmarks.attacks`: the memory of a broker under attack, and how long another client waits.

Each attack has a new broker with the default settings. Floods: 50 connections ask for much for 4 s, and receive
nothing. Then 50 connections flood another new broker and receive everything. The broker has a topic of 3,000 partitions
and 90 MB of records. Another client sends a small Produce request every 5 ms. Its latencies depend on the machine:
compare their ratio to the row without an attack. Bursts: connections send small requests that need much memory, all at
once. Groups and producer ids: connections make the broker remember members, committed offsets and ids.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from benchmarks import group_loads, kafka, lifetime, report
from benchmarks.attack_bursts import BURSTS, TOPIC, Burst, carry_out
from benchmarks.attack_clients import Address, Attack, Traffic, attackers, latencies
from benchmarks.attack_floods import FLOODS, GROUP, Flood, Target
from benchmarks.attack_state import GROUPS, IDS
from benchmarks.attack_tables import (
    Burdened,
    Figures,
    Flooded,
    burst_line,
    facts,
    flood_line,
    tables,
)
from benchmarks.closed_loop import LoadError
from benchmarks.peer import HOST, in_thread
from benchmarks.two_designs_page import replaced
from minikafka import LocalCluster
from minikafka.base.config.cluster import ClusterConfig
from minikafka.client import Client, NewTopic, Record

PAGE: Final = report.ROOT / "docs" / "performance.md"
CONNECTIONS: Final = 50
SECONDS: Final = 4.0
QUIET_SECONDS: Final = 1.0
PARTITIONS: Final = 3_000
SMALLEST_TOPIC: Final = 240
"""The partitions that some floods name."""
STORED_RECORDS: Final = 100
RECORD_BYTES: Final = 900_000
FLOODED: Final = "flooded"
OTHER: Final = "other-client"
BROKER: Final = 1


class Attacks(NamedTuple):
    """The attacks of a run. The broker remembers what the bursts of `groups` and `ids` send."""

    floods: Sequence[Flood]
    bursts: Sequence[Burst]
    groups: Sequence[Burst]
    ids: Sequence[Burst]


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="run only attacks with TEXT in their name"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="factor for time, partitions, connections (default: 1)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    parser.add_argument(
        "--page", action="store_true", help="write the tables into docs/performance.md"
    )
    options = parser.parse_args()
    if options.page and (options.only or options.scale != 1):
        parser.error("--page writes whole tables: it does not go with --only or --scale")
    attacks = Attacks(
        [flood for flood in FLOODS if options.only in flood.name],
        [burst for burst in BURSTS if options.only in burst.name],
        [burst for burst in GROUPS if options.only in burst.name],
        [burst for burst in IDS if options.only in burst.name],
    )
    if not any(attacks):
        parser.error(f"no attack has {options.only!r} in its name")
    lifetime.live(run(attacks, options), uvloop.run)


async def run(attacks: Attacks, options: argparse.Namespace) -> None:
    """Run the attacks, print each result at once, and at the end the tables."""
    print(report.machine(), flush=True)
    figures = Figures({}, {}, [], [], [])
    total = len(attacks.floods) + sum(len(part) for part in attacks)
    for flood in attacks.floods:
        for receives, found in ((False, figures.nothing_received), (True, figures.all_received)):
            row = found[flood.name] = await flooded(flood, receives, options.scale)
            received = "all received" if receives else "nothing received"
            line = f"{flood.name}, {received}: {flood_line(row)}"
            print(f"{figures.done()}/{total} {line}", flush=True)
    for bursts, rows in zip(attacks[1:], figures[2:], strict=True):
        for burst in bursts:
            rows.append(await burdened(burst, options.scale))
            print(f"{figures.done()}/{total} {burst_line(rows[-1])}", flush=True)
    made = tables(figures)
    print("\n\n".join(["", *made.values()]))
    if options.page:
        page = PAGE.read_text()
        for name, text in made.items():
            page = replaced(page, name, text)
        PAGE.write_text(page)
    if options.json is not None:
        report.append(options.json, {"machine": report.machine(), "attacks": facts(figures)})


@asynccontextmanager
async def new_broker(
    topic: NewTopic, broker: Mapping[str, object]
) -> AsyncIterator[tuple[LocalCluster, Address]]:
    """Start a broker with the settings `broker`, create the topic, and yield the cluster and the broker's address."""
    # A mapping would be combined with the defaults of LocalCluster, which differ from Kafka's.
    config = ClusterConfig(port=0, broker=broker)
    async with LocalCluster(1, config=config) as cluster:
        address = (HOST, cluster.record.brokers[0].port)
        async with Client(cluster.bootstrap) as client:
            await client.create_topics(topic)
        await in_thread(partial(kafka.leaders_of, address, topic.name))
        yield cluster, address


async def flooded(flood: Flood, receives: bool, scale: float) -> Flooded:
    """Flood a new broker, and return the figures."""
    target = Target(FLOODED, max(int(PARTITIONS * scale), SMALLEST_TOPIC))
    async with new_broker(NewTopic(FLOODED, target.partitions, 1), {}) as (cluster, address):
        await fill(cluster, address, max(int(STORED_RECORDS * scale), 1))
        attack = Attack(flood.data(target), flood.repeats, receives, CONNECTIONS)
        quiet = await latencies(address, OTHER, QUIET_SECONDS * scale)
        before = forget_peak(cluster)
        async with attackers(address, attack) as traffic:
            found = await latencies(address, OTHER, SECONDS * scale)
            peak = memory_mb(cluster, "VmHWM")
        return Flooded(before, peak, found, quiet, Traffic(*traffic))


async def fill(cluster: LocalCluster, address: Address, records: int) -> None:
    """Write records to partition 0, create the topic of the other client, and make the broker load the group."""
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic(OTHER, 1, 1))
        for _ in range(records):
            await client.produce(FLOODED, [Record(value=bytes(RECORD_BYTES))], partition=0)
    await in_thread(partial(kafka.leaders_of, address, OTHER))
    await in_thread(partial(group_loads.coordinator_of, [address], GROUP, FLOODED))


async def burdened(burst: Burst, scale: float) -> Burdened:
    """Carry out a burst on a new broker, and return the figures."""
    topic = NewTopic(TOPIC, burst.partitions, 1, burst.configs)
    connections = max(int(burst.connections * scale), 1)
    async with new_broker(topic, burst.broker) as (cluster, address):
        if burst.groups:
            await in_thread(partial(group_loads.coordinator_of, [address], GROUP, TOPIC))
        before = forget_peak(cluster)
        refused = await carry_out(address, burst, connections)
        peak = memory_mb(cluster, "VmHWM")
    return Burdened(
        burst.name, connections, before, peak, None if burst.is_refused is None else refused
    )


def forget_peak(cluster: LocalCluster) -> float:
    """Set the broker's peak memory, VmHWM, to its current memory, and return that in MB."""
    Path(f"/proc/{_pid(cluster)}/clear_refs").write_text("5")
    return memory_mb(cluster, "VmRSS")


def memory_mb(cluster: LocalCluster, name: str) -> float:
    """Return a memory size of the broker in MB: VmRSS (current) or VmHWM (peak)."""
    text = Path(f"/proc/{_pid(cluster)}/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024 / 1e6


def _pid(cluster: LocalCluster) -> int:
    process = cluster.process(BROKER)
    if process is None:
        raise LoadError("the broker has ended")
    return process.pid


if __name__ == "__main__":
    main()
