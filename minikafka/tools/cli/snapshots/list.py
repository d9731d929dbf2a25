"""`snapshots list`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine
from minikafka.tools.cli.snapshots.table import SNAPSHOTS
from minikafka.tools.cli.terminal.columns import lines, objects
from minikafka.tools.cli.terminal.echo import json_option, show


@click.command("list")
@needs_machine("reads the data directory")
@json_option
def list_(data: str | None) -> None:
    """Show the snapshots of the cluster, the oldest first."""
    found = find_cluster(data)
    rows = found.snapshots()
    none = [f"There are no snapshots in {found.directory.path}."]
    show(objects(SNAPSHOTS, rows), lines(SNAPSHOTS, rows) if rows else none)
