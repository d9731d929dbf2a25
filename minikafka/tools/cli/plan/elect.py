"""`plan elect`."""

from __future__ import annotations

from typing import Any

import click

from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.arguments.partition_arguments import Named, partitions_argument
from minikafka.tools.cli.plan.answer import answer, verbose_option
from minikafka.tools.cli.terminal.echo import json_option


@click.command()
@partitions_argument
@click.option("--preferred", is_flag=True, help="Elect preferred leaders (the default).")
@click.option("--unclean", is_flag=True, help="Allow leaders outside the ISR.")
@connection_options
@timeout_option
@verbose_option
@json_option
def elect(
    named: Named,
    preferred: bool,
    unclean: bool,
    bootstrap: str | None,
    data: str | None,
    verbose: bool,
) -> None:
    """Show the effects of an election of leaders for these partitions or topics (default: all)."""
    if preferred and unclean:
        raise click.UsageError("--preferred and --unclean cannot be combined")
    question: dict[str, Any] = {"operation": "elect", "unclean": unclean, "partitions": None}
    if named.partitions:
        question["partitions"] = list(named.partitions)
    elif named.topics:
        question["topics"] = list(named.topics)
    answer(question, bootstrap, data, verbose)
