"""`minikafka pipeline ledger`: count elections, ISR changes and controller terms in brokers' ledgers."""

from __future__ import annotations

import click

import minikafka.spark.pipelines.ledger as pipeline
from minikafka.tools.cli.arguments.find_cluster import data_directory
from minikafka.tools.cli.arguments.options import not_blank
from minikafka.tools.cli.pipeline.launch import (
    OUTPUT,
    Launch,
    launch_options,
    plot_option,
    storage_option,
    usage_errors,
)


@click.command()
@click.argument(
    "ledgers", nargs=-1, type=click.Path(exists=True, file_okay=False), metavar="[DIR...]"
)
@click.option(
    "--output",
    type=OUTPUT,
    metavar="DIR",
    callback=not_blank,
    help="Write all rows as Parquet to a directory or URI; replaces them.",
)
@plot_option
@storage_option
@launch_options
def ledger(
    launch: Launch,
    ledgers: tuple[str, ...],
    output: str | None,
    plot: str | None,
    storage: dict[str, str],
) -> None:
    """Count elections, ISR changes and controller terms in the ledgers of brokers.

    DIR is a ledger, or a directory with several ledgers; default: the data directory of the cluster.
    """
    read = ledgers or (data_directory(launch.data),)
    settings = pipeline.LedgerSettings(read, output, plot, storage)
    with usage_errors():
        settings.check()
    launch.run("ledger", lambda spark, report: pipeline.run(spark, settings, report))
