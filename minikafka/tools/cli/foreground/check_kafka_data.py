"""`check-kafka-data`: say what of Apache Kafka's log directories minikafka cannot take over.

Exit code 1 if there is such an obstacle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

import click

import minikafka.tools.cli.foreground.kafka_data as kafka_data
import minikafka.tools.cli.terminal.columns as columns
import minikafka.tools.cli.terminal.progress as displays
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.execution.running import fail_unless
from minikafka.tools.cli.terminal.echo import echo, json_option, show, wants_json

_VERSION: Final = 1
"""Version of the JSON format."""


def _columns() -> list[columns.Column]:
    names = ("path", "what", "remedy")
    return [columns.Column("", name, attrgetter(name)) for name in names]


@click.command("check-kafka-data")
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIR...",
    type=click.Path(exists=True, file_okay=False),
)
@json_option
def check_kafka_data(directories: tuple[str, ...]) -> None:
    """Check the log directories DIR of a stopped Apache Kafka broker before minikafka takes them over.

    All records are looked at. Nothing is changed.
    """
    found = list(_found(directories))
    objects = columns.objects(_columns(), found)
    show({"version": _VERSION, "obstacles": objects}, lambda: _print(directories, found))
    fail_unless(not found)


def _found(directories: Sequence[str]) -> Iterator[kafka_data.Obstacle]:
    with displays.Progress(SystemClock(), "", shown=not wants_json()) as progress:
        for name in directories:

            def on_progress(done: int, total: int, name: str = name) -> None:
                progress.update({name: displays.Amount(done, total)})

            yield from kafka_data.obstacles(Path(name), on_progress)


def _print(directories: Sequence[str], found: Sequence[kafka_data.Obstacle]) -> None:
    for one in found:
        echo(f"{one.path}: {one.what}; {one.remedy}")
    if not found:
        echo(f"minikafka can take over {', '.join(directories)}")
