"""The option `--plot`, for commands that can plot their result."""

from __future__ import annotations

import click

from minikafka.cli.arguments.options import not_blank

plot_option = click.option(
    "--plot",
    metavar="FILE",
    callback=not_blank,
    help="Draw the result: a picture (.png), or a page that needs no network (.html).",
)
