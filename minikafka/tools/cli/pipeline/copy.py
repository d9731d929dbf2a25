"""`minikafka pipeline copy`: copy topics to a topic of the same cluster or of another cluster."""

from __future__ import annotations

from functools import partial

import click

import minikafka.spark.pipelines.copy as pipeline
import minikafka.spark.pipelines.streams.streams as streams
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.options import not_blank
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.pipeline.launch import (
    InvalidInput,
    Launch,
    checkpoint_option,
    continuous_option,
    launch_options,
    metrics_option,
    skip_lost_option,
    usage_errors,
)


@click.command()
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=completion.topics
)
@click.option(
    "--to",
    required=True,
    metavar="TOPIC",
    callback=not_blank,
    shell_complete=completion.topics,
    help="Topic to write.",
)
@click.option(
    "--from-bootstrap", metavar="HOST:PORT,...", help="Brokers to read from (default: --bootstrap)."
)
@click.option(
    "--to-bootstrap", metavar="HOST:PORT,...", help="Brokers to write to (default: --bootstrap)."
)
@click.option(
    "--sql",
    metavar="QUERY",
    help="SQL query that computes the records to write from the view `source`.",
)
@click.option(
    "--keep-partitions",
    is_flag=True,
    help="Write each record to the partition number that it has in its source topic.",
)
@click.option(
    "--origin-header",
    metavar="KEY",
    callback=not_blank,
    help="Add a header that names the origin of each record (docs/spark.md).",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Codec of the written batches.",
)
@click.option(
    "--at-least-once",
    is_flag=True,
    help="Write without transactions: faster, but a crash may repeat records.",
)
@checkpoint_option
@skip_lost_option
@continuous_option
@metrics_option
@launch_options
def copy(
    launch: Launch,
    topics: tuple[str, ...],
    to: str,
    from_bootstrap: str | None,
    to_bootstrap: str | None,
    sql: str | None,
    keep_partitions: bool,
    origin_header: str | None,
    compression: str,
    at_least_once: bool,
    checkpoint: str,
    skip_lost: bool,
    available_now: bool,
) -> None:
    """Copy topics to a topic: records unchanged, or the result of a query.

    The view `source` of the query has the columns key, value, topic, partition, offset, timestamp,
    timestampType and headers; its result needs a column value, and may have key, headers, partition and
    timestamp.
    """
    if sql is not None and keep_partitions:
        raise click.UsageError(
            "--keep-partitions has no effect with --sql: select the column partition"
        )

    settings = pipeline.CopySettings(
        topics=topics,
        to=to,
        from_servers=launch.servers(from_bootstrap),
        to_servers=launch.servers(to_bootstrap),
        checkpoint=checkpoint,
        skip_lost=skip_lost,
        sql=sql,
        keep_partitions=keep_partitions,
        origin_header=origin_header,
        compression=compression,
        exactly_once=False if at_least_once else None,
        trigger=streams.AVAILABLE_NOW if available_now else streams.CONTINUOUS,
        security=launch.security(),
    )
    with usage_errors():
        pipeline.definition_of(settings)
    launch.run(
        f"copy to {to}",
        lambda spark, report: pipeline.run(spark, settings, report),
        brokers=[settings.from_servers, settings.to_servers],
        topics=[(settings.from_servers, topics)],
        check=partial(_check_clusters, settings),
    )


def _check_clusters(settings: pipeline.CopySettings) -> None:
    """Raise a usage error if a topic would be copied to itself because two addresses lead to one cluster."""
    addresses = settings.from_servers, settings.to_servers
    if settings.to not in settings.topics:
        return
    clusters = (run_with_client(lambda client: client.describe_cluster(), one) for one in addresses)
    if len({one.cluster_id for one in clusters}) == 1:
        text = f"{' and '.join(addresses)} are one cluster: {settings.to} would be copied to itself"
        raise InvalidInput(f"{text}: name another topic with --to")
