"""`minikafka pipeline compact`: merge small files of a table, and remove old states of it."""

from __future__ import annotations

from typing import Final

import click

import minikafka.spark.lakehouse.opening as opening
import minikafka.spark.lakehouse.programs as programs
import minikafka.spark.lakehouse.tables as tables
import minikafka.spark.pipelines.compact as pipeline
import minikafka.tools.cli.pipeline.output as outputs
from minikafka.base.errors import ConfigError
from minikafka.tools.cli.arguments.options import not_blank
from minikafka.tools.cli.pipeline.launch import (
    lake_options,
    require_spark,
    seconds,
    storage_option,
    usage_errors,
)
from minikafka.tools.cli.terminal.echo import json_option, show

_MEGABYTE: Final = 1 << 20


@click.command()
@click.argument("place", required=False, default="", metavar="[DIR|URI]")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["delta", "iceberg"]),
    help="Format of the table (default: what is found there; iceberg with --catalog).",
)
@lake_options
@storage_option
@click.option(
    "--target-size",
    type=click.IntRange(1, 10_000),
    default=128,
    show_default=True,
    metavar="MB",
    help="Merge files that are smaller than this, up to this size.",
)
@click.option(
    "--expire",
    metavar="DURATION",
    callback=not_blank,
    help="Also remove states of the table that were replaced this long ago, such as 7d, and their files.",
)
@json_option
def compact(
    place: str,
    format_name: str | None,
    table: str | None,
    catalog: dict[str, str],
    storage: dict[str, str],
    target_size: int,
    expire: str | None,
) -> None:
    """Merge small files of a table of Delta Lake or Iceberg, while others read and write the table.

    Rows stay the same. Readers of an older state find its files until --expire removes them.
    """
    require_spark()
    with usage_errors():
        if not place and not catalog:
            raise ConfigError("name the directory of the table, or --catalog with its properties")
        found = format_name or pipeline.format_of(place, has_catalog=bool(catalog))
        named = programs.table_settings(
            found, place, table=table or tables.RECORDS, catalog=catalog, storage=storage
        )
        opening.open_table(named)
        age = None if expire is None else _age(expire)
    settings = pipeline.CompactSettings(named, target_size * _MEGABYTE, age)
    summary = pipeline.run(settings)
    show(summary.document(), lambda: outputs.print_summary(summary))


def _age(text: str) -> int:
    return 0 if text.strip() in ("0", "0s") else seconds("--expire", text)
