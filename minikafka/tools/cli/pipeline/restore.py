"""`minikafka pipeline restore`: write an archived topic back into a topic."""

from __future__ import annotations

import click

import minikafka.spark.pipelines.restore as pipeline
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.command_config import connector
from minikafka.tools.cli.arguments.options import not_blank, topic_argument
from minikafka.tools.cli.pipeline.launch import (
    INPUT,
    Launch,
    launch_options,
    storage_option,
    usage_errors,
)
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@topic_argument
@click.option(
    "--from",
    "directory",
    required=True,
    type=INPUT,
    metavar="DIR",
    callback=not_blank,
    help="Directory or URI of the archive.",
)
@storage_option
@click.option(
    "--to",
    metavar="TOPIC",
    callback=not_blank,
    shell_complete=completion.topics,
    help="Topic to write (default: TOPIC).",
)
@click.option(
    "--append",
    is_flag=True,
    help="Write after the records that the topic already holds, instead of failing.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Codec of the record batches.",
)
@launch_options
def restore(
    launch: Launch,
    topic: str,
    directory: str,
    storage: dict[str, str],
    to: str | None,
    append: bool,
    compression: str,
) -> None:
    """Write an archived topic into a topic. Records, timestamps, partitions and order stay the same.

    Prints the new offsets for each range of old offsets. The topic is then read back: exit code 1 if its records
    differ from the archive.
    """
    settings = pipeline.RestoreSettings(
        servers=launch.servers(),
        directory=directory,
        topic=topic,
        to=to or topic,
        append=append,
        compression=compression,
        storage=storage,
        security=launch.security(),
        connector=connector(),
    )
    with usage_errors():
        settings.archive()
    try:
        launch.run(
            f"restore of {topic}",
            lambda spark, report: pipeline.run(spark, settings, report),
            brokers=[settings.servers],
            topics=[(settings.servers, [settings.to])],
            check=lambda: pipeline.archived(settings),
        )
    except KeyboardInterrupt:
        text = f"{settings.to} may hold an incomplete copy: restore to a new topic"
        echo(f"interrupted: {text}", err=True)
        raise
