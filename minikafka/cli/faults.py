"""`kill`, `pause`, `resume`: faults of single brokers, to see how the cluster reacts."""

from __future__ import annotations

import click

from minikafka.cli.execution import run
from minikafka.cli.find_cluster import find_cluster
from minikafka.cli.options import data_option, timeout_option


@click.command()
@click.argument("broker_id", type=int, metavar="ID")
@data_option
@timeout_option
def kill(broker_id: int, data: str | None) -> None:
    """Kill the broker ID with SIGKILL, so that it neither hands over its leaderships nor closes its files."""
    run(find_cluster(data).kill(broker_id))
    click.echo(f"broker {broker_id} was killed", err=True)


@click.command()
@click.argument("broker_id", type=int, metavar="ID")
@data_option
@timeout_option
def pause(broker_id: int, data: str | None) -> None:
    """Pause the broker ID with SIGSTOP: it keeps its connections and answers nothing."""
    run(find_cluster(data).pause(broker_id))
    click.echo(f"broker {broker_id} is paused", err=True)


@click.command()
@click.argument("broker_id", type=int, metavar="ID")
@data_option
@timeout_option
def resume(broker_id: int, data: str | None) -> None:
    """Let the paused broker ID continue, with SIGCONT."""
    run(find_cluster(data).resume(broker_id))
    click.echo(f"broker {broker_id} continues", err=True)
