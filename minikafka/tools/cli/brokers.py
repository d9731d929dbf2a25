"""`brokers add | remove`: the brokers that a cluster without a controller has (C26).

Exit code 0: the broker has a queue of requests, or none any more. Exit code 1: the broker cannot be removed, it is
unknown, the cluster has a controller, or ZooKeeper does not answer.
"""

from __future__ import annotations

from typing import Final

import click

import minikafka.tools.cluster.zookeeper.broker_list as broker_list
import minikafka.tools.cluster.zookeeper.session as session
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import zookeeper_servers
from minikafka.tools.cli.arguments.options import data_option, not_blank, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.command_group import CommandGroup
from minikafka.tools.cli.terminal.echo import json_option, show

_ID_MAX: Final = 2**31 - 1

_id_argument = click.argument(
    "broker_id",
    type=click.IntRange(0, _ID_MAX),
    metavar="ID",
    shell_complete=completion.brokers,
)
_zookeeper_option = click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    callback=not_blank,
    help="ZooKeeper of the cluster (default: that of the cluster in --data).",
)


@click.group(cls=CommandGroup)
def brokers() -> None:
    """Add or remove a broker of a cluster without a controller (minikafka.coordination=leaders)."""


@brokers.command(short_help="Create the queue of a broker that has not started yet.")
@_id_argument
@_zookeeper_option
@data_option
@timeout_option
@json_option
def add(broker_id: int, zookeeper: str | None, data: str | None) -> None:
    """Create the queue of requests of broker ID, so that it can get replicas before its first start."""
    is_new = run(_add(zookeeper_servers(zookeeper or "", None, data), broker_id))
    text = "was added" if is_new else "was already added"
    result = "added" if is_new else "exists"
    show({"broker": broker_id, "result": result}, [f"broker {broker_id} {text}"])


@brokers.command(short_help="Remove the queue of a broker that has no replicas.")
@_id_argument
@_zookeeper_option
@data_option
@timeout_option
@json_option
def remove(broker_id: int, zookeeper: str | None, data: str | None) -> None:
    """Remove broker ID with its queue of requests. It must be stopped, and its partitions reassigned."""
    run(_remove(zookeeper_servers(zookeeper or "", None, data), broker_id))
    shown = {"broker": broker_id, "result": "removed"}
    show(shown, [f"broker {broker_id} was removed"])


async def _add(connect: str, broker_id: int) -> bool:
    async with session.zookeeper_session(connect, SystemClock(), SystemRng()) as zookeeper:
        return await broker_list.add(zookeeper, broker_id)


async def _remove(connect: str, broker_id: int) -> None:
    async with session.zookeeper_session(connect, SystemClock(), SystemRng()) as zookeeper:
        await broker_list.remove(zookeeper, broker_id)
