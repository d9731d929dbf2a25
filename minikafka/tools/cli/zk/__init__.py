"""`minikafka zk`: move ZooKeeper's data between minikafka's own server and Apache ZooKeeper, or rebuild them."""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "export": Entry(
        "export", "Copy the data of minikafka's ZooKeeper server for Apache ZooKeeper."
    ),
    "import": Entry("import_", "Copy the data of an Apache ZooKeeper server for minikafka's."),
    "recover": Entry("recover", "Rebuild lost data from the log directories of all brokers."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def zk() -> None:
    """Move ZooKeeper's data to and from Apache ZooKeeper, or rebuild them."""
