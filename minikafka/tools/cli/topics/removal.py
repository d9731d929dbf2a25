"""`topics compact` and `topics expire`: what only time would do to the records of topics.

They share a file, because they differ only in the call.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import click

import minikafka.tools.cluster.time_and_state.removals as removals
from minikafka.tools.cli.arguments.find_cluster import find_running_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option, topics_argument
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import json_option, show

_COLUMNS: Final = (
    Column("TOPIC", "topic", itemgetter(0)),
    Column("PARTITION", "partition", itemgetter(1)),
    Column("RECORDS", "records", lambda row: row[2].records),
    Column("BYTES", "bytes", lambda row: row[2].bytes),
)


@click.command()
@topics_argument(required=True)
@needs_machine("asks every broker")
@timeout_option
@json_option
def compact(topics: tuple[str, ...], data: str | None) -> None:
    """Compact every log of each TOPIC now, up to a new active segment; print what was removed from each partition.

    Of the records acknowledged before, only the latest value of each key is left.
    """
    found = find_running_cluster(data)
    _show([run(found.compact(topic)) for topic in topics])


@click.command()
@topics_argument(required=True)
@needs_machine("asks every broker")
@timeout_option
@json_option
def expire(topics: tuple[str, ...], data: str | None) -> None:
    """Apply retention to every log of each TOPIC now; print what was removed from each partition."""
    found = find_running_cluster(data)
    _show([run(found.expire(topic)) for topic in topics])


def _show(found: list[removals.TopicRemoval]) -> None:
    rows = [
        (one.topic, partition, gone)
        for one in found
        for partition, gone in sorted(one.partitions.items())
    ]
    show(objects(_COLUMNS, rows), lines(_COLUMNS, rows))
