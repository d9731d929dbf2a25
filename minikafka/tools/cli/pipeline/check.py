"""`minikafka pipeline check`: compare producers' histories with the logs of all replicas."""

from __future__ import annotations

from typing import Final

import click

import minikafka.checks.replicas.pipeline as pipeline
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import data_directory
from minikafka.tools.cli.arguments.options import not_blank
from minikafka.tools.cli.pipeline.launch import (
    OUTPUT,
    Launch,
    launch_options,
    storage_option,
    usage_errors,
)

HISTORY = "FILE|DIR|topic:NAME"
_TOPIC: Final = "topic:"
_NOT_CHECKED: Final = 2
"""Exit code if the check could not be made: a script must not mistake a wrong path for a lost record."""


@click.command()
@click.option(
    "--replicas",
    multiple=True,
    metavar="DIR",
    help="A log directory, or a directory that holds those of several brokers; may be repeated. "
    "Default: the data directory of the cluster.",
)
@click.option(
    "--history",
    "histories",
    multiple=True,
    metavar=HISTORY,
    help="What producers sent, as JSON lines, Parquet or a topic of JSON records; may be repeated.",
)
@click.option(
    "--reads",
    multiple=True,
    metavar=HISTORY,
    help="What consumers read, in the same forms; may be repeated.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Check only this topic.",
    shell_complete=completion.topics,
)
@click.option(
    "--output",
    type=OUTPUT,
    metavar="DIR",
    callback=not_blank,
    help="Write all anomalies as Parquet to a directory or URI; replaces them.",
)
@storage_option
@launch_options
def check(
    launch: Launch,
    replicas: tuple[str, ...],
    histories: tuple[str, ...],
    reads: tuple[str, ...],
    topics: tuple[str, ...],
    output: str | None,
    storage: dict[str, str],
) -> None:
    """Check that the replicas agree, and that acknowledged records are not lost, repeated or out of order.

    Exit code 1 if there is an anomaly, 2 if the check could not be made.
    """
    try:
        read = [one.removeprefix(_TOPIC) for one in histories + reads if one.startswith(_TOPIC)]
        settings = pipeline.CheckSettings(
            replicas=replicas or (data_directory(launch.data),),
            histories=histories,
            reads=reads,
            topics=topics,
            output=output,
            storage=storage,
            servers=launch.servers() if read else None,
        )
        with usage_errors():
            settings.check()
        launch.run(
            "check",
            lambda spark, report: pipeline.run(spark, settings, report),
            brokers=[settings.servers] if settings.servers else [],
            topics=[(settings.servers, read)] if settings.servers else [],
        )
    except MinikafkaError as error:
        error.exit_code = _NOT_CHECKED
        raise
