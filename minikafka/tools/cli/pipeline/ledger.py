"""`minikafka pipeline ledger`: count elections, ISR changes and controller terms in brokers' ledgers."""

from __future__ import annotations

import click

import minikafka.spark.pipelines.ledger as pipeline
import minikafka.spark.pipelines.plot as plots
from minikafka.tools.cli.arguments.find_cluster import data_directory
from minikafka.tools.cli.pipeline.launch import Launch, launch_options, plot_option, usage_errors


@click.command()
@click.argument(
    "ledgers", nargs=-1, type=click.Path(exists=True, file_okay=False), metavar="[DIR...]"
)
@click.option("--output", metavar="DIR", help="Write all rows to DIR as Parquet; replaces them.")
@plot_option
@launch_options
def ledger(launch: Launch, ledgers: tuple[str, ...], output: str | None, plot: str | None) -> None:
    """Count elections, ISR changes and controller terms in the ledgers of brokers.

    DIR is a ledger, or a directory with several ledgers; default: the data directory of the cluster.
    """
    settings = pipeline.LedgerSettings(ledgers or (data_directory(launch.data),), output, plot)
    if plot:
        with usage_errors():
            plots.check_path(plot)
    launch.run("ledger", lambda spark, report: pipeline.run(spark, settings, report))
