"""`snapshots remove`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@needs_machine("removes a part of the data directory")
def remove(names: tuple[str, ...], data: str | None) -> None:
    """Remove the snapshots that NAME names; the cluster is not changed."""
    found = find_cluster(data)
    for name in names:
        found.remove_snapshot(name)
        echo(f"Removed snapshot {name}.")
