"""`down`: stop all processes of a cluster."""

from __future__ import annotations

import click

import minikafka.runtime.clock as clocks
import minikafka.tools.console.standby as standby
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.waits import until_ended
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@needs_machine("ends processes")
@timeout_option
def down(data: str | None) -> None:
    """Stop all brokers, the ZooKeeper and the console of the cluster; keep the data."""
    found = find_cluster(data)
    ids = [broker.id for broker in found.record.brokers]
    run(found.stop(), reason=until_ended(found, data, ids, "close its logs"))
    run(standby.stop(found.directory, clocks.SystemClock()))
    echo(f"{found.directory.path}: all processes have stopped", err=True)
