"""`minikafka pipeline package`: write archives for a Spark cluster without an installed minikafka."""

from __future__ import annotations

from pathlib import Path

import click

import minikafka.spark.pipelines.package as pipeline
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    default=".",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory to write to.",
)
@click.option(
    "--libraries",
    is_flag=True,
    help="Also pack this machine's pyarrow, numpy and fastcrc, for workers without them.",
)
def package(output: Path, libraries: bool) -> None:
    """Write minikafka-spark.zip, and print the command that submits a job with it."""
    try:
        written = pipeline.write_package(output, with_libraries=libraries)
    except OSError as error:
        raise MinikafkaError(f"cannot write to {output}: {error.strerror}") from error
    for path in filter(None, (written.code, written.libraries)):
        echo(f"{path} ({path.stat().st_size / 1e6:,.1f} MB)")
    echo("", "Submit a job with:", "")
    echo(written.submit_command("spark://HOST:7077", "JOB.py"))
