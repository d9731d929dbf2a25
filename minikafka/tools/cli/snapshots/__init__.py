"""Snapshots of a whole cluster: `minikafka snapshot`, `minikafka restore`, and `minikafka snapshots`."""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "list": Entry("list", "Show the snapshots, the oldest first."),
    "remove": Entry("remove", "Remove snapshots."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def snapshots() -> None:
    """Show and remove the snapshots of a cluster."""
