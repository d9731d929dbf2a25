"""Kills `minikafka zookeeper` under load, and checks what the next server has.

    zookeeper-deaths [--rounds N] [--seed S]

One session has up to 200 sets in flight, another one reads. After a few thousand acknowledged sets the server gets
SIGKILL, at times also while it starts again. It writes snapshots all the time. The exit code is 0 only if nothing that
was acknowledged or read is ever gone, the zxid never goes back, and sessions and their ephemeral nodes survive.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import endings
from display import Display

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster.ports import free_ports

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.zookeeper.deaths import Deaths, FrequentSnapshots, Violation

ROUNDS = 20


def main() -> bool:
    """Run the rounds. Return True if the server has kept its promises."""
    parser = argparse.ArgumentParser(
        prog="zookeeper-deaths", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"number of kills ({ROUNDS})")
    parser.add_argument("--seed", type=int, help="chooses the moments of the kills (random)")
    arguments = parser.parse_args(sys.argv[1:])
    seed = arguments.seed
    if seed is None:
        seed = random.SystemRandom().randrange(2**32)
    with Display() as display, TemporaryDirectory(prefix="minikafka-deaths-") as name:
        display.say(f"seed {seed}")
        return run_cancellable(kill(display, Path(name), arguments.rounds, seed))


async def kill(display: Display, directory: Path, rounds: int, seed: int) -> bool:
    """Kill the server in every round, and show the counts. Return False at the first violation."""
    [port] = free_ports(1, SystemRng())
    server = FrequentSnapshots(directory, port, clock=SystemClock())
    await server.start()
    deaths = Deaths(server, seed)
    violation = ""
    try:
        with display.step("kill") as step:
            await deaths.prepare()
            for done in range(rounds):
                await deaths.round()
                step.advance(done + 1, rounds, f"{deaths.counts.acked:,} sets acknowledged")
        await deaths.close()
    except* Violation as group:
        violation = str(group.exceptions[0])
    finally:
        await server.kill()
    counts = deaths.counts
    display.say(
        f"{counts.kills} kills under load, {counts.early_kills} during a start: {counts.acked:,} sets acknowledged, "
        f"{counts.unanswered:,} unanswered, {counts.reads:,} reads: {violation or 'nothing is lost'}"
    )
    return not violation


if __name__ == "__main__":
    endings.run("zookeeper-deaths", main)
