"""`minikafka pipeline archive`: write topics to Parquet files, or to a table of Delta Lake or Iceberg."""

from __future__ import annotations

import click

import minikafka.spark.lakehouse.opening as opening
import minikafka.spark.lakehouse.programs as programs
import minikafka.spark.lakehouse.tables as tables
import minikafka.spark.pipelines.archive as pipeline
from minikafka.base.errors import ConfigError
from minikafka.tools.cli.arguments.options import not_blank, topics_argument
from minikafka.tools.cli.pipeline.launch import (
    OUTPUT,
    Launch,
    continuous_option,
    lake_options,
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
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Parquet files, or a table of Delta Lake or Iceberg.",
)
@click.option(
    "--partition-by",
    type=click.Choice(["date", "hour"]),
    help="Partition a table by the date or the hour of the timestamp.",
)
@click.option(
    "--timestamps",
    type=click.Choice(["refuse", "null"]),
    default="refuse",
    show_default=True,
    help="In a table: fail at a timestamp outside of the years 1 to 9999, or write null and count it.",
)
@lake_options
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
    format_name: str,
    partition_by: str | None,
    timestamps: str,
    table: str | None,
    catalog: dict[str, str],
    storage: dict[str, str],
    available_now: bool,
    interval: float,
    records_per_file: int,
    skip_lost: bool,
) -> None:
    """Write topics to Parquet files named after their offsets, or to a table of Delta Lake or Iceberg."""
    with usage_errors():
        place = _table(format_name, directory, partition_by, timestamps, table, catalog, storage)
    settings = pipeline.ArchiveSettings(
        servers=launch.servers(),
        topics=topics,
        directory=directory,
        interval_s=None if available_now else interval,
        records_per_file=records_per_file,
        skip_lost=skip_lost,
        storage=storage,
        security=launch.security(),
        table=place,
    )
    with usage_errors():
        if place is None:
            settings.archive()
    launch.run(
        f"archive to {directory}",
        lambda spark, report: pipeline.run(spark, settings, report),
        brokers=[settings.servers],
        topics=[(settings.servers, topics)],
        check=None if place is None else lambda: opening.check_table(place),
    )


def _table(
    format_name: str,
    directory: str,
    partition_by: str | None,
    timestamps: str,
    table: str | None,
    catalog: dict[str, str],
    storage: dict[str, str],
) -> tables.LakeSettings | None:
    """Return the settings of the table; None for Parquet files. Raises `ConfigError`."""
    if format_name == "parquet":
        given = {
            "--partition-by": partition_by,
            "--timestamps null": timestamps == "null",
            "--table": table,
            "--catalog": catalog,
        }
        if unused := [name for name, value in given.items() if value]:
            raise ConfigError(f"{unused[0]} needs --format delta or iceberg")
        return None
    settings = programs.table_settings(
        format_name,
        directory,
        table=table or tables.RECORDS,
        catalog=catalog,
        storage=storage,
        partition_by=[f"{partition_by}(timestamp)"] if partition_by else [],
        timestamps=timestamps,
    )
    opening.open_table(settings)
    return settings
