"""`minikafka users`: the users who log in with SCRAM, whose credentials are in ZooKeeper."""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "add": Entry("add", "Create a user, or give it another password."),
    "list": Entry("list", "Show users with their mechanisms."),
    "remove": Entry("remove", "Remove the credentials of users."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def users() -> None:
    """Show, add and remove users who log in with SCRAM."""
