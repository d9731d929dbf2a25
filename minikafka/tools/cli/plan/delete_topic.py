"""`plan delete-topic`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.options import (
    connection_options,
    timeout_option,
    topics_argument,
)
from minikafka.tools.cli.plan.answer import answer, verbose_option
from minikafka.tools.cli.terminal.echo import json_option


@click.command("delete-topic")
@topics_argument(required=True)
@connection_options
@timeout_option
@verbose_option
@json_option
def delete_topic(
    topics: tuple[str, ...], bootstrap: str | None, data: str | None, verbose: bool
) -> None:
    """Show the effects of deleting these topics."""
    answer({"operation": "delete-topic", "topics": list(topics)}, bootstrap, data, verbose)
