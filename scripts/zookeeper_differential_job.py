"""Sends random requests to Apache ZooKeeper and to minikafka's own server, and compares their answers.

    zookeeper-differential [--sequences N] [--seed S] [--requests R] [--json]

Each sequence has its own seed, counted from S, and R requests of three sessions. The program ends at the first
difference, and shows the shortest part of the sequence that has it. The exit code is 0 if the servers agree, 1 if
they differ, and 1 with an error if a server could not be started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import endings
from display import Display

from minikafka.tools.cli.execution.running import run_cancellable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.zookeeper.lock_step import Comparison, Failure
from support.zookeeper.pair import running_pair
from support.zookeeper.sequences import REQUESTS

SEQUENCES = 1_000


def main() -> bool:
    """Make the comparison. Return True if the servers agree."""
    arguments = parse(sys.argv[1:])
    with Display() as display:
        return run_cancellable(differential(display, arguments))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. Choose a random seed if no seed is given."""
    parser = argparse.ArgumentParser(
        prog="zookeeper-differential", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add("--sequences", type=_count, default=SEQUENCES, help=f"number of sequences ({SEQUENCES})")
    add("--seed", type=int, help="seed of the first sequence (random)")
    add("--requests", type=_count, default=REQUESTS, help=f"requests of a sequence ({REQUESTS})")
    add("--json", action="store_true", help="print the result as one JSON object")
    parsed = parser.parse_args(arguments)
    if parsed.seed is None:
        parsed.seed = random.SystemRandom().randrange(2**32)
    return parsed


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return int(text)


async def differential(display: Display, arguments: argparse.Namespace) -> bool:
    """Start both servers, compare them, and show the result. Return True if they agree."""
    if not arguments.json:
        display.say(f"seed {arguments.seed}")
    with TemporaryDirectory(prefix="minikafka-differential-") as directory:
        async with running_pair(Path(directory)) as pair:
            comparison = Comparison(*pair.ports)
            with display.step("compare") as step:

                def show(done: int) -> None:
                    note = f"{comparison.counts.requests:,} requests"
                    if not arguments.json:
                        step.advance(done, arguments.sequences, note)

                failure = await asyncio.to_thread(compare, comparison, arguments, show)
    report(display, arguments, comparison, failure)
    return failure is None


def compare(
    comparison: Comparison, arguments: argparse.Namespace, show: Callable[[int], None]
) -> Failure | None:
    """Run the sequences until two answers differ; return the shortest part that shows the difference."""
    for number in range(arguments.sequences):
        seed = arguments.seed + number
        difference = comparison.run(seed, arguments.requests)
        if difference is not None:
            return comparison.smallest(seed, difference, arguments.requests)
        show(number + 1)
    return None


def report(
    display: Display,
    arguments: argparse.Namespace,
    comparison: Comparison,
    failure: Failure | None,
) -> None:
    """Print the counts, and the difference if there is one."""
    counts = comparison.counts
    if arguments.json:
        found = failure and {
            "seed": failure.seed,
            "steps": [f"session {step.session}: {step.text}" for step in failure.steps],
            "at": failure.difference.step,
            "apache": repr(failure.difference.first),
            "embedded": repr(failure.difference.second),
        }
        print(json.dumps({"seed": arguments.seed, **vars(counts), "difference": found}))
        return
    display.say(
        f"{counts.sequences:,} sequences, {counts.requests:,} requests, {counts.events:,} events: "
        + ("no difference" if failure is None else f"seed {failure.seed} differs")
    )
    if failure is not None:
        for step in failure.steps:
            display.say(f"  session {step.session}: {step.text}")
        display.say(f"at {failure.difference.step}")
        display.say(f"  Apache:    {failure.difference.first}")
        display.say(f"  minikafka: {failure.difference.second}")


if __name__ == "__main__":
    endings.run("zookeeper-differential", main)
