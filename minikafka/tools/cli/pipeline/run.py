"""`minikafka pipeline run`: run a pipeline that a TOML file describes."""

from __future__ import annotations

from pathlib import Path

import click

import minikafka.spark.pipelines.run.definition as definitions
import minikafka.spark.pipelines.run.pipeline as pipeline
import minikafka.spark.pipelines.streams.streams as streams
from minikafka.tools.cli.arguments.config_files import read_config
from minikafka.tools.cli.arguments.options import EXISTING_FILE, not_blank
from minikafka.tools.cli.pipeline.launch import Launch, launch_options, metrics_option, usage_errors


@click.command()
@click.argument("file", metavar="FILE", type=EXISTING_FILE)
@click.option(
    "--checkpoint",
    metavar="DIR",
    callback=not_blank,
    help="Directory with the progress (default: that of the file).",
)
@click.option(
    "--available-now/--continuous",
    "available_now",
    default=None,
    help="End after the records that exist at the start, or run until Ctrl-C (default: the file's trigger).",
)
@metrics_option
@launch_options
def run(launch: Launch, file: str, checkpoint: str | None, available_now: bool | None) -> None:
    """Run the pipeline that FILE describes: sources, SQL steps and a sink (docs/pipelines.md)."""
    triggers = {None: None, True: streams.AVAILABLE_NOW, False: streams.CONTINUOUS}
    trigger = triggers[available_now]
    given = definitions.Overrides(launch.servers, trigger, checkpoint, launch.security)
    with usage_errors():
        text = read_config(Path(file), "name the TOML file of a pipeline")
        definition = definitions.parse(text, file, given)
    security = launch.security()
    launch.run(
        definition.name,
        lambda spark, report: pipeline.run(spark, definition, report),
        brokers=definitions.brokers_at_start(definition, security),
        topics=definitions.topics_at_start(definition, security),
        check=lambda: definitions.check_sink(definition),
    )
