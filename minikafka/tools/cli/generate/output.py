"""The option `--output` of `minikafka generate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.arguments.options import not_blank
from minikafka.tools.cli.terminal.echo import echo

output_option: Final = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    callback=not_blank,
    help="Write FILE, or replace it, instead of printing to standard output.",
)


def write(text: str, output: str | None) -> None:
    """Print a generated text, or write it to the file `output`. Readers see the old or the new file.

    Raises MinikafkaError if the file cannot be written.
    """
    if output is None:
        echo(*text.splitlines())
        return
    made = Path(f"{output}.tmp")
    try:
        made.write_text(text, "utf-8")
        os.replace(made, output)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise MinikafkaError(f"{output} cannot be written: {error.strerror}") from None
    echo(f"{output} was written", err=True)
