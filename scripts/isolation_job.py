"""Checks the histories of transactional clients against the logs of all replicas (docs/isolation.md).

    isolation --history FILE… --replicas DIR… [--topic TOPIC…]

The exit code is 0 if there is no anomaly, 1 if there is one, and 2 if the check could not be made.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from minikafka.base.errors import MinikafkaError
from minikafka.checks.histories import Event, parse
from minikafka.checks.isolation.verdict import check
from minikafka.tools.verdict.directories import read_logs


def main(arguments: list[str]) -> int:
    """Make the check, print its result, and return the exit code."""
    parsed = parse_arguments(arguments)
    try:
        logs = read_logs(parsed.replicas, parsed.topic)
        result = check(events_of(parsed.history), logs)
    except (MinikafkaError, OSError) as error:
        print(f"isolation: {error}", file=sys.stderr)
        return 2
    print("\n".join((*result.lines(), str(result))))
    return 0 if result.ok else 1


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="isolation", description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add(
        "--history",
        action="append",
        required=True,
        metavar="FILE",
        help="a history; may be repeated",
    )
    add(
        "--replicas",
        action="append",
        required=True,
        metavar="DIR",
        help="log directories; may be repeated",
    )
    add("--topic", action="append", default=[], help="check only this topic; may be repeated")
    return parser.parse_args(arguments)


def events_of(paths: Iterable[str]) -> Iterator[Event]:
    """Yield the events of all histories. Raises HistoryError, OSError."""
    for path in paths:
        with Path(path).open(encoding="utf-8", errors="surrogateescape") as file:
            yield from parse(file, path)


if __name__ == "__main__":
    from closed_pipe import ending_with_reader

    with ending_with_reader():
        sys.exit(main(sys.argv[1:]))
