"""`minikafka quotas`: limits of users, client ids and addresses.

The options have the names of kafka-configs.sh.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "list": Entry("list", "Show quotas."),
    "set": Entry("set", "Set or remove quotas of one owner."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def quotas() -> None:
    """Show and set quotas of users, client ids and addresses."""
