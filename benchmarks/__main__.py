"""`python -m benchmarks`: runs loads on three brokers.

For comparison, most produce loads also run on the minimal replicated log in `floor.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from benchmarks import (
    controller,
    floor,
    kafka,
    lifetime,
    load_catch_up,
    load_end_to_end,
    load_lagging,
    load_produce,
    report,
)
from minikafka import LocalCluster

Address = tuple[str, int]

RECORD_BYTES = 1024 + kafka.ONE_RECORD_OVERHEAD
IDLE_SECONDS = 1.0
LAGGING_REQUESTS = 1_000
CHECK = "minikafka.records.check.enable"
"""The config key that enables the check of produced records.

The targets apply to brokers without the check. The produce loads run both without and with the check.
"""


def main() -> None:
    """Parse the command line and run. The first argument `controller` selects the controller benchmark."""
    if sys.argv[1:2] == ["controller"]:
        controller.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="run only scenarios with TEXT in their name"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of each scenario (default: 3)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="factor for each load's number of requests (default: 1)",
    )
    parser.add_argument(
        "--rate", type=int, default=1000, help="records/s of the end-to-end load (default: 1000)"
    )
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="measure this running cluster instead of a new one"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    lifetime.live(run(parser.parse_args()), uvloop.run)


async def run(options: argparse.Namespace) -> None:
    """Run the loads that `--only` selects, and print each result immediately."""
    print(report.machine(), flush=True)
    facts: dict[str, Any] = {"machine": report.machine()}
    async with _cluster(options.bootstrap, checks_records=False) as bootstrap:
        if options.only in "end to end":
            facts["end_to_end"] = await _end_to_end(bootstrap, options)
        facts["produce"] = await _produce(bootstrap, options)
        if options.only in "catch-up":
            facts["catch_up"] = [
                await _catch_up(bootstrap, partitions, options) for partitions in (1, 6)
            ]
        if options.only in "lagging consumer":
            facts["lagging"] = await _lagging(bootstrap, options)
    if options.bootstrap is None and facts["produce"]:
        async with _cluster(None, checks_records=True) as bootstrap:
            print(f"\n{CHECK}=true", flush=True)
            facts["produce_checked"] = await _produce(bootstrap, options)
    if options.json is not None:
        report.append(options.json, facts)


async def _produce(bootstrap: Address, options: argparse.Namespace) -> list[dict[str, Any]]:
    facts = []
    with floor.running_floor() as floor_port:
        print("\n" + report.produce_head(), flush=True)
        for scenario in load_produce.SCENARIOS:
            if options.only not in scenario.name:
                continue
            scaled = scenario._replace(total=max(int(scenario.total * options.scale), 10))
            measured = await load_produce.measure(scaled, bootstrap, floor_port, options.rounds)
            print(report.produce_row(measured), flush=True)
            facts.append(report.produce_facts(measured))
            # Otherwise the write-back of this load's dirty pages would slow the next load.
            await _in_thread(os.sync)
    return facts


async def _end_to_end(bootstrap: Address, options: argparse.Namespace) -> dict[str, Any]:
    count = max(int(options.rate * 5 * options.scale), 20)
    async with kafka.new_topic(bootstrap, 1) as (topic, (leader,)):
        await asyncio.sleep(IDLE_SECONDS)
        result = await _in_thread(
            lambda: load_end_to_end.run(
                topic, leader, rate=options.rate, count=count, size=RECORD_BYTES
            )
        )
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    figures = {
        f"{name}_ms": round(result.percentile_ms(share), 3) for name, share in shares.items()
    }
    percentiles = "  ".join(f"{name[:-3]} {value} ms" for name, value in figures.items())
    print(
        f"\nend to end, 1 KiB records at {options.rate}/s   {percentiles}   ({result.behind} sent late)"
    )
    return {"rate": options.rate, "sent_late": result.behind, **figures}


async def _catch_up(
    bootstrap: Address, partitions: int, options: argparse.Namespace
) -> dict[str, Any]:
    stored = int(load_catch_up.FILL_REQUESTS * load_catch_up.FILL_BYTES * options.scale)
    async with kafka.new_topic(bootstrap, partitions, stored) as (topic, leaders):
        await load_catch_up.fill(topic, leaders, options.scale)
        reads = [
            await _in_thread(partial(load_catch_up.run, topic, leaders))
            for _ in range(options.rounds + 1)
        ]
    rate = median(read.gigabytes_per_second for read in reads[1:])
    print(
        f"catch-up fetch, {partitions} partition{'s' * (partitions > 1)}   {rate:.2f} GB/s   "
        f"({reads[0].records:,} records, {reads[0].bytes / 1e9:.2f} GB)",
        flush=True,
    )
    return {
        "partitions": partitions,
        "gigabytes_per_second": round(rate, 2),
        "bytes": reads[0].bytes,
    }


async def _lagging(bootstrap: Address, options: argparse.Namespace) -> dict[str, Any]:
    stored = int(load_catch_up.FILL_REQUESTS * load_catch_up.FILL_BYTES * options.scale)
    count = max(int(LAGGING_REQUESTS * options.scale), 50)
    async with (
        kafka.new_topic(bootstrap, 1, stored) as (old, (leader,)),
        kafka.new_topic(bootstrap, 3) as (topic, leaders),
    ):
        await load_catch_up.fill(old, (leader,), options.scale)
        end = await _in_thread(partial(kafka.end_offset, leader, old))
        (beside,) = (other for other in leaders if other[1:] == leader[1:])
        work = partial(
            load_lagging.run, old, topic, leader, beside, end, rounds=options.rounds, count=count
        )
        found = await _in_thread(work)
    print(
        f"produce with a lagging consumer   p99 {found.beside:.2f} ms, "
        f"{found.elsewhere:.2f} ms while it reads from a stand-in process, {found.alone:.2f} ms without a consumer; "
        f"ratios {found.ratio:.2f} and {found.ratio_to_alone:.2f}   ({found.bytes / 1e6:.0f} MB read)",
        flush=True,
    )
    ratios = {"ratio": round(found.ratio, 3), "ratio_to_alone": round(found.ratio_to_alone, 3)}
    return {**ratios, **found._asdict()}


@asynccontextmanager
async def _cluster(bootstrap: str | None, *, checks_records: bool) -> AsyncIterator[Address]:
    """Yield the address of a broker in `bootstrap`, or in a new local cluster if `bootstrap` is None."""
    if bootstrap is not None:
        yield _address(bootstrap)
        return
    config = {
        "zookeeper.session.timeout.ms": 6_000,
        "min.insync.replicas": 2,
        CHECK: checks_records,
    }
    async with LocalCluster(brokers=3, config=config) as cluster:
        yield _address(cluster.bootstrap)


def _address(bootstrap: str) -> Address:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    return host, int(port)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, function)


if __name__ == "__main__":
    main()
