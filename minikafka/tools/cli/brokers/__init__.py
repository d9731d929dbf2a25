"""`minikafka brokers`: the brokers that a cluster without a controller has (C26).

Exit code 0: the broker has a queue of requests, or none any more. Exit code 1: the broker cannot be removed, it is
unknown, the cluster has a controller, or ZooKeeper does not answer.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "add": Entry("add", "Create the queue of a broker that has not started yet."),
    "remove": Entry("remove", "Remove the queue of a broker that has no replicas."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def brokers() -> None:
    """Add or remove a broker of a cluster without a controller (minikafka.coordination=leaders)."""
