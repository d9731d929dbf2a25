"""`minikafka pipeline archive`: write topics to Parquet files."""

from __future__ import annotations

import click

import minikafka.spark.pipelines.archive as pipeline
from minikafka.tools.cli.arguments.options import not_blank, topics_argument
from minikafka.tools.cli.pipeline.launch import (
    OUTPUT,
    Launch,
    continuous_option,
    launch_options,
    skip_lost_option,
    storage_option,
    usage_errors,
)


@click.command()
@topics_argument(required=True)
@click.option(
    "--to",
    "directory",
    required=True,
    type=OUTPUT,
    metavar="DIR",
    callback=not_blank,
    help="Directory or URI of the archive, which the next run continues.",
)
@storage_option
@continuous_option
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --continuous: interval at which new records are read.",
)
@click.option(
    "--records-per-file",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Maximum number of offsets that one file covers.",
)
@skip_lost_option
@launch_options
def archive(
    launch: Launch,
    topics: tuple[str, ...],
    directory: str,
    storage: dict[str, str],
    available_now: bool,
    interval: float,
    records_per_file: int,
    skip_lost: bool,
) -> None:
    """Write topics to Parquet files that are named after the offsets that they cover."""
    settings = pipeline.ArchiveSettings(
        servers=launch.servers(),
        topics=topics,
        directory=directory,
        interval_s=None if available_now else interval,
        records_per_file=records_per_file,
        skip_lost=skip_lost,
        storage=storage,
        security=launch.security(),
    )
    with usage_errors():
        settings.archive()
    launch.run(
        f"archive to {directory}",
        lambda spark, report: pipeline.run(spark, settings, report),
        brokers=[settings.servers],
        topics=[(settings.servers, topics)],
    )
