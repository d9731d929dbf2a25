"""Chaos test: kills, pauses and restarts random brokers under load, then checks that no record was lost.

    chaos --seconds N [--seed S] [--keep DIR] [--coordination MODE] [--zookeeper KIND]
          [--secure | --transactions [--jobs N]]

The seed determines the faults of a run, and is printed first. A fault ends before the next fault begins, so at
most one broker is down or paused at a time, and the load continues. With --keep, the brokers' logs and the
producer's history are kept in DIR, for `minikafka pipeline check`. With --transactions, jobs copy a topic exactly once
under more kinds of faults (`chaos_transactions.py`), and DIR is for `minikafka verdict`. With --secure, clients log in
through TLS, and certificates, passwords and ACLs change meanwhile (`chaos_security.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import broker_faults
import chaos_transactions
import endings
from chaos_security import Changes, changing, login_of
from display import Display, Step
from load import NO_LOGIN, Login, Stream, create_topic, read_back, write_history
from threads import in_thread
from verdict import IsrWatch, in_background, show_verdict

from minikafka.base.coordination import CONTROLLER, MODES
from minikafka.base.zookeeper import EMBEDDED, OWN
from minikafka.checks.delivery import verdict
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.faults.script.actions import begin
from minikafka.tools.cluster.secure.files import FIRST_USER

TOPIC = "chaos"
PARTITIONS = 6
BROKERS = 3
CONFIG = {"zookeeper.session.timeout.ms": 6_000}
TOPIC_CONFIG = {"min.insync.replicas": "2"}
RATE = 5_000.0
VALUE_BYTES = 100
QUIET_SECONDS = (0.5, 4.0)
"""Range of the time between the end of a fault and the start of the next fault."""
SHOW_SECONDS = 0.2


def main() -> bool:
    """Run the chaos test with a display. Return True if the verdict is good."""
    arguments = parse(sys.argv[1:])
    with Display() as display:
        display.say(f"seed {arguments.seed}")
        return run_cancellable(chaos(display, arguments))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. Choose a random seed if no seed is given."""
    parser = argparse.ArgumentParser(prog="chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--seconds", type=_positive, default=60.0, help="length of the run in seconds (60)"
    )
    parser.add_argument("--seed", type=int, help="seed of an earlier run, to draw the same faults")
    parser.add_argument("--keep", metavar="DIR", help="keep the logs and the history in DIR")
    parser.add_argument(
        "--coordination", choices=MODES, default=CONTROLLER, help="coordination mode (controller)"
    )
    parser.add_argument(
        "--zookeeper", choices=OWN, default=EMBEDDED, help="ZooKeeper of the cluster (embedded)"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--secure", action="store_true", help="use TLS, logins and ACLs, and change them meanwhile"
    )
    kind.add_argument(
        "--transactions", action="store_true", help="copy a topic in transactions, exactly once"
    )
    parser.add_argument("--jobs", type=int, default=3, help="number of copy jobs (3)")
    parsed = parser.parse_args(arguments)
    if parsed.seed is None:
        parsed.seed = random.SystemRandom().randrange(2**32)
    return parsed


def _positive(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be more than 0 seconds, got {text}")
    return seconds


async def chaos(display: Display, arguments: argparse.Namespace) -> bool:
    """Run a cluster, and make the run with or without transactions. Return True if the verdict is good."""
    seconds, seed, keep = arguments.seconds, arguments.seed, arguments.keep
    config = chaos_transactions.CONFIG if arguments.transactions else CONFIG
    async with LocalCluster(
        BROKERS,
        data=keep,
        config=config,
        coordination=arguments.coordination,
        zookeeper=arguments.zookeeper,
        secure=arguments.secure,
    ) as cluster:
        if arguments.secure:
            return await secured_records(display, cluster, seconds, seed, keep)
        if not arguments.transactions:
            stream = Stream(cluster.bootstrap, TOPIC, records(), RATE)
            return await single_records(display, cluster, stream, seconds, seed, keep)
        return await chaos_transactions.chaos(display, cluster, seconds, seed, arguments.jobs, keep)


async def secured_records(
    display: Display, cluster: LocalCluster, seconds: float, seed: int, keep: str | None
) -> bool:
    """Make the run with clients that log in, and change security meanwhile. Return True if both verdicts are good."""
    stream = Stream(cluster.bootstrap, TOPIC, records(), RATE, login_of(cluster, FIRST_USER))
    changes = Changes(display, cluster, stream, seed)
    await changes.prepare()
    try:
        first = await single_records(display, cluster, stream, seconds, seed, keep, changes)
        return await changes.finish() and first
    finally:
        await asyncio.to_thread(changes.abandon)


async def single_records(
    display: Display,
    cluster: LocalCluster,
    stream: Stream,
    seconds: float,
    seed: int,
    keep: str | None,
    changes: Changes | None = None,
) -> bool:
    """Inject faults under load, read all records back, and show the verdict. True if the verdict is good."""

    def login() -> Login:
        return changes.login(FIRST_USER) if changes else NO_LOGIN

    arguments = (cluster.bootstrap, TOPIC, PARTITIONS)
    await in_thread(create_topic, *arguments, TOPIC_CONFIG, login())
    watch = IsrWatch(cluster, TOPIC)
    during = changes.propagation.fault if changes else nullcontext
    async with in_background(watch.run()):
        try:
            async with changing(changes) if changes else nullcontext():
                await under_load(display, cluster, stream, seconds, random.Random(seed), during)
        finally:
            await asyncio.to_thread(stream.abandon)
        with display.step("read") as step:
            read = partial(read_back, *arguments, step.advance, login=login())
            reading = await in_thread(read)
            step.done(f"{sum(map(len, reading.values())):,} records")
    watch.show(display)
    if keep is not None:
        write_history(Path(keep) / "history.jsonl", stream.history.events("chaos", TOPIC))
    result = verdict([stream.history], reading)
    show_verdict(display, result)
    return result.ok


def records() -> Iterator[tuple[bytes, bytes]]:
    """Yield an endless sequence of distinct records."""
    number = 0
    while True:
        number += 1
        yield b"%d" % (number % 1000), b"%d" % number + bytes(VALUE_BYTES)


async def under_load(
    display: Display,
    cluster: LocalCluster,
    stream: Stream,
    seconds: float,
    chance: random.Random,
    during: Callable[[str], AbstractContextManager[None]],
) -> None:
    """Inject faults for `seconds`, wait until every ISR is full, then stop the load.

    `during`: returns a context manager that is entered for the time of a fault of this kind.
    """
    stream.start()
    faults: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    with display.step("faults") as step:
        while (left := deadline - time.monotonic()) > 0:
            await wait_under_load(step, stream, min(left, chance.uniform(*QUIET_SECONDS)), deadline)
            kind, broker_id = chance.choice(broker_faults.KINDS), chance.randint(1, BROKERS)
            length = chance.uniform(*broker_faults.SECONDS)
            display.say(f"  {kind} broker {broker_id} for {length:.1f} s")
            faults[kind] += 1
            with during(kind):
                fault = await begin(cluster, kind, {"broker": broker_id}, None)
                await wait_under_load(step, stream, length, deadline)
                await fault.end()
        step.done(", ".join(f"{count} × {kind}" for kind, count in sorted(faults.items())))
    with display.step("heal") as step:
        await cluster.wait_for_isr(TOPIC)
        stream.stop()
        await asyncio.to_thread(stream.join)
        if stream.error is not None:
            raise RuntimeError(f"the producer failed: {stream.error}")
        step.done(f"{stream.acked:,} of {len(stream.history):,} records acked")


async def wait_under_load(step: Step, stream: Stream, seconds: float, deadline: float) -> None:
    """Let the load continue for `seconds`, and show the progress."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        left = max(deadline - time.monotonic(), 0)
        step.advance(stream.acked, None, f"{stream.acked:,} acked, {left:.0f} s to go")
        await asyncio.sleep(SHOW_SECONDS)


if __name__ == "__main__":
    endings.run("chaos", main)
