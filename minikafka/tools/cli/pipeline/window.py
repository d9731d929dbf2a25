"""`minikafka pipeline window`: count records per window of time."""

from __future__ import annotations

from dataclasses import replace

import click

import minikafka.spark.pipelines.streams.streams as streams
import minikafka.spark.pipelines.window.pipeline as pipeline
import minikafka.spark.pipelines.window.settings as window_settings
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.options import not_blank, topics_argument
from minikafka.tools.cli.pipeline.launch import (
    OUTPUT,
    Launch,
    continuous_option,
    launch_options,
    metrics_option,
    plot_option,
    seconds,
    skip_lost_option,
    storage_option,
    usage_errors,
)


@click.command()
@topics_argument(required=True)
@click.option(
    "--size", default="1m", show_default=True, metavar="DURATION", help="Length of a window."
)
@click.option(
    "--slide", metavar="DURATION", help="Time between the starts of two windows (default: --size)."
)
@click.option(
    "--by",
    metavar="WHAT",
    callback=not_blank,
    help="Count by key, topic, partition, or a field of JSON values ($.field).",
)
@click.option(
    "--value",
    metavar="$.FIELD",
    callback=not_blank,
    help="Number field of JSON values: also show its sum, min and max.",
)
@click.option(
    "--time",
    metavar="$.FIELD",
    callback=not_blank,
    help="Time field of JSON values, Unix ms or ISO 8601 (default: the record's timestamp).",
)
@click.option(
    "--parquet",
    type=OUTPUT,
    metavar="DIR",
    callback=not_blank,
    help="Write the windows as Parquet to a directory or URI.",
)
@storage_option
@click.option(
    "--to",
    metavar="TOPIC",
    callback=not_blank,
    shell_complete=completion.topics,
    help="Write the windows as JSON.",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    callback=not_blank,
    help="Run as a stream: write a window once the watermark has passed it; the next run continues from DIR.",
)
@click.option(
    "--watermark",
    metavar="DURATION",
    help="With --checkpoint: how long a window waits for late records (default: 10m).",
)
@click.option(
    "--dead-letter",
    metavar="TOPIC",
    callback=not_blank,
    shell_complete=completion.topics,
    help="Write malformed records to this topic, with their place and the reason as headers.",
)
@skip_lost_option
@continuous_option
@plot_option
@metrics_option
@launch_options
def window(
    launch: Launch,
    topics: tuple[str, ...],
    size: str,
    slide: str | None,
    watermark: str | None,
    available_now: bool,
    checkpoint: str | None,
    skip_lost: bool,
    storage: dict[str, str],
    **rest: str | None,
) -> None:
    """Count records per window of time. Without --checkpoint, count all records that the topics hold now."""
    if watermark is not None and not checkpoint:
        raise click.UsageError("--watermark has no effect without --checkpoint")
    with usage_errors():
        settings = window_settings.WindowSettings(
            servers="",
            topics=topics,
            size_s=seconds("--size", size),
            slide_s=seconds("--slide", slide) if slide is not None else None,
            watermark_s=seconds("--watermark", "10m" if watermark is None else watermark),
            checkpoint=checkpoint,
            skip_lost=skip_lost,
            storage=storage,
            trigger=streams.AVAILABLE_NOW if available_now else streams.CONTINUOUS,
            security={},
            **rest,
        )
        settings.check()
    settings = replace(settings, servers=launch.servers(), security=launch.security())
    needed = (*topics, settings.dead_letter) if settings.dead_letter else topics
    launch.run(
        "window",
        lambda spark, report: pipeline.run(spark, settings, report),
        brokers=[settings.servers],
        topics=[(settings.servers, needed)],
    )
