"""`minikafka pipeline lag`: measure the lag of consumer groups over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import click

import minikafka.client as clients
import minikafka.spark.pipelines.lag as pipeline
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.arguments.command_config import connector
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import (
    groups_argument,
    not_blank,
)
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.pipeline.launch import (
    Launch,
    launch_options,
    plot_option,
    seconds,
    storage_option,
    usage_errors,
)
from minikafka.tools.cli.terminal.topic_errors import similar_groups


async def _require(client: clients.Client, names: Sequence[str]) -> None:
    """Raise MinikafkaError if a group has no committed offset."""
    for name in names:
        if not await client.groups.offsets(name):
            text = f"{name}: no committed offset{await similar_groups(client, name)}"
            raise MinikafkaError(f"{text}; name groups that `minikafka groups list` lists")


@click.command()
@groups_argument
@click.option(
    "--for",
    "duration",
    default=None,
    metavar="DURATION",
    callback=not_blank,
    help="Take samples for this time, such as 30s or 10m (default: one sample).",
)
@click.option(
    "--every", default="5s", show_default=True, metavar="DURATION", help="Time between samples."
)
@click.option(
    "--output",
    metavar="FILE",
    callback=not_blank,
    help="Write the samples to a file or URI: .parquet or .jsonl.",
)
@plot_option
@storage_option
@launch_options
def lag(
    launch: Launch,
    groups: tuple[str, ...],
    all_groups: bool,
    duration: str | None,
    every: str,
    output: str | None,
    plot: str | None,
    storage: dict[str, str],
) -> None:
    """Measure how far consumer groups are behind, and whether they catch up."""
    with usage_errors():
        settings = pipeline.LagSettings(
            servers="",
            groups=() if all_groups else groups,
            duration_s=seconds("--for", duration) if duration else 0,
            interval_s=seconds("--every", every),
            output=output,
            plot=plot,
            storage=storage,
        )
        settings.check()
    servers = bootstrap_servers(launch.bootstrap, launch.data)
    settings = replace(settings, servers=servers, connector=connector())
    if not settings.duration_s:  # with --for, a group may commit its first offset later
        run_with_client(partial(_require, names=settings.groups), settings.servers)
    launch.run(
        "lag",
        lambda spark, report: pipeline.run(spark, settings, report),
        brokers=[settings.servers],
    )
