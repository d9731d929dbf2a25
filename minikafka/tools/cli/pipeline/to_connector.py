"""`minikafka pipeline to-connector`: prepare a checkpoint for Spark's own Kafka connector."""

from __future__ import annotations

import click

import minikafka.spark.pipelines.to_connector as pipeline
from minikafka.tools.cli.pipeline.launch import require_spark
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT")
def to_connector(checkpoint: str) -> None:
    """Rewrite a checkpoint so that Spark's own Kafka connector continues it.

    CHECKPOINT is the checkpointLocation of a query with format("minikafka"), a path or a URL. Stop the query first.
    Then change its format to kafka. format("minikafka") also continues the query afterwards.
    """
    require_spark()
    changed = pipeline.rewrite_offsets(checkpoint)
    if changed:
        echo(f"{checkpoint}: rewrote {', '.join(changed)}")
    else:
        echo(f"{checkpoint} already has only offsets that Spark's Kafka connector reads")
