"""`plan kill-broker`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.plan.answer import answer, verbose_option
from minikafka.tools.cli.terminal.echo import json_option


@click.command("kill-broker")
@click.argument("broker_id", type=int, metavar="ID", shell_complete=completion.brokers)
@connection_options
@timeout_option
@verbose_option
@json_option
def kill_broker(broker_id: int, bootstrap: str | None, data: str | None, verbose: bool) -> None:
    """Show the effects of the death of broker ID."""
    answer({"operation": "kill-broker", "broker": broker_id}, bootstrap, data, verbose)
