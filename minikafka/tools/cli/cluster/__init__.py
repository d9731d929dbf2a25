"""`minikafka cluster`."""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "describe": Entry("describe", "Show the controller, brokers, epochs and log directories."),
    "health": Entry("health", "Find what is down, offline or under-replicated."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def cluster() -> None:
    """Describe the cluster, or check its health."""
