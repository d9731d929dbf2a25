"""`restore`: bring a whole cluster back to a snapshot."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.waits import LATE, start_timeout_ms, until_serving
from minikafka.tools.cli.terminal.echo import echo


@click.command()
@click.argument("name")
@needs_machine("replaces the data directories of brokers")
@timeout_option
def restore(name: str, data: str | None) -> None:
    """Kill all brokers and ZooKeeper, bring their data back to the snapshot NAME, and start all again.

    What was written after the snapshot is lost. Ids, ports and secrets stay.
    """
    found = find_cluster(data)
    reason = until_serving(found, data)
    run(found.restore(name, timeout_ms=start_timeout_ms()), late=LATE, reason=reason)
    echo(f"snapshot {name} is restored; brokers serve on {found.record.bootstrap}", err=True)
