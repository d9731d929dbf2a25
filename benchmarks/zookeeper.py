"""`python -m benchmarks.zookeeper`: minikafka's own ZooKeeper server next to Apache ZooKeeper, in one run.

Both servers run on this machine with the settings of `minikafka up`, and flush every write to the disk. The rounds
alternate between them; the first round of each is not counted. First every round starts each server on an empty
directory, for the time and the memory. Then the loads run on two servers that stay. One client sends the requests, in
frames encoded in advance. Compare the ratios: the speed of the disk and of the machine is in all figures.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import lifetime, report
from benchmarks.two_designs_page import replaced, table
from benchmarks.zookeeper_loads import (
    Znodes,
    first_session,
    measure,
    prepare,
    resident_mb,
    small_loads,
)
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper, ServerProcess

PAGE: Final = report.ROOT / "docs" / "zookeeper.md"
OURS: Final = "minikafka zookeeper"
APACHE: Final = "Apache ZooKeeper"
KINDS: Final[Mapping[str, type[ServerProcess]]] = {OURS: EmbeddedZooKeeper, APACHE: ApacheZooKeeper}
ZNODES: Final = 100_000
START: Final = "start to first session"
EMPTY: Final = "resident memory, empty"
PROCESSOR: Final = "processor time per operation: "
SHOWN: Final = (f"{PROCESSOR}set, 256 in flight", f"{PROCESSOR}get, 256 in flight")
"""The processor times in the table. All are in the JSON."""


class Row(NamedTuple):
    """A figure of both servers. `values`: server → one value per round. `is_rate`: more is better."""

    name: str
    unit: str
    values: Mapping[str, Sequence[float]]
    is_rate: bool = False

    def median(self, kind: str) -> float:
        """Return the median of a server's rounds."""
        return statistics.median(self.values[kind])

    @property
    def ratio(self) -> float:
        """How many times better our server is: above 1, it is faster or smaller."""
        ratio = self.median(OURS) / self.median(APACHE)
        return ratio if self.is_rate else 1 / ratio


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zookeeper", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (5)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for requests and nodes (1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the results to FILE")
    parser.add_argument(
        "--page", action="store_true", help="write the table into docs/zookeeper.md"
    )
    options = parser.parse_args()
    lifetime.live(run(options), asyncio.run)


async def run(options: argparse.Namespace) -> None:
    """Measure everything and print the table."""
    machine = report.machine()
    print(machine, flush=True)
    znodes = Znodes(max(int(ZNODES * options.scale), 1_000))
    rows = await lives(options.rounds, znodes)
    rows += await loads(options.rounds, znodes, options.scale)
    made = markdown(
        [row for row in rows if row.name in SHOWN or not row.name.startswith(PROCESSOR)]
    )
    print(made)
    if options.page:
        text = f"{made}\n\nMachine: {machine}."
        PAGE.write_text(replaced(PAGE.read_text(), "figures", text))
    if options.json is not None:
        figures = {row.name: dict(row.values) | {"ratio": row.ratio} for row in rows}
        report.append(options.json, {"machine": machine, "zookeeper": figures})


def new_server(kind: str) -> ServerProcess:
    """Return a server of this kind that is not started, on an empty directory."""
    [port] = free_ports(1, SystemRng())
    return KINDS[kind](Path(tempfile.mkdtemp()), port, clock=SystemClock())


async def lives(rounds: int, znodes: Znodes) -> list[Row]:
    """Start each server anew in every round: return the rows of the start and of the memory."""
    full = f"resident memory, {znodes.count:,} nodes"
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(rounds + 1):
        for kind in KINDS:
            server = new_server(kind)
            try:
                begin = time.perf_counter()
                server.spawn()
                await asyncio.to_thread(first_session, server)
                seconds = time.perf_counter() - begin
                empty = resident_mb(server)
                await asyncio.to_thread(prepare, server, znodes)
                await asyncio.to_thread(measure, server, znodes.load())
                if number:
                    found[START][kind].append(seconds * 1_000)
                    found[EMPTY][kind].append(empty)
                    found[full][kind].append(resident_mb(server))
            finally:
                await server.stop()
        print(f"starts: round {number} of {rounds}", file=sys.stderr, flush=True)
    return [
        Row(START, "ms", found[START]),
        *(Row(name, "MB", found[name]) for name in (EMPTY, full)),
    ]


async def loads(rounds: int, znodes: Znodes, scale: float) -> list[Row]:
    """Run every load on both servers in turn, and return its row; then the rows of the processor time."""
    planned = [*small_loads(scale), znodes.load(), znodes.read(), znodes.unload()]
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    processor: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with AsyncExitStack() as stack:
        servers = {kind: new_server(kind) for kind in KINDS}
        for server in servers.values():
            await server.start()
            stack.push_async_callback(server.stop)
            prepare(server, znodes)
        for number in range(rounds + 1):
            for load in planned:
                for kind, server in servers.items():
                    one = await asyncio.to_thread(measure, server, load)
                    os.sync()
                    if number:
                        rates[load.name][kind].append(one.operations / one.seconds)
                        microseconds = one.server_seconds / one.operations * 1e6
                        processor[load.name][kind].append(microseconds)
            print(f"loads: round {number} of {rounds}", file=sys.stderr, flush=True)
    return [
        *(Row(load.name, "/s", rates[load.name], is_rate=True) for load in planned),
        *(Row(f"{PROCESSOR}{load.name}", "µs", processor[load.name]) for load in planned),
    ]


def markdown(rows: Sequence[Row]) -> str:
    """Return the table: medians, the range of each, and how many times better our server is."""
    lines = [
        [row.name, *(_figure(row, kind) for kind in KINDS), f"{row.ratio:.2f}"] for row in rows
    ]
    return table(["", *KINDS, "times better"], lines)


def _figure(row: Row, kind: str) -> str:
    values = row.values[kind]
    places = 0 if row.median(kind) >= 100 else 1
    low, middle, high = min(values), row.median(kind), max(values)
    return f"{middle:,.{places}f} {row.unit} ({low:,.{places}f}–{high:,.{places}f})"


if __name__ == "__main__":
    main()
