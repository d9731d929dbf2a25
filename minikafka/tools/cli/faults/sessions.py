"""`faults expire-session` and `lose-coordinator`, which also work without `up --faults`."""

from __future__ import annotations

import click

from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.faults.arguments import broker_argument, done, fault_command


@click.command()
@broker_argument
@fault_command
def expire_session(broker: int, data: str | None) -> None:
    """End the ZooKeeper session of the broker ID, as an expiry does. The broker registers again."""
    run(find_cluster(data).expire_session(broker))
    done(f"the session of broker {broker} has ended", {"broker": broker})


@click.command()
@click.argument("group", required=False, metavar="[GROUP]", shell_complete=completion.groups)
@click.option(
    "--transactional-id",
    metavar="ID",
    shell_complete=completion.transactions,
    help="Of this transactional id, not of a group.",
)
@click.option("--pause", is_flag=True, help="Pause the broker instead.")
@fault_command
def lose_coordinator(
    group: str | None, transactional_id: str | None, pause: bool, data: str | None
) -> None:
    """Kill the broker that coordinates GROUP, and print its id."""
    found = find_cluster(data)
    work = found.lose_coordinator(group, transactional_id=transactional_id, pause=pause)
    broker = run(work)
    what = "is paused" if pause else "was killed"
    done(f"broker {broker}, the coordinator, {what}", {"broker": broker})
