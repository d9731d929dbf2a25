"""`stop`: stop one broker, or ZooKeeper."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.completion import ZOOKEEPER
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.process_argument import ProcessName, process_argument, shown
from minikafka.tools.cli.processes.waits import until_ended, until_zookeeper_ended
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@process_argument
@needs_machine("stops a process")
@timeout_option
def stop(process: ProcessName, data: str | None) -> None:
    """Stop the broker ID after it has handed over its leaderships (controlled shutdown), or stop ZooKeeper."""
    found = find_cluster(data)
    if process == ZOOKEEPER:
        run(found.stop_zookeeper(), reason=until_zookeeper_ended())
    else:
        broker_id = int(process)
        what = "hand over its leaderships and close its logs"
        run(found.stop(broker_id), reason=until_ended(found, data, [broker_id], what))
    echo(f"{shown(process)} has stopped", err=True)
