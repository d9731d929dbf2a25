"""`verdict`: what the clients suffered whose histories are in files, compared with the logs of a cluster.

Exit code 0: nothing; 1: something was found; 2: the verdict could not be made.
"""

from __future__ import annotations

from pathlib import Path

import click

import minikafka.tools.cluster.directory as directories
import minikafka.tools.verdict.cluster as clusters
import minikafka.tools.verdict.files as history_files
import minikafka.tools.verdict.report as reports
from minikafka.base.errors import MinikafkaError
from minikafka.checks.histories import Event
from minikafka.tools.cli.arguments.command_config import connector
from minikafka.tools.cli.arguments.find_cluster import data_directory, find_running_cluster
from minikafka.tools.cli.arguments.options import connection_options
from minikafka.tools.cli.terminal.echo import json_option, show

stuck_option = click.option(
    "--stuck-after",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time without progress after which a send, a transaction or a consumer counts as stuck.",
)


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True))
@connection_options
@stuck_option
@json_option
@click.pass_context
def verdict(
    context: click.Context,
    files: tuple[str, ...],
    bootstrap: str | None,
    data: str | None,
    stuck_after: float,
) -> None:
    """Say which records of clients were lost, duplicated, reordered or wrongly read, and what is stuck.

    FILE is a history in JSON lines (docs/isolation.md), or a directory of files *.jsonl. The logs are read from the
    brokers, or if none of the cluster runs, from the log directories in --data.

    Exit code 1: an anomaly was found. Exit code 2: the verdict could not be made.
    """
    events = history_files.read_events(files)
    try:
        found = _verdict(events, bootstrap, data, stuck_after)
    except reports.VerdictError:
        raise
    except MinikafkaError as error:
        raise reports.VerdictError(str(error)) from error
    show(found.as_json(), found.lines())
    context.exit(0 if found.ok else 1)


def _verdict(
    events: list[Event], bootstrap: str | None, data: str | None, seconds: float
) -> reports.ClientVerdict:
    if bootstrap:
        place = clusters.Place(bootstrap, connector=connector())
        return clusters.verdict_on(events, place, seconds)
    try:
        running = find_running_cluster(data)
    except directories.ClusterError:
        return history_files.verdict_on_files(events, Path(data_directory(data)), seconds)
    return clusters.verdict_on(events, clusters.cluster_in(running.directory.path), seconds)
