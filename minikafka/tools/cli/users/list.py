"""`users list`."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import click

from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cli.users.options import report_failures

_USERS: Final = (
    Column("USER", "user", itemgetter(0)),
    Column("MECHANISM", "mechanism", itemgetter(1)),
    Column("ITERATIONS", "iterations", itemgetter(2)),
)


@click.command("list")
@click.argument("users", nargs=-1, metavar="[USER]...")
@client_options
def list_(users: tuple[str, ...]) -> None:
    """Show the SCRAM mechanisms of users, by default of all users."""
    found = run_with_client(lambda client: client.users.describe(users or None))
    rows = [
        (name, info.mechanism, info.iterations)
        for name, user in sorted(found.items())
        for info in user.credentials
    ]
    none = [] if users else ["There are no users with SCRAM."]
    show(objects(_USERS, rows), lines(_USERS, rows) if rows else none)
    report_failures({name: user.outcome for name, user in found.items()})
