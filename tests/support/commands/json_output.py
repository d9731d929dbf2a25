"""Jobs of commands that a test runs without the command line, with the output of `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from minikafka.tools.cli.terminal.echo import json_option


@contextmanager
def json_output(wanted: bool = True) -> Iterator[None]:
    """Print results as JSON in the `with` block, if `wanted`."""
    command = json_option(click.Command("job"))
    with command.make_context("job", ["--json"] if wanted else []):
        yield
